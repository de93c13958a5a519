/* Requests drawn from a seed. */
#ifndef QUIRE_TESTS_SIM_RANDOM_REQUEST_H
#define QUIRE_TESTS_SIM_RANDOM_REQUEST_H

#include "engine/request.h"

/* A small generator: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
 * generators, scrambled", 2016). The state is never 0. */
struct random {
    uint64_t state;
};

struct random random_from(uint64_t seed);
uint64_t random_next(struct random *random);
/* low..high, both included. */
int32_t random_range(struct random *random, int32_t low, int32_t high);
/* True once in n times. */
bool random_once_in(struct random *random, int32_t n);

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
