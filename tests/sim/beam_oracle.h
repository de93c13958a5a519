/* Beam search by its definition: Transformers' rules (GenerationMixin._beam_search, version 5) over
 * every continuation of every beam by every token of the fake model. Shares no code with
 * engine/sequence/beam_search.c. */
#ifndef QUIRE_TESTS_SIM_BEAM_ORACLE_H
#define QUIRE_TESTS_SIM_BEAM_ORACLE_H

#include "engine/request/request.h"

#include <stdint.h>

struct beam_oracle_path {
    int32_t *tokens; /* generated */
    int32_t count;
    uint64_t history; /* prompt and tokens */
    double sum;       /* of logprobs */
    double score;     /* of a finished one */
};

/* The finished paths, best first, of a search that ends at max_tokens >= 1 generated tokens: writes
 * request->params.beam_width of them to out, whose tokens the caller frees. Returns how many. */
int32_t beam_oracle_run(const struct request *request, int32_t max_tokens,
                        struct beam_oracle_path *out);

#endif
