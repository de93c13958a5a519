/* The functions of NCCL in use. NCCL is loaded at run time, as libnccl.so.2, when a group of ranks
 * is created: with one GPU it need not be installed. */
#ifndef QUIRE_KERNELS_CUDA_RANKS_NCCL_LIBRARY_H
#define QUIRE_KERNELS_CUDA_RANKS_NCCL_LIBRARY_H

#include "config/base/error.h"

#include <nccl.h>

struct nccl_library {
    const char *(*get_error_string)(ncclResult_t result);
    ncclResult_t (*get_unique_id)(ncclUniqueId *id);
    ncclResult_t (*comm_init_rank)(ncclComm_t *comm, int num_ranks, ncclUniqueId id, int rank);
    ncclResult_t (*comm_destroy)(ncclComm_t comm);
    ncclResult_t (*comm_abort)(ncclComm_t comm);
    ncclResult_t (*comm_get_async_error)(ncclComm_t comm, ncclResult_t *error);
    ncclResult_t (*all_reduce)(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*all_gather)(const void *send, void *receive, size_t send_count,
                               ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*broadcast)(const void *send, void *receive, size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*send)(const void *send, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*recv)(void *receive, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
};

/* nccl_library.c, or nccl_linked.c in the simulator's module. The library stays loaded. Fails with
 * ERROR_CONFIG when it is not installed or lacks a function. */
int nccl_library_load(struct nccl_library *out, struct error *err);

#endif
