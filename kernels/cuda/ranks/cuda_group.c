#include "kernels/cuda/ranks/cuda_group.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/poll_pause.h"
#include "kernels/backend_group.h"
#include "kernels/cuda/state/cuda_check.h"

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

int cuda_group_create(int32_t num_ranks, struct backend_group **out, struct error *err) {
    struct nccl_library nccl;
    if (check_devices(num_ranks, err) != 0 || nccl_library_load(&nccl, err) != 0)
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
    *out = &group->base;
    return 0;
}

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
           comm->num_ops <= atomic_load(&comm->group->num_ops_left);
}

/* Waits until every rank is about to enter; false when one of them never will. */
static bool meet(struct cuda_backend *b, ncclUniqueId *out_id) {
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

int cuda_comm_create(struct cuda_backend *b, struct error *err) {
    struct cuda_group *group = (struct cuda_group *)b->config.group;
    if (group == NULL && b->config.rank != 0)
        return error_set(err, ERROR_CONFIG, "rank %d: it is alone", b->config.rank);
    if (group == NULL)
        return 0;
    if (b->config.rank < 0 || b->config.rank >= group->base.num_ranks)
        return error_set(err, ERROR_CONFIG, "rank %d: the group has 0 to %d", b->config.rank,
                         group->base.num_ranks - 1);
    b->comm = calloc(1, sizeof(*b->comm));
    if (b->comm == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a rank");
    *b->comm = (struct cuda_comm){.group = group,
                                  .nccl = &group->nccl,
                                  .rank = b->config.rank,
                                  .num_ranks = group->base.num_ranks};
    return 0;
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
    close_rank(comm->group, comm->num_ops);
    free(comm);
    b->comm = NULL;
}

bool cuda_comm_begin(struct cuda_backend *b) {
    struct cuda_comm *comm = b->comm;
    ncclUniqueId id;
    comm->num_ops++;
    if (comm->has_entered || !CUDA_OK(b))
        return CUDA_OK(b);
    CHECK(b->recording == NULL);
    comm->has_entered = true;
    return meet(b, &id) && NCCL_TRY(b, comm->nccl->comm_init_rank(&comm->nccl_comm, comm->num_ranks,
                                                                  id, comm->rank));
}

uint64_t cuda_comm_num_ops(const struct cuda_backend *b) {
    return b->comm != NULL ? b->comm->num_ops : 0;
}

uint64_t cuda_comm_take_recorded(struct cuda_backend *b, uint64_t num_ops) {
    uint64_t recorded = cuda_comm_num_ops(b) - num_ops;
    if (b->comm != NULL)
        b->comm->num_ops = num_ops;
    return recorded;
}

void cuda_comm_count_replayed(struct cuda_backend *b, uint64_t num_ops) {
    if (b->comm != NULL)
        b->comm->num_ops += num_ops;
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
        error_set(&b->failure, ERROR_DEVICE, "rank %d waits for one that is closed", b->comm->rank);
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
    fail_group(comm->group, comm->rank, b->failure.message);
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

void cuda_comm_await(struct cuda_backend *b, cudaEvent_t event) {
    int64_t began_ns = clock_now_ns();
    while (CUDA_OK(b) && !is_ready(b, event)) {
        cuda_comm_look(b);
        poll_pause(&pace, clock_now_ns() - began_ns);
    }
    cuda_comm_look(b);
}
