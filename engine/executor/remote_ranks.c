#include "engine/executor/remote_ranks.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "engine/executor/executor.h"
#include "kernels/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PINGS_PER_TIMEOUT 4 /* so that one late answer is not a reason to give up */
#define MAX_OTHERS (BACKEND_MAX_RANKS - 1)
#define MAX_STEP_REQUESTS                                                                          \
    (5 * MAX_OTHERS + 1)        /* head, arena, supply's head, rows, wait; result                  \
                                 */
#define STATS_NS CLOCK_NS_PER_S /* between two reports while steps run */

/* The part of a batch that some of the other ranks are sent. */
struct step_copy {
    struct step_message head;
    void *memory; /* of a step of head.capacity; NULL: no rank is sent this */
};

/* Memory that the engine owns, and the parts of its batch that are on the way to the other ranks
 * and back. */
struct remote_step {
    void *memory;
    struct batch_capacity capacity;
    struct batch_arena arena;
    struct step_copy to_compute, to_sample;
    struct step_message supply, wait;
    struct step_result *result; /* for the sampling rank's answer */
    struct transport_request *requests[MAX_STEP_REQUESTS];
    int32_t ranks[MAX_STEP_REQUESTS];
    int num_requests;
};

struct remote_rank {
    struct transport_request *sent, *answer; /* of asking whether it is there; NULL: done */
    struct rank_stats answered;              /* where the answer is received */
    struct rank_stats stats;                 /* guarded by the lock; the last ones received */
};

struct remote_ranks {
    struct transport *transport;
    int32_t sampler; /* the rank that samples: the first one of the last stage */
    struct remote_step steps[EXECUTOR_MAX_STEPS];
    int32_t num_steps;
    struct step_message ping;
    int64_t asked_ns; /* when rank 0 last asked whether the ranks are there; a step shows it, too */
    int64_t reported_ns; /* when it last asked for their statistics */
    pthread_mutex_t lock;
    struct remote_rank ranks[BACKEND_MAX_RANKS]; /* from 1 on: 0 is this process's own rank */
};

/* --- Their answers --- */

static int test(struct transport *t, struct transport_request **request, struct error *err) {
    int status = *request != NULL ? t->ops->test(t, *request, err) : 1;
    if (status != 0)
        *request = NULL;
    return status < 0 ? -1 : 0;
}

static bool is_open(const struct remote_rank *rank) {
    return rank->sent != NULL || rank->answer != NULL;
}

static int test_answer(struct remote_ranks *remote, struct remote_rank *rank, struct error *err) {
    if (!is_open(rank))
        return 0;
    if (test(remote->transport, &rank->sent, err) != 0 ||
        test(remote->transport, &rank->answer, err) != 0)
        return -1;
    if (rank->answer == NULL) {
        pthread_mutex_lock(&remote->lock);
        rank->stats = rank->answered;
        pthread_mutex_unlock(&remote->lock);
    }
    return 0;
}

/* Returns whether all have answered, or -1. */
static int test_answers(struct remote_ranks *remote, struct error *err) {
    int all = 1;
    for (int32_t r = 1; r < remote->transport->num_ranks; r++) {
        if (test_answer(remote, &remote->ranks[r], err) != 0)
            return -1;
        all &= !is_open(&remote->ranks[r]);
    }
    return all;
}

static int begin_answer(struct remote_ranks *remote, int32_t r, struct error *err) {
    struct transport *t = remote->transport;
    struct remote_rank *rank = &remote->ranks[r];
    rank->answer =
        t->ops->receive(t, TRANSPORT_STEPS, r, &rank->answered, sizeof(rank->answered), err);
    return rank->answer != NULL ? 0 : -1;
}

int32_t remote_ranks_stats(struct remote_ranks *remote, struct rank_stats *out) {
    int32_t num_ranks = remote->transport->num_ranks;
    pthread_mutex_lock(&remote->lock);
    for (int32_t r = 1; r < num_ranks; r++)
        out[r - 1] = remote->ranks[r].stats;
    pthread_mutex_unlock(&remote->lock);
    return num_ranks - 1;
}

/* --- Steps --- */

/* Tells the other ranks to allocate the memory of the largest step, before there is a step. */
static int announce_steps(struct remote_ranks *remote, const struct batch_capacity *capacity,
                          struct error *err) {
    const struct step_message message = {.kind = STEP_MEMORY, .capacity = *capacity};
    for (int32_t rank = 1; rank < remote->transport->num_ranks; rank++)
        if (transport_send(remote->transport, TRANSPORT_STEPS, rank, &message, sizeof(message),
                           err) != 0)
            return -1;
    return 0;
}

int remote_ranks_step_memory(struct remote_ranks *remote, const struct batch_capacity *capacity,
                             void **out, struct error *err) {
    size_t bytes = step_memory_bytes(capacity);
    struct remote_step *step = &remote->steps[remote->num_steps];
    struct step_result result;
    CHECK(remote->num_steps < EXECUTOR_MAX_STEPS);
    if (bytes < SIZE_MAX) {
        step->memory = aligned_alloc(STEP_ALIGNMENT, bytes);
        step->to_compute.memory = aligned_alloc(STEP_ALIGNMENT, batch_arena_bytes(capacity));
        if (remote->sampler > 0)
            step->to_sample.memory = aligned_alloc(STEP_ALIGNMENT, bytes);
    }
    if (step->memory == NULL || step->to_compute.memory == NULL ||
        (remote->sampler > 0 && step->to_sample.memory == NULL))
        return error_set(err, ERROR_MEMORY, "no memory for a step");
    step->capacity = *capacity;
    step_memory_bind(capacity, step->memory, &step->arena, &result);
    *out = step->memory;
    return remote->num_steps++ == 0 ? announce_steps(remote, capacity, err) : 0;
}

static struct remote_step *find_step(struct remote_ranks *remote, const struct batch *batch) {
    struct remote_step *step = remote->steps;
    while (step < remote->steps + remote->num_steps &&
           step->arena.token_ids != batch->inputs.token_ids)
        step++;
    CHECK(step < remote->steps + remote->num_steps);
    return step;
}

static int note_request(struct remote_step *step, int32_t rank, struct transport_request *request) {
    if (request == NULL)
        return -1;
    step->ranks[step->num_requests] = rank;
    step->requests[step->num_requests++] = request;
    return 0;
}

/* Returns whether the others should report their statistics: once all of them have answered the
 * last question. */
static int wants_stats(struct remote_ranks *remote, struct error *err) {
    int64_t now_ns = clock_now_ns();
    if (now_ns - remote->reported_ns < STATS_NS)
        return 0;
    int have_answered = test_answers(remote, err);
    if (have_answered > 0)
        remote->reported_ns = now_ns;
    return have_answered;
}

static void write_copy(const struct remote_step *step, enum step_message_kind kind,
                       struct step_copy *out) {
    bool samples = kind == STEP_SAMPLE;
    struct batch_arena copy;
    out->head = (struct step_message){
        .kind = kind,
        .capacity = samples ? batch_arena_extent(&step->arena, &step->capacity)
                            : batch_arena_shape(&step->arena)};
    batch_arena_bind(&copy, &out->head.capacity, out->memory);
    batch_arena_copy(&step->arena, &out->head.capacity, &copy);
    if (!samples)
        copy.counts->num_hidden_sums = 0; /* only for the sampler */
}

static int begin_send(struct remote_ranks *remote, struct remote_step *step, int32_t rank,
                      const void *data, size_t bytes, struct error *err) {
    struct transport *t = remote->transport;
    return note_request(step, rank, t->ops->send(t, TRANSPORT_STEPS, rank, data, bytes, err));
}

/* A head, and what follows it. */
static int send_with(struct remote_ranks *remote, struct remote_step *step, int32_t rank,
                     const struct step_message *head, const void *data, size_t bytes,
                     struct error *err) {
    return begin_send(remote, step, rank, head, sizeof(*head), err) == 0
               ? begin_send(remote, step, rank, data, bytes, err)
               : -1;
}

/* The result is received after the arena that the sampling rank is sent. */
static int receive_result(struct remote_ranks *remote, struct remote_step *step,
                          struct error *err) {
    struct transport *t = remote->transport;
    const struct batch_capacity *capacity = &step->to_sample.head.capacity;
    size_t offset = step_result_offset(capacity);
    return note_request(step, remote->sampler,
                        t->ops->receive(t, TRANSPORT_STEPS, remote->sampler,
                                        (char *)step->to_sample.memory + offset,
                                        step_memory_bytes(capacity) - offset, err));
}

static int send_step(struct remote_ranks *remote, struct remote_step *step, struct error *err) {
    int32_t sampler = remote->sampler;
    write_copy(step, STEP_COMPUTE, &step->to_compute);
    if (sampler > 0)
        write_copy(step, STEP_SAMPLE, &step->to_sample);
    for (int32_t rank = 1; rank < remote->transport->num_ranks; rank++) {
        const struct step_copy *copy = rank == sampler ? &step->to_sample : &step->to_compute;
        if (send_with(remote, step, rank, &copy->head, copy->memory,
                      batch_arena_bytes(&copy->head.capacity), err) != 0)
            return -1;
    }
    return 0;
}

static void take_result(struct remote_step *step) {
    const struct batch_capacity *capacity = &step->to_sample.head.capacity;
    struct batch_arena arena;
    struct step_result received;
    step_memory_bind(capacity, step->to_sample.memory, &arena, &received);
    step_result_copy(&received, capacity, step->result);
}

int remote_ranks_submit(struct remote_ranks *remote, const struct batch *batch,
                        struct step_result *result, struct error *err) {
    struct remote_step *step = find_step(remote, batch);
    step->num_requests = 0;
    step->result = result;
    return send_step(remote, step, err);
}

int remote_ranks_supply(struct remote_ranks *remote, const struct batch *batch, struct error *err) {
    struct remote_step *step = find_step(remote, batch);
    size_t bytes = (size_t)batch->num_sample_rows * sizeof(*batch->sample_rows);
    step->supply = (struct step_message){.kind = STEP_SUPPLY};
    for (int32_t rank = 1; rank < remote->transport->num_ranks; rank++)
        if (send_with(remote, step, rank, &step->supply, batch->sample_rows, bytes, err) != 0)
            return -1;
    return 0;
}

int remote_ranks_begin_wait(struct remote_ranks *remote, const struct batch *batch,
                            struct error *err) {
    struct remote_step *step = find_step(remote, batch);
    int asks = wants_stats(remote, err);
    if (asks < 0)
        return -1;
    step->wait = (struct step_message){.kind = STEP_WAIT, .wants_stats = asks > 0};
    for (int32_t rank = 1; rank < remote->transport->num_ranks; rank++)
        if (begin_send(remote, step, rank, &step->wait, sizeof(step->wait), err) != 0 ||
            (rank == remote->sampler && receive_result(remote, step, err) != 0) ||
            (asks > 0 && begin_answer(remote, rank, err) != 0))
            return -1;
    return 0;
}

int remote_ranks_wait(struct remote_ranks *remote, const struct batch *batch, struct error *err) {
    struct remote_step *step = find_step(remote, batch);
    if (transport_wait(remote->transport, step->requests, step->ranks, step->num_requests, err) !=
        0)
        return -1;
    if (remote->sampler > 0)
        take_result(step);
    remote->asked_ns = clock_now_ns(); /* the step has shown that they are there */
    return 0;
}

/* --- Between steps --- */

static int ask(struct remote_ranks *remote, int32_t r, struct error *err) {
    struct transport *t = remote->transport;
    struct remote_rank *rank = &remote->ranks[r];
    rank->sent = t->ops->send(t, TRANSPORT_STEPS, r, &remote->ping, sizeof(remote->ping), err);
    return rank->sent != NULL ? begin_answer(remote, r, err) : -1;
}

static int report_late(const struct remote_ranks *remote, struct error *err) {
    int32_t r = 1;
    while (!is_open(&remote->ranks[r]))
        r++;
    return error_set(err, ERROR_DEVICE, "rank %d has not answered within %lld s (--rank-timeout)",
                     r, (long long)(remote->transport->timeout_ns / CLOCK_NS_PER_S));
}

/* Asks again once all have answered. A rank that does not answer is late after the whole
 * timeout. */
int remote_ranks_check(struct remote_ranks *remote, struct error *err) {
    struct transport *t = remote->transport;
    int64_t now_ns = clock_now_ns(), waited_ns = now_ns - remote->asked_ns;
    int have_answered = test_answers(remote, err);
    if (have_answered == 0 && t->timeout_ns > 0 && waited_ns > t->timeout_ns)
        return report_late(remote, err);
    if (have_answered <= 0 || waited_ns < t->timeout_ns / PINGS_PER_TIMEOUT)
        return have_answered < 0 ? -1 : 0;
    remote->asked_ns = remote->reported_ns = now_ns;
    for (int32_t r = 1; r < t->num_ranks; r++)
        if (ask(remote, r, err) != 0)
            return -1;
    return 0;
}

/* --- Beginning and end --- */

struct remote_ranks *remote_ranks_create(struct transport *transport, int32_t per_stage) {
    struct remote_ranks *remote = calloc(1, sizeof(*remote));
    if (remote == NULL)
        return NULL;
    remote->transport = transport;
    remote->sampler = transport->num_ranks - per_stage;
    remote->ping = (struct step_message){.kind = STEP_PING, .wants_stats = true};
    CHECK(pthread_mutex_init(&remote->lock, NULL) == 0);
    return remote;
}

void remote_ranks_dismiss(struct remote_ranks *remote) {
    static const struct step_message quit = {.kind = STEP_QUIT};
    struct transport *t = remote->transport;
    for (int32_t r = 1; r < t->num_ranks; r++)
        transport_send(t, TRANSPORT_STEPS, r, &quit, sizeof(quit), NULL);
    for (int32_t r = 1; r < t->num_ranks; r++)
        if (remote->ranks[r].answer != NULL)
            transport_wait(t, &remote->ranks[r].answer, &r, 1, NULL);
}

void remote_ranks_destroy(struct remote_ranks *remote) {
    if (remote == NULL)
        return;
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        free(remote->steps[i].memory);
        free(remote->steps[i].to_compute.memory);
        free(remote->steps[i].to_sample.memory);
    }
    pthread_mutex_destroy(&remote->lock);
    free(remote);
}
