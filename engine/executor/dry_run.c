#include "engine/executor/dry_run.h"

#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "engine/executor/rank_moves.h"

#include <stdlib.h>
#include <string.h>

/* Arrays of a step; zeros mean token 0, block 0. The mask allows every token. */
struct arrays {
    int32_t *token_ids;
    int32_t *positions;
    int32_t *slot_mapping;
    int32_t *query_start;
    int32_t *context_lens;
    int32_t *block_tables;
    int32_t *logit_rows;
    struct sample_row *rows;
    uint32_t *mask;
    struct sample_output *outputs;
    float *listed_logprobs;
    struct row_span *hidden_spans;
    float *hidden_sums; /* zeros */
    float *new_hidden_sums;
};

static void free_arrays(struct arrays *a) {
    free(a->token_ids);
    free(a->positions);
    free(a->slot_mapping);
    free(a->query_start);
    free(a->context_lens);
    free(a->block_tables);
    free(a->logit_rows);
    free(a->rows);
    free(a->mask);
    free(a->outputs);
    free(a->listed_logprobs);
    free(a->hidden_spans);
    free(a->hidden_sums);
    free(a->new_hidden_sums);
}

static int alloc_arrays(struct arrays *a, const struct serving_limits *limits, size_t table_width,
                        size_t mask_words, struct error *err) {
    size_t tokens = (size_t)limits->max_num_batched_tokens, seqs = (size_t)limits->max_num_seqs;
    size_t table_entries, num_sums;
    *a = (struct arrays){
        .token_ids = calloc(tokens, sizeof(int32_t)),
        .positions = calloc(tokens, sizeof(int32_t)),
        .slot_mapping = calloc(tokens, sizeof(int32_t)),
        .query_start = calloc(seqs + 1, sizeof(int32_t)),
        .context_lens = calloc(seqs, sizeof(int32_t)),
        .logit_rows = calloc(seqs, sizeof(int32_t)),
        .rows = calloc(seqs, sizeof(struct sample_row)),
        .mask = calloc(mask_words, sizeof(uint32_t)),
        .outputs = calloc(seqs, sizeof(struct sample_output)),
        .listed_logprobs = calloc(seqs, sizeof(float)),
        .hidden_spans = calloc(seqs, sizeof(struct row_span)),
    };
    if (checked_mul(seqs, table_width, &table_entries))
        a->block_tables = calloc(table_entries, sizeof(int32_t));
    if (checked_mul(seqs, (size_t)limits->hidden_size, &num_sums)) {
        a->hidden_sums = calloc(num_sums, sizeof(float));
        a->new_hidden_sums = calloc(num_sums, sizeof(float));
    }
    if (a->token_ids != NULL && a->positions != NULL && a->slot_mapping != NULL &&
        a->query_start != NULL && a->context_lens != NULL && a->block_tables != NULL &&
        a->logit_rows != NULL && a->rows != NULL && a->mask != NULL && a->outputs != NULL &&
        a->listed_logprobs != NULL && a->hidden_spans != NULL && a->hidden_sums != NULL &&
        a->new_hidden_sums != NULL)
        return 0;
    free_arrays(a);
    return error_set(err, ERROR_MEMORY, "no memory for the arrays of a step of %d tokens",
                     limits->max_num_batched_tokens);
}

static const struct sample_row every_feature = {
    .target = SAMPLE_NO_TARGET,
    .num_logprobs = SAMPLE_MAX_LOGPROBS,
    .settings = SAMPLING_SETTINGS_ALL_STEPS,
    .num_counts = 1,
    .num_biases = 1,
    .mask = 0,
    .num_listed = 1,
};

/* Shares num_tokens out as evenly as it goes. */
static void fill(struct arrays *a, const struct serving_limits *limits, int32_t num_tokens,
                 int32_t num_seqs) {
    int32_t each = num_tokens / num_seqs, more = num_tokens % num_seqs;
    int32_t token = 0;
    for (int32_t s = 0; s < num_seqs; s++) {
        int32_t count = each + (s < more);
        a->context_lens[s] = s == 0 ? limits->max_model_len : count;
        for (int32_t i = 0; i < count; i++, token++) {
            a->positions[token] = a->context_lens[s] - count + i;
            a->slot_mapping[token] = a->positions[token] % limits->block_size;
        }
        a->hidden_spans[s] = (struct row_span){a->query_start[s], count};
        a->query_start[s + 1] = token;
        a->logit_rows[s] = token - 1;
        a->rows[s] = every_feature;
        a->rows[s].first_listed_logprob = s;
    }
}

static int run_step(struct backend *b, struct llama *llama, struct kv_cache *cache,
                    const struct serving_limits *limits, struct arrays *a, int32_t num_tokens,
                    struct error *err) {
    int32_t num_seqs = min_int32(num_tokens, limits->max_num_seqs);
    fill(a, limits, num_tokens, num_seqs);
    static const struct token_count count = {.token = 0, .output_count = 1};
    static const struct token_bias bias = {.token = 0, .bias = 1.0F};
    static const int32_t from = 0, to = 1, listed = 0;
    const struct batch batch = {
        .inputs = {.num_tokens = num_tokens,
                   .num_seqs = num_seqs,
                   .max_blocks_per_seq = serving_limits_max_blocks(limits),
                   .token_ids = a->token_ids,
                   .positions = a->positions,
                   .slot_mapping = a->slot_mapping,
                   .query_start = a->query_start,
                   .context_lens = a->context_lens,
                   .block_tables = a->block_tables},
        .copies = {.count = 1, .from = &from, .to = &to},
        .num_sample_rows = num_seqs,
        .logit_rows = a->logit_rows,
        .sample_rows = a->rows,
        .num_counts = 1,
        .token_counts = &count,
        .num_biases = 1,
        .token_biases = &bias,
        .num_hidden_sums = num_seqs,
        .hidden_spans = a->hidden_spans,
        .hidden_sums = a->hidden_sums,
        .num_listed = 1,
        .listed_tokens = &listed,
        .num_masks = 1,
        .token_masks = a->mask,
    };
    struct step_result result = {.rows = a->outputs,
                                 .listed_logprobs = a->listed_logprobs,
                                 .hidden_sums = a->new_hidden_sums};
    rank_moves_enqueue(b, cache, NULL, &batch);
    return llama_step(llama, cache, &batch, &result, err);
}

/* Returns the next below n of 1, 2, 3, 4, 6, 8, 12, ...: sizes at which a library of matrix
 * products may take another of its kernels, which are loaded on first use. */
static int32_t next_smaller(int32_t n) {
    int32_t power = 1;
    while (power * 2 < n)
        power *= 2;
    if (n <= 2)
        return n - 1;
    return power + power / 2 < n ? power + power / 2 : power;
}

int dry_run(struct backend *b, struct llama *llama, struct kv_cache *cache,
            const struct serving_limits *limits, struct error *err) {
    int32_t table_width = serving_limits_max_blocks(limits);
    int64_t most = (int64_t)limits->max_num_seqs * limits->max_model_len;
    int32_t largest = limits->max_num_batched_tokens;
    if (largest > most)
        largest = (int32_t)most;
    struct arrays arrays;
    size_t mask_words = (size_t)SAMPLE_MASK_WORDS(limits->vocab_size);
    if (alloc_arrays(&arrays, limits, (size_t)table_width, mask_words, err) != 0)
        return -1;
    memset(arrays.mask, 0xff, mask_words * sizeof(uint32_t));
    int status = 0;
    for (int32_t n = largest; n > 0 && status == 0; n = next_smaller(n))
        status = run_step(b, llama, cache, limits, &arrays, n, err);
    free_arrays(&arrays);
    return status;
}
