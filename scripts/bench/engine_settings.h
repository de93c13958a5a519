/* The options of bench_engine, whose head says what they mean. */
#ifndef QUIRE_SCRIPTS_BENCH_ENGINE_SETTINGS_H
#define QUIRE_SCRIPTS_BENCH_ENGINE_SETTINGS_H

#include <stdint.h>

#define ENGINE_SETTINGS_MAX_LIST 16
#define ENGINE_SETTINGS_MAX_NAME 32
#define ENGINE_SETTINGS_MAX_CONCURRENCY 4096
#define ENGINE_SETTINGS_LEAST_TOKENS 4 /* of a length that is drawn at random */

struct engine_workload {
    char name[ENGINE_SETTINGS_MAX_NAME];
    int32_t tokens_in, tokens_out; /* 0: as of ShareGPT */
    int32_t most_tokens;           /* then */
};

struct engine_settings {
    int num_concurrencies;
    int32_t concurrencies[ENGINE_SETTINGS_MAX_LIST];
    int num_workloads;
    struct engine_workload workloads[ENGINE_SETTINGS_MAX_LIST];
    int64_t requests, seconds, temperature, top_p, seed;
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens, kv_mib;
    int64_t batch_invariant, async_scheduling;
};

/* Reads `DEVICE TYPE MODEL [OPTION VALUE]...`, of which only the options are kept. Ends the program
 * with status 1 and a line that names the option when a value is out of its range. */
void engine_settings_read(int argc, char **argv, struct engine_settings *out);

#endif
