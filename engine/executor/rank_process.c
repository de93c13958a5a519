#include "engine/executor/rank_process.h"

#include "config/base/log.h"
#include "engine/executor/rank_message.h"
#include "engine/executor/remote_ranks.h"
#include "engine/executor/step_turns.h"
#include "kernels/transport.h"
#include "models/config/mtp.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- All ranks, controlled over a socket --- */

struct rank_step {
    struct batch_arena arena;
    struct batch batch; /* of the arena */
    struct step_result result;
};

struct rank_process {
    struct rank_start start;
    struct model *model, *draft_model; /* the second may be NULL */
    struct step_turns *turns;          /* NULL: there are none */
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
    start->config.gpu_isa = start->gpu_isa[0] != '\0' ? start->gpu_isa : NULL;
    start->config.packed_cache.folder = start->packed_cache[0] != '\0' ? start->packed_cache : NULL;
    start->config.packed_cache.build = start->build;
    start->config.progress = (struct weights_progress){.report = report};
    log_set_level((enum log_level)start->log_level);
    if (start->turn_slot >= 0 && (process->turns = step_turns_open(RANK_TURNS_FD, err)) == NULL)
        return -1;
    if (model_open(start->model_path, &process->model, err) != 0 ||
        (start->draft_path[0] != '\0' &&
         model_open(start->draft_path, &process->draft_model, err) != 0) ||
        (start->config.has_mtp && mtp_select(process->draft_model, err) != 0))
        return -1;
    start->config.draft_model = process->draft_model;
    start->config.turns = process->turns;
    start->config.turn_slot = start->turn_slot;
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

/* Returns -1 for a message that the engine does not send. */
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
    step_turns_destroy(process->turns);
    model_close(process->draft_model);
    model_close(process->model);
}

/* If the engine ended before the signal was requested, it has closed its end; but what it has sent
 * can still be read, and would be obeyed: weights would be loaded for nobody. */
static bool engine_is_gone(void) {
    struct pollfd poll_fd = {.fd = RANK_SOCKET_FD};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP) != 0;
}

/* Closes what a library of the engine's process opened without O_CLOEXEC. Linux has the call since
 * 5.9; we open nothing without that flag. */
static void close_inherited(void) {
    syscall(__NR_close_range, (unsigned)RANK_HOST_FD + 1, ~0U, 0U);
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

/* --- One rank, controlled over a transport --- */

struct transport_step {
    void *memory; /* of the largest step */
    struct rank_step step;
    struct step_message head;
};

struct transport_rank {
    struct transport *transport;
    struct executor *executor;
    struct transport_step steps[EXECUTOR_MAX_STEPS]; /* step i is in place i % EXECUTOR_MAX_STEPS */
    uint64_t num_submitted, num_waited_for;
    size_t step_bytes;
    bool has_begun;
};

static int alloc_memory(struct transport_rank *rank, const struct batch_capacity *capacity,
                        struct error *err) {
    rank->step_bytes = step_memory_bytes(capacity);
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        void **memory = &rank->steps[i].memory;
        *memory =
            rank->step_bytes < SIZE_MAX ? aligned_alloc(STEP_ALIGNMENT, rank->step_bytes) : NULL;
        if (*memory == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for a step");
    }
    return 0;
}

static int receive(struct transport_rank *rank, void *data, size_t bytes, struct error *err) {
    return transport_receive(rank->transport, TRANSPORT_STEPS, 0, data, bytes, err);
}

static int submit_received(struct transport_rank *rank, const struct step_message *message,
                           struct error *err) {
    struct transport_step *place = &rank->steps[rank->num_submitted % EXECUTOR_MAX_STEPS];
    struct rank_step *step = &place->step;
    size_t bytes = step_memory_bytes(&message->capacity);
    if (bytes > rank->step_bytes ||
        rank->num_submitted - rank->num_waited_for == EXECUTOR_MAX_STEPS)
        return error_set(err, ERROR_DEVICE, "rank 0 sends a step of %zu bytes, of at most %zu",
                         bytes, rank->step_bytes);
    if (receive(rank, place->memory, batch_arena_bytes(&message->capacity), err) != 0)
        return -1;
    place->head = *message;
    step_memory_bind(&message->capacity, place->memory, &step->arena, &step->result);
    step->batch = batch_arena_view(&step->arena);
    rank->num_submitted++;
    rank->executor->ops->submit(rank->executor, &step->batch, &step->result);
    return 0;
}

static int supply_received(struct transport_rank *rank, struct error *err) {
    struct rank_step *step = &rank->steps[(rank->num_submitted - 1) % EXECUTOR_MAX_STEPS].step;
    if (rank->num_submitted == rank->num_waited_for)
        return error_set(err, ERROR_DEVICE, "rank 0 supplies a step that is not submitted");
    if (receive(rank, step->arena.sample_rows,
                (size_t)step->batch.num_sample_rows * sizeof(struct sample_row), err) != 0)
        return -1;
    rank->executor->ops->supply(rank->executor);
    return 0;
}

static int wait_for_oldest(struct transport_rank *rank, struct error *err) {
    const struct transport_step *place = &rank->steps[rank->num_waited_for % EXECUTOR_MAX_STEPS];
    const struct batch_capacity *capacity = &place->head.capacity;
    if (rank->num_submitted == rank->num_waited_for)
        return error_set(err, ERROR_DEVICE, "rank 0 waits for a step that is not submitted");
    rank->num_waited_for++;
    if (rank->executor->ops->wait(rank->executor, err) != 0)
        return -1;
    if (place->head.kind != STEP_SAMPLE)
        return 0;
    size_t offset = step_result_offset(capacity);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, (char *)place->memory + offset,
                          step_memory_bytes(capacity) - offset, err);
}

static int send_stats(struct transport_rank *rank, struct error *err) {
    struct rank_stats stats[BACKEND_MAX_RANKS];
    rank->executor->ops->rank_stats(rank->executor, stats);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, &stats[0], sizeof(stats[0]), err);
}

/* Before the first step or ping, rank 0 has a lot to do that takes time. */
static int receive_message(struct transport_rank *rank, struct step_message *out,
                           struct error *err) {
    struct transport *t = rank->transport;
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = rank->has_begun ? timeout_ns : 0;
    int status = transport_receive(t, TRANSPORT_STEPS, 0, out, sizeof(*out), err);
    t->timeout_ns = timeout_ns;
    rank->has_begun |= status == 0 && out->kind != STEP_MEMORY;
    return status;
}

/* Steps are received, and waited for, as rank 0's engine submits and waits for them. Returns 1 to
 * continue, 0 when dismissed. */
static int obey_rank_0(struct transport_rank *rank, struct error *err) {
    struct step_message message;
    int status = receive_message(rank, &message, err);
    if (status == 0)
        switch (message.kind) {
        case STEP_MEMORY:
            status = alloc_memory(rank, &message.capacity, err);
            break;
        case STEP_COMPUTE:
        case STEP_SAMPLE:
            status = submit_received(rank, &message, err);
            break;
        case STEP_SUPPLY:
            status = supply_received(rank, err);
            break;
        case STEP_WAIT:
            status = wait_for_oldest(rank, err);
            break;
        case STEP_PING:
            break;
        case STEP_QUIT:
            return 0;
        }
    if (status == 0 && message.wants_stats)
        status = send_stats(rank, err);
    return status == 0 ? 1 : -1;
}

int rank_process_run_remote(const struct model *model, const struct executor_config *config,
                            void (*ready)(void *context, const struct executor_info *info),
                            void *context, struct error *err) {
    struct transport_rank rank = {.transport = config->transport};
    struct executor_info info;
    if (executor_create(model, config, &info, &rank.executor, err) != 0)
        return -1;
    ready(context, &info);
    int status;
    do
        status = obey_rank_0(&rank, err);
    while (status > 0);
    if (status == 0)
        rank.executor->ops->destroy(rank.executor);
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++)
        free(rank.steps[i].memory);
    return status;
}
