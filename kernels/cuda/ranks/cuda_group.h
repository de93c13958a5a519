/* Private to kernels/cuda: ranks, and NCCL between them. They are threads of one process, each with
 * the GPU of its number; or processes, each with the GPU of its number on its machine, which only
 * NCCL's unique id reaches over the transport.
 *
 * A rank enters NCCL's communicator with its first collective op, together with all others: a
 * backend that is only opened needs none. A collective operation completes on a rank's device only
 * when the others reach it too. So a rank never waits in a CUDA call while another one may be lost:
 * it polls (cuda_comm_await), and aborts its communicator when another rank has failed, NCCL
 * reports an error, or, among processes, the transport's timeout has passed.
 */
#ifndef QUIRE_KERNELS_CUDA_RANKS_CUDA_GROUP_H
#define QUIRE_KERNELS_CUDA_RANKS_CUDA_GROUP_H

#include "kernels/cuda/state/cuda_state.h"
#include "kernels/cuda/ranks/nccl_library.h"

struct cuda_group;

/* What was enqueued. Bytes are counted as if each rank sent its part to each other one. */
struct cuda_comm_work {
    uint64_t num_ops; /* of NCCL */
    uint64_t bytes_sent, bytes_received;
};

/* A rank's view of its group, and of the pipeline that this is a stage of: b->comm, NULL without
 * either. A pipeline has one communicator. */
struct cuda_comm {
    struct cuda_group *group; /* of all ranks of the communicator */
    const struct nccl_library *nccl;
    int32_t rank, num_ranks; /* of the stage */
    int32_t first_peer;      /* the communicator's rank that is rank 0 of the stage */
    struct backend_group_traffic *traffic;
    ncclComm_t nccl_comm; /* NULL: not entered yet, or aborted */
    bool has_entered;
    struct cuda_comm_work work;
    struct buffer parts;               /* of all ranks, contiguous */
    size_t piece_bytes;                /* maximum bytes of a rank's part */
    int32_t widths[BACKEND_MAX_RANKS]; /* of gather_columns; 0: not known yet */
};

/* See backend_group_create and backend_group_create_remote. */
int cuda_group_create(int32_t num_ranks, struct backend_group **out, struct error *err);
int cuda_group_create_remote(struct transport *transport, int32_t first_rank, int32_t num_ranks,
                             struct backend_group **out, struct error *err);

/* See pipeline_create in module.h. */
int cuda_pipeline_create(struct transport *transport, int32_t num_stages, int32_t num_ranks,
                         struct backend_pipeline **out, struct error *err);

/* Creates it from the config, and chooses b->device, before that is opened. Its destruction is
 * reported to the other ranks of the process. */
int cuda_comm_create(struct cuda_backend *b, struct error *err);
void cuda_comm_destroy(struct cuda_backend *b);

/* Called before an NCCL operation: counts it, and enters the communicator. False after a
 * failure. */
bool cuda_comm_begin(struct cuda_backend *b, size_t bytes_sent, size_t bytes_received);
/* Operations in a recording are enqueued by its replays: one function returns what was recorded
 * since `before`, and each replay adds it. Without a group there is nothing. */
struct cuda_comm_work cuda_comm_work_of(const struct cuda_backend *b);
struct cuda_comm_work cuda_comm_take_recorded(struct cuda_backend *b,
                                              const struct cuda_comm_work *before);
void cuda_comm_count_replayed(struct cuda_backend *b, const struct cuda_comm_work *recorded);
/* Checks whether another rank, or NCCL, has failed. Then this rank fails too, and its failure is
 * reported to the others. */
void cuda_comm_look(struct cuda_backend *b);
/* Waits for the event (NULL: the compute stream), or for a failure. */
void cuda_comm_await(struct cuda_backend *b, cudaEvent_t event);

/* Returns the number that a rank of this one's stage has in the communicator. */
static inline int cuda_comm_peer(const struct cuda_comm *comm, int32_t rank) {
    return comm->first_peer + rank;
}
/* Returns whether the communicator has other ranks than those of the stage. */
bool cuda_comm_is_shared(const struct cuda_comm *comm);

/* While running: evaluates `call` (a ncclResult_t) unless something failed before, and keeps its
 * failure. True when it succeeded. */
#define NCCL_TRY(b, call) (CUDA_OK(b) ? cuda_comm_keep(b, call, #call, __FILE__, __LINE__) : false)
bool cuda_comm_keep(struct cuda_backend *b, ncclResult_t result, const char *operation,
                    const char *file, int line);

#endif
