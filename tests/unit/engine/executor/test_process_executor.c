/* The life of a rank process: started, killed, stopped, started again, refused. The program starts
 * itself as the process. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/executor/rank_message.h"
#include "engine/executor/process_executor.h"
#include "engine/executor/rank_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
        void *memory = NULL;
        assert_int_equal(f->executor->ops->step_memory(f->executor, &f->capacity, &memory), 0);
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
    struct rank_stats stats[BACKEND_MAX_RANKS];
    struct error err = {0};
    submit_both(f);
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++)
        assert_int_equal(f->executor->ops->wait(f->executor, &err), 0);
    assert_int_equal(f->executor->ops->check(f->executor, &err), 0);
    assert_int_equal(f->executor->ops->rank_stats(f->executor, stats), 1);
    assert_true(stats[0].compute_ns > 0);
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

/* Returns how many files of the process have such a name. */
static int count_open(pid_t pid, const char *name) {
    char path[64], target[256];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        count += strstr(target, name) != NULL;
    }
    closedir(folder);
    return count;
}

/* A driver's, for instance, which are not all closed on exec. */
static void test_files_that_are_open(void **state) {
    struct fixture f;
    int first = memfd_create("open-here", 0), fd = fcntl(first, F_DUPFD, 40);
    assert_true(fd >= 40); /* no number that the process's own files take the place of */
    close(first);
    start(&f);
    assert_int_equal(count_open(getpid(), "open-here"), 1);
    assert_int_equal(count_open(process_executor_pid(f.executor), "open-here"), 0);
    assert_int_equal(count_open(process_executor_pid(f.executor), "quire-batches"), 1);
    assert_int_equal(count_open(process_executor_pid(f.executor), "quire-results"), 1);
    f.executor->ops->destroy(f.executor);
    close(fd);
}

static void await_loss(struct fixture *f) {
    struct error err = {0};
    while (f->executor->ops->check(f->executor, &err) == 0)
        nanosleep(&(struct timespec){.tv_nsec = CLOCK_NS_PER_MS}, NULL);
    assert_int_equal(err.code, ERROR_RESTART);
}

static void test_a_process_that_dies_idle(void **state) {
    struct fixture f;
    struct error err = {0};
    start(&f);
    assert_int_equal(f.executor->ops->check(f.executor, &err), 0);
    kill(process_executor_pid(f.executor), SIGABRT);
    await_loss(&f);
    restart(&f);
    run_both(&f);
    f.executor->ops->destroy(f.executor);
}

static void *start_in_thread(void *f) {
    start(f);
    return NULL;
}

static void *restart_in_thread(void *f) {
    restart(f);
    return NULL;
}

static void run_in_thread(void *(*function)(void *), struct fixture *f) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, f), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* The process goes with it. */
static void test_a_thread_that_ends(void **state) {
    struct fixture f;
    run_in_thread(start_in_thread, &f);
    await_loss(&f);
    run_in_thread(restart_in_thread, &f);
    await_loss(&f);
    restart(&f);
    run_both(&f);
    f.executor->ops->destroy(f.executor);
}

/* As the engine's thread does at the end of a server. */
static void test_a_thread_that_ends_before_destroy(void **state) {
    struct fixture f;
    start(&f);
    kill(process_executor_pid(f.executor), SIGKILL);
    await_loss(&f);
    run_in_thread(restart_in_thread, &f);
    pid_t pid = process_executor_pid(f.executor);
    assert_true(pid > 0);
    f.executor->ops->destroy(f.executor);
    assert_int_equal(kill(pid, 0), -1);
}

static pid_t spawn_for(int socket_fd) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (dup2(socket_fd, RANK_SOCKET_FD) >= 0)
        execv("/proc/self/exe", (char *const *)arguments);
    _exit(9);
}

/* The model is a pipe, so that whoever opens it is seen, and waits. */
static void test_an_engine_that_is_gone_before_the_process_runs(void **state) {
    static struct rank_message message = {.kind = RANK_START};
    char folder[] = "/tmp/quire-rank-XXXXXX";
    int ends[2], status;
    assert_non_null(mkdtemp(folder));
    snprintf(message.start.model_path, sizeof(message.start.model_path), "%s/model.gguf", folder);
    assert_int_equal(mkfifo(message.start.model_path, 0600), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(rank_message_send(ends[0], &message), 0);
    close(ends[0]);
    pid_t pid = spawn_for(ends[1]), ended;
    bool is_opened = false;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && !is_opened)
        is_opened = open(message.start.model_path, O_WRONLY | O_NONBLOCK) >= 0;
    assert_false(is_opened);
    assert_int_equal(ended, pid);
    assert_int_equal(status, 0);
    close(ends[1]);
    unlink(message.start.model_path);
    rmdir(folder);
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
        cmocka_unit_test(test_files_that_are_open),
        cmocka_unit_test(test_a_thread_that_ends),
        cmocka_unit_test(test_a_thread_that_ends_before_destroy),
        cmocka_unit_test(test_an_engine_that_is_gone_before_the_process_runs),
        cmocka_unit_test(test_what_cannot_start),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    if (argc > 1)
        return 3;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
