#include "engine/executor/process_executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "engine/executor/rank_child.h"
#include "engine/executor/rank_message.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct submitted_step {
    const struct batch *batch;
    struct step_result *result;
};

struct process_executor {
    struct executor base;
    struct process_executor_config config;
    struct rank_start start;   /* of the next process */
    struct executor_info info; /* of the first */
    struct rank_child child;   /* where the ranks live: they are lost with it */
    struct step_files files;
    struct batch_capacity capacity; /* of a step, once there is memory */
    struct step_mapping memory;
    int32_t num_steps;
    struct submitted_step submitted[EXECUTOR_MAX_STEPS]; /* the oldest first */
    int32_t num_submitted;
    int32_t last_step;         /* submitted last */
    int32_t num_failed_starts; /* in a row */
    pthread_mutex_t lock;
    int32_t num_ranks; /* guarded by lock: as executor_ops.rank_stats says */
    struct rank_stats ranks[BACKEND_MAX_RANKS];
};

static struct process_executor *self(struct executor *executor) {
    return (struct process_executor *)executor;
}

static int receive(struct process_executor *executor, const atomic_bool *gives_up,
                   struct rank_message *out) {
    return rank_child_receive(&executor->child, executor->config.executor.device_timeout_s,
                              gives_up, out);
}

/* --- Starting --- */

static void send_memory(struct process_executor *executor) {
    const struct rank_message message = {.kind = RANK_MEMORY, .capacity = executor->capacity};
    if (executor->memory.memory != NULL)
        rank_child_send(&executor->child, &message);
}

/* Returns -1 with what the process reports, or, when it is lost, with what is known of that. */
static int await_ready(struct process_executor *executor, struct executor_info *info,
                       struct error *err) {
    const struct weights_progress *progress = &executor->config.executor.progress;
    bool is_first = info == &executor->info; /* of others nobody shows progress */
    struct rank_message message;
    while (receive(executor, &executor->base.stops_restarting, &message) == 0) {
        struct error wrong;
        if (message.kind == RANK_READY) {
            if (rank_message_check_ready(&message.info, &executor->start.config, &wrong) == 0) {
                *info = message.info;
                return 0;
            }
            rank_child_lose_for_answer(&executor->child, wrong.message);
            break;
        }
        if (message.kind == RANK_FAILED) {
            if (rank_message_check_error(&message.done.error, &wrong) != 0) {
                rank_child_lose_for_answer(&executor->child, wrong.message);
                break;
            }
            if (rank_child_end(&executor->child, err) != 0)
                return -1;
            return error_set(err, message.done.error.code, "%s", message.done.error.message);
        }
        if (message.kind != RANK_PROGRESS) {
            rank_child_lose_for_answer(&executor->child, "a message came that belongs to no start");
            break;
        }
        if (is_first && progress->report != NULL)
            progress->report(progress->context, message.progress.bytes_read,
                             message.progress.num_bytes);
    }
    return error_set(err, executor->child.lost.code,
                     "the rank process ended while it started: %.400s",
                     executor->child.lost.message);
}

static int start(struct process_executor *executor, struct executor_info *info, struct error *err) {
    const struct rank_message message = {.kind = RANK_START, .start = executor->start};
    if (rank_child_start(&executor->child, executor->config.program, executor->config.argv,
                         &executor->files, err) != 0)
        return -1;
    rank_child_send(&executor->child, &message);
    if (rank_child_check(&executor->child, err) != 0)
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
             (int)atomic_load(&executor->child.pid));
    return 0;
}

/* --- The engine's thread --- */

/* A start that failed may be tried again; one that brought other ranks may not. */
static int restart(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    CHECK(rank_child_is_lost(&executor->child) && executor->num_submitted == 0);
    if (atomic_load(&executor->base.stops_restarting))
        return error_set(err, ERROR_RESTART, "nobody waits for the ranks any more");
    if (executor->num_failed_starts > 0) /* a device may need a moment to be free again */
        sleep(1);
    if (start_again(executor, err) == 0) {
        executor->num_failed_starts = 0;
        return 0;
    }
    bool has_ended = atomic_load(&executor->child.pid) == 0;
    executor->num_failed_starts++;
    executor->child.lost.code = ERROR_RESTART;
    log_warning("cannot start the ranks again: %s", err->message);
    if (has_ended && err->code != ERROR_MODEL && err->code != ERROR_CONFIG)
        err->code = ERROR_RESTART;
    return -1;
}

/* A process that has died has closed its socket; nothing else comes while no step runs. */
static int check(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    struct pollfd poll_fd = {.fd = executor->child.socket, .events = POLLIN};
    struct rank_message message;
    if (!rank_child_is_lost(&executor->child) && poll(&poll_fd, 1, 0) > 0 &&
        receive(executor, NULL, &message) == 0)
        rank_child_lose_for_answer(&executor->child, "a message came that nobody waits for");
    return rank_child_check(&executor->child, err);
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
    rank_child_send(&executor->child, &message);
}

static void supply(struct executor *base) {
    struct process_executor *executor = self(base);
    const struct rank_message message = {.kind = RANK_SUPPLY, .step = executor->last_step};
    rank_child_send(&executor->child, &message);
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
        rank_child_lose_for_answer(&executor->child, wrong.message);
    else if (answer.done.error.code != ERROR_NONE)
        rank_child_lose(&executor->child, answer.done.error.message);
    else
        take_result(executor, &answer, step->result);
}

static int wait_for_step(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    const struct rank_message request = {.kind = RANK_WAIT};
    CHECK(executor->num_submitted > 0);
    struct submitted_step step = executor->submitted[0];
    executor->submitted[0] = executor->submitted[--executor->num_submitted];
    rank_child_send(&executor->child, &request);
    if (!rank_child_is_lost(&executor->child))
        receive_result(executor, &step);
    return rank_child_check(&executor->child, err);
}

/* Without a process nothing is left to hold, whatever was to be kept. */
static void fall_asleep(struct executor *base, bool discards_weights) {
    struct process_executor *executor = self(base);
    CHECK(executor->num_submitted == 0 && !rank_child_is_lost(&executor->child));
    rank_child_dismiss(&executor->child);
}

static int wake(struct executor *base, struct error *err) {
    struct process_executor *executor = self(base);
    if (start_again(executor, err) == 0)
        return 0;
    executor->child.lost = (struct error){0};
    rank_child_end(&executor->child, NULL);
    return -1;
}

static void destroy(struct executor *base) {
    struct process_executor *executor = self(base);
    CHECK(executor->num_submitted == 0);
    rank_child_dismiss(&executor->child);
    step_mapping_finish(&executor->memory);
    step_files_close(&executor->files);
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
    start->log_level = (int32_t)log_get_level();
    return copy_text("model", executor->config.model_path, start->model_path,
                     sizeof(start->model_path), err) != 0 ||
                   copy_text("device", config->device, start->device, sizeof(start->device), err) !=
                       0 ||
                   copy_text("cpu-isa", config->cpu_isa, start->cpu_isa, sizeof(start->cpu_isa),
                             err) != 0
               ? -1
               : 0;
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
    };
    struct process_executor *executor = calloc(1, sizeof(*executor));
    *out = NULL;
    if (executor == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    executor->base = (struct executor){.ops = &ops, .can_lose_ranks = true, .can_sleep = true};
    CHECK(pthread_mutex_init(&executor->lock, NULL) == 0);
    executor->config = *config;
    executor->child.socket = -1;
    executor->files = (struct step_files){-1, -1};
    if (fill_start(executor, err) != 0 ||
        step_files_create(&executor->files, RANK_CHILD_MIN_FD, err) != 0 ||
        start(executor, &executor->info, err) != 0) {
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
    return atomic_load(&((const struct process_executor *)executor)->child.pid);
}

bool process_executor_is_default(const char *device) {
    if (strcmp(device, "auto") == 0)
        return backend_device_memory("cuda") > 0;
    return strncmp(device, "cuda", 4) == 0;
}
