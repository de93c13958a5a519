#include "tests/unit/engine/executor/draft_fixture.h"

#include "kernels/kv_type.h"
#include "models/config/mtp.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct {
    const char *gpu;
    enum dtype dtype;
} device = {NULL, DTYPE_F32};

void draft_fixture_set_device(int argc, char **argv) {
    if (argc != 3)
        return;
    device.gpu = argv[1];
    device.dtype = strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
}

/* --- Executors --- */

struct executor_config draft_fixture_config(const struct fixture *f) {
    return (struct executor_config){
        .device = f->gpu != NULL ? f->gpu : "cpu",
        .dtype = f->dtype,
        .batch_invariant = true,
        .gpu_memory_utilization = 0.5,
        .quantization = DTYPE_NONE,
        .num_threads = 1,
        .kv_type = kv_type_of_dtype(f->dtype),
        .device_timeout_s = 60,
        .kv_memory_bytes = (size_t)4 << 20,
        .swap_bytes = (size_t)1 << 20,
        .limits = {.max_num_seqs = MAX_SEQS,
                   .max_num_batched_tokens = MAX_TOKENS,
                   .max_model_len = MAX_LENGTH,
                   .num_speculative_tokens = 8,
                   .block_size = BLOCK_SIZE,
                   .vocab_size = f->model->config.vocab_size,
                   .hidden_size = f->model->config.hidden_size},
        .draft_model = f->draft,
        .has_mtp = f->draft != NULL && f->draft->config.is_mtp,
    };
}

void draft_fixture_open(struct fixture *f, const char *model, const char *draft) {
    struct error err = {0};
    *f = (struct fixture){.gpu = device.gpu, .dtype = device.dtype};
    bool is_mtp = draft != NULL && strcmp(draft, ITS_MTP_LAYER) == 0;
    if (model_open(model, &f->model, &err) != 0 ||
        (draft != NULL && model_open(is_mtp ? model : draft, &f->draft, &err) != 0) ||
        (is_mtp && mtp_select(f->draft, &err) != 0))
        fail_msg("%s", err.message);
}

void draft_fixture_close(struct fixture *f) {
    model_close(f->draft);
    model_close(f->model);
}

static void bind_step(struct fixture *f) {
    const struct batch_capacity capacity = {.num_tokens = MAX_TOKENS,
                                            .num_seqs = MAX_SEQS,
                                            .num_table_blocks = SEQ_BLOCKS,
                                            .num_sample_rows = MAX_ROWS,
                                            .num_biases = 1,
                                            .vocab_size = f->info.limits.vocab_size,
                                            .num_blocks = f->info.limits.num_blocks,
                                            .num_host_blocks = f->info.limits.num_host_blocks,
                                            .num_draft_tokens = MAX_TOKENS};
    void *memory = NULL;
    assert_int_equal(f->executor->ops->step_memory(f->executor, &capacity, &memory), 0);
    if (memory == NULL)
        memory = f->memory = aligned_alloc(64, step_memory_bytes(&capacity));
    assert_non_null(memory);
    step_memory_bind(&capacity, memory, &f->arena, &f->result);
}

void draft_fixture_start(struct fixture *f, const char *model, const char *draft, bool is_process) {
    static const char *const arguments[] = {"test", "rank-process", NULL};
    struct error err = {0};
    draft_fixture_open(f, model, draft);
    const struct executor_config config = draft_fixture_config(f);
    if (config.has_mtp)
        draft = model;
    const struct process_executor_config process = {.program = "/proc/self/exe",
                                                    .argv = arguments,
                                                    .model_path = model,
                                                    .draft_path = draft,
                                                    .executor = config};
    int status = is_process ? process_executor_create(&process, &f->info, &f->executor, &err)
                            : executor_create(f->model, &config, &f->info, &f->executor, &err);
    if (status != 0)
        fail_msg("%s", err.message);
    assert_true(f->info.limits.num_blocks >= NUM_PLACES * SEQ_BLOCKS);
    assert_true(f->info.limits.num_host_blocks >= SEQ_BLOCKS);
    bind_step(f);
}

void draft_fixture_stop(struct fixture *f) {
    f->executor->ops->destroy(f->executor);
    free(f->memory);
    draft_fixture_close(f);
}

/* --- Steps --- */

struct sequence draft_fixture_sequence(int32_t index, int32_t length, float temperature) {
    struct sequence sequence = {.length = length, .place = index, .temperature = temperature};
    for (int32_t i = 0; i < length; i++)
        sequence.tokens[i] = (i * 37 + index * 101 + i * i * 5 + 11) % VOCAB_SIZE;
    return sequence;
}

void draft_fixture_begin(struct fixture *f) {
    *f->arena.counts = (struct batch_counts){.max_blocks_per_seq = SEQ_BLOCKS};
    f->arena.query_start[0] = 0;
    memset(f->result.rows, 0, MAX_ROWS * sizeof(*f->result.rows));
    memset(f->result.drafts, 0xff, MAX_TOKENS * sizeof(*f->result.drafts));
}

static void add_token(struct fixture *f, const struct sequence *s, int32_t token,
                      int32_t position) {
    struct batch_arena *a = &f->arena;
    int32_t t = a->counts->num_tokens++;
    a->token_ids[t] = token;
    a->positions[t] = position;
    a->slot_mapping[t] = s->place * MAX_LENGTH + position;
}

static void add_row(struct fixture *f, const struct sequence *s, int32_t position) {
    struct batch_arena *a = &f->arena;
    int32_t r = a->counts->num_sample_rows++;
    a->logit_rows[r] = a->counts->num_tokens - 1;
    a->sample_rows[r] = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                            .num_logprobs = 5,
                                            .seed = 77,
                                            .position = (uint64_t)position,
                                            .settings = SAMPLING_SETTINGS_NEUTRAL,
                                            .mask = SAMPLE_NO_MASK};
    a->sample_rows[r].settings.temperature = s->temperature;
}

/* Adds what the model has not computed of the sequence, then drafts; those given, or if they are
 * NULL zeros. */
void draft_fixture_add(struct fixture *f, const struct sequence *s, const int32_t *drafts,
                       int32_t num_drafts) {
    struct batch_arena *a = &f->arena;
    int32_t seq = a->counts->num_seqs++;
    for (int32_t i = s->num_computed; i < s->length; i++)
        add_token(f, s, s->tokens[i], i);
    add_row(f, s, s->length);
    for (int32_t i = 0; i < num_drafts; i++) {
        add_token(f, s, drafts != NULL ? drafts[i] : 0, s->length + i);
        add_row(f, s, s->length + i + 1);
    }
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        a->block_tables[seq * SEQ_BLOCKS + i] = s->place * SEQ_BLOCKS + i;
    a->context_lens[seq] = s->length + num_drafts;
    a->query_start[seq + 1] = a->counts->num_tokens;
}

/* For the sequence added last: what the draft model has not computed of it. An MTP layer computes a
 * token in the place of the one before it. */
static void add_request(struct fixture *f, const struct sequence *s, int32_t num_drafts) {
    struct batch_arena *a = &f->arena;
    int32_t begin = s->num_drafted + (f->draft->config.is_mtp ? 1 : 0);
    a->draft_requests[a->counts->num_draft_requests++] =
        (struct draft_request){.seq = a->counts->num_seqs - 1,
                               .begin = begin,
                               .num_inputs = s->length - begin,
                               .num_drafts = num_drafts,
                               .first_row = a->counts->num_sample_rows - 1 - num_drafts};
    for (int32_t i = begin; i < s->length; i++)
        a->draft_inputs[a->counts->num_draft_inputs++] = s->tokens[i];
}

void draft_fixture_add_drafted(struct fixture *f, const struct sequence *s, int32_t num_drafts) {
    draft_fixture_add(f, s, NULL, num_drafts);
    add_request(f, s, num_drafts);
}

void draft_fixture_run(struct fixture *f) {
    struct error err = {0};
    f->batch = batch_arena_view(&f->arena);
    f->executor->ops->submit(f->executor, &f->batch, &f->result);
    if (f->executor->ops->wait(f->executor, &err) != 0)
        fail_msg("%s", err.message);
}

/* Runs a step of one sequence and returns its drafts. */
const int32_t *draft_fixture_draft(struct fixture *f, const struct sequence *s,
                                   int32_t num_drafts) {
    draft_fixture_begin(f);
    draft_fixture_add_drafted(f, s, num_drafts);
    draft_fixture_run(f);
    return f->result.drafts;
}

void draft_fixture_assert_rows(const struct sample_output *a, const struct sample_output *b,
                               int32_t num_rows) {
    for (int32_t i = 0; i < num_rows; i++) {
        assert_int_equal(a[i].token, b[i].token);
        assert_memory_equal(&a[i].logprob, &b[i].logprob, sizeof(a->logprob));
        assert_int_equal(a[i].num_top, 5);
        assert_memory_equal(a[i].top_tokens, b[i].top_tokens, 5 * sizeof(*a->top_tokens));
        assert_memory_equal(a[i].top_logprobs, b[i].top_logprobs, 5 * sizeof(*a->top_logprobs));
    }
}

static void list_blocks(int32_t place, int32_t *out) {
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        out[i] = place * SEQ_BLOCKS + i;
}

void draft_fixture_swap_out(struct fixture *f, int32_t place) {
    draft_fixture_begin(f);
    f->arena.counts->num_swap_out = SEQ_BLOCKS;
    list_blocks(place, f->arena.swap_out_from);
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        f->arena.swap_out_to[i] = SEQ_BLOCKS - 1 - i;
    draft_fixture_run(f);
}

void draft_fixture_swap_in(struct fixture *f, int32_t place, int32_t copy) {
    f->arena.counts->num_swap_in = f->arena.counts->num_copies = SEQ_BLOCKS;
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        f->arena.swap_in_from[i] = SEQ_BLOCKS - 1 - i;
    list_blocks(place, f->arena.swap_in_to);
    list_blocks(place, f->arena.copy_from);
    list_blocks(copy, f->arena.copy_to);
}

void draft_fixture_assert_refused(const struct fixture *f, const struct executor_config *config,
                                  const char *message) {
    struct executor *executor;
    struct executor_info info;
    struct error err = {0};
    assert_int_equal(executor_plan(f->model, config, &info, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_memory_equal(err.message, message, strlen(message));
    assert_int_equal(executor_create(f->model, config, &info, &executor, &err), -1);
    assert_memory_equal(err.message, message, strlen(message));
}
