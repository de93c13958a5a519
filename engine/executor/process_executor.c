#include "engine/executor/process_executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "engine/executor/rank_message.h"
#include "engine/executor/step_turns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 1000       /* between two checks of a process that does not answer */
#define END_MS 30000       /* timeout for a killed process to be gone */
#define END_ITSELF_MS 1000 /* for one that should end itself; a stop has 5 s for all */
#define IDLE_NS 5000000    /* of processor time between two checks; less counts as nothing */

extern char **environ;

struct submitted_step {
    const struct batch *batch;
    struct step_result *result;
};

struct process_executor {
    struct executor base;
    struct process_executor_config config;
    struct rank_start start;   /* of the next process */
    struct executor_info info; /* of the first process */
    _Atomic pid_t pid;         /* of the process; 0: none. Read by any thread */
    int socket;                /* -1: none */
    /* ERROR_NONE: the process is not lost. ERROR_RESTART: it is. ERROR_DEVICE: it cannot be killed.
     * What is sent to a lost process is dropped, until another one is started. */
    struct error lost;
    struct step_files files;
    int host_memory;                /* that the ranks' host pools are in; -1: it is not shared */
    struct host_pools pools;        /* mapped; none before the first start has ended */
    struct batch_capacity capacity; /* of a step, once there is memory */
    struct step_mapping memory;
    int32_t num_steps;
    struct submitted_step submitted[EXECUTOR_MAX_STEPS]; /* the oldest first */
    int32_t num_submitted;
    int32_t last_step;         /* submitted last */
    int32_t num_failed_starts; /* in a row */
    pthread_mutex_t lock;
    int32_t num_ranks; /* guarded by lock: see executor_ops.rank_stats */
    struct rank_stats ranks[BACKEND_MAX_RANKS];
};

static struct process_executor *self(struct executor *executor) {
    return (struct process_executor *)executor;
}

/* --- The process: starting and ending it --- */

static int spawn_failed(int status, struct error *err) {
    return error_set(err, ERROR_IO, "cannot start the rank process: %s", strerror(status));
}

/* The process has the file under that number; none if it is -1. */
static int give_file(posix_spawn_file_actions_t *actions, int file, int number) {
    return file < 0 ? posix_spawn_file_actions_addclose(actions, number)
                    : posix_spawn_file_actions_adddup2(actions, file, number);
}

/* Spawns the process with its end of the socket, the files of the steps, turns and host pools, and
 * the standard streams except stdin. It closes everything else that exec(3) does not close
 * (rank_process.c). */
static int spawn_with(const struct process_executor *executor, int socket_fd, char **environment,
                      pid_t *out) {
    const struct step_files *files = &executor->files;
    const struct step_turns *turns = executor->config.turns;
    posix_spawn_file_actions_t actions;
    int status = posix_spawn_file_actions_init(&actions);
    if (status != 0)
        return status;
    status = give_file(&actions, turns != NULL ? step_turns_fd(turns) : -1, RANK_TURNS_FD);
    if (status == 0)
        status = give_file(&actions, executor->host_memory, RANK_HOST_FD);
    if (status == 0 &&
        (status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) == 0 &&
        (status = posix_spawn_file_actions_adddup2(&actions, socket_fd, RANK_SOCKET_FD)) == 0 &&
        (status = posix_spawn_file_actions_adddup2(&actions, files->batches, RANK_BATCHES_FD)) ==
            0 &&
        (status = posix_spawn_file_actions_adddup2(&actions, files->results, RANK_RESULTS_FD)) == 0)
        status = posix_spawn(out, executor->config.program, &actions, NULL,
                             (char *const *)executor->config.argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

/* Returns the environment without the API keys. */
static char **list_environment(void) {
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count && list != NULL; i++)
        if (strncmp(environ[i], "QUIRE_API_KEY", 13) != 0)
            list[kept++] = environ[i];
    return list;
}

/* Starts the process with its end of a socket, the files of the steps, and the environment without
 * the API keys. */
static int start_process(struct process_executor *executor, struct error *err) {
    int ends[2];
    pid_t pid = 0;
    executor->lost = (struct error){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return spawn_failed(errno, err);
    int inherited = fcntl(ends[1], F_DUPFD_CLOEXEC, RANK_MIN_FD);
    char **environment = list_environment();
    int status = inherited < 0 ? errno : ENOMEM;
    if (inherited >= 0 && environment != NULL)
        status = spawn_with(executor, inherited, environment, &pid);
    free(environment);
    close(ends[1]);
    if (inherited >= 0)
        close(inherited);
    if (status != 0) {
        close(ends[0]);
        return spawn_failed(status, err);
    }
    executor->socket = ends[0];
    atomic_store(&executor->pid, pid);
    return 0;
}

/* The process has ended, or will as soon as the system lets it run. */
static void give_turn(struct process_executor *executor) {
    if (executor->start.turn_slot >= 0)
        step_turns_give(executor->config.turns, executor->start.turn_slot, 0);
}

/* Waits for the process to end; returns false when it has not. */
static bool await_end(struct process_executor *executor, int timeout_ms, int *out_status) {
    int64_t deadline_ms = clock_now_ms() + timeout_ms;
    pid_t pid = atomic_load(&executor->pid), ended;
    while ((ended = waitpid(pid, out_status, WNOHANG)) == 0 && clock_now_ms() < deadline_ms)
        nanosleep(&(struct timespec){.tv_nsec = 2 * CLOCK_NS_PER_MS}, NULL);
    if (ended == 0)
        return false;
    atomic_store(&executor->pid, 0);
    give_turn(executor);
    return true;
}

static void close_socket(struct process_executor *executor) {
    if (executor->socket >= 0)
        close(executor->socket);
    executor->socket = -1;
}

/* Kills the process, if there is one that has not ended by itself. Returns -1 when it does not end.
 * If out_status is not NULL, stores there how the process ended, if there was one. */
static int kill_process(struct process_executor *executor, int *out_status, struct error *err) {
    close_socket(executor);
    if (atomic_load(&executor->pid) == 0)
        return 0;
    kill(atomic_load(&executor->pid), SIGKILL);
    if (await_end(executor, END_MS, out_status))
        return 0;
    give_turn(executor);
    return error_set(err, ERROR_DEVICE, "the rank process %d cannot be killed: its device hangs",
                     (int)atomic_load(&executor->pid));
}

/* Lets the process end by itself, for a while. Accepts that there is none. */
static void dismiss(struct process_executor *executor) {
    close_socket(executor);
    if (atomic_load(&executor->pid) != 0 && !await_end(executor, END_ITSELF_MS, NULL))
        kill_process(executor, NULL, NULL);
}

static void describe_end(int status, char *text, size_t size) {
    if (WIFSIGNALED(status))
        snprintf(text, size, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exit status %d", WEXITSTATUS(status));
}

/* Ends the process for this reason; NULL: because it has ended by itself. */
static void lose(struct process_executor *executor, const char *why) {
    struct error err = {0};
    char end[128];
    int status = 0;
    bool can_restart = kill_process(executor, &status, &err) == 0;
    describe_end(status, end, sizeof(end));
    executor->lost.code = can_restart ? ERROR_RESTART : ERROR_DEVICE;
    snprintf(executor->lost.message, sizeof(executor->lost.message), "%.400s",
             !can_restart  ? err.message
             : why != NULL ? why
                           : end);
    log_warning("the ranks are lost: %s%s", why != NULL ? "" : "the rank process ended with ",
                executor->lost.message);
}

/* Ends the process because its answer is wrong: it is treated like a dead one. */
static void lose_for_answer(struct process_executor *executor, const char *what) {
    char why[300];
    snprintf(why, sizeof(why), "the rank process answers wrongly: %.250s", what);
    lose(executor, why);
}

static bool is_lost(const struct process_executor *executor) {
    return executor->lost.code != ERROR_NONE;
}

/* Returns -1 with `lost` when the process is lost. */
static int report_loss(const struct process_executor *executor, struct error *err) {
    return is_lost(executor) ? error_set(err, executor->lost.code, "%s", executor->lost.message)
                             : 0;
}

/* --- The process: talking to it and watching it --- */

/* Returns the processor time that the process has used; -1: not known. */
static int64_t processor_ns(const struct process_executor *executor) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(atomic_load(&executor->pid), &clock) != 0 ||
        clock_gettime(clock, &used) != 0)
        return -1;
    return used.tv_sec * CLOCK_NS_PER_S + used.tv_nsec;
}

static bool is_waiting_for_turn(const struct process_executor *executor) {
    return executor->start.turn_slot >= 0 &&
           step_turns_is_waiting(executor->config.turns, executor->start.turn_slot);
}

/* Waits for a message. gives_up: set by any thread, ends the wait; NULL: nothing does. Returns -1
 * when the process is lost. A process that computes for a long time is left alone; it hangs when it
 * has neither answered nor used processor time for a while, although it was not waiting for its
 * turn.
 *
 * A process whose threads only check whether something has arrived uses some microseconds per
 * second. If this process itself was stopped meanwhile, that counts as one second at most. */
static int receive(struct process_executor *executor, const atomic_bool *gives_up,
                   struct rank_message *out) {
    int32_t timeout_s = executor->config.executor.device_timeout_s;
    struct pollfd poll_fd = {.fd = executor->socket, .events = POLLIN};
    int64_t used_ns = processor_ns(executor);
    bool waits = is_waiting_for_turn(executor);
    int32_t num_idle = 0;
    int count;
    while ((count = poll(&poll_fd, 1, LOOK_MS)) <= 0) {
        CHECK(count == 0 || errno == EINTR);
        int64_t now_ns = processor_ns(executor);
        bool has_waited = waits;
        waits = is_waiting_for_turn(executor);
        bool is_idle = now_ns - used_ns < IDLE_NS && !waits && !has_waited;
        num_idle = is_idle ? num_idle + (count == 0) : 0;
        used_ns = now_ns;
        if (gives_up != NULL && atomic_load(gives_up)) {
            lose(executor, "nobody waits for it any more");
            return -1;
        }
        if (timeout_s == 0 || num_idle < timeout_s)
            continue;
        char why[128];
        snprintf(why, sizeof(why),
                 "the rank process has not run or answered for %d s (--device-timeout)", timeout_s);
        lose(executor, why);
        return -1;
    }
    if (rank_message_receive(executor->socket, out) == 0)
        return 0;
    if (errno == EBADMSG)
        lose_for_answer(executor, "what came is not a message");
    else
        lose(executor, NULL);
    return -1;
}

/* Sends a message, unless the process is lost. If that fails, the process is lost. */
static void send_message(struct process_executor *executor, const struct rank_message *message) {
    if (!is_lost(executor) && rank_message_send(executor->socket, message) != 0)
        lose(executor, NULL);
}

/* --- Its ranks: starting them, and starting them again --- */

static void send_memory(struct process_executor *executor) {
    const struct rank_message message = {.kind = RANK_MEMORY, .capacity = executor->capacity};
    if (executor->memory.memory != NULL)
        send_message(executor, &message);
}

/* Returns -1 with the error that the process reports or, when it is lost, with what is known of
 * that. */
static int await_ready(struct process_executor *executor, struct executor_info *info,
                       struct error *err) {
    const struct weights_progress *progress = &executor->config.executor.progress;
    bool is_first = info == &executor->info; /* progress is shown only for the first */
    struct rank_message message;
    const atomic_bool *gives_up =
        is_first ? executor->config.gives_up : &executor->base.stops_restarting;
    while (receive(executor, gives_up, &message) == 0) {
        struct error wrong;
        if (message.kind == RANK_READY) {
            if (rank_message_check_ready(&message.info, &executor->start.config, &wrong) == 0) {
                *info = message.info;
                return 0;
            }
            lose_for_answer(executor, wrong.message);
            break;
        }
        if (message.kind == RANK_FAILED) {
            if (rank_message_check_error(&message.done.error, &wrong) != 0) {
                lose_for_answer(executor, wrong.message);
                break;
            }
            if (kill_process(executor, NULL, err) != 0)
                return -1;
            return error_set(err, message.done.error.code, "%s", message.done.error.message);
        }
        if (message.kind != RANK_PROGRESS) {
            lose_for_answer(executor, "a message came that belongs to no start");
            break;
        }
        if (is_first && progress->report != NULL)
            progress->report(progress->context, message.progress.bytes_read,
                             message.progress.num_bytes);
    }
    return error_set(err, executor->lost.code, "the rank process ended while it started: %.400s",
                     executor->lost.message);
}

static int start(struct process_executor *executor, struct executor_info *info, struct error *err) {
    const struct rank_message message = {.kind = RANK_START, .start = executor->start};
    if (start_process(executor, err) != 0)
        return -1;
    send_message(executor, &message);
    if (report_loss(executor, err) != 0)
        return -1;
    return await_ready(executor, info, err);
}

/* Starts a process like the first. */
static int start_again(struct process_executor *executor, struct error *err) {
    struct executor_info info;
    int64_t started_ns = clock_now_ns();
    if (start(executor, &info, err) != 0 || executor_info_compare(&executor->info, &info, err) != 0)
        return -1;
    send_memory(executor);
    log_info("the ranks are back after %.0f ms, process %d",
             (double)(clock_now_ns() - started_ns) / (double)CLOCK_NS_PER_MS,
             (int)atomic_load(&executor->pid));
    return 0;
}

/* --- Host pools --- */

static void unmap_host_pools(struct process_executor *executor) {
    struct host_pools *pools = &executor->pools;
    size_t num_blocks = (size_t)executor->info.limits.num_host_blocks;
    for (int32_t i = 0; i < pools->count; i++)
        host_memory_unmap(pools->data[i], num_blocks * pools->block_bytes[i]);
    pools->count = 0;
}

/* The same for every process that is started, since it has the same sizes. */
static int map_host_pools(struct process_executor *executor, struct error *err) {
    struct host_pools *pools = &executor->pools;
    size_t num_blocks = (size_t)executor->info.limits.num_host_blocks;
    int32_t most = executor->info.num_ranks * HOST_POOLS_PER_RANK;
    for (int32_t i = 0; i < most && executor->host_memory >= 0 && num_blocks > 0; i++) {
        size_t block_bytes = executor->info.pool_block_bytes[i];
        if (block_bytes == 0)
            continue;
        void *data = host_memory_map(executor->host_memory, i, num_blocks * block_bytes, err);
        if (data == NULL)
            return -1;
        pools->data[pools->count] = data;
        pools->block_bytes[pools->count++] = block_bytes;
    }
    return 0;
}

static void list_host_pools(struct executor *base, struct host_pools *out) {
    *out = self(base)->pools;
}

/* --- The engine's thread --- */

/* A start that failed may be tried again, but not one that brought different ranks. */
static int restart(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    CHECK(is_lost(executor) && executor->num_submitted == 0);
    if (atomic_load(&executor->base.stops_restarting))
        return error_set(err, ERROR_RESTART, "no one is waiting for the ranks any more");
    if (executor->num_failed_starts > 0) /* a device may take a moment to be free again */
        sleep(1);
    if (start_again(executor, err) == 0) {
        executor->num_failed_starts = 0;
        return 0;
    }
    bool has_ended = atomic_load(&executor->pid) == 0;
    executor->num_failed_starts++;
    executor->lost.code = ERROR_RESTART;
    log_warning("cannot start the ranks again: %s", err->message);
    if (has_ended && err->code != ERROR_MODEL && err->code != ERROR_CONFIG)
        err->code = ERROR_RESTART;
    return -1;
}

/* A process that has died has closed its socket; nothing else arrives while no step runs. */
static int check(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    struct pollfd poll_fd = {.fd = executor->socket, .events = POLLIN};
    struct rank_message message;
    if (!is_lost(executor) && poll(&poll_fd, 1, 0) > 0 && receive(executor, NULL, &message) == 0)
        lose_for_answer(executor, "a message came that nobody waits for");
    return report_loss(executor, err);
}

static int step_memory(struct executor *base, const struct batch_capacity *capacity, void **out) {
    struct process_executor *executor = self(base);
    CHECK(executor->num_steps < EXECUTOR_MAX_STEPS);
    if (executor->num_steps == 0) {
        if (step_mapping_create(&executor->memory, capacity, &executor->files) != 0)
            return -1;
        executor->capacity = *capacity;
        send_memory(executor);
    }
    *out = step_mapping_step(&executor->memory, executor->num_steps++);
    return 0;
}

static void submit(struct executor *base, const struct batch *batch, struct step_result *result) {
    struct process_executor *executor = self(base);
    int32_t step = step_mapping_find(&executor->memory, batch->inputs.token_ids);
    CHECK(step < executor->num_steps && executor->num_submitted < EXECUTOR_MAX_STEPS);
    executor->submitted[executor->num_submitted++] = (struct submitted_step){batch, result};
    executor->last_step = step;
    const struct rank_message message = {.kind = RANK_SUBMIT, .step = step};
    send_message(executor, &message);
}

static void supply(struct executor *base) {
    struct process_executor *executor = self(base);
    const struct rank_message message = {.kind = RANK_SUPPLY, .step = executor->last_step};
    send_message(executor, &message);
}

static void take_result(struct process_executor *executor, const struct rank_message *answer,
                        struct step_result *result) {
    result->num_sample_rows = answer->done.num_sample_rows;
    pthread_mutex_lock(&executor->lock);
    executor->num_ranks = answer->done.num_ranks;
    memcpy(executor->ranks, answer->done.ranks, sizeof(executor->ranks));
    pthread_mutex_unlock(&executor->lock);
}

static void receive_result(struct process_executor *executor, const struct submitted_step *step) {
    struct rank_message answer;
    struct error wrong;
    if (receive(executor, NULL, &answer) != 0)
        return;
    if (rank_message_check_done(&answer, step->batch, step->result, executor->capacity.vocab_size,
                                &wrong) != 0)
        lose_for_answer(executor, wrong.message);
    else if (answer.done.error.code != ERROR_NONE)
        lose(executor, answer.done.error.message);
    else
        take_result(executor, &answer, step->result);
}

static int wait_for_step(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    const struct rank_message request = {.kind = RANK_WAIT};
    CHECK(executor->num_submitted > 0);
    struct submitted_step step = executor->submitted[0];
    executor->submitted[0] = executor->submitted[--executor->num_submitted];
    send_message(executor, &request);
    if (!is_lost(executor))
        receive_result(executor, &step);
    return report_loss(executor, err);
}

/* Without a process there is nothing left to hold, whatever should have been kept. */
static void fall_asleep(struct executor *base, bool discards_weights) {
    struct process_executor *executor = self(base);
    CHECK(executor->num_submitted == 0 && !is_lost(executor));
    dismiss(executor);
}

static int wake(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    if (start_again(executor, err) == 0)
        return 0;
    executor->lost = (struct error){0};
    kill_process(executor, NULL, NULL);
    return -1;
}

static void destroy(struct executor *base) {
    struct process_executor *executor = self(base);
    CHECK(executor->num_submitted == 0);
    dismiss(executor);
    step_mapping_finish(&executor->memory);
    step_files_close(&executor->files);
    unmap_host_pools(executor);
    if (executor->host_memory >= 0)
        close(executor->host_memory);
    if (executor->start.turn_slot >= 0)
        step_turns_remove(executor->config.turns, executor->start.turn_slot);
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

static int32_t rank_stats(struct executor *base, struct rank_stats *out) {
    struct process_executor *executor = self(base);
    pthread_mutex_lock(&executor->lock);
    int32_t num_ranks = executor->num_ranks;
    memcpy(out, executor->ranks, sizeof(executor->ranks));
    pthread_mutex_unlock(&executor->lock);
    return num_ranks;
}

/* --- Creating --- */

static int copy_text(const char *option, const char *text, char *out, size_t size,
                     struct error *err) {
    if (text != NULL && strlen(text) >= size)
        return error_set(err, ERROR_CONFIG, "%s: has %zu bytes, may have %zu at most", option,
                         strlen(text), size - 1);
    snprintf(out, size, "%s", text != NULL ? text : "");
    return 0;
}

static int fill_start(struct process_executor *executor, struct error *err) {
    const struct executor_config *config = &executor->config.executor;
    struct rank_start *start = &executor->start;
    start->config = *config;
    start->config.turns = NULL;
    start->log_level = (int32_t)log_get_level();
    return copy_text("model", executor->config.model_path, start->model_path,
                     sizeof(start->model_path), err) != 0 ||
                   copy_text("speculative-config", executor->config.draft_path, start->draft_path,
                             sizeof(start->draft_path), err) != 0 ||
                   copy_text("device", config->device, start->device, sizeof(start->device), err) !=
                       0 ||
                   copy_text("cpu-isa", config->cpu_isa, start->cpu_isa, sizeof(start->cpu_isa),
                             err) != 0 ||
                   copy_text("gpu-isa", config->gpu_isa, start->gpu_isa, sizeof(start->gpu_isa),
                             err) != 0 ||
                   copy_text("packed-cache", config->packed_cache.folder, start->packed_cache,
                             sizeof(start->packed_cache), err) != 0 ||
                   copy_text("build", config->packed_cache.build, start->build,
                             sizeof(start->build), err) != 0
               ? -1
               : 0;
}

static int add_to_turns(struct process_executor *executor, struct error *err) {
    struct step_turns *turns = executor->config.turns;
    executor->start.turn_slot = turns != NULL ? step_turns_add(turns, err) : -1;
    return turns != NULL && executor->start.turn_slot < 0 ? -1 : 0;
}

static int share_host_memory(struct process_executor *executor, struct error *err) {
    if (!executor->config.executor.shares_host_pools)
        return 0;
    executor->host_memory = host_memory_create(RANK_MIN_FD, err);
    executor->start.config.host_memory_fd = RANK_HOST_FD;
    return executor->host_memory >= 0 ? 0 : -1;
}

int process_executor_create(const struct process_executor_config *config,
                            struct executor_info *info, struct executor **out, struct error *err) {
    static const struct executor_ops ops = {
        .submit = submit,
        .supply = supply,
        .wait = wait_for_step,
        .destroy = destroy,
        .step_memory = step_memory,
        .check = check,
        .restart = restart,
        .sleep = fall_asleep,
        .wake = wake,
        .rank_stats = rank_stats,
        .host_pools = list_host_pools,
    };
    struct process_executor *executor = calloc(1, sizeof(*executor));
    *out = NULL;
    if (executor == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    executor->base = (struct executor){.ops = &ops, .can_lose_ranks = true, .can_sleep = true};
    CHECK(pthread_mutex_init(&executor->lock, NULL) == 0);
    executor->config = *config;
    executor->socket = -1;
    executor->files = (struct step_files){-1, -1};
    executor->host_memory = -1;
    if (add_to_turns(executor, err) != 0 || fill_start(executor, err) != 0 ||
        step_files_create(&executor->files, RANK_MIN_FD, err) != 0 ||
        share_host_memory(executor, err) != 0 || start(executor, &executor->info, err) != 0 ||
        map_host_pools(executor, err) != 0) {
        if (err != NULL && err->code == ERROR_RESTART)
            err->code = ERROR_DEVICE;
        destroy(&executor->base);
        return -1;
    }
    executor_info_fix(&executor->info, &executor->start.config);
    snprintf(executor->start.device, sizeof(executor->start.device), "%s", executor->info.device);
    executor->info.rank_process = process_executor_pid(&executor->base);
    *info = executor->info;
    *out = &executor->base;
    return 0;
}

pid_t process_executor_pid(const struct executor *executor) {
    return atomic_load(&((const struct process_executor *)executor)->pid);
}

bool process_executor_is_default(const char *device) {
    if (strcmp(device, "auto") == 0)
        return backend_device_memory("cuda") > 0;
    return strncmp(device, "cuda", 4) == 0;
}
