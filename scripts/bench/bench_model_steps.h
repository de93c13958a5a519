/* Private to bench_model: the steps that it measures, and their batches. */
#ifndef QUIRE_SCRIPTS_BENCH_BENCH_MODEL_STEPS_H
#define QUIRE_SCRIPTS_BENCH_BENCH_MODEL_STEPS_H

#include "models/batch.h"
#include "models/config/model.h"

enum { BENCH_MODEL_BLOCK_SIZE = 16 };

enum bench_model_sampling { SAMPLING_GREEDY, SAMPLING_TEMPERATURE, SAMPLING_TOP_P, NUM_SAMPLINGS };

/* "greedy"; "temperature": 1; "top-p": temperature 1, top_p 0.9. */
extern const char *const bench_model_sampling_names[NUM_SAMPLINGS];

struct bench_model_step {
    int32_t num_seqs, query, context; /* each sequence adds `query` tokens, the last of `context` */
    int32_t chunk; /* tokens of one more sequence, the first of its prompt, which samples nothing;
                      0: there is none */
    enum bench_model_sampling sampling;
};

int32_t bench_model_steps_blocks(const struct bench_model_step *step);
int32_t bench_model_steps_tokens(const struct bench_model_step *step);
/* All that such a step's attention multiplies: pairs of a query and a cached token. */
double bench_model_steps_pairs(const struct bench_model_step *step);
/* Tokens of the cache that it reads. */
double bench_model_steps_cached(const struct bench_model_step *step);

/* The batch on blocks 0, 1, 2, ..., with random token ids, and room for its result:
 * each row's token is -1 until it is sampled. */
void bench_model_steps_build(const struct bench_model_step *step, int32_t vocab_size,
                             struct batch *out_batch, struct step_result *out_result);
void bench_model_steps_free(struct batch *batch, struct step_result *result);

#endif
