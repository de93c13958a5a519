#include "kernels/cpu/levels/cpu_attention_tile.h"
#include "kernels/cpu/levels/cpu_probe.h"
#include "kernels/cpu/levels/cpu_probe_private.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_DIM 64
#define NUM_HEADS 3
#define MOST_TOKENS 8
#define ROWS 32 /* of MOST_TOKENS, rounded up to ATTENTION_ROW_STEP */
#define NUM_GROUPS (ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS)

/* What a tile of one chunk reads and writes. */
struct probe_memory {
    float keys[ATTENTION_CHUNK * HEAD_DIM], values[ATTENTION_CHUNK * HEAD_DIM];
    float ones[KV_GROUP];
    float queries[ROWS * ATTENTION_QUERY_STRIDE], query_scales[ROWS];
    int32_t query_starts[ROWS];
    float scores[ROWS * ATTENTION_STEP], sums[ROWS * 16], peaks[ROWS], decays[ROWS];
    float out[ROWS * HEAD_DIM], sum[ROWS], max[ROWS + ATTENTION_ROW_STEP];
    int16_t query_codes[ROWS * ATTENTION_QUERY_STRIDE];
    int32_t fixed_keys[HEAD_DIM / 2 * ATTENTION_STEP], fixed_values[ATTENTION_STEP / 2 * HEAD_DIM];
    float key_scales[ATTENTION_STEP], value_scales[HEAD_DIM], factors[ROWS];
};

/* Elements are zeros, which no instruction takes longer for. */
static void load_tile(struct probe_memory *m, const struct cpu_attention_kernels *kernels,
                      int32_t num_tokens, struct attention_tile *tile) {
    *tile = (struct attention_tile){
        .head_dim = HEAD_DIM,
        .value_dim = HEAD_DIM,
        .stride = HEAD_DIM,
        .num_heads = NUM_HEADS,
        .num_tokens = num_tokens,
        .first_length = ATTENTION_CHUNK,
        .window = INT32_MAX,
        .queries = {.rows = m->queries,
                    .scales = m->query_scales,
                    .starts = m->query_starts,
                    .codes = m->query_codes},
        .scores = m->scores,
        .sums = m->sums,
        .peaks = m->peaks,
        .decays = m->decays,
        .fixed = {m->fixed_keys, m->fixed_values, m->key_scales, m->value_scales, m->factors},
        .state = {.max = m->max, .sum = m->sum, .out = m->out}};
    for (size_t g = 0; g < NUM_GROUPS; g++) {
        size_t at = g % ATTENTION_CHUNK_GROUPS * KV_GROUP * HEAD_DIM;
        tile->k[g] = m->keys + at;
        tile->v[g] = m->values + at;
        tile->k_scales[g] = tile->v_scales[g] = m->ones;
    }
    for (int32_t r = 0; r < num_tokens * NUM_HEADS; r++)
        kernels->load_query(m->values, 1, HEAD_DIM, &tile->queries, r);
}

static double time_of(struct probe_memory *m, const struct cpu_attention_kernels *kernels,
                      int32_t num_tokens) {
    struct attention_tile tile;
    load_tile(m, kernels, num_tokens, &tile);
    double start = probe_now();
    kernels->attend(&tile);
    return probe_now() - start;
}

static bool is_faster(struct probe_memory *m, const struct cpu_attention_kernels *kernels,
                      const struct cpu_attention_kernels *other, int32_t num_tokens,
                      double margin) {
    double best = 1e9, best_other = 1e9;
    for (int i = 0; i < PROBE_RUNS; i++) {
        double seconds = time_of(m, kernels, num_tokens);
        double seconds_other = time_of(m, other, num_tokens);
        best = seconds < best ? seconds : best;
        best_other = seconds_other < best_other ? seconds_other : best_other;
    }
    return best * margin <= best_other;
}

bool cpu_probe_is_attention_faster(const struct cpu_attention_kernels *kernels,
                                   const struct cpu_attention_kernels *other) {
    struct probe_memory *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return false;
    for (int i = 0; i < KV_GROUP; i++)
        m->ones[i] = 1;
    bool result = is_faster(m, kernels, other, MOST_TOKENS, PROBE_MARGIN) &&
                  is_faster(m, kernels, other, 1, PROBE_ROW_MARGIN);
    free(m);
    return result;
}
