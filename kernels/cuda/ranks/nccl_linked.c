/* NCCL as it is linked with the simulator's module. */
#include "kernels/cuda/ranks/nccl_library.h"

int nccl_library_load(struct nccl_library *out, struct error *err) {
    *out = (struct nccl_library){
        .get_error_string = ncclGetErrorString,
        .get_unique_id = ncclGetUniqueId,
        .comm_init_rank = ncclCommInitRank,
        .comm_destroy = ncclCommDestroy,
        .comm_abort = ncclCommAbort,
        .comm_get_async_error = ncclCommGetAsyncError,
        .all_reduce = ncclAllReduce,
        .all_gather = ncclAllGather,
        .broadcast = ncclBroadcast,
        .send = ncclSend,
        .recv = ncclRecv,
        .group_start = ncclGroupStart,
        .group_end = ncclGroupEnd,
    };
    return 0;
}
