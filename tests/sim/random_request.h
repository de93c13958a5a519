/* Requests drawn from a seed. */
#ifndef QUIRE_TESTS_SIM_RANDOM_REQUEST_H
#define QUIRE_TESTS_SIM_RANDOM_REQUEST_H

#include "engine/request/request.h"
#include "tests/sim/random.h"

struct request_shape {
    int32_t max_prompt_tokens;
    int32_t max_output_tokens;
    int32_t max_choices;
    int32_t min_logprobs, max_logprobs; /* -1: none */
    bool grammars;                      /* some requests have one */
    bool long_outputs;                  /* most end by their length only */
    int32_t max_beam_width;             /* 0: no beam search */
    bool many_beams;                    /* every second request, not every fourth */
    /* Prompts begin like others: with a beginning, of random length, of one of so many texts. */
    int32_t num_texts; /* 0: all are different */
    uint64_t text_seed;
    int32_t num_tenants; /* 0, 1: one; some requests have a salt where there are texts */
};

struct request *random_request(struct random *random, const struct request_shape *shape);

#endif
