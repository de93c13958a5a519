#include "engine/executor/remote_ranks.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "kernels/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STEP_ALIGNMENT 64   /* batch_arena_bind */
#define PINGS_PER_TIMEOUT 4 /* so that one that is late is no reason to give up */
#define MAX_OTHERS (BACKEND_MAX_RANKS - 1)
#define STATS_NS CLOCK_NS_PER_S /* between two reports while steps run */

/* What rank 0 tells the other ranks that are processes, on the transport's channel of steps: each
 * message is this head, and for a step its arena (models/batch.h), of the capacity that the head
 * says. */
enum step_message_kind {
    STEP_MEMORY,  /* before the first step: no step's capacity is beyond this one */
    STEP_COMPUTE, /* an arena follows, of what ranks read that do not sample */
    STEP_SAMPLE,  /* an arena follows, of all that the batch has; answered with the result, laid out
                     as behind it in the memory of a step of that capacity */
    STEP_PING,
    STEP_QUIT,
};

struct step_message {
    enum step_message_kind kind;
    bool wants_stats; /* answered, once the step is computed, with the struct rank_stats of the
                         rank: so it is there. Always of a ping */
    struct batch_capacity capacity;
};

/* --- Rank 0: its executor --- */

/* What some of the other ranks are sent of a batch. */
struct step_copy {
    struct step_message head;
    void *memory; /* of a step of head.capacity; NULL: no rank is sent this */
};

/* Memory of the engine's, and what of its batch is on the way to the other ranks, and back. */
struct distributed_step {
    void *memory;
    struct batch_capacity capacity;
    struct batch_arena arena;
    struct step_copy to_compute, to_sample;
    struct step_result *result; /* that the sampling rank's answer is for */
    struct transport_request *requests[2 * MAX_OTHERS + 1];
    int32_t ranks[2 * MAX_OTHERS + 1];
    int num_requests;
};

/* One rank that was asked whether it is there, and what it has done. */
struct ping {
    struct transport_request *sent, *answer; /* NULL: done */
    struct rank_stats stats;
};

struct distributed_executor {
    struct executor base;
    struct executor *local; /* of rank 0 */
    struct transport *transport;
    int32_t sampler; /* the rank that samples: the first one of the last stage */
    struct distributed_step steps[EXECUTOR_MAX_STEPS];
    int32_t num_steps;
    int32_t submitted[EXECUTOR_MAX_STEPS]; /* the oldest first */
    int32_t num_submitted;
    struct step_message ping_message;
    struct ping pings[MAX_OTHERS];
    int64_t asked_ns;    /* last whether they are there; a step shows it, too */
    int64_t reported_ns; /* last: asked what they have done */
    pthread_mutex_t lock;
    struct rank_stats stats[MAX_OTHERS]; /* guarded by lock; the last that came */
    struct error failure;
};

static struct distributed_executor *self(struct executor *base) {
    return (struct distributed_executor *)base;
}

static int report_failure(const struct distributed_executor *executor, struct error *err) {
    return error_set(err, executor->failure.code, "%s", executor->failure.message);
}

static void fail(struct distributed_executor *executor, const struct error *why) {
    if (executor->failure.code == ERROR_NONE)
        executor->failure = *why;
    atomic_store(&executor->base.has_hung, true); /* what waits for lost ranks waits for ever */
}

/* --- What the others answer --- */

static int test(struct transport *t, struct transport_request **request, struct error *err) {
    int status = *request != NULL ? t->ops->test(t, *request, err) : 1;
    if (status != 0)
        *request = NULL;
    return status < 0 ? -1 : 0;
}

static bool is_open(const struct ping *ping) {
    return ping->sent != NULL || ping->answer != NULL;
}

static int test_ping(struct distributed_executor *executor, int32_t rank, struct error *err) {
    struct ping *ping = &executor->pings[rank - 1];
    if (!is_open(ping))
        return 0;
    if (test(executor->transport, &ping->sent, err) != 0 ||
        test(executor->transport, &ping->answer, err) != 0)
        return -1;
    if (ping->answer == NULL) {
        pthread_mutex_lock(&executor->lock);
        executor->stats[rank - 1] = ping->stats;
        pthread_mutex_unlock(&executor->lock);
    }
    return 0;
}

/* Returns whether all have answered, or -1. */
static int test_pings(struct distributed_executor *executor, struct error *err) {
    int all = 1;
    for (int32_t rank = 1; rank < executor->transport->num_ranks; rank++) {
        if (test_ping(executor, rank, err) != 0)
            return -1;
        all &= !is_open(&executor->pings[rank - 1]);
    }
    return all;
}

static int begin_answer(struct distributed_executor *executor, int32_t rank, struct error *err) {
    struct transport *t = executor->transport;
    struct ping *ping = &executor->pings[rank - 1];
    ping->answer =
        t->ops->receive(t, TRANSPORT_STEPS, rank, &ping->stats, sizeof(ping->stats), err);
    return ping->answer != NULL ? 0 : -1;
}

static int32_t rank_stats(struct executor *base, struct rank_stats *out) {
    struct distributed_executor *executor = self(base);
    int32_t num_local = executor->local->ops->rank_stats(executor->local, out);
    pthread_mutex_lock(&executor->lock);
    memcpy(out + num_local, executor->stats,
           (size_t)(executor->transport->num_ranks - 1) * sizeof(executor->stats[0]));
    pthread_mutex_unlock(&executor->lock);
    return executor->transport->num_ranks;
}

/* --- Steps --- */

/* The other ranks take the memory that the largest step needs before there is one. */
static int announce_steps(struct distributed_executor *executor,
                          const struct batch_capacity *capacity, struct error *err) {
    const struct step_message message = {.kind = STEP_MEMORY, .capacity = *capacity};
    for (int32_t rank = 1; rank < executor->transport->num_ranks; rank++)
        if (transport_send(executor->transport, TRANSPORT_STEPS, rank, &message, sizeof(message),
                           err) != 0)
            return -1;
    return 0;
}

static int step_memory(struct executor *base, const struct batch_capacity *capacity, void **out) {
    struct distributed_executor *executor = self(base);
    size_t bytes = step_memory_bytes(capacity);
    struct distributed_step *step = &executor->steps[executor->num_steps];
    struct step_result result;
    struct error err;
    CHECK(executor->num_steps < EXECUTOR_MAX_STEPS);
    if (bytes == SIZE_MAX)
        return -1;
    step->capacity = *capacity;
    step->memory = aligned_alloc(STEP_ALIGNMENT, bytes);
    step->to_compute.memory = aligned_alloc(STEP_ALIGNMENT, batch_arena_bytes(capacity));
    if (executor->sampler > 0)
        step->to_sample.memory = aligned_alloc(STEP_ALIGNMENT, bytes);
    if (step->memory == NULL || step->to_compute.memory == NULL ||
        (executor->sampler > 0 && step->to_sample.memory == NULL))
        return -1;
    step_memory_bind(capacity, step->memory, &step->arena, &result);
    if (executor->num_steps == 0 && announce_steps(executor, capacity, &err) != 0)
        fail(executor, &err);
    executor->num_steps++;
    *out = step->memory;
    return 0;
}

static int32_t find_step(const struct distributed_executor *executor, const struct batch *batch) {
    int32_t step = 0;
    while (step < executor->num_steps &&
           executor->steps[step].arena.token_ids != batch->inputs.token_ids)
        step++;
    CHECK(step < executor->num_steps);
    return step;
}

static int note_request(struct distributed_step *step, int32_t rank,
                        struct transport_request *request) {
    if (request == NULL)
        return -1;
    step->ranks[step->num_requests] = rank;
    step->requests[step->num_requests++] = request;
    return 0;
}

/* Returns whether the others are to say what they have done: once they all have said so before. */
static int wants_stats(struct distributed_executor *executor, struct error *err) {
    int64_t now_ns = clock_now_ns();
    if (now_ns - executor->reported_ns < STATS_NS)
        return 0;
    int have_answered = test_pings(executor, err);
    if (have_answered > 0)
        executor->reported_ns = now_ns;
    return have_answered;
}

static void write_copy(const struct distributed_step *step, enum step_message_kind kind,
                       bool wants_stats, struct step_copy *out) {
    bool samples = kind == STEP_SAMPLE;
    struct batch_arena copy;
    out->head = (struct step_message){
        .kind = kind,
        .wants_stats = wants_stats,
        .capacity = samples ? batch_arena_extent(&step->arena, &step->capacity)
                            : batch_arena_shape(&step->arena)};
    batch_arena_bind(&copy, &out->head.capacity, out->memory);
    batch_arena_copy(&step->arena, &out->head.capacity, &copy);
    if (!samples)
        copy.counts->has_late_inputs = copy.counts->num_hidden_sums = 0; /* the sampler's alone */
}

static int send_copy(struct distributed_executor *executor, struct distributed_step *step,
                     int32_t rank, const struct step_copy *copy, struct error *err) {
    struct transport *t = executor->transport;
    const struct step_message *head = &copy->head;
    return note_request(step, rank,
                        t->ops->send(t, TRANSPORT_STEPS, rank, head, sizeof(*head), err)) == 0
               ? note_request(step, rank,
                              t->ops->send(t, TRANSPORT_STEPS, rank, copy->memory,
                                           batch_arena_bytes(&head->capacity), err))
               : -1;
}

/* The result comes behind the arena that the sampling rank is sent. */
static int receive_result(struct distributed_executor *executor, struct distributed_step *step,
                          struct error *err) {
    struct transport *t = executor->transport;
    const struct batch_capacity *capacity = &step->to_sample.head.capacity;
    size_t offset = step_result_offset(capacity);
    return note_request(step, executor->sampler,
                        t->ops->receive(t, TRANSPORT_STEPS, executor->sampler,
                                        (char *)step->to_sample.memory + offset,
                                        step_memory_bytes(capacity) - offset, err));
}

static int send_step(struct distributed_executor *executor, struct distributed_step *step,
                     struct error *err) {
    int32_t sampler = executor->sampler;
    int asks = wants_stats(executor, err);
    if (asks < 0)
        return -1;
    write_copy(step, STEP_COMPUTE, asks > 0, &step->to_compute);
    if (sampler > 0)
        write_copy(step, STEP_SAMPLE, asks > 0, &step->to_sample);
    for (int32_t rank = 1; rank < executor->transport->num_ranks; rank++) {
        bool samples = rank == sampler;
        if (send_copy(executor, step, rank, samples ? &step->to_sample : &step->to_compute, err) !=
                0 ||
            (samples && receive_result(executor, step, err) != 0) ||
            (asks > 0 && begin_answer(executor, rank, err) != 0))
            return -1;
    }
    return 0;
}

static void take_result(struct distributed_step *step) {
    const struct batch_capacity *capacity = &step->to_sample.head.capacity;
    struct batch_arena arena;
    struct step_result received;
    step_memory_bind(capacity, step->to_sample.memory, &arena, &received);
    step_result_copy(&received, capacity, step->result);
}

static void submit(struct executor *base, const struct batch *batch, struct step_result *result) {
    struct distributed_executor *executor = self(base);
    int32_t index = find_step(executor, batch);
    struct distributed_step *step = &executor->steps[index];
    struct error err;
    CHECK(executor->num_submitted < EXECUTOR_MAX_STEPS);
    executor->submitted[executor->num_submitted++] = index;
    step->num_requests = 0;
    step->result = result;
    if (!executor_has_hung(&executor->base) && send_step(executor, step, &err) != 0)
        fail(executor, &err);
    if (!executor_has_hung(&executor->base))
        executor->local->ops->submit(executor->local, batch, result);
}

static void supply(struct executor *base) {
    struct distributed_executor *executor = self(base);
    if (!executor_has_hung(&executor->base))
        executor->local->ops->supply(executor->local);
}

static int wait_for_step(struct executor *base, struct error *err) {
    struct distributed_executor *executor = self(base);
    struct error why = {0};
    CHECK(executor->num_submitted > 0);
    struct distributed_step *step = &executor->steps[executor->submitted[0]];
    executor->submitted[0] = executor->submitted[--executor->num_submitted];
    if (!executor_has_hung(&executor->base) &&
        (executor->local->ops->wait(executor->local, &why) != 0 ||
         transport_wait(executor->transport, step->requests, step->ranks, step->num_requests,
                        &why) != 0))
        fail(executor, &why);
    if (!executor_has_hung(&executor->base) && executor->sampler > 0)
        take_result(step);
    executor->asked_ns = clock_now_ns(); /* it has shown that they are there */
    return executor_has_hung(&executor->base) ? report_failure(executor, err) : 0;
}

/* --- Between steps --- */

static int ask(struct distributed_executor *executor, int32_t rank, struct error *err) {
    struct transport *t = executor->transport;
    struct ping *ping = &executor->pings[rank - 1];
    ping->sent = t->ops->send(t, TRANSPORT_STEPS, rank, &executor->ping_message,
                              sizeof(executor->ping_message), err);
    return ping->sent != NULL ? begin_answer(executor, rank, err) : -1;
}

static int report_late(const struct distributed_executor *executor, struct error *err) {
    int32_t rank = 1;
    while (!is_open(&executor->pings[rank - 1]))
        rank++;
    return error_set(err, ERROR_DEVICE, "rank %d has not answered within %lld s (--rank-timeout)",
                     rank, (long long)(executor->transport->timeout_ns / CLOCK_NS_PER_S));
}

/* Asks again once all have answered; those that do not are late by the whole timeout. */
static int ask_all(struct distributed_executor *executor, struct error *err) {
    struct transport *t = executor->transport;
    int64_t now_ns = clock_now_ns(), waited_ns = now_ns - executor->asked_ns;
    int have_answered = test_pings(executor, err);
    if (have_answered == 0 && t->timeout_ns > 0 && waited_ns > t->timeout_ns)
        return report_late(executor, err);
    if (have_answered <= 0 || waited_ns < t->timeout_ns / PINGS_PER_TIMEOUT)
        return have_answered < 0 ? -1 : 0;
    executor->asked_ns = executor->reported_ns = now_ns;
    for (int32_t rank = 1; rank < t->num_ranks; rank++)
        if (ask(executor, rank, err) != 0)
            return -1;
    return 0;
}

static int check(struct executor *base, struct error *err) {
    struct distributed_executor *executor = self(base);
    struct error why = {0};
    if (!executor_has_hung(&executor->base) && ask_all(executor, &why) != 0)
        fail(executor, &why);
    return executor_has_hung(&executor->base) ? report_failure(executor, err) : 0;
}

/* --- Beginning and end --- */

static void dismiss(struct distributed_executor *executor) {
    static const struct step_message quit = {.kind = STEP_QUIT};
    for (int32_t rank = 1; rank < executor->transport->num_ranks; rank++)
        transport_send(executor->transport, TRANSPORT_STEPS, rank, &quit, sizeof(quit), NULL);
    for (int i = 0; i < MAX_OTHERS; i++)
        if (executor->pings[i].answer != NULL)
            transport_wait(executor->transport, &executor->pings[i].answer, &(int32_t){i + 1}, 1,
                           NULL);
}

static void destroy(struct executor *base) {
    struct distributed_executor *executor = self(base);
    CHECK(executor->num_submitted == 0 && !executor_has_hung(base));
    dismiss(executor);
    executor->local->ops->destroy(executor->local);
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        free(executor->steps[i].memory);
        free(executor->steps[i].to_compute.memory);
        free(executor->steps[i].to_sample.memory);
    }
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

int distributed_executor_create(const struct model *model, const struct executor_config *config,
                                struct executor_info *info, struct executor **out,
                                struct error *err) {
    static const struct executor_ops ops = {
        .submit = submit,
        .supply = supply,
        .wait = wait_for_step,
        .destroy = destroy,
        .step_memory = step_memory,
        .check = check,
        .restart = executor_cannot_start_again,
        .sleep = executor_cannot_sleep,
        .wake = executor_cannot_start_again,
        .rank_stats = rank_stats,
    };
    struct distributed_executor *executor = calloc(1, sizeof(*executor));
    *out = NULL;
    if (executor == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    executor->base = (struct executor){.ops = &ops, .can_lose_ranks = true};
    executor->transport = config->transport;
    executor->sampler = config->transport->num_ranks - max_int32(config->num_ranks, 1);
    executor->ping_message = (struct step_message){.kind = STEP_PING, .wants_stats = true};
    CHECK(pthread_mutex_init(&executor->lock, NULL) == 0);
    if (executor_create(model, config, info, &executor->local, err) != 0) {
        pthread_mutex_destroy(&executor->lock);
        free(executor);
        return -1;
    }
    *out = &executor->base;
    return 0;
}

/* --- Another rank's process --- */

struct distributed_rank {
    struct transport *transport;
    struct executor *executor;
    void *memory; /* of the largest step */
    size_t bytes;
    bool has_begun;
};

static int alloc_memory(struct distributed_rank *rank, const struct batch_capacity *capacity,
                        struct error *err) {
    rank->bytes = step_memory_bytes(capacity);
    rank->memory = rank->bytes < SIZE_MAX ? aligned_alloc(STEP_ALIGNMENT, rank->bytes) : NULL;
    return rank->memory != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for a step");
}

static int send_result(struct distributed_rank *rank, const struct batch_capacity *capacity,
                       struct error *err) {
    size_t offset = step_result_offset(capacity);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, (char *)rank->memory + offset,
                          step_memory_bytes(capacity) - offset, err);
}

/* Each step is computed to its end before the next is taken: meanwhile rank 0 says nothing else
 * that anybody waits for. */
static int compute(struct distributed_rank *rank, const struct step_message *message,
                   struct error *err) {
    const struct executor_ops *ops = rank->executor->ops;
    const struct batch_capacity *capacity = &message->capacity;
    struct step_result result;
    struct batch_arena arena;
    size_t bytes = step_memory_bytes(capacity);
    if (bytes > rank->bytes)
        return error_set(err, ERROR_DEVICE, "rank 0 sends a step of %zu bytes, of at most %zu",
                         bytes, rank->bytes);
    if (transport_receive(rank->transport, TRANSPORT_STEPS, 0, rank->memory,
                          batch_arena_bytes(capacity), err) != 0)
        return -1;
    step_memory_bind(capacity, rank->memory, &arena, &result);
    struct batch batch = batch_arena_view(&arena);
    ops->submit(rank->executor, &batch, &result);
    if (ops->wait(rank->executor, err) != 0)
        return -1;
    return message->kind == STEP_SAMPLE ? send_result(rank, capacity, err) : 0;
}

static int send_stats(struct distributed_rank *rank, struct error *err) {
    struct rank_stats stats[BACKEND_MAX_RANKS];
    rank->executor->ops->rank_stats(rank->executor, stats);
    return transport_send(rank->transport, TRANSPORT_STEPS, 0, &stats[0], sizeof(stats[0]), err);
}

/* Before the first step, or ping, rank 0 has much to do that takes its time. */
static int receive_message(struct distributed_rank *rank, struct step_message *out,
                           struct error *err) {
    struct transport *t = rank->transport;
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = rank->has_begun ? timeout_ns : 0;
    int status = transport_receive(t, TRANSPORT_STEPS, 0, out, sizeof(*out), err);
    t->timeout_ns = timeout_ns;
    rank->has_begun |= status == 0 && out->kind != STEP_MEMORY;
    return status;
}

/* 1: goes on; 0: dismissed. */
static int obey(struct distributed_rank *rank, struct error *err) {
    struct step_message message;
    if (receive_message(rank, &message, err) != 0)
        return -1;
    if (message.kind == STEP_QUIT)
        return 0;
    bool computes = message.kind == STEP_COMPUTE || message.kind == STEP_SAMPLE;
    if ((message.kind == STEP_MEMORY && alloc_memory(rank, &message.capacity, err) != 0) ||
        (computes && compute(rank, &message, err) != 0) ||
        (message.wants_stats && send_stats(rank, err) != 0))
        return -1;
    return 1;
}

int distributed_rank_run(const struct model *model, const struct executor_config *config,
                         void (*ready)(void *context, const struct executor_info *info),
                         void *context, struct error *err) {
    struct distributed_rank rank = {.transport = config->transport};
    struct executor_info info;
    if (executor_create(model, config, &info, &rank.executor, err) != 0)
        return -1;
    ready(context, &info);
    int status;
    do
        status = obey(&rank, err);
    while (status > 0);
    if (status == 0)
        rank.executor->ops->destroy(rank.executor);
    free(rank.memory);
    return status;
}

/* --- The way to the others --- */

int distributed_rank_open(int32_t timeout_s, struct transport **out, struct error *err) {
    *out = NULL;
    if (!transport_is_expected())
        return 0;
    if (transport_open(out, err) != 0)
        return -1;
    (*out)->timeout_ns = timeout_s * CLOCK_NS_PER_S;
    return 0;
}

int32_t distributed_rank_number(const struct transport *transport) {
    return transport->rank;
}

int32_t distributed_rank_count(const struct transport *transport) {
    return transport->num_ranks;
}

void distributed_rank_close(struct transport *transport) {
    transport->ops->destroy(transport);
}
