#include "engine/executor/process_executor.h"

#include "config/base/log.h"
#include "engine/executor/rank_message.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rank_step {
    struct batch_arena arena;
    struct batch batch; /* of the arena */
    struct step_result result;
};

struct rank_process {
    struct rank_start start;
    struct model *model;
    struct executor *executor;
    struct step_mapping memory;
    struct rank_step steps[EXECUTOR_MAX_STEPS];
    int32_t submitted[EXECUTOR_MAX_STEPS]; /* the oldest first */
    int32_t num_submitted;
};

static void report(void *context, size_t bytes_read, size_t num_bytes) {
    const struct rank_message message = {
        .kind = RANK_PROGRESS, .progress = {.bytes_read = bytes_read, .num_bytes = num_bytes}};
    rank_message_send(RANK_SOCKET_FD, &message);
}

static int open_ranks(struct rank_process *process, struct executor_info *info, struct error *err) {
    struct rank_start *start = &process->start;
    start->config.device = start->device;
    start->config.cpu_isa = start->cpu_isa[0] != '\0' ? start->cpu_isa : NULL;
    start->config.progress = (struct weights_progress){.report = report};
    log_set_level((enum log_level)start->log_level);
    if (model_open(start->model_path, &process->model, err) != 0)
        return -1;
    return executor_create(process->model, &start->config, info, &process->executor, err);
}

static int start(struct rank_process *process) {
    struct rank_message message, answer = {.kind = RANK_READY};
    struct error err = {0};
    if (rank_message_receive(RANK_SOCKET_FD, &message) != 0 || message.kind != RANK_START)
        return -1;
    process->start = message.start;
    int status = open_ranks(process, &answer.info, &err);
    if (status != 0) {
        answer.kind = RANK_FAILED;
        answer.done.error = err;
    }
    rank_message_send(RANK_SOCKET_FD, &answer);
    return status;
}

static int map_steps(struct rank_process *process, const struct batch_capacity *capacity) {
    const struct step_files files = {RANK_BATCHES_FD, RANK_RESULTS_FD};
    if (step_mapping_open(&process->memory, capacity, &files) != 0)
        return -1;
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++)
        step_memory_bind(capacity, step_mapping_step(&process->memory, i), &process->steps[i].arena,
                         &process->steps[i].result);
    return 0;
}

static void submit(struct rank_process *process, int32_t index) {
    struct rank_step *step = &process->steps[index];
    step->batch = batch_arena_view(&step->arena);
    process->submitted[process->num_submitted++] = index;
    process->executor->ops->submit(process->executor, &step->batch, &step->result);
}

/* The rank may be reading the rest. */
static void supply(struct rank_process *process, int32_t index) {
    struct rank_step *step = &process->steps[index];
    const struct batch now = batch_arena_view(&step->arena);
    step->batch.num_counts = now.num_counts;
    step->batch.num_biases = now.num_biases;
    step->batch.num_listed = now.num_listed;
    step->batch.num_masks = now.num_masks;
    process->executor->ops->supply(process->executor);
}

static void wait_for_step(struct rank_process *process) {
    const struct rank_step *step = &process->steps[process->submitted[0]];
    struct rank_message answer = {.kind = RANK_DONE};
    process->executor->ops->wait(process->executor, &answer.done.error);
    process->submitted[0] = process->submitted[--process->num_submitted];
    answer.done.num_sample_rows = step->result.num_sample_rows;
    answer.done.num_ranks =
        process->executor->ops->rank_stats(process->executor, answer.done.ranks);
    rank_message_send(RANK_SOCKET_FD, &answer);
}

/* Returns -1 for a message that is none of the engine's. */
static int obey(struct rank_process *process, const struct rank_message *message) {
    switch (message->kind) {
    case RANK_MEMORY:
        return map_steps(process, &message->capacity);
    case RANK_SUBMIT:
        submit(process, message->step);
        return 0;
    case RANK_SUPPLY:
        supply(process, message->step);
        return 0;
    case RANK_WAIT:
        wait_for_step(process);
        return 0;
    default:
        return -1;
    }
}

static void finish(struct rank_process *process) {
    struct error err;
    while (process->num_submitted > 0) {
        process->executor->ops->wait(process->executor, &err);
        process->num_submitted--;
    }
    if (process->executor != NULL)
        process->executor->ops->destroy(process->executor);
    model_close(process->model);
}

/* An engine that ended before the signal was asked for has closed its end, but what it has sent can
 * still be read, and would be obeyed: weights would be loaded for nobody. */
static bool engine_is_gone(void) {
    struct pollfd poll_fd = {.fd = RANK_SOCKET_FD};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP) != 0;
}

/* What a library of the engine's process has opened without O_CLOEXEC. Linux has the call since
 * 5.9; nothing of ours is open without it. */
static void close_inherited(void) {
    syscall(__NR_close_range, (unsigned)RANK_RESULTS_FD + 1, ~0U, 0U);
}

bool rank_process_is_expected(void) {
    int type = 0;
    socklen_t size = sizeof(type);
    return getsockopt(RANK_SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

int rank_process_run(void) {
    struct rank_process process = {0};
    struct rank_message message;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_inherited();
    if (engine_is_gone())
        return 0;
    if (start(&process) == 0)
        while (rank_message_receive(RANK_SOCKET_FD, &message) == 0 && obey(&process, &message) == 0)
            continue;
    if (process.executor != NULL && executor_has_hung(process.executor))
        return -1;
    finish(&process);
    return 0;
}
