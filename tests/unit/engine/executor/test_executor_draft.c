/* A draft model beside a small real one: what it proposes, keeps and is moved with, and that a step
 * that verifies its drafts computes what it would without it. The program starts itself as a rank
 * process. test_executor_draft [DEVICE TYPE]: the CPU by default. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/process_executor.h"
#include "engine/executor/rank_process.h"
#include "kernels/kv_type.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA GOLDEN_DIR "/families/llama.gguf"
#define QWEN2 GOLDEN_DIR "/families/qwen2.gguf"
#define LATENT GOLDEN_DIR "/families/deepseek-v2-lite.gguf"
#define LARGER_VOCABULARY GOLDEN_DIR "/tiny-f32.gguf"

enum { MAX_SEQS = 4, MAX_TOKENS = 96, MAX_ROWS = 32, MAX_LENGTH = 64, NUM_PLACES = 8 };
enum { BLOCK_SIZE = 16, SEQ_BLOCKS = MAX_LENGTH / BLOCK_SIZE, VOCAB_SIZE = 280 };

static const char *gpu; /* NULL: the CPU */
static enum dtype dtype = DTYPE_F32;

/* --- Executors --- */

struct fixture {
    struct model *model, *draft;
    struct executor *executor;
    struct executor_info info;
    void *memory; /* of the step, unless the executor owns it */
    struct batch_arena arena;
    struct step_result result;
    struct batch batch;
};

static struct executor_config config_of(const struct fixture *f) {
    return (struct executor_config){
        .device = gpu != NULL ? gpu : "cpu",
        .dtype = dtype,
        .batch_invariant = true,
        .gpu_memory_utilization = 0.5,
        .quantization = DTYPE_NONE,
        .num_threads = 1,
        .kv_type = kv_type_of_dtype(dtype),
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
    };
}

static void open_models(struct fixture *f, const char *model, const char *draft) {
    struct error err = {0};
    *f = (struct fixture){0};
    if (model_open(model, &f->model, &err) != 0 ||
        (draft != NULL && model_open(draft, &f->draft, &err) != 0))
        fail_msg("%s", err.message);
}

static void close_models(struct fixture *f) {
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

static void start(struct fixture *f, const char *model, const char *draft, bool is_process) {
    static const char *const arguments[] = {"test_executor_draft", "rank-process", NULL};
    struct error err = {0};
    open_models(f, model, draft);
    const struct executor_config config = config_of(f);
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

static void stop(struct fixture *f) {
    f->executor->ops->destroy(f->executor);
    free(f->memory);
    close_models(f);
}

/* --- Steps --- */

struct sequence {
    int32_t tokens[MAX_LENGTH];
    int32_t length;
    int32_t place; /* its blocks are the SEQ_BLOCKS from place * SEQ_BLOCKS on */
    float temperature;
    int32_t num_computed, num_drafted; /* computed by the model, and by its draft model */
};

static struct sequence sequence_of(int32_t index, int32_t length, float temperature) {
    struct sequence sequence = {.length = length, .place = index, .temperature = temperature};
    for (int32_t i = 0; i < length; i++)
        sequence.tokens[i] = (i * 37 + index * 101 + i * i * 5 + 11) % VOCAB_SIZE;
    return sequence;
}

static void begin(struct fixture *f) {
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
static void add_sequence(struct fixture *f, const struct sequence *s, const int32_t *drafts,
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

/* For the sequence added last: what the draft model has not computed of it. */
static void add_request(struct fixture *f, const struct sequence *s, int32_t num_drafts) {
    struct batch_arena *a = &f->arena;
    a->draft_requests[a->counts->num_draft_requests++] =
        (struct draft_request){.seq = a->counts->num_seqs - 1,
                               .begin = s->num_drafted,
                               .num_inputs = s->length - s->num_drafted,
                               .num_drafts = num_drafts,
                               .first_row = a->counts->num_sample_rows - 1 - num_drafts};
    for (int32_t i = s->num_drafted; i < s->length; i++)
        a->draft_inputs[a->counts->num_draft_inputs++] = s->tokens[i];
}

static void add_drafted(struct fixture *f, const struct sequence *s, int32_t num_drafts) {
    add_sequence(f, s, NULL, num_drafts);
    add_request(f, s, num_drafts);
}

static void run(struct fixture *f) {
    struct error err = {0};
    f->batch = batch_arena_view(&f->arena);
    f->executor->ops->submit(f->executor, &f->batch, &f->result);
    if (f->executor->ops->wait(f->executor, &err) != 0)
        fail_msg("%s", err.message);
}

/* Runs a step of one sequence and returns its drafts. */
static const int32_t *draft_one(struct fixture *f, const struct sequence *s, int32_t num_drafts) {
    begin(f);
    add_drafted(f, s, num_drafts);
    run(f);
    return f->result.drafts;
}

static void assert_same_rows(const struct sample_output *a, const struct sample_output *b,
                             int32_t num_rows) {
    for (int32_t i = 0; i < num_rows; i++) {
        assert_int_equal(a[i].token, b[i].token);
        assert_memory_equal(&a[i].logprob, &b[i].logprob, sizeof(a->logprob));
        assert_int_equal(a[i].num_top, 5);
        assert_memory_equal(a[i].top_tokens, b[i].top_tokens, 5 * sizeof(*a->top_tokens));
        assert_memory_equal(a[i].top_logprobs, b[i].top_logprobs, 5 * sizeof(*a->top_logprobs));
    }
}

/* --- Tests --- */

/* The model itself proposes what it then samples: greedily or not, with biases, any number of
 * tokens, in a batch with sequences that have no draft or are not even computed. */
static void assert_all_accepted(struct fixture *f) {
    static const int32_t num_drafts[] = {4, 0, 1, 7};
    const struct sequence sequences[] = {sequence_of(0, 21, 0), sequence_of(1, 9, 0.9F),
                                         sequence_of(2, 16, 0.9F), sequence_of(3, 5, 1.2F)};
    begin(f);
    f->arena.token_biases[0] = (struct token_bias){.token = 7, .bias = 1000};
    f->arena.counts->num_biases = 1;
    for (int i = 0; i < 4; i++)
        add_drafted(f, &sequences[i], num_drafts[i]);
    f->arena.sample_rows[1].num_biases = 1;
    run(f);
    const struct sample_output *rows = f->result.rows;
    const int32_t *drafts = f->result.drafts;
    for (int i = 0; i < 4; i++) {
        for (int32_t d = 0; d < num_drafts[i]; d++)
            assert_int_equal(drafts[d], rows[d].token);
        rows += num_drafts[i] + 1;
        drafts += num_drafts[i];
    }
    assert_int_equal(f->result.num_sample_rows, 16);
    assert_int_equal(f->result.drafts[1], 7);
    assert_true(f->result.drafts[0] != 7 && f->result.drafts[2] != 7);
    assert_int_equal(*drafts, -1); /* no more were written */
}

static void test_a_model_accepts_its_own_drafts(void **state) {
    struct fixture f;
    start(&f, LLAMA, LLAMA, false);
    for (int round = 0; round < 2; round++)
        assert_all_accepted(&f);
    stop(&f);
}

/* Accepts `count` drafts and the token after them. */
static void accept(struct fixture *f, struct sequence *s, int32_t count) {
    s->num_computed = s->length + count;
    s->num_drafted = s->length + count;
    for (int32_t i = 0; i <= count; i++)
        s->tokens[s->length++] = f->result.rows[i].token;
}

static struct sequence afresh(const struct sequence *s, int32_t place) {
    struct sequence fresh = *s;
    fresh.place = place;
    fresh.num_computed = fresh.num_drafted = 0;
    return fresh;
}

/* Without drafts a GPU replays the model's step, after passes of the other model. */
static void assert_drafts_are_those_of_a_fresh_start(struct fixture *f, const struct sequence *s) {
    static const int32_t numbers[] = {5, 1, 0};
    for (int i = 0; i < 3; i++) {
        int32_t drafts[5], count = numbers[i];
        struct sample_output rows[6];
        const struct sequence fresh = afresh(s, 5);
        memcpy(drafts, draft_one(f, s, count), sizeof(drafts));
        memcpy(rows, f->result.rows, sizeof(rows));
        assert_memory_equal(draft_one(f, &fresh, count), drafts, sizeof(drafts));
        assert_same_rows(f->result.rows, rows, count + 1);
    }
}

/* A draft model that proposes something else than the model samples: after rejected drafts, and
 * after a step that only computed what it lacked. */
static void test_what_it_has_computed_is_kept(void **state) {
    struct fixture f;
    struct sequence s = sequence_of(0, 13, 0);
    start(&f, LLAMA, QWEN2, false);
    for (int step = 0; step < 4; step++) {
        draft_one(&f, &s, 5);
        int32_t last = f.result.rows[0].token;
        accept(&f, &s, 0);
        assert_int_equal(s.tokens[s.length - 1], last);
        assert_drafts_are_those_of_a_fresh_start(&f, &s);
    }
    draft_one(&f, &s, 0);
    accept(&f, &s, 0);
    assert_drafts_are_those_of_a_fresh_start(&f, &s);
    stop(&f);
}

/* The draft computed last is not in the cache yet: it comes with the next inputs. */
static void test_accepted_drafts_are_kept(void **state) {
    struct fixture f;
    struct sequence s = sequence_of(0, 13, 0.8F);
    start(&f, LLAMA, LLAMA, false);
    for (int step = 0; step < 3; step++) {
        const int32_t *drafts = draft_one(&f, &s, 5);
        for (int32_t i = 0; i < 5; i++)
            assert_int_equal(drafts[i], f.result.rows[i].token);
        accept(&f, &s, 5);
        s.num_drafted--;
        assert_drafts_are_those_of_a_fresh_start(&f, &s);
    }
    stop(&f);
}

static void list_blocks(int32_t place, int32_t *out) {
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        out[i] = place * SEQ_BLOCKS + i;
}

/* Swapped out of place 0, which another sequence gets, in at place 2, and copied to place 3. */
static void test_its_blocks_are_moved_too(void **state) {
    struct fixture f;
    struct sequence s = sequence_of(0, 37, 0);
    int32_t expected[6];
    start(&f, LLAMA, QWEN2, false);
    draft_one(&f, &s, 6);
    accept(&f, &s, 0);
    const struct sequence fresh = afresh(&s, 6);
    memcpy(expected, draft_one(&f, &fresh, 6), sizeof(expected));

    begin(&f);
    f.arena.counts->num_swap_out = SEQ_BLOCKS;
    list_blocks(0, f.arena.swap_out_from);
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        f.arena.swap_out_to[i] = SEQ_BLOCKS - 1 - i;
    run(&f);
    struct sequence other = sequence_of(9, 40, 0);
    other.place = 0;
    draft_one(&f, &other, 6);

    s.place = 3;
    begin(&f);
    f.arena.counts->num_swap_in = f.arena.counts->num_copies = SEQ_BLOCKS;
    for (int32_t i = 0; i < SEQ_BLOCKS; i++)
        f.arena.swap_in_from[i] = SEQ_BLOCKS - 1 - i;
    list_blocks(2, f.arena.swap_in_to);
    list_blocks(2, f.arena.copy_from);
    list_blocks(3, f.arena.copy_to);
    add_drafted(&f, &s, 6);
    run(&f);
    assert_memory_equal(f.result.drafts, expected, sizeof(expected));
    stop(&f);
}

/* Without a draft model, and with one in steps that have no requests. */
static void assert_plain_rows(const char *draft, bool is_process, const int32_t *drafts,
                              const struct sample_output *rows) {
    struct fixture f;
    const struct sequence greedy = sequence_of(0, 21, 0), sampled = sequence_of(1, 9, 0.9F);
    start(&f, LLAMA, draft, is_process);
    begin(&f);
    add_sequence(&f, &greedy, drafts, 4);
    add_sequence(&f, &sampled, drafts + 4, 3);
    run(&f);
    assert_same_rows(f.result.rows, rows, 9);
    stop(&f);
}

static void assert_verified_as_any_token(bool is_process, const char *draft) {
    struct fixture f;
    int32_t drafts[7];
    struct sample_output rows[9];
    const struct sequence greedy = sequence_of(0, 21, 0), sampled = sequence_of(1, 9, 0.9F);
    start(&f, LLAMA, draft, is_process);
    begin(&f);
    add_drafted(&f, &greedy, 4);
    add_drafted(&f, &sampled, 3);
    run(&f);
    memcpy(drafts, f.result.drafts, sizeof(drafts));
    memcpy(rows, f.result.rows, sizeof(rows));
    stop(&f);
    assert_plain_rows(NULL, false, drafts, rows);
    assert_plain_rows(draft, is_process, drafts, rows);
}

static void test_drafts_are_verified_as_any_token(void **state) {
    assert_verified_as_any_token(false, QWEN2);
}

static void test_in_a_rank_process(void **state) {
    struct fixture f;
    struct error err = {0};
    assert_verified_as_any_token(true, QWEN2);
    start(&f, LLAMA, LLAMA, true);
    assert_all_accepted(&f);
    kill(process_executor_pid(f.executor), SIGKILL);
    f.executor->ops->submit(f.executor, &f.batch, &f.result);
    assert_int_equal(f.executor->ops->wait(f.executor, &err), -1);
    if (f.executor->ops->restart(f.executor, &err) != 0)
        fail_msg("%s", err.message);
    assert_all_accepted(&f);
    stop(&f);
}

static void test_it_sleeps_with_the_ranks(void **state) {
    struct fixture f;
    struct error err = {0};
    start(&f, LLAMA, LLAMA, false);
    for (int discards_weights = 0; discards_weights < 2; discards_weights++) {
        f.executor->ops->sleep(f.executor, discards_weights);
        if (f.executor->ops->wake(f.executor, &err) != 0)
            fail_msg("%s", err.message);
        assert_all_accepted(&f);
    }
    stop(&f);
}

/* The larger one proposes no token that the other lacks; the smaller one computes tokens that it
 * lacks, and is not biased to any. */
static void test_vocabularies_of_other_sizes(void **state) {
    struct fixture f;
    const struct sequence s = sequence_of(0, 21, 3);
    int num_zeros = 0;
    start(&f, LLAMA, LARGER_VOCABULARY, false);
    for (int32_t place = 0; place < NUM_PLACES; place++) {
        const struct sequence other = sequence_of(place, 5 + 7 * place, 1000); /* any token */
        draft_one(&f, &other, 8);
        for (int32_t d = 0; d < 8; d++) {
            assert_in_range(f.result.drafts[d], 0, VOCAB_SIZE - 1);
            num_zeros += f.result.drafts[d] == 0;
        }
    }
    assert_in_range(num_zeros, 2, 32); /* of 64, 8 are expected */
    stop(&f);
    start(&f, LARGER_VOCABULARY, LLAMA, false);
    begin(&f);
    f.arena.token_biases[0] = (struct token_bias){.token = 300, .bias = 1000};
    f.arena.counts->num_biases = 1;
    add_drafted(&f, &s, 4);
    f.arena.token_ids[3] = f.arena.draft_inputs[3] = 319;
    for (int r = 0; r < 5; r++)
        f.arena.sample_rows[r].num_biases = 1;
    run(&f);
    for (int r = 0; r < 5; r++)
        assert_int_equal(f.result.rows[r].token, 300);
    for (int d = 0; d < 4; d++)
        assert_in_range(f.result.drafts[d], 0, VOCAB_SIZE - 1);
    stop(&f);
}

static void assert_refused(const struct fixture *f, const struct executor_config *config,
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

static void test_what_is_refused(void **state) {
    struct fixture f;
    open_models(&f, LLAMA, QWEN2);
    struct executor_config config = config_of(&f);
    config.device = "cpu";
    config.num_ranks = 2;
    assert_refused(&f, &config, "speculative-config: model is for one rank, not 2; ");
    config.num_ranks = 1;
    config.num_stages = 3;
    assert_refused(&f, &config, "speculative-config: model is for one rank, not 3; ");
    config.num_stages = 1;
    config.limits.window = 32;
    assert_refused(&f, &config, "speculative-config: model needs more than the last 32 tokens; ");
    close_models(&f);
}

/* A GPU prepares one kind of attention; a CPU computes any. */
static void test_latent_attention(void **state) {
    struct fixture f;
    if (gpu == NULL) {
        assert_verified_as_any_token(false, LATENT);
        return;
    }
    open_models(&f, LLAMA, LATENT);
    const struct executor_config config = config_of(&f);
    assert_refused(&f, &config, "speculative-config: model has latent attention and ");
    close_models(&f);
}

static size_t block_bytes(const struct executor_info *info) {
    return info->memory.kv_bytes / (size_t)info->limits.num_blocks;
}

static void test_memory_is_planned(void **state) {
    static const uint8_t none[CONTENT_HASH_BYTES];
    struct executor_info planned, plain, of_draft;
    struct fixture f;
    start(&f, LLAMA, QWEN2, false);
    struct executor_config config = config_of(&f);
    assert_int_equal(executor_plan(f.model, &config, &planned, NULL), 0);
    config.draft_model = NULL;
    assert_int_equal(executor_plan(f.model, &config, &plain, NULL), 0);
    config.limits.vocab_size = f.draft->config.vocab_size;
    config.limits.hidden_size = f.draft->config.hidden_size;
    assert_int_equal(executor_plan(f.draft, &config, &of_draft, NULL), 0);
    assert_int_equal(plain.memory.draft_bytes, 0);
    if (gpu == NULL) {
        assert_int_equal(planned.memory.draft_bytes, f.info.memory.draft_bytes);
        assert_int_equal(planned.memory.draft_bytes,
                         of_draft.memory.weight_bytes + of_draft.memory.workspace_bytes);
    }
    assert_int_equal(planned.memory.weight_bytes, plain.memory.weight_bytes);
    assert_int_equal(planned.limits.num_blocks, f.info.limits.num_blocks);
    assert_int_equal(block_bytes(&f.info), block_bytes(&plain) + block_bytes(&of_draft));
    assert_int_equal(f.info.memory.swap_bytes,
                     (size_t)f.info.limits.num_host_blocks * block_bytes(&f.info));
    assert_true(f.info.swap_block_ns > 0);
    assert_memory_not_equal(f.info.draft_digest, none, sizeof(none));
    assert_memory_not_equal(f.info.draft_digest, f.info.model_digest, sizeof(none));
    struct executor_info now = f.info;
    struct error err = {0};
    assert_int_equal(executor_info_compare(&f.info, &now, &err), 0);
    now.draft_digest[0] ^= 1;
    assert_int_equal(executor_info_compare(&f.info, &now, &err), -1);
    assert_string_equal(err.message, "the draft model's files have changed since the start");
    stop(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_accepts_its_own_drafts),
        cmocka_unit_test(test_what_it_has_computed_is_kept),
        cmocka_unit_test(test_accepted_drafts_are_kept),
        cmocka_unit_test(test_its_blocks_are_moved_too),
        cmocka_unit_test(test_drafts_are_verified_as_any_token),
        cmocka_unit_test(test_vocabularies_of_other_sizes),
        cmocka_unit_test(test_it_sleeps_with_the_ranks),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_latent_attention),
        cmocka_unit_test(test_memory_is_planned),
        cmocka_unit_test(test_in_a_rank_process),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    if (argc == 3) {
        gpu = argv[1];
        dtype = strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
