/* The life of a rank process: started, killed, stopped, started again, refused. The program starts
 * itself as the process. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/process_executor.h"
#include "engine/rank_process.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"

static const char *const arguments[] = {"test_process_executor", "rank-process", NULL};
static const char *const wrong_arguments[] = {"test_process_executor", "exit", NULL};

static struct process_executor_config config_of(const char *model_path) {
    return (struct process_executor_config){
        .program = "/proc/self/exe",
        .argv = arguments,
        .model_path = model_path,
        .executor = {.device = "cpu-ref",
                     .dtype = DTYPE_AUTO,
                     .kv_type = KV_AUTO,
                     .quantization = DTYPE_NONE,
                     .num_threads = 1,
                     .device_timeout_s = 1,
                     .limits = {.max_num_seqs = 2,
                                .max_num_batched_tokens = 16,
                                .max_model_len = 64,
                                .block_size = 16,
                                .vocab_size = 320,
                                .hidden_size = 64}},
    };
}

struct fixture {
    struct executor *executor;
    struct executor_info info;
    struct batch_capacity capacity;
    struct batch_arena arenas[EXECUTOR_MAX_STEPS];
    struct step_result results[EXECUTOR_MAX_STEPS];
    struct batch batches[EXECUTOR_MAX_STEPS];
};

static void start(struct fixture *f) {
    const struct process_executor_config config = config_of(MODEL_PATH);
    struct error err = {0};
    if (process_executor_create(&config, &f->info, &f->executor, &err) != 0)
        fail_msg("%s", err.message);
    f->capacity = (struct batch_capacity){.num_tokens = 16,
                                          .num_seqs = 2,
                                          .num_table_blocks = 4,
                                          .num_sample_rows = 4,
                                          .vocab_size = 320,
                                          .num_blocks = f->info.limits.num_blocks};
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        void *memory = f->executor->ops->step_memory(f->executor, &f->capacity);
        assert_non_null(memory);
        step_memory_bind(&f->capacity, memory, &f->arenas[i], &f->results[i]);
        f->batches[i] = batch_arena_view(&f->arenas[i]); /* no token: nothing is computed */
    }
}

static void submit_both(struct fixture *f) {
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++)
        f->executor->ops->submit(f->executor, &f->batches[i], &f->results[i]);
}

static void expect_lost(struct fixture *f) {
    struct error err = {0};
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        assert_int_equal(f->executor->ops->wait(f->executor, &err), -1);
        assert_int_equal(err.code, ERROR_RESTART);
    }
}

static void run_both(struct fixture *f) {
    struct error err = {0};
    submit_both(f);
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++)
        assert_int_equal(f->executor->ops->wait(f->executor, &err), 0);
    assert_int_equal(f->executor->ops->check(f->executor, &err), 0);
}

static void restart(struct fixture *f) {
    struct error err = {0};
    if (f->executor->ops->restart(f->executor, &err) != 0)
        fail_msg("%s", err.message);
}

static void test_steps_before_and_after(void **state) {
    struct fixture f;
    start(&f);
    pid_t first = process_executor_pid(f.executor);
    assert_int_equal(f.info.rank_process, first);
    assert_true(f.info.limits.num_blocks > 0);
    run_both(&f);
    kill(first, SIGKILL);
    submit_both(&f);
    expect_lost(&f);
    restart(&f);
    assert_true(process_executor_pid(f.executor) != first);
    assert_int_equal(kill(first, 0), -1);
    run_both(&f);
    f.executor->ops->destroy(f.executor);
}

/* It would answer, if it ran. */
static void test_a_process_that_is_stopped(void **state) {
    struct fixture f;
    start(&f);
    kill(process_executor_pid(f.executor), SIGSTOP);
    submit_both(&f);
    expect_lost(&f);
    assert_int_equal(process_executor_pid(f.executor), 0);
    restart(&f);
    run_both(&f);
    f.executor->ops->destroy(f.executor);
}

static void test_a_process_that_dies_idle(void **state) {
    struct fixture f;
    struct error err = {0};
    start(&f);
    assert_int_equal(f.executor->ops->check(f.executor, &err), 0);
    kill(process_executor_pid(f.executor), SIGABRT);
    while (f.executor->ops->check(f.executor, &err) == 0)
        nanosleep(&(struct timespec){.tv_nsec = CLOCK_NS_PER_MS}, NULL);
    assert_int_equal(err.code, ERROR_RESTART);
    restart(&f);
    run_both(&f);
    f.executor->ops->destroy(f.executor);
}

static void expect_refused(const struct process_executor_config *config, enum error_code code,
                           const char *why) {
    struct executor *executor;
    struct executor_info info;
    struct error err = {0};
    assert_int_equal(process_executor_create(config, &info, &executor, &err), -1);
    assert_null(executor);
    assert_int_equal(err.code, code);
    if (strstr(err.message, why) == NULL)
        fail_msg("%s", err.message);
}

static void test_what_cannot_start(void **state) {
    struct process_executor_config config = config_of(GOLDEN_DIR "/no-such.gguf");
    expect_refused(&config, ERROR_IO, "no-such.gguf");
    config = config_of(MODEL_PATH);
    config.executor.kv_memory_bytes = 1;
    expect_refused(&config, ERROR_CONFIG, "kv-cache-memory-bytes");
    config = config_of(MODEL_PATH);
    config.argv = wrong_arguments;
    expect_refused(&config, ERROR_DEVICE, "exit status 3");
    config = config_of(MODEL_PATH);
    config.program = "/no/such/program";
    expect_refused(&config, ERROR_IO, "No such file");
    config = config_of(MODEL_PATH);
    config.executor.device = "a name that is longer than that of any device";
    expect_refused(&config, ERROR_CONFIG, "device");
}

static void test_which_devices_have_one(void **state) {
    assert_false(process_executor_is_default("cpu"));
    assert_true(process_executor_is_default("cuda"));
    assert_true(process_executor_is_default("cuda-sim"));
    assert_false(rank_process_is_expected());
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_devices_have_one),
        cmocka_unit_test(test_steps_before_and_after),
        cmocka_unit_test(test_a_process_that_is_stopped),
        cmocka_unit_test(test_a_process_that_dies_idle),
        cmocka_unit_test(test_what_cannot_start),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    if (argc > 1)
        return 3;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
