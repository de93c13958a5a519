#include "kernels/cuda/ranks/cuda_group.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/poll_pause.h"
#include "kernels/backend_group.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A wait that takes longer is asked about now and then only. */
static const struct poll_pace pace = {.spin_ns = CLOCK_NS_PER_MS,
                                      .longest_nap_ns = POLL_LEAST_NAP_NS};

struct cuda_group {
    struct backend_group base; /* failure: guarded by the lock */
    struct nccl_library nccl;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool has_failed;        /* there is a failure to be read */
    _Atomic uint64_t num_ops_left; /* that every rank that was closed has taken part in */
    ncclUniqueId id;               /* guarded too, from the first rank that enters */
    int32_t num_entering;
    struct transport *transport; /* between ranks that are processes; NULL: they are threads */
    int32_t first_rank;          /* of the transport's, that is rank 0 of the group */
    int device;                  /* of this process's rank */
};

/* --- The group --- */

static void destroy(struct backend_group *base) {
    struct cuda_group *group = (struct cuda_group *)base;
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

static int check_devices(int32_t num_ranks, struct error *err) {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess)
        return error_set(err, ERROR_CONFIG,
                         "%d ranks need a GPU each; there is none that this process may use: %s",
                         num_ranks, cudaGetErrorString(status));
    if (num_ranks > count)
        return error_set(err, ERROR_CONFIG,
                         "%d ranks need a GPU each; there are %d that this process may use",
                         num_ranks, count);
    return 0;
}

static int create(int32_t num_ranks, struct cuda_group **out, struct error *err) {
    struct nccl_library nccl;
    if (nccl_library_load(&nccl, err) != 0)
        return -1;
    struct cuda_group *group = aligned_alloc(BACKEND_GROUP_LINE, sizeof(*group));
    if (group == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a group of %d ranks", num_ranks);
    memset(group, 0, sizeof(*group));
    group->base =
        (struct backend_group){.destroy = destroy, .num_ranks = num_ranks, .only_rank = -1};
    group->nccl = nccl;
    atomic_init(&group->num_ops_left, UINT64_MAX);
    CHECK(pthread_mutex_init(&group->lock, NULL) == 0);
    CHECK(pthread_cond_init(&group->changed, NULL) == 0);
    *out = group;
    return 0;
}

int cuda_group_create(int32_t num_ranks, struct backend_group **out, struct error *err) {
    struct cuda_group *group;
    if (check_devices(num_ranks, err) != 0 || create(num_ranks, &group, err) != 0)
        return -1;
    *out = &group->base;
    return 0;
}

/* Slurm may show each process only its own GPU. Where that is the only GPU, NCCL refuses it to the
 * second rank. */
static int choose_device(const struct transport *transport, int *out, struct error *err) {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count == 1) {
        *out = 0;
        return 0;
    }
    *out = transport->local_rank;
    return check_devices(transport->num_local, err);
}

int cuda_group_create_remote(struct transport *transport, int32_t first_rank, int32_t num_ranks,
                             struct backend_group **out, struct error *err) {
    int32_t rank = transport->rank - first_rank;
    struct cuda_group *group;
    int device;
    CHECK(rank >= 0 && rank < num_ranks && first_rank + num_ranks <= transport->num_ranks);
    if (choose_device(transport, &device, err) != 0 || create(num_ranks, &group, err) != 0)
        return -1;
    group->base.only_rank = rank;
    group->transport = transport;
    group->first_rank = first_rank;
    group->device = device;
    *out = &group->base;
    return 0;
}

/* --- Pipelines --- */

struct cuda_pipeline {
    struct backend_pipeline base;
    struct cuda_group *group; /* of all ranks of all stages */
};

static void destroy_pipeline(struct backend_pipeline *base) {
    destroy(&((struct cuda_pipeline *)base)->group->base);
    free(base);
}

int cuda_pipeline_create(struct transport *transport, int32_t num_stages, int32_t num_ranks,
                         struct backend_pipeline **out, struct error *err) {
    int32_t total = num_stages * num_ranks;
    struct backend_group *group;
    CHECK(transport == NULL || total == transport->num_ranks);
    int status = transport != NULL ? cuda_group_create_remote(transport, 0, total, &group, err)
                                   : cuda_group_create(total, &group, err);
    if (status != 0)
        return -1;
    struct cuda_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (pipeline == NULL) {
        destroy(group);
        return error_set(err, ERROR_MEMORY, "out of memory for a pipeline of %d stages",
                         num_stages);
    }
    pipeline->base = (struct backend_pipeline){
        .destroy = destroy_pipeline,
        .num_stages = num_stages,
        .num_ranks = num_ranks,
        .only_stage = transport != NULL ? transport->rank / num_ranks : -1,
        .only_rank = transport != NULL ? transport->rank % num_ranks : -1,
    };
    pipeline->group = (struct cuda_group *)group;
    *out = &pipeline->base;
    return 0;
}

/* --- Failures of others --- */

/* Keeps the first. */
static void fail_group(struct cuda_group *group, int32_t rank, const char *why) {
    pthread_mutex_lock(&group->lock);
    if (group->base.failure.code == ERROR_NONE)
        error_set(&group->base.failure, ERROR_DEVICE, "rank %d: %s", rank, why);
    atomic_store(&group->has_failed, true);
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

static void close_rank(struct cuda_group *group, uint64_t num_ops) {
    pthread_mutex_lock(&group->lock);
    if (num_ops < atomic_load(&group->num_ops_left))
        atomic_store(&group->num_ops_left, num_ops);
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

/* Whether what the rank has enqueued may still end. */
static bool is_whole(const struct cuda_comm *comm) {
    return !atomic_load(&comm->group->has_failed) &&
           comm->work.num_ops <= atomic_load(&comm->group->num_ops_left);
}

/* A rank's thread is watched while it enters, so that this has no timeout of its own. */
static int carry(struct transport *t, struct transport_request *request, struct error *err) {
    int64_t began_ns = clock_now_ns();
    int state = request != NULL ? 0 : -1;
    while (request != NULL && (state = t->ops->test(t, request, err)) == 0)
        poll_pause(&pace, clock_now_ns() - began_ns);
    return state < 0 ? -1 : 0;
}

struct invitation {
    ncclResult_t result; /* of creating the id */
    ncclUniqueId id;
};

static int invite(const struct cuda_group *group, const struct invitation *invitation,
                  struct error *err) {
    struct transport *t = group->transport;
    for (int32_t r = 1; r < group->base.num_ranks; r++)
        if (carry(t,
                  t->ops->send(t, TRANSPORT_SUMS, group->first_rank + r, invitation,
                               sizeof(*invitation), err),
                  err) != 0)
            return -1;
    return 0;
}

static bool meet_processes(struct cuda_backend *b, ncclUniqueId *out_id) {
    const struct cuda_group *group = b->comm->group;
    struct transport *t = group->transport;
    struct invitation invitation = {0};
    int status;
    if (group->base.only_rank == 0) {
        invitation.result = group->nccl.get_unique_id(&invitation.id);
        status = invite(group, &invitation, &b->failure);
    } else {
        status = carry(t,
                       t->ops->receive(t, TRANSPORT_SUMS, group->first_rank, &invitation,
                                       sizeof(invitation), &b->failure),
                       &b->failure);
    }
    *out_id = invitation.id;
    return status == 0 && NCCL_TRY(b, invitation.result);
}

/* Waits until every rank is about to enter; false when one of them never will. */
static bool meet_threads(struct cuda_backend *b, ncclUniqueId *out_id) {
    struct cuda_group *group = b->comm->group;
    pthread_mutex_lock(&group->lock);
    bool is_first = group->num_entering++ == 0;
    ncclResult_t result = is_first ? group->nccl.get_unique_id(&group->id) : ncclSuccess;
    pthread_cond_broadcast(&group->changed);
    while (result == ncclSuccess && group->num_entering < group->base.num_ranks &&
           is_whole(b->comm))
        pthread_cond_wait(&group->changed, &group->lock);
    *out_id = group->id;
    pthread_mutex_unlock(&group->lock);
    NCCL_TRY(b, result);
    cuda_comm_look(b);
    return CUDA_OK(b);
}

/* --- A rank's end --- */

static int check_rank(const struct cuda_group *group, int32_t rank, struct error *err) {
    if (rank < 0 || rank >= group->base.num_ranks)
        return error_set(err, ERROR_CONFIG, "rank %d: the group has 0 to %d", rank,
                         group->base.num_ranks - 1);
    if (group->transport != NULL && rank != group->base.only_rank)
        return error_set(err, ERROR_CONFIG, "rank %d: this process is rank %d", rank,
                         group->base.only_rank);
    return 0;
}

/* Of a stage, whose group is a part of the pipeline's. */
static void join_pipeline(struct cuda_pipeline *pipeline, int32_t stage, struct cuda_comm *comm) {
    comm->group = pipeline->group;
    comm->num_ranks = pipeline->base.num_ranks;
    comm->first_peer = stage * comm->num_ranks;
    comm->traffic = &pipeline->base.traffic[cuda_comm_peer(comm, comm->rank)];
}

static void join_group(struct cuda_group *group, struct cuda_comm *comm) {
    comm->group = group;
    comm->num_ranks = group->base.num_ranks;
    comm->traffic = &group->base.counts[comm->rank].traffic;
}

int cuda_comm_create(struct cuda_backend *b, struct error *err) {
    const struct backend_config *config = &b->config;
    struct cuda_group *group = (struct cuda_group *)config->group;
    struct cuda_pipeline *pipeline = (struct cuda_pipeline *)config->pipeline;
    if (group == NULL && pipeline == NULL)
        return config->rank == 0
                   ? 0
                   : error_set(err, ERROR_CONFIG, "rank %d: it is alone", config->rank);
    if (pipeline != NULL
            ? backend_pipeline_check(&pipeline->base, config->stage, config->rank, err) != 0
            : check_rank(group, config->rank, err) != 0)
        return -1;
    b->comm = calloc(1, sizeof(*b->comm));
    if (b->comm == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a rank");
    b->comm->rank = config->rank;
    if (pipeline != NULL)
        join_pipeline(pipeline, config->stage, b->comm);
    else
        join_group(group, b->comm);
    b->comm->nccl = &b->comm->group->nccl;
    b->device = b->comm->group->transport != NULL ? b->comm->group->device
                                                  : cuda_comm_peer(b->comm, config->rank);
    return 0;
}

bool cuda_comm_is_shared(const struct cuda_comm *comm) {
    return comm->num_ranks < comm->group->base.num_ranks;
}

/* NCCL's kernels on this device end. The last rank of a process to abort waits there until no graph
 * has an operation of the communicator, whichever rank's: so a rank destroys its own before. Where
 * it cannot, its device has failed, and NCCL's kernels with it: it does not abort, nor then is any
 * rank the last. */
static void abort_nccl(struct cuda_backend *b) {
    struct cuda_comm *comm = b->comm;
    bool are_destroyed = true;
    while (b->graphs != NULL)
        are_destroyed &= cuda_graph_destroy(b, b->graphs);
    if (comm->nccl_comm != NULL && are_destroyed)
        comm->nccl->comm_abort(comm->nccl_comm);
    comm->nccl_comm = NULL;
}

void cuda_comm_destroy(struct cuda_backend *b) {
    struct cuda_comm *comm = b->comm;
    if (comm == NULL)
        return;
    cuda_comm_look(b);
    if (CUDA_OK(b) && comm->nccl_comm != NULL)
        NCCL_TRY(b, comm->nccl->comm_destroy(comm->nccl_comm));
    close_rank(comm->group, comm->work.num_ops);
    free(comm);
    b->comm = NULL;
}

static void show_traffic(const struct cuda_comm *comm) {
    comm->traffic->bytes_sent = comm->work.bytes_sent;
    comm->traffic->bytes_received = comm->work.bytes_received;
}

static bool enter(struct cuda_backend *b, ncclUniqueId id) {
    struct cuda_comm *comm = b->comm;
    ncclResult_t result = comm->nccl->comm_init_rank(&comm->nccl_comm, comm->group->base.num_ranks,
                                                     id, cuda_comm_peer(comm, comm->rank));
    if (result == ncclInvalidUsage)
        error_set(&b->failure, ERROR_DEVICE,
                  "NCCL refuses to connect the ranks (ncclCommInitRank: %s): two of them may have "
                  "the same GPU",
                  comm->nccl->get_error_string(result));
    return NCCL_TRY(b, result);
}

bool cuda_comm_begin(struct cuda_backend *b, size_t bytes_sent, size_t bytes_received) {
    struct cuda_comm *comm = b->comm;
    ncclUniqueId id;
    comm->work.num_ops++;
    comm->work.bytes_sent += bytes_sent;
    comm->work.bytes_received += bytes_received;
    show_traffic(comm);
    if (comm->has_entered || !CUDA_OK(b))
        return CUDA_OK(b);
    CHECK(b->recording == NULL);
    comm->has_entered = true;
    bool has_met = comm->group->transport != NULL ? meet_processes(b, &id) : meet_threads(b, &id);
    return has_met && enter(b, id);
}

struct cuda_comm_work cuda_comm_work_of(const struct cuda_backend *b) {
    return b->comm != NULL ? b->comm->work : (struct cuda_comm_work){0};
}

struct cuda_comm_work cuda_comm_take_recorded(struct cuda_backend *b,
                                              const struct cuda_comm_work *before) {
    struct cuda_comm_work now = cuda_comm_work_of(b);
    if (b->comm != NULL) {
        b->comm->work = *before;
        show_traffic(b->comm);
    }
    return (struct cuda_comm_work){.num_ops = now.num_ops - before->num_ops,
                                   .bytes_sent = now.bytes_sent - before->bytes_sent,
                                   .bytes_received = now.bytes_received - before->bytes_received};
}

void cuda_comm_count_replayed(struct cuda_backend *b, const struct cuda_comm_work *recorded) {
    struct cuda_comm *comm = b->comm;
    if (comm == NULL)
        return;
    comm->work.num_ops += recorded->num_ops;
    comm->work.bytes_sent += recorded->bytes_sent;
    comm->work.bytes_received += recorded->bytes_received;
    show_traffic(comm);
}

/* --- Failures --- */

bool cuda_comm_keep(struct cuda_backend *b, ncclResult_t result, const char *operation,
                    const char *file, int line) {
    if (result == ncclSuccess)
        return true;
    if (CUDA_OK(b))
        cuda_check_describe(ERROR_DEVICE, operation, file, line,
                            b->comm->nccl->get_error_string(result), "NCCL", &b->failure);
    return false;
}

static void take_failure(struct cuda_backend *b) {
    struct cuda_group *group = b->comm->group;
    pthread_mutex_lock(&group->lock);
    b->failure = group->base.failure;
    pthread_mutex_unlock(&group->lock);
    if (CUDA_OK(b))
        error_set(&b->failure, ERROR_DEVICE, "rank %d waits for one that is closed",
                  cuda_comm_peer(b->comm, b->comm->rank));
}

void cuda_comm_look(struct cuda_backend *b) {
    struct cuda_comm *comm = b->comm;
    ncclResult_t async_error = ncclSuccess;
    if (CUDA_OK(b) && !is_whole(comm))
        take_failure(b);
    if (CUDA_OK(b) && comm->nccl_comm != NULL)
        NCCL_TRY(b, comm->nccl->comm_get_async_error(comm->nccl_comm, &async_error));
    NCCL_TRY(b, async_error);
    if (CUDA_OK(b))
        return;
    fail_group(comm->group, cuda_comm_peer(comm, comm->rank), b->failure.message);
    abort_nccl(b);
}

/* What is not ready is an error to the runtime, which would be blamed on the next kernel. */
static bool is_ready(struct cuda_backend *b, cudaEvent_t event) {
    cudaError_t status = event != NULL ? cudaEventQuery(event) : cudaStreamQuery(b->stream);
    if (status == cudaErrorNotReady)
        cudaGetLastError();
    else
        CUDA_TRY(b, status);
    return status != cudaErrorNotReady;
}

/* Ranks that are processes are not told of one another's failures. */
static void give_up_late(struct cuda_backend *b, int64_t waited_ns) {
    const struct transport *transport = b->comm->group->transport;
    if (transport == NULL || transport->timeout_ns == 0 || waited_ns < transport->timeout_ns)
        return;
    error_set(&b->failure, ERROR_DEVICE,
              "another rank has not computed its part of a step within %g s (--rank-timeout)",
              (double)transport->timeout_ns / CLOCK_NS_PER_S);
}

void cuda_comm_await(struct cuda_backend *b, cudaEvent_t event) {
    int64_t began_ns = clock_now_ns();
    while (CUDA_OK(b) && !is_ready(b, event)) {
        int64_t waited_ns = clock_now_ns() - began_ns;
        cuda_comm_look(b);
        if (CUDA_OK(b))
            give_up_late(b, waited_ns);
        poll_pause(&pace, waited_ns);
    }
    cuda_comm_look(b);
}
