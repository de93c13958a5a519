/* Texts of models with what they must come out as, in output_render's words. */
#ifndef QUIRE_TESTS_UNIT_SERVER_OUTPUT_CASES_H
#define QUIRE_TESTS_UNIT_SERVER_OUTPUT_CASES_H

#include "server/output/output_parser.h"

struct output_case {
    struct output_parser_config config;
    const char *text, *expected;
};

extern const struct output_case output_cases[];
extern const int num_output_cases;

#endif
