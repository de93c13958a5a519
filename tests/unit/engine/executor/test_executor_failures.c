/* Which of two steps are lost when a rank fails in one of them: that one, those after it, and those
 * that another rank had not finished by then; none that all had. backend_open is replaced by one
 * whose ranks stand still where a test says, so that nothing depends on who is faster. The steps
 * have no tokens: no rank waits for another in them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/executor.h"

#include <pthread.h>
#include <stdio.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"

enum { NUM_STEPS = 2, BLOCK_SIZE = 16 };

/* --- The stage --- */

static struct {
    int32_t failing_rank;
    int failing_step; /* its wait for that one fails */
    int held_step;    /* the other rank ends that one once the failure is noted */
    const struct backend_ops *original;
    int num_waits, num_ends; /* of the rank that fails; of the other */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    bool are_submitted; /* both steps */
    bool is_held;       /* or there is no other rank */
    bool is_noted;      /* the failure, by the executor */
} stage = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The thread of the rank that fails, once it does. */
static _Thread_local bool has_failed;

int __real_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);

static void set(bool *flag) {
    pthread_mutex_lock(&stage.lock);
    *flag = true;
    __real_pthread_cond_broadcast(&stage.changed);
    pthread_mutex_unlock(&stage.lock);
}

static void await(const bool *flag) {
    pthread_mutex_lock(&stage.lock);
    while (!*flag)
        pthread_cond_wait(&stage.changed, &stage.lock);
    pthread_mutex_unlock(&stage.lock);
}

/* The executor tells its threads of a failure while it has its lock, which it releases when it is
 * done with what follows from that. */
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) {
    if (has_failed)
        set(&stage.is_noted);
    return __real_pthread_cond_broadcast(cond);
}

static int failing_step_wait(struct backend *b, struct error *err) {
    if (stage.num_waits++ != stage.failing_step)
        return stage.original->step_wait(b, err);
    await(&stage.are_submitted);
    await(&stage.is_held);
    has_failed = true;
    return error_set(err, ERROR_DEVICE, "rank %d was told to fail", stage.failing_rank);
}

/* Another step is begun by then only if all before it are finished: the ranks are synchronous. */
static void held_step_end(struct backend *b) {
    if (stage.num_ends++ == stage.held_step) {
        set(&stage.is_held);
        await(&stage.is_noted);
    }
    stage.original->step_end(b);
}

struct backend *__real_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);
struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);

struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err) {
    static struct backend_ops failing, held;
    struct backend *b = __real_backend_open(name, config, err);
    if (b == NULL)
        return NULL;
    if (config->rank == stage.failing_rank) {
        stage.original = b->ops;
        failing = *b->ops;
        failing.step_wait = failing_step_wait;
        b->ops = &failing;
    } else {
        held = *b->ops;
        held.step_end = held_step_end;
        b->ops = &held;
    }
    return b;
}

/* --- Tests --- */

static struct executor *create(const struct model *model, int32_t num_ranks) {
    const struct executor_config config = {
        .device = "cpu-ref",
        .dtype = DTYPE_AUTO,
        .kv_type = KV_AUTO,
        .quantization = DTYPE_NONE,
        .num_ranks = num_ranks,
        .num_threads = 1,
        .kv_memory_bytes = 1 << 20,
        .limits = {.max_num_seqs = 1,
                   .max_num_batched_tokens = BLOCK_SIZE,
                   .max_model_len = BLOCK_SIZE,
                   .block_size = BLOCK_SIZE,
                   .vocab_size = model->config.vocab_size,
                   .hidden_size = model->config.hidden_size},
    };
    struct executor_info info;
    struct executor *executor = NULL;
    struct error err = {0};
    if (executor_create(model, &config, &info, &executor, &err) != 0)
        fail_msg("%s", err.message);
    return executor;
}

/* The first num_good steps are not lost. */
static void fail_in_a_step(const struct model *model, int32_t num_ranks, int num_good) {
    static const struct batch nothing = {0};
    struct step_result results[NUM_STEPS];
    stage.num_waits = stage.num_ends = 0;
    stage.are_submitted = stage.is_noted = false;
    stage.is_held = num_ranks == 1;
    struct executor *executor = create(model, num_ranks);
    for (int i = 0; i < NUM_STEPS; i++)
        executor->ops->submit(executor, &nothing, &results[i]);
    set(&stage.are_submitted);
    await(&stage.is_noted);
    for (int i = 0; i < NUM_STEPS; i++) {
        struct error err = {0};
        char cause[64];
        assert_int_equal(executor->ops->wait(executor, &err), i < num_good ? 0 : -1);
        if (i < num_good)
            continue;
        snprintf(cause, sizeof(cause), "rank %d was told to fail", stage.failing_rank);
        assert_int_equal(err.code, ERROR_DEVICE);
        assert_string_equal(err.message, cause);
    }
    executor->ops->destroy(executor);
}

static void test_one_rank(void **state) {
    stage.failing_rank = 0;
    for (stage.failing_step = 0; stage.failing_step < NUM_STEPS; stage.failing_step++)
        fail_in_a_step(*state, 1, stage.failing_step);
}

/* Either fails, before the other has come to the step, in it, and when it is further on. */
static void test_two_ranks(void **state) {
    for (stage.failing_rank = 0; stage.failing_rank < 2; stage.failing_rank++)
        for (stage.failing_step = 0; stage.failing_step < NUM_STEPS; stage.failing_step++)
            for (stage.held_step = 0; stage.held_step < NUM_STEPS; stage.held_step++)
                fail_in_a_step(*state, 2,
                               stage.failing_step < stage.held_step ? stage.failing_step
                                                                    : stage.held_step);
}

static int open_model(void **state) {
    return model_open(MODEL_PATH, (struct model **)state, NULL);
}

static int close_model(void **state) {
    model_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_two_ranks),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
