#include "engine/executor/step_limits.h"

#include <string.h>

static const struct step_limits cpu_defaults = {64, 512, 64};
static const struct step_limits card_defaults = {256, 2048, 256};

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

int step_limits_choose(const char *device, int32_t max_num_seqs, int32_t max_num_batched_tokens,
                       struct step_limits *out, struct error *err) {
    struct step_limits limits = strncmp(device, "cuda", 4) == 0 ? card_defaults : cpu_defaults;
    int32_t seqs = max_num_seqs, tokens = max_num_batched_tokens;
    if (seqs == 0)
        seqs = tokens == 0 ? limits.max_num_seqs : smaller(limits.max_num_seqs, tokens);
    if (tokens == 0)
        tokens = larger(limits.max_num_batched_tokens, seqs);
    if (tokens < seqs)
        return error_set(err, ERROR_CONFIG,
                         "max-num-batched-tokens is %d, must be at least max-num-seqs, which is %d",
                         tokens, seqs);
    out->max_num_seqs = seqs;
    out->max_num_batched_tokens = tokens;
    out->max_logit_rows = smaller(limits.max_logit_rows, seqs);
    return 0;
}
