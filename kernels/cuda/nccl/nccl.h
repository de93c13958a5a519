/* The part of NCCL's interface that the CUDA backend uses, with NVIDIA's names, values and
 * signatures (NCCL 2, whose releases keep them): a build needs no NCCL, which is found at run time
 * (kernels/cuda/ranks/nccl_library.h). The simulator implements these functions. */
#ifndef QUIRE_KERNELS_CUDA_NCCL_NCCL_H
#define QUIRE_KERNELS_CUDA_NCCL_NCCL_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;

typedef enum {
    ncclUint8 = 1,
    ncclFloat16 = 6,
    ncclBfloat16 = 9,
} ncclDataType_t;

typedef enum {
    ncclSum = 0,
} ncclRedOp_t;

const char *ncclGetErrorString(ncclResult_t result);

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
/* Waits for all ranks, each called by its own thread, whose device is the rank's. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int num_ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/* The same; enqueued work ends without the other ranks. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
/* *error: what has failed of the enqueued work since the last call. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);

/* Enqueued on the stream. receive may be send in ncclAllReduce, whose order of additions, and
 * rounding between them, NCCL chooses. */
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *send, void *receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
/* Sends and receives between the two are one operation. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif
