/* Decode steps replayed against the same steps enqueued op by op: the same tokens and the same KV
 * pool, for every size that is recorded and for one more and one less; without batch invariance for
 * the sizes alone, as padding may change the order of a product's sums. Steps follow each other two
 * at a time, tokens go from step to step on the device, and what a step read on the host is
 * overwritten once it was waited for. Rows have edits, masks and logprobs, late in one of the
 * steps. */
#include "models/kv_groups.h"
#include "models/llama.h"
#include "models/recorded_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    DEFAULT_SEQS = 41, /* has sizes at every distance up to 8 */
    MAX_SEQS = 256,
    BLOCK_SIZE = 16,
    BLOCKS_EACH = 3,
    MAX_MODEL_LEN = BLOCK_SIZE * BLOCKS_EACH,
    MAX_PROMPT = 17,
    NUM_DECODES = 3,
    MAX_TOKENS = MAX_SEQS * MAX_PROMPT,
};

static struct {
    const char *model_path, *device;
    enum dtype dtype;
    bool batch_invariant;
    int32_t max_seqs;
} options;

struct run {
    struct model *model;
    struct backend *backend;
    struct model_shard shard;
    struct weights *weights;
    struct serving_limits limits;
    struct llama *llama;
    struct kv_cache cache;
};

static void open_run(struct run *run) {
    struct error err = {0};
    *run = (struct run){0};
    if (model_open(options.model_path, &run->model, &err) != 0 ||
        model_shard_init(run->model, DTYPE_NONE, 0, 1, &run->shard, &err) != 0)
        fail_msg("%s", err.message);
    const struct model_config *model = &run->model->config;
    run->limits = (struct serving_limits){.max_num_seqs = options.max_seqs,
                                          .max_num_batched_tokens = options.max_seqs * MAX_PROMPT,
                                          .max_logit_rows = options.max_seqs,
                                          .max_model_len = MAX_MODEL_LEN,
                                          .block_size = BLOCK_SIZE,
                                          .vocab_size = model->vocab_size};
    run->limits.max_model_len = 0; /* however short, for the sake of groups */
    kv_groups_choose(model, &run->limits);
    run->limits.max_model_len = MAX_MODEL_LEN;
    const struct backend_config config = {.limits = run->limits,
                                          .head_dim = model->head_dim,
                                          .latent_dim = model->latent.kv_rank,
                                          .num_q_heads = model->num_heads,
                                          .num_kv_heads = model->num_kv_heads,
                                          .activation_dtype = options.dtype,
                                          .batch_invariant = options.batch_invariant};
    const struct weights_options weights = {.max_model_len = MAX_MODEL_LEN,
                                            .quantization = DTYPE_NONE};
    run->backend = backend_open(options.device, &config, &err);
    if (run->backend == NULL ||
        weights_load_alone(run->backend, run->model, &run->shard, &weights, &run->weights, &err) !=
            0 ||
        llama_create(run->backend, model, &run->shard, run->weights, NULL, &run->limits,
                     &run->llama, &err) != 0)
        fail_msg("%s", err.message);
    int32_t num_layers = kv_groups_layers(model, &run->shard, &run->limits);
    run->cache.layout = (struct kv_layout){.num_layers = num_layers,
                                           .num_kv_heads = model->num_kv_heads,
                                           .head_dim = model->head_dim,
                                           .latent_dim = model->latent.kv_rank,
                                           .block_size = BLOCK_SIZE,
                                           .type = options.dtype == DTYPE_BF16 ? KV_BF16 : KV_F16};
    /* the first is nobody's */
    run->cache.num_blocks = 1 + run->limits.num_groups * options.max_seqs * BLOCKS_EACH;
    if (run->backend->ops->buffer_alloc(
            run->backend, (size_t)run->cache.num_blocks * kv_block_bytes(&run->cache.layout),
            &run->cache.buffer, &err) != 0)
        fail_msg("%s", err.message);
}

static void close_run(struct run *run) {
    llama_destroy(run->llama);
    run->backend->ops->buffer_free(run->backend, &run->cache.buffer);
    weights_free(run->backend, run->weights);
    backend_close(run->backend);
    model_close(run->model);
}

/* What a step reads on the host. */
struct step {
    int32_t token_ids[MAX_TOKENS], token_rows[MAX_TOKENS], positions[MAX_TOKENS];
    int32_t slots[KV_GROUPS_MOST * MAX_TOKENS];
    int32_t query_start[MAX_SEQS + 1], context_lens[MAX_SEQS];
    int32_t tables[KV_GROUPS_MOST * MAX_SEQS * BLOCKS_EACH];
    int32_t logit_rows[MAX_SEQS];
    struct sample_row rows[MAX_SEQS];
    struct token_count counts[MAX_SEQS];
    struct token_bias biases[MAX_SEQS];
    int32_t listed[MAX_SEQS];
    float listed_logprobs[MAX_SEQS];
    uint32_t *masks; /* [MAX_SEQS] */
    struct sample_output out[MAX_SEQS];
    struct batch batch;
    struct step_result result;
};

static int32_t prompt_length(int32_t sequence) {
    return 1 + sequence * 5 % MAX_PROMPT;
}

static int32_t block_of(int32_t group, int32_t sequence, int32_t index) {
    return 1 + (group * BLOCKS_EACH + index) * options.max_seqs + (options.max_seqs - 1 - sequence);
}

/* Once all tokens are there. */
static void place_tokens(struct step *step, int32_t group, int32_t num_seqs) {
    int32_t *slots = step->slots + group * step->query_start[num_seqs];
    for (int32_t s = 0; s < num_seqs; s++) {
        for (int32_t i = 0; i < BLOCKS_EACH; i++)
            step->tables[(group * num_seqs + s) * BLOCKS_EACH + i] = block_of(group, s, i);
        for (int32_t t = step->query_start[s]; t < step->query_start[s + 1]; t++)
            slots[t] = block_of(group, s, step->positions[t] / BLOCK_SIZE) * BLOCK_SIZE +
                       step->positions[t] % BLOCK_SIZE;
    }
}

/* Every second one is greedy; edits, masks and logprobs are some's, which the first of all are
 * not. */
static void fill_sample_row(struct step *step, const struct run *run, int32_t sequence,
                            int32_t position) {
    int32_t s = sequence, vocab = run->limits.vocab_size;
    struct sample_row *row = &step->rows[s];
    *row = (struct sample_row){.target = SAMPLE_NO_TARGET,
                               .num_logprobs = s % 5 == 4 ? 3 : -1,
                               .seed = 77 + (uint64_t)s,
                               .position = (uint64_t)position,
                               .settings = SAMPLING_SETTINGS_NEUTRAL,
                               .mask = SAMPLE_NO_MASK};
    row->settings.temperature = s % 2 == 0 ? 0 : 1.3f;
    row->settings.top_p = s % 3 == 0 ? 0.8f : 1;
    row->settings.frequency_penalty = 0.7f;
    row->first_count = row->first_bias = row->first_listed = s;
    row->first_listed_logprob = s;
    row->num_counts = s % 6 == 5;
    row->num_biases = s % 7 == 6;
    row->num_listed = s % 5 == 4;
    step->counts[s] = (struct token_count){(s * 13 + position) % vocab, 1 + s % 3};
    step->biases[s] = (struct token_bias){(s * 11 + position) % vocab, 4};
    step->listed[s] = s % vocab;
    if (s % 4 != 3)
        return;
    uint32_t *mask = step->masks + (size_t)step->batch.num_masks * SAMPLE_MASK_WORDS((size_t)vocab);
    row->mask = step->batch.num_masks++;
    for (int32_t token = 0; token < vocab; token++)
        if ((token + s + position) % 3 == 0)
            mask[token / 32] |= 1U << token % 32;
}

/* The prompts, or the `decode`-th token after them, which the step before sampled. */
static void fill_step(struct step *step, const struct run *run, int32_t num_seqs, int32_t decode) {
    size_t mask_words = SAMPLE_MASK_WORDS((size_t)run->limits.vocab_size);
    int32_t t = 0;
    memset(step, 0, sizeof(*step));
    step->masks = calloc(MAX_SEQS * mask_words, sizeof(uint32_t));
    assert_non_null(step->masks);
    for (int32_t s = 0; s < num_seqs; s++) {
        int32_t length = prompt_length(s), first = decode > 0 ? length + decode - 1 : 0;
        int32_t count = decode > 0 ? 1 : length;
        for (int32_t i = 0; i < count; i++, t++) {
            int32_t position = first + i;
            step->token_ids[t] = (position * 31 + s * 17) % run->limits.vocab_size;
            step->token_rows[t] = decode > 0 ? s : -1;
            step->positions[t] = position;
        }
        step->query_start[s + 1] = t;
        step->context_lens[s] = first + count;
        step->logit_rows[s] = t - 1;
        fill_sample_row(step, run, s, first + count);
    }
    for (int32_t group = 0; group < run->limits.num_groups; group++)
        place_tokens(step, group, num_seqs);
    step->batch = (struct batch){.num_masks = step->batch.num_masks,
                                 .inputs = {.num_tokens = t,
                                            .num_seqs = num_seqs,
                                            .num_groups = run->limits.num_groups,
                                            .max_blocks_per_seq = BLOCKS_EACH,
                                            .token_ids = step->token_ids,
                                            .token_rows = decode > 0 ? step->token_rows : NULL,
                                            .positions = step->positions,
                                            .slot_mapping = step->slots,
                                            .query_start = step->query_start,
                                            .context_lens = step->context_lens,
                                            .block_tables = step->tables},
                                 .num_sample_rows = num_seqs,
                                 .logit_rows = step->logit_rows,
                                 .has_late_inputs = decode == 2,
                                 .sample_rows = decode == 2 ? NULL : step->rows,
                                 .token_counts = step->counts,
                                 .token_biases = step->biases,
                                 .listed_tokens = step->listed,
                                 .token_masks = step->masks};
    step->result =
        (struct step_result){.rows = step->out, .listed_logprobs = step->listed_logprobs};
}

/* Late inputs come between the two parts. */
static void enqueue(struct run *run, struct step *step) {
    llama_forward(run->llama, &run->cache, &step->batch);
    step->batch.sample_rows = step->rows;
    llama_sample(run->llama, &step->batch, &step->result);
    run->backend->ops->step_end(run->backend);
}

struct outcome {
    int32_t tokens[1 + NUM_DECODES][MAX_SEQS];
    struct sample_output reports[1 + NUM_DECODES][MAX_SEQS]; /* zeros where none is requested */
    float listed_logprobs[1 + NUM_DECODES][MAX_SEQS];
    char *pool;
};

static void wait_for(struct run *run, struct step *step, int32_t num_seqs, int32_t index,
                     struct outcome *out) {
    struct error err = {0};
    if (run->backend->ops->step_wait(run->backend, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(step->result.num_sample_rows, num_seqs);
    for (int32_t s = 0; s < num_seqs; s++) {
        out->tokens[index][s] = step->out[s].token;
        if (step->rows[s].num_logprobs >= 0)
            out->reports[index][s] = step->out[s];
    }
    memcpy(out->listed_logprobs[index], step->listed_logprobs, sizeof(step->listed_logprobs));
    free(step->masks);
    memset(step, 0xa5, sizeof(*step));
}

/* Prompts and decodes of so many sequences, in a pool of zeros. */
static struct outcome *generate(struct run *run, struct step steps[2], int32_t num_seqs) {
    const struct backend_ops *ops = run->backend->ops;
    size_t bytes = run->cache.buffer.bytes;
    struct outcome *outcome = calloc(1, sizeof(*outcome));
    assert_non_null(outcome);
    outcome->pool = calloc(1, bytes);
    assert_non_null(outcome->pool);
    ops->upload(run->backend, run->cache.buffer.data, outcome->pool, bytes);
    for (int32_t i = 0; i <= NUM_DECODES; i++) {
        fill_step(&steps[i % 2], run, num_seqs, i);
        enqueue(run, &steps[i % 2]);
        if (i > 0)
            wait_for(run, &steps[(i - 1) % 2], num_seqs, i - 1, outcome);
    }
    wait_for(run, &steps[NUM_DECODES % 2], num_seqs, NUM_DECODES, outcome);
    ops->download(run->backend, outcome->pool, run->cache.buffer.data, bytes);
    assert_int_equal(ops->synchronize(run->backend, NULL), 0);
    return outcome;
}

static void free_outcome(struct outcome *outcome) {
    free(outcome->pool);
    free(outcome);
}

/* Frees the first. */
static void assert_same(struct outcome *actual, const struct outcome *expected, size_t pool_bytes) {
    for (int32_t i = 0; i <= NUM_DECODES; i++)
        for (int32_t s = 0; s < MAX_SEQS; s++)
            if (actual->tokens[i][s] != expected->tokens[i][s])
                fail_msg("step %d: sequence %d has token %d, not %d", i, s, actual->tokens[i][s],
                         expected->tokens[i][s]);
    assert_memory_equal(actual->reports, expected->reports, sizeof(actual->reports));
    assert_memory_equal(actual->listed_logprobs, expected->listed_logprobs,
                        sizeof(actual->listed_logprobs));
    assert_memory_equal(actual->pool, expected->pool, pool_bytes);
    free_outcome(actual);
}

/* Returns whether one of the sizes is num_seqs, or almost. */
static bool is_near_size(int32_t num_seqs, int32_t distance) {
    int32_t sizes[RECORDED_STEPS_MAX_SIZES];
    for (int32_t i = recorded_steps_sizes(options.max_seqs, sizes) - 1; i >= 0; i--)
        if (abs(sizes[i] - num_seqs) <= distance)
            return true;
    return false;
}

static void test_same_bits(void **state) {
    struct run direct, recorded;
    struct error err = {0};
    struct step *steps = calloc(2, sizeof(*steps));
    assert_non_null(steps);
    open_run(&direct);
    open_run(&recorded);
    if (llama_record(recorded.llama, &recorded.cache, &err) != 0)
        fail_msg("%s", err.message);
    int32_t sizes[RECORDED_STEPS_MAX_SIZES];
    assert_int_equal(llama_num_recorded(recorded.llama),
                     recorded_steps_sizes(options.max_seqs, sizes));
    assert_int_equal(llama_num_recorded(direct.llama), 0);
    for (int32_t n = 1; n <= options.max_seqs; n++) {
        if (!is_near_size(n, options.batch_invariant ? 1 : 0))
            continue;
        struct outcome *expected = generate(&direct, steps, n);
        assert_same(generate(&recorded, steps, n), expected, direct.cache.buffer.bytes);
        free_outcome(expected);
    }
    close_run(&recorded);
    close_run(&direct);
    free(steps);
}

/* What was recorded may be recorded again, for another cache, and forgotten. */
static void test_record_again(void **state) {
    struct run run;
    struct step *steps = calloc(2, sizeof(*steps));
    assert_non_null(steps);
    open_run(&run);
    struct outcome *expected = generate(&run, steps, 6);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(llama_record(run.llama, &run.cache, NULL), 0);
        assert_same(generate(&run, steps, 6), expected, run.cache.buffer.bytes);
        llama_forget_recorded(run.llama);
        assert_int_equal(llama_num_recorded(run.llama), 0);
    }
    free_outcome(expected);
    close_run(&run);
    free(steps);
}

/* test_recorded_steps MODEL DEVICE bf16|f16 [batch-invariant [MAX_SEQS]] */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_record_again)};
    if (argc < 4)
        return 2;
    options.model_path = argv[1];
    options.device = argv[2];
    options.dtype = strcmp(argv[3], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F16;
    options.batch_invariant = argc > 4;
    options.max_seqs = argc > 5 ? atoi(argv[5]) : DEFAULT_SEQS;
    if (options.max_seqs < 6 || options.max_seqs > MAX_SEQS)
        return 2;
    if (strcmp(options.device, "cuda") == 0 && backend_device_memory("cuda") == 0)
        return 77; /* skipped, for Meson: there is no GPU */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
