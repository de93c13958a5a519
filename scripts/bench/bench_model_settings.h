/* Private to bench_model: what it is asked to measure (bench_model.c has the list of options). */
#ifndef QUIRE_SCRIPTS_BENCH_BENCH_MODEL_SETTINGS_H
#define QUIRE_SCRIPTS_BENCH_BENCH_MODEL_SETTINGS_H

#include "config/serving_limits.h"
#include "scripts/bench/bench_model_steps.h"

enum { BENCH_MODEL_MAX_LIST = 16 };

/* The option "replay". */
enum { BENCH_MODEL_OP_BY_OP, BENCH_MODEL_REPLAYED, BENCH_MODEL_BOTH };

struct bench_model_list {
    int num_values;
    int32_t values[BENCH_MODEL_MAX_LIST];
};

struct bench_model_settings {
    struct bench_model_list batches, contexts, prompts, mixed;
    int64_t mixed_seqs, mixed_context; /* 0: there are no mixed steps */
    int num_samplings;
    enum bench_model_sampling samplings[NUM_SAMPLINGS];
    int64_t pool_mib, batch_us, batch_invariant, replay;
    int64_t adapters, adapter_rank; /* 0: none */
    const char *kv_type;            /* NULL: as the activations */
    const char *isa;                /* NULL: what is fastest */
};

/* Reads the program's arguments from the fourth on; ends it where they are wrong. */
void bench_model_settings_read(struct bench_model_settings *s, int argc, char **argv);

/* Of the steps that are asked for, and of one of one token. */
struct serving_limits bench_model_settings_limits(const struct bench_model_settings *s,
                                                  int32_t vocab_size);

#endif
