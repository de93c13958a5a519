/* Private to kernels/cuda: ranks that are threads of one process, each with the GPU of its number,
 * and NCCL between them.
 *
 * A rank enters NCCL's communicator with its first collective op, when all others do: a backend
 * that is only opened needs none. What a rank enqueues for the others ends on its device only when
 * they come to it, so that a rank never waits in a call of CUDA while one of them may be lost: it
 * asks (cuda_comm_await), and aborts its communicator when another rank has failed or NCCL says so.
 */
#ifndef QUIRE_KERNELS_CUDA_CUDA_GROUP_H
#define QUIRE_KERNELS_CUDA_CUDA_GROUP_H

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/nccl_library.h"

struct cuda_group;

/* A rank's end of the group: b->comm, NULL of a backend that is alone. */
struct cuda_comm {
    struct cuda_group *group;
    const struct nccl_library *nccl;
    int32_t rank, num_ranks;
    ncclComm_t nccl_comm; /* NULL: not entered yet, or aborted */
    bool has_entered;
    uint64_t num_ops;                  /* of NCCL, that were enqueued */
    struct buffer parts;               /* of all ranks, one behind the other */
    size_t piece_bytes;                /* of a rank's part at most */
    int32_t widths[BACKEND_MAX_RANKS]; /* of gather_columns; 0: not known yet */
};

/* As backend_group_create. */
int cuda_group_create(int32_t num_ranks, struct backend_group **out, struct error *err);

/* As the config says, before there is a device. The others learn of the destruction. */
int cuda_comm_create(struct cuda_backend *b, struct error *err);
void cuda_comm_destroy(struct cuda_backend *b);

/* Before an operation of NCCL: counts it, and enters the communicator. False after a failure. */
bool cuda_comm_begin(struct cuda_backend *b);
/* What a recording holds is enqueued by its replays: returns how many operations those are, counted
 * since there were num_ops, and each replay counts them. A backend that is alone has none. */
uint64_t cuda_comm_num_ops(const struct cuda_backend *b);
uint64_t cuda_comm_take_recorded(struct cuda_backend *b, uint64_t num_ops);
void cuda_comm_count_replayed(struct cuda_backend *b, uint64_t num_ops);
/* Looks whether another rank, or NCCL, has failed: then so has this one, and the others learn of
 * its failure, whichever it is. */
void cuda_comm_look(struct cuda_backend *b);
/* Waits for the event, or with NULL for the compute stream, or for a failure. */
void cuda_comm_await(struct cuda_backend *b, cudaEvent_t event);

/* While running: evaluates `call` (a ncclResult_t) unless something failed before, and keeps its
 * failure. True when it succeeded. */
#define NCCL_TRY(b, call) (CUDA_OK(b) ? cuda_comm_keep(b, call, #call, __FILE__, __LINE__) : false)
bool cuda_comm_keep(struct cuda_backend *b, ncclResult_t result, const char *operation,
                    const char *file, int line);

#endif
