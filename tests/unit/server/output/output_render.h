/* What an output parser releases, written down as one text for tests to compare:
 * "|reasoning:...|content:...|call 0:name|arguments 0:...", neighbours of one kind joined. */
#ifndef QUIRE_TESTS_UNIT_SERVER_OUTPUT_RENDER_H
#define QUIRE_TESTS_UNIT_SERVER_OUTPUT_RENDER_H

#include "server/output/output_parser.h"

struct output_render {
    struct output_parser *parser;
    struct byte_buffer text;
    int last_kind; /* -1: nothing yet */
    int32_t last_index;
    struct byte_buffer reasoning, content; /* of those kinds alone */
    struct byte_buffer arguments;          /* likewise, each call's with its NUL */
};

/* Aborts when memory is short, like the functions below. */
void output_render_begin(struct output_render *render, const struct output_parser_config *config);
void output_render_push(struct output_render *render, const char *text, size_t length,
                        enum output_end how);
/* Returns whether the arguments of every call are one object, and strict JSON, at the text's
 * end. */
bool output_render_calls_are_whole(const struct output_render *render);
void output_render_finish(struct output_render *render);

#endif
