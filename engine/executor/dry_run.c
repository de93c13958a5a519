#include "engine/executor/rank.h"

#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>

static struct batch_capacity capacity_of(const struct serving_limits *limits) {
    return (struct batch_capacity){
        .num_tokens = limits->max_num_batched_tokens,
        .num_seqs = limits->max_num_seqs,
        .num_groups = serving_limits_groups(limits),
        .num_table_blocks = serving_limits_max_blocks(limits),
        .num_sample_rows = limits->max_num_seqs,
        .num_counts = 1,
        .num_biases = 1,
        .num_listed = 1,
        .num_masks = 1,
        .vocab_size = limits->vocab_size,
        .hidden_size = limits->hidden_size,
        .num_blocks = 1,
    };
}

struct largest_step {
    struct batch_arena arena;
    struct step_result result;
};

static void free_step(struct largest_step *step) {
    batch_arena_finish(&step->arena);
    free(step->result.rows);
    free(step->result.listed_logprobs);
    free(step->result.hidden_sums);
}

/* Zeros mean token 0, block 0. The mask allows every token. */
static void clear(struct batch_arena *arena, const struct batch_capacity *capacity) {
    size_t mask_words = (size_t)SAMPLE_MASK_WORDS(capacity->vocab_size);
    memset(arena->memory, 0, batch_arena_bytes(capacity));
    memset(arena->token_masks, 0xff, mask_words * sizeof(*arena->token_masks));
    arena->token_counts[0].output_count = 1;
    arena->token_biases[0].bias = 1.0F;
    arena->copy_to[0] = 1;
}

static int alloc_step(struct largest_step *step, const struct serving_limits *limits,
                      struct error *err) {
    const struct batch_capacity capacity = capacity_of(limits);
    size_t seqs = (size_t)limits->max_num_seqs;
    *step = (struct largest_step){
        .result = {.rows = calloc(seqs, sizeof(struct sample_output)),
                   .listed_logprobs = calloc(seqs, sizeof(float)),
                   .hidden_sums = calloc(seqs, ((size_t)limits->hidden_size + 1) * sizeof(float))},
    };
    if (step->result.rows == NULL || step->result.listed_logprobs == NULL ||
        step->result.hidden_sums == NULL || batch_arena_init(&step->arena, &capacity) != 0) {
        free_step(step);
        return error_set(err, ERROR_MEMORY, "no memory for the arrays of a step of %d tokens",
                         limits->max_num_batched_tokens);
    }
    clear(&step->arena, &capacity);
    return 0;
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

/* Distributes num_tokens as evenly as possible. */
static void fill(struct batch_arena *a, const struct serving_limits *limits, int32_t num_tokens,
                 bool has_adapters) {
    int32_t num_seqs = min_int32(num_tokens, limits->max_num_seqs);
    int32_t each = num_tokens / num_seqs, more = num_tokens % num_seqs;
    int32_t token = 0;
    for (int32_t s = 0; s < num_seqs; s++) {
        int32_t count = each + (s < more);
        a->context_lens[s] = s == 0 ? limits->max_model_len : count;
        for (int32_t i = 0; i < count; i++, token++) {
            a->positions[token] = a->context_lens[s] - count + i;
            for (int32_t g = 0; g < serving_limits_groups(limits); g++)
                a->slot_mapping[(size_t)g * (size_t)num_tokens + (size_t)token] =
                    a->positions[token] % limits->block_size;
        }
        a->hidden_spans[s] = (struct row_span){a->query_start[s], count};
        a->query_start[s + 1] = token;
        a->logit_rows[s] = token - 1;
        a->sample_rows[s] = every_feature;
        a->sample_rows[s].first_listed_logprob = s;
    }
    *a->counts = (struct batch_counts){
        .num_tokens = num_tokens,
        .num_seqs = num_seqs,
        .num_groups = serving_limits_groups(limits),
        .max_blocks_per_seq = serving_limits_max_blocks(limits),
        .has_adapters = has_adapters,
        .num_copies = 1,
        .num_sample_rows = num_seqs,
        .num_counts = 1,
        .num_biases = 1,
        .num_listed = 1,
        .num_masks = 1,
        .num_hidden_sums = num_seqs,
    };
}

static int run_step(struct backend *b, const struct dry_run_model *model, struct largest_step *step,
                    int32_t num_tokens, struct rank_watch *watch, struct error *err) {
    fill(&step->arena, model->limits, num_tokens, model->has_adapters);
    const struct batch batch = batch_arena_view(&step->arena);
    rank_watch_begin(watch);
    rank_moves_enqueue(b, model->cache, NULL, &batch);
    int status = llama_step(model->llama, model->cache, &batch, &step->result, err);
    rank_watch_end(watch);
    return status;
}

/* Returns the next number above n of 1, 2, 3, 4, 6, 8, 12, ...: sizes at which a library of matrix
 * products may choose another of its kernels, which are loaded on first use. */
static int32_t next_larger(int32_t n) {
    int32_t power = 1;
    while (power <= n / 2)
        power *= 2;
    return n == power ? n + max_int32(power / 2, 1) : 2 * power;
}

static int run_steps(struct backend *b, const struct dry_run_model *model, struct rank_watch *watch,
                     struct error *err) {
    const struct serving_limits *limits = model->limits;
    int64_t most = (int64_t)limits->max_num_seqs * limits->max_model_len;
    int32_t largest = (int32_t)min_int64(limits->max_num_batched_tokens, most);
    struct largest_step step;
    if (alloc_step(&step, limits, err) != 0)
        return -1;
    int status = 0;
    for (int32_t n = 1; n < largest && status == 0; n = next_larger(n))
        status = run_step(b, model, &step, n, watch, err);
    if (status == 0)
        status = run_step(b, model, &step, largest, watch, err);
    free_step(&step);
    return status;
}

int dry_run(struct backend *b, const struct dry_run_model *models, int32_t num_models,
            struct rank_watch *watch, struct tuning_report *out_tuning, struct error *err) {
    const struct tuning_ops *tuning = b->ops->tuning;
    int status = 0;
    *out_tuning = (struct tuning_report){0};
    if (tuning != NULL && tuning->begin(b, DRY_RUN_TUNING_SECONDS, err) != 0)
        return -1;
    for (int32_t i = 0; i < num_models && status == 0; i++)
        status = run_steps(b, &models[i], watch, err);
    if (tuning != NULL)
        tuning->end(b, out_tuning);
    return status;
}
