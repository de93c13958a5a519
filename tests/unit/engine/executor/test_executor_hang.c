/* A device that never comes back, wherever it is called: the engine's thread gets an error instead,
 * at start and in a step; where it gives the steps to the device itself, a call that does not
 * return ends the process. backend_open is replaced: "cuda" is the scalar backend with memory of
 * its own, whose calls return no more where a test says. The threads that stand in them stay until
 * the process ends, and so does the model. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/executor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"

enum { TIMEOUT_S = 1, BLOCK_SIZE = 16 };

enum call { NO_CALL, CALL_OPEN, CALL_SYNCHRONIZE, CALL_COPY_BLOCKS, CALL_STEP_END, CALL_STEP_WAIT };

/* Nothing orders a thread that stands in a call before those that come after it. */
static struct {
    _Atomic(enum call) hanging;
    _Atomic int num_before; /* calls of that kind that return */
    _Atomic int num_calls;
    _Atomic bool is_slow; /* it takes longer than the timeout, but returns */
    pthread_once_t has_ops;
    _Atomic bool is_asynchronous; /* as if it were */
    _Atomic bool is_done;         /* its steps, then */
    struct backend_ops original, ops, asynchronous_ops;
} device = {.has_ops = PTHREAD_ONCE_INIT};

static void enter(enum call call) {
    if (call != device.hanging || device.num_calls++ < device.num_before)
        return;
    if (device.is_slow)
        sleep(3 * TIMEOUT_S);
    else
        for (;;)
            pause();
}

static int enter_synchronize(struct backend *b, struct error *err) {
    enter(CALL_SYNCHRONIZE);
    return device.original.synchronize(b, err);
}

static void enter_copy_blocks(struct backend *b, const struct copy_blocks_args *args) {
    enter(CALL_COPY_BLOCKS);
    device.original.copy_blocks(b, args);
}

static void enter_step_end(struct backend *b) {
    enter(CALL_STEP_END);
    device.original.step_end(b);
}

static int enter_step_wait(struct backend *b, struct error *err) {
    enter(CALL_STEP_WAIT);
    return device.original.step_wait(b, err);
}

static bool is_done(struct backend *b) {
    return device.is_done;
}

struct backend *__real_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);
struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err);

static const struct backend_ops *_Atomic scalar_ops;

static void fill_ops(void) {
    device.original = device.ops = *scalar_ops;
    device.ops.synchronize = enter_synchronize;
    device.ops.copy_blocks = enter_copy_blocks;
    device.ops.step_end = enter_step_end;
    device.ops.step_wait = enter_step_wait;
    device.asynchronous_ops = device.ops;
    device.asynchronous_ops.step_is_done = is_done;
}

struct backend *__wrap_backend_open(const char *name, const struct backend_config *config,
                                    struct error *err) {
    enter(CALL_OPEN);
    struct backend *b = __real_backend_open("cpu-ref", config, err);
    if (b == NULL)
        return NULL;
    if (atomic_load(&scalar_ops) == NULL)
        atomic_store(&scalar_ops, b->ops);
    pthread_once(&device.has_ops, fill_ops);
    b->ops = device.is_asynchronous ? &device.asynchronous_ops : &device.ops;
    b->has_dedicated_memory = strcmp(name, "cuda") == 0;
    return b;
}

static int create(const struct model *model, const char *name, int32_t timeout_s,
                  struct executor **out, struct error *err) {
    const struct executor_config config = {
        .device = name,
        .dtype = DTYPE_AUTO,
        .kv_type = KV_AUTO,
        .quantization = DTYPE_NONE,
        .gpu_memory_utilization = 1,
        .device_timeout_s = timeout_s,
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
    return executor_create(model, &config, &info, out, err);
}

static void assert_late(const struct error *err) {
    assert_int_equal(err->code, ERROR_DEVICE);
    assert_non_null(strstr(err->message, "within 1 s (--device-timeout)"));
}

/* Every call of a start, one start after the other, until all of it returns. */
static void hang_at_start(const struct model *model, enum call call, int least_calls) {
    struct executor *executor = NULL;
    device.hanging = call;
    for (device.num_before = 0;; device.num_before++) {
        struct error err = {0};
        device.num_calls = 0;
        if (create(model, "cuda", TIMEOUT_S, &executor, &err) == 0)
            break;
        assert_late(&err);
        assert_true(executor_has_hung(executor));
    }
    assert_in_range(device.num_before, least_calls, 20);
    assert_false(executor_has_hung(executor));
    executor->ops->destroy(executor);
}

static void test_start(void **state) {
    hang_at_start(*state, CALL_OPEN, 1);
    hang_at_start(*state, CALL_SYNCHRONIZE, 2);
    hang_at_start(*state, CALL_COPY_BLOCKS, 2);
}

static const int32_t blocks[] = {0, 1};
static const struct batch one_copy = {.copies = {.from = blocks, .to = blocks + 1, .count = 1}};

/* Both steps are lost, whichever call of the first it is that does not return. The results are the
 * executor's for good. */
static void hang_in_step(const struct model *model, enum call call, struct step_result results[2]) {
    struct executor *executor;
    struct error err = {0};
    device.hanging = NO_CALL;
    assert_int_equal(create(model, "cuda", TIMEOUT_S, &executor, &err), 0);
    device.hanging = call;
    device.num_calls = 0;
    device.num_before = 1;
    executor->ops->submit(executor, &one_copy, &results[0]);
    assert_int_equal(executor->ops->wait(executor, &err), 0);
    for (int i = 0; i < 2; i++)
        executor->ops->submit(executor, &one_copy, &results[i]);
    for (int i = 0; i < 2; i++) {
        err = (struct error){0};
        assert_int_equal(executor->ops->wait(executor, &err), -1);
        assert_late(&err);
    }
    assert_true(executor_has_hung(executor));
}

static void test_step(void **state) {
    static struct step_result results[3][2];
    hang_in_step(*state, CALL_COPY_BLOCKS, results[0]);
    hang_in_step(*state, CALL_STEP_END, results[1]);
    hang_in_step(*state, CALL_STEP_WAIT, results[2]);
}

/* A step on a CPU takes what it takes, and so it does on a GPU without a limit. */
static void run_slow_step(const struct model *model, const char *name, int32_t timeout_s) {
    struct step_result result;
    struct executor *executor;
    device.hanging = NO_CALL;
    assert_int_equal(create(model, name, timeout_s, &executor, NULL), 0);
    device.hanging = CALL_STEP_WAIT;
    device.num_calls = device.num_before = 0;
    device.is_slow = true;
    executor->ops->submit(executor, &one_copy, &result);
    assert_int_equal(executor->ops->wait(executor, NULL), 0);
    assert_false(executor_has_hung(executor));
    executor->ops->destroy(executor);
    device.is_slow = false;
}

static void test_no_limit(void **state) {
    run_slow_step(*state, "cpu", TIMEOUT_S);
    run_slow_step(*state, "cuda", 0);
}

static struct executor *create_direct(const struct model *model, int32_t timeout_s) {
    struct executor *executor;
    struct error err = {0};
    device.hanging = NO_CALL;
    device.is_asynchronous = true;
    if (create(model, "cuda", timeout_s, &executor, &err) != 0)
        fail_msg("%s", err.message);
    return executor;
}

/* The first of two steps never ends. */
static void test_direct_step(void **state) {
    static struct step_result results[3];
    struct executor *executor = create_direct(*state, TIMEOUT_S);
    struct error err = {0};
    device.is_done = true;
    executor->ops->submit(executor, &one_copy, &results[0]);
    assert_int_equal(executor->ops->wait(executor, &err), 0);
    device.is_done = false;
    for (int i = 1; i < 3; i++)
        executor->ops->submit(executor, &one_copy, &results[i]);
    for (int i = 1; i < 3; i++) {
        err = (struct error){0};
        assert_int_equal(executor->ops->wait(executor, &err), -1);
        assert_late(&err);
    }
    assert_true(executor_has_hung(executor));
    device.is_asynchronous = false;
}

/* Without a limit, and within it, a step takes what it takes. */
static void *end_step(void *argument) {
    sleep(3 * TIMEOUT_S);
    device.is_done = true;
    return NULL;
}

static void test_slow_direct_step(void **state) {
    static const int32_t limits[] = {0, 10 * TIMEOUT_S};
    for (int i = 0; i < 2; i++) {
        struct step_result result;
        pthread_t thread;
        struct executor *executor = create_direct(*state, limits[i]);
        device.is_done = false;
        executor->ops->submit(executor, &one_copy, &result);
        assert_int_equal(pthread_create(&thread, NULL, end_step, NULL), 0);
        assert_int_equal(executor->ops->wait(executor, NULL), 0);
        assert_true(device.is_done);
        assert_false(executor_has_hung(executor));
        pthread_join(thread, NULL);
        executor->ops->destroy(executor);
    }
    device.is_asynchronous = false;
}

/* The engine's thread stands in it: the process ends by itself. */
static void leave_by(const struct model *model, enum call call) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct step_result result;
        struct executor *executor = create_direct(model, TIMEOUT_S);
        alarm(20 * TIMEOUT_S);
        device.num_calls = device.num_before = 0;
        device.hanging = call;
        executor->ops->submit(executor, &one_copy, &result);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 70);
}

static void test_direct_call(void **state) {
    leave_by(*state, CALL_COPY_BLOCKS);
    leave_by(*state, CALL_STEP_END);
}

static int open_model(void **state) {
    return model_open(MODEL_PATH, (struct model **)state, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct_call), /* forks, so before there are threads */
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_direct_step),
        cmocka_unit_test(test_slow_direct_step),
    };
    return cmocka_run_group_tests(tests, open_model, NULL);
}
