/* Two steps in flight give the bits of one at a time, whatever arrives late, and the rank goes from
 * one to the next by itself. test_executor_steps [DEVICE TYPE]: cpu-ref by default. backend_open is
 * replaced by one that watches a step's beginning, end and wait. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/executor.h"
#include "engine/executor/step_turns.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"

enum { NUM_STEPS = 14, NUM_SEQS = 2, MAX_TOKENS = 16, MAX_ROWS = 3, NUM_BLOCKS = 4, VOCAB = 320 };
enum { BLOCK_SIZE = 16, MASK_WORDS = SAMPLE_MASK_WORDS(VOCAB), MAX_TRACE = 64 };

static const char *device = "cpu-ref";
static enum dtype dtype = DTYPE_AUTO;

/* --- The watched backend --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int num_begun; /* steps */
    int num_waited_for;
    int num_allowed;       /* steps that may begin */
    int fail_at_wait;      /* this wait for a step and all after it fail; 0: none */
    bool is_asynchronous;  /* as if it were */
    char trace[MAX_TRACE]; /* b, e, w: a step's beginning, end and wait */
    const struct backend_ops *original;
    struct backend_ops ops;
} watched = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void trace_locked(char event) {
    size_t length = strlen(watched.trace);
    assert_in_range(length, 0, MAX_TRACE - 2);
    watched.trace[length] = event;
    pthread_cond_broadcast(&watched.changed);
}

static void watch_begin(struct backend *b, const struct step_inputs *inputs) {
    pthread_mutex_lock(&watched.lock);
    while (watched.num_begun == watched.num_allowed)
        pthread_cond_wait(&watched.changed, &watched.lock);
    watched.num_begun++;
    trace_locked('b');
    pthread_mutex_unlock(&watched.lock);
    watched.original->step_begin(b, inputs);
}

static void watch_end(struct backend *b) {
    pthread_mutex_lock(&watched.lock);
    trace_locked('e');
    pthread_mutex_unlock(&watched.lock);
    watched.original->step_end(b);
}

static int watch_wait(struct backend *b, struct error *err) {
    pthread_mutex_lock(&watched.lock);
    bool fails = ++watched.num_waited_for >= watched.fail_at_wait && watched.fail_at_wait > 0;
    trace_locked('w');
    pthread_mutex_unlock(&watched.lock);
    if (fails)
        return error_set(err, ERROR_DEVICE, "gpu.cu:7: illegal address");
    return watched.original->step_wait(b, err);
}

static bool is_done_at_once(struct backend *b) {
    return true;
}

struct backend *__real_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);
struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);

struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err) {
    struct backend *b = __real_backend_open(name, config, err);
    if (b == NULL)
        return NULL;
    watched.original = b->ops;
    watched.ops = *b->ops;
    watched.ops.step_begin = watch_begin;
    watched.ops.step_end = watch_end;
    watched.ops.step_wait = watch_wait;
    b->ops = &watched.ops;
    if (watched.is_asynchronous && watched.ops.step_is_done == NULL)
        watched.ops.step_is_done = is_done_at_once;
    return b;
}

static void await_begun(int count) {
    pthread_mutex_lock(&watched.lock);
    while (watched.num_begun < count)
        pthread_cond_wait(&watched.changed, &watched.lock);
    pthread_mutex_unlock(&watched.lock);
}

static void allow(int count) {
    pthread_mutex_lock(&watched.lock);
    watched.num_allowed = count;
    pthread_cond_broadcast(&watched.changed);
    pthread_mutex_unlock(&watched.lock);
}

/* --- The executor --- */

enum { OWN_SLOT, OTHER_SLOT };

struct fixture {
    struct model *model;
    struct executor *executor;
    struct executor_info info;
};

/* What the dry run of a device did is not counted. */
static void start_with_turns(struct fixture *f, struct step_turns *turns) {
    struct error err = {0};
    const struct executor_config config = {.device = device,
                                           .dtype = dtype,
                                           .kv_type = KV_AUTO,
                                           .quantization = DTYPE_NONE,
                                           .gpu_memory_utilization = 0.1,
                                           .batch_invariant = true, /* or a start times products */
                                           .num_threads = 1,
                                           .turns = turns,
                                           .turn_slot = OWN_SLOT,
                                           .limits = {.max_num_seqs = NUM_SEQS,
                                                      .max_num_batched_tokens = MAX_TOKENS,
                                                      .max_model_len = NUM_BLOCKS * BLOCK_SIZE,
                                                      .block_size = BLOCK_SIZE,
                                                      .vocab_size = VOCAB,
                                                      .hidden_size = 64}};
    watched.num_allowed = INT32_MAX;
    if (model_open(MODEL_PATH, &f->model, &err) != 0 ||
        executor_create(f->model, &config, &f->info, &f->executor, &err) != 0)
        fail_msg("%s", err.message);
    assert_true(f->info.limits.num_blocks >= NUM_SEQS * NUM_BLOCKS);
    watched.num_begun = watched.num_waited_for = 0;
    memset(watched.trace, 0, sizeof(watched.trace));
}

static void start(struct fixture *f) {
    start_with_turns(f, NULL);
}

static void stop(struct fixture *f) {
    f->executor->ops->destroy(f->executor);
    model_close(f->model);
    watched.fail_at_wait = 0;
    watched.is_asynchronous = false;
}

/* --- Steps --- */

struct step {
    struct batch batch;
    struct step_result result;
    int32_t num_tokens, num_rows;
    int32_t row_of[NUM_SEQS]; /* the one that samples */
    int32_t token_ids[MAX_TOKENS], token_rows[MAX_TOKENS];
    int32_t positions[MAX_TOKENS], slots[MAX_TOKENS];
    int32_t query_start[NUM_SEQS + 1], context_lens[NUM_SEQS];
    int32_t block_tables[NUM_SEQS][NUM_BLOCKS];
    int32_t logit_rows[MAX_ROWS];
    struct sample_row rows[MAX_ROWS];
    uint32_t masks[NUM_SEQS][MASK_WORDS];
    struct sample_output out[MAX_ROWS];
};

/* A prompt each, then a token each: the one that the step before sampled. */
static int32_t first_position(int index, int seq) {
    static const int32_t prompt_tokens[NUM_SEQS] = {5, 9};
    return index == 0 ? 0 : prompt_tokens[seq] + index - 1;
}

static void add_token(struct step *s, int index, int seq, int32_t position,
                      const struct step *before, bool ahead) {
    int32_t t = s->num_tokens++;
    int32_t row = index > 0 ? before->row_of[seq] : -1;
    s->token_ids[t] = (position * 11 + seq * 29) % VOCAB; /* wrong where the token is sampled */
    if (row >= 0 && !ahead)
        s->token_ids[t] = before->out[row].token;
    s->token_rows[t] = ahead ? row : -1;
    s->positions[t] = position;
    s->slots[t] = (seq * NUM_BLOCKS + position / BLOCK_SIZE) * BLOCK_SIZE + position % BLOCK_SIZE;
}

/* Adds what is known before the step before is complete. Sequences are in turn in either order, and
 * in some steps one is scored first: rows have other numbers from step to step. */
static void build(struct step *s, int index, const struct step *before, bool ahead) {
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < NUM_SEQS; i++) {
        int seq = index % 2 == 0 ? i : NUM_SEQS - 1 - i;
        int32_t first = first_position(index, seq), end = first_position(index + 1, seq);
        for (int32_t position = first; position < end; position++)
            add_token(s, index, seq, position, before, ahead);
        if (i == 0 && index % 3 == 1)
            s->logit_rows[s->num_rows++] = s->num_tokens - 1;
        s->logit_rows[s->num_rows] = s->num_tokens - 1;
        s->row_of[seq] = s->num_rows++;
        s->context_lens[i] = end;
        s->query_start[i + 1] = s->num_tokens;
        for (int b = 0; b < NUM_BLOCKS; b++)
            s->block_tables[i][b] = seq * NUM_BLOCKS + b;
    }
    s->batch = (struct batch){.inputs = {.num_tokens = s->num_tokens,
                                         .num_seqs = NUM_SEQS,
                                         .max_blocks_per_seq = NUM_BLOCKS,
                                         .token_ids = s->token_ids,
                                         .token_rows = ahead ? s->token_rows : NULL,
                                         .positions = s->positions,
                                         .slot_mapping = s->slots,
                                         .query_start = s->query_start,
                                         .context_lens = s->context_lens,
                                         .block_tables = s->block_tables[0]},
                              .num_sample_rows = s->num_rows,
                              .logit_rows = s->logit_rows,
                              .sample_rows = s->rows,
                              .token_masks = s->masks[0]};
    s->result.rows = s->out;
    memset(s->rows, 0xff, sizeof(s->rows)); /* until they are supplied */
    memset(s->out, 0xff, sizeof(s->out));
}

/* A mask leaves every third token out: of one, of several rests, which one the token before says,
 * as that of a grammar would. */
static void fill_mask(uint32_t *mask, int index, const int32_t *token_before) {
    int32_t banned = token_before != NULL ? *token_before % 3 : index % 3;
    for (int32_t t = 0; t < VOCAB; t++)
        mask[t / 32] |= (uint32_t)(t % 3 != banned) << (t % 32);
}

/* Adds the inputs of sampling. `before` is complete; NULL: it need not be. */
static void supply_inputs(struct step *s, int index, const struct step *before) {
    for (int32_t r = 0; r < s->num_rows; r++)
        s->rows[r] = (struct sample_row){.target = 7,
                                         .num_logprobs = 3,
                                         .mask = SAMPLE_NO_MASK,
                                         .settings = SAMPLING_SETTINGS_NEUTRAL};
    for (int seq = 0; seq < NUM_SEQS; seq++) {
        struct sample_row *row = &s->rows[s->row_of[seq]];
        int number = index % 2 == 0 ? seq : NUM_SEQS - 1 - seq;
        row->target = SAMPLE_NO_TARGET;
        row->seed = 100 + (uint64_t)seq;
        row->position = (uint64_t)index;
        row->mask = number;
        fill_mask(s->masks[number], index,
                  before != NULL ? &before->out[before->row_of[seq]].token : NULL);
    }
    s->batch.num_masks = NUM_SEQS;
}

static void wait_for(const struct fixture *f) {
    struct error err = {0};
    if (f->executor->ops->wait(f->executor, &err) != 0)
        fail_msg("%s", err.message);
}

static void run_one_at_a_time(const struct fixture *f, struct step *steps, bool is_late) {
    for (int i = 0; i < NUM_STEPS; i++) {
        const struct step *before = i > 0 ? &steps[i - 1] : NULL;
        build(&steps[i], i, before, false);
        supply_inputs(&steps[i], i, is_late ? before : NULL);
        f->executor->ops->submit(f->executor, &steps[i].batch, &steps[i].result);
        wait_for(f);
        assert_int_equal(steps[i].result.num_sample_rows, steps[i].num_rows);
    }
}

/* No wait ends before the next step has begun; nor is a step supplied before it has begun. */
static void run_ahead(const struct fixture *f, struct step *steps, bool is_late) {
    const struct executor_ops *ops = f->executor->ops;
    for (int i = 0; i < NUM_STEPS; i++) {
        build(&steps[i], i, i > 0 ? &steps[i - 1] : NULL, i > 0);
        if (!is_late || i == 0)
            supply_inputs(&steps[i], i, NULL);
        steps[i].batch.has_late_inputs = is_late && i > 0;
        ops->submit(f->executor, &steps[i].batch, &steps[i].result);
        await_begun(i + 1);
        if (i == 0)
            continue;
        wait_for(f);
        if (is_late) {
            usleep(1000); /* in which a rank that does not wait reads what is not there */
            supply_inputs(&steps[i], i, &steps[i - 1]);
            ops->supply(f->executor);
        }
    }
    wait_for(f);
}

static void test_two_steps_in_flight(void **state) {
    static struct step expected[NUM_STEPS], actual[NUM_STEPS];
    for (int is_late = 0; is_late < 2; is_late++) {
        struct fixture f;
        start(&f);
        run_one_at_a_time(&f, expected, is_late);
        stop(&f);
        start(&f);
        run_ahead(&f, actual, is_late);
        stop(&f);
        for (int i = 0; i < NUM_STEPS; i++)
            assert_memory_equal(actual[i].out, expected[i].out,
                                (size_t)expected[i].num_rows * sizeof(expected[i].out[0]));
    }
}

/* The device has all of the next step before it is waited for; a CPU's result is there before the
 * next begins. */
static void test_order_of_the_parts(void **state) {
    for (int is_asynchronous = 0; is_asynchronous < 2; is_asynchronous++) {
        struct fixture f;
        struct step steps[3];
        watched.is_asynchronous = is_asynchronous;
        start(&f);
        const struct executor_ops *ops = f.executor->ops;
        bool is_ahead = is_asynchronous || f.info.has_dedicated_memory;
        if (!is_ahead) /* else a step begins within submit */
            allow(0);
        for (int i = 0; i < 3; i++) {
            build(&steps[i], i, i > 0 ? &steps[i - 1] : NULL, i > 0);
            supply_inputs(&steps[i], i, NULL);
            if (i == 2) {
                allow(3);
                wait_for(&f);
            }
            ops->submit(f.executor, &steps[i].batch, &steps[i].result);
        }
        wait_for(&f);
        wait_for(&f);
        assert_string_equal(watched.trace, is_ahead ? "bebewbeww" : "bewbewbew");
        stop(&f);
    }
}

static void assert_fails(const struct fixture *f) {
    struct error err = {0};
    assert_int_equal(f->executor->ops->wait(f->executor, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_string_equal(err.message, "gpu.cu:7: illegal address");
}

/* The second of three steps fails, and the third, which lacks its late inputs. So do all that come
 * later, which the device never sees. */
static void test_a_failure_ends_all_later_steps(void **state) {
    for (int is_asynchronous = 0; is_asynchronous < 2; is_asynchronous++) {
        struct fixture f;
        struct step steps[4];
        watched.is_asynchronous = is_asynchronous;
        start(&f);
        watched.fail_at_wait = 2;
        const struct executor_ops *ops = f.executor->ops;
        for (int i = 0; i < 4; i++) {
            build(&steps[i], i, i > 0 ? &steps[i - 1] : NULL, i > 0);
            supply_inputs(&steps[i], i, NULL);
            steps[i].batch.has_late_inputs = i == 2;
        }
        ops->submit(f.executor, &steps[0].batch, &steps[0].result);
        ops->submit(f.executor, &steps[1].batch, &steps[1].result);
        wait_for(&f);
        ops->submit(f.executor, &steps[2].batch, &steps[2].result);
        assert_fails(&f);
        ops->supply(f.executor);
        int num_begun = watched.num_begun;
        ops->submit(f.executor, &steps[3].batch, &steps[3].result);
        assert_fails(&f);
        assert_fails(&f);
        assert_int_equal(watched.num_begun, num_begun);
        assert_int_equal(watched.num_waited_for, 2);
        stop(&f);
    }
}

/* A CPU begins nothing while another one has the turn, and gives it after each step, also after one
 * that fails. A GPU takes none. */
static void test_turns(void **state) {
    for (int is_asynchronous = 0; is_asynchronous < 2; is_asynchronous++) {
        struct fixture f;
        struct step steps[2];
        struct error err = {0};
        struct step_turns *turns = step_turns_create(&err);
        assert_int_equal(step_turns_add(turns, &err), OWN_SLOT);
        assert_int_equal(step_turns_add(turns, &err), OTHER_SLOT);
        watched.is_asynchronous = is_asynchronous;
        start_with_turns(&f, turns);
        watched.fail_at_wait = 2;
        bool takes_turns = !is_asynchronous && !f.info.has_dedicated_memory;
        for (int i = 0; i < 2; i++) {
            build(&steps[i], i, i > 0 ? &steps[i - 1] : NULL, false);
            supply_inputs(&steps[i], i, NULL);
            step_turns_take(turns, OTHER_SLOT);
            f.executor->ops->submit(f.executor, &steps[i].batch, &steps[i].result);
            while (takes_turns && !step_turns_is_waiting(turns, OWN_SLOT))
                usleep(1000);
            assert_false(takes_turns && watched.num_begun > i);
            if (takes_turns)
                step_turns_give(turns, OTHER_SLOT, 0);
            if (i == 0)
                wait_for(&f);
            else
                assert_fails(&f);
            if (!takes_turns)
                step_turns_give(turns, OTHER_SLOT, 0);
        }
        step_turns_take(turns, OTHER_SLOT);
        step_turns_give(turns, OTHER_SLOT, 0);
        stop(&f);
        step_turns_remove(turns, OWN_SLOT);
        step_turns_remove(turns, OTHER_SLOT);
        step_turns_destroy(turns);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_steps_in_flight),
        cmocka_unit_test(test_order_of_the_parts),
        cmocka_unit_test(test_a_failure_ends_all_later_steps),
        cmocka_unit_test(test_turns),
    };
    if (argc == 3) {
        device = argv[1];
        dtype = strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
