/* The part of the CUDA runtime API that the CUDA backend's host code uses, simulated: NVIDIA's
 * names, signatures and values (CUDA 13.0), some devices, no toolkit needed. Usable from C and C++.
 *
 * The device is adversarial. Work on a stream (kernels, memset, copies from and to pinned memory)
 * is queued and runs only when the host waits for it: a synchronize, a blocking call, or a query,
 * which runs one piece of a stream, or what comes before an event, and says that it was not done.
 * How far another stream goes meanwhile that it does not wait for is a choice (cudasim/order.h). A
 * copy from pageable memory reads its source at the call; a copy to pageable memory waits for the
 * stream first. Streams created with flags 0 are one queue with the default stream. Device memory
 * can be touched by the device's work only: the host faults on it. New memory is filled with 0xff
 * (NaN).
 *
 * Devices have memories of their own: work of one cannot touch another's, but for NCCL's
 * (kernels/cuda/nccl), whose ranks are threads of this process here. A stream belongs to the device
 * that its thread had set.
 *
 * Environment, read at the first call:
 *   QUIRE_CUDASIM_DEVICES=N         devices (1), all alike
 *   QUIRE_CUDASIM_FAULTY_DEVICE=N   the one that FAIL_... and HANG_AFTER are about (0)
 *   QUIRE_CUDASIM_MEMORY=BYTES      memory of each GPU (1 GiB)
 *   QUIRE_CUDASIM_SMS=N             multiprocessors (4)
 *   QUIRE_CUDASIM_CAPABILITY=N      compute capability, ten times (90); no other has wgmma
 *   QUIRE_CUDASIM_FAIL_AFTER=N      the (N+1)th kernel or product fails: cudaErrorIllegalAddress
 *                                   from it on
 *   QUIRE_CUDASIM_FAIL_FILE=PATH    so does the (N+1)th after this file is there: "graph N" of
 * those in graphs, "kernel N" of the others; "nccl N": the (N+1)th operation of NCCL that the
 * device comes to is an error of all its ranks. The file is removed QUIRE_CUDASIM_SKIP=TEXT kernels
 * whose name holds the text are not run, so that results are wrong without an error; products are
 * "cublasLtMatmul", copies "cudaMemcpyAsync", waits of a stream for an event "cudaStreamWaitEvent",
 * operations of NCCL "ncclAllGather", "ncclBroadcast" and "ncclSend", fences "__threadfence
 * release" and, those after an atomic, "__threadfence acquire"; so is "cudaGraphUpload",
 * and "wait_for_earlier_work" (of kernels launched early), and "cudaGraphExecDestroy" leaves the
 * graph alive QUIRE_CUDASIM_PRODUCTS=...      algorithms of cuBLASLt that refuse or err,
 * cudasim/products.h QUIRE_CUDASIM_HANG_AFTER=N      the (N+1)th kernel or product never ends: no
 * stream goes on, queries say cudaErrorNotReady, and a call that waits for work does not return
 * (but aborts after five minutes) QUIRE_CUDASIM_ORDER=... order of threads, blocks and streams,
 * cudasim/order.h QUIRE_CUDASIM_BLOCKS=...        interleaved: several blocks of a grid in flight,
 * likewise
 *
 * All calls may be made from any thread; the devices do one thing at a time together. */
#ifndef CUDASIM_CUDA_RUNTIME_API_H
#define CUDASIM_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_VERSION 13000

/* In C, in which the backend's host code is written, a status that nobody checks is a warning. */
#ifdef __cplusplus
#define CUDASIM_MUST_CHECK
#else
#define CUDASIM_MUST_CHECK __attribute__((warn_unused_result))
#endif

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorCapturedEvent = 907,
    cudaErrorStreamCaptureWrongThread = 908,
    cudaErrorUnknown = 999,
};
typedef enum cudaError cudaError_t;

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
/* The last error of a call by this host thread; Get forgets it, unless the device failed. */
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

/* Device. */

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

/* A subset of NVIDIA's fields, in another order. */
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    size_t sharedMemPerMultiprocessor;
    size_t sharedMemPerBlockOptin;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsPerMultiProcessor;
    int major;
    int minor;
    int multiProcessorCount;
    int l2CacheSize;
    int memoryBusWidth;
};

CUDASIM_MUST_CHECK cudaError_t cudaGetDeviceCount(int *count);
CUDASIM_MUST_CHECK cudaError_t cudaSetDevice(int device);
CUDASIM_MUST_CHECK cudaError_t cudaGetDevice(int *device);
CUDASIM_MUST_CHECK cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
CUDASIM_MUST_CHECK cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr,
                                                      int device);
CUDASIM_MUST_CHECK cudaError_t cudaDeviceSynchronize(void);
CUDASIM_MUST_CHECK cudaError_t cudaRuntimeGetVersion(int *version);
CUDASIM_MUST_CHECK cudaError_t cudaDriverGetVersion(int *version);

/* Streams and events. */

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02

CUDASIM_MUST_CHECK cudaError_t cudaStreamCreate(cudaStream_t *stream);
CUDASIM_MUST_CHECK cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
CUDASIM_MUST_CHECK cudaError_t cudaStreamDestroy(cudaStream_t stream);
CUDASIM_MUST_CHECK cudaError_t cudaStreamSynchronize(cudaStream_t stream);
CUDASIM_MUST_CHECK cudaError_t cudaStreamQuery(cudaStream_t stream);
CUDASIM_MUST_CHECK cudaError_t cudaEventCreate(cudaEvent_t *event);
CUDASIM_MUST_CHECK cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
CUDASIM_MUST_CHECK cudaError_t cudaEventDestroy(cudaEvent_t event);
CUDASIM_MUST_CHECK cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
CUDASIM_MUST_CHECK cudaError_t cudaEventSynchronize(cudaEvent_t event);
CUDASIM_MUST_CHECK cudaError_t cudaEventQuery(cudaEvent_t event);
/* What is enqueued from here on runs after what was before the event's last record. flags: 0. A
 * capture does not spread to other streams here: a captured event, or stream, is refused. */
CUDASIM_MUST_CHECK cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                                   unsigned int flags);
/* Host time for which the device worked between the two, but that products take what
 * cudasim/products.h says: it says nothing of a GPU. */
CUDASIM_MUST_CHECK cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

/* Recorded work. What a stream is given while it is captured does not run; it becomes a graph,
 * whose every launch enqueues it again with the arguments it had. Memory is read and written by the
 * launch, pinned memory too.
 *
 * As with NVIDIA's, whatever waits for the stream, or asks how far it is, invalidates its capture;
 * so does an allocation, or a wait for the device, of the thread that captures. Copies from and to
 * pageable memory are refused likewise, which a GPU might take. Of the modes there is one. */

typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct cudaGraphEdgeData_st cudaGraphEdgeData; /* none is given out */

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeThreadLocal = 1,
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2,
};

CUDASIM_MUST_CHECK cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                      enum cudaStreamCaptureMode mode);
CUDASIM_MUST_CHECK cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
/* The dependencies are what was captured last; id, graph and edges must be NULL. */
CUDASIM_MUST_CHECK cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                        enum cudaStreamCaptureStatus *status,
                                                        unsigned long long *id, cudaGraph_t *graph,
                                                        const cudaGraphNode_t **dependencies,
                                                        const cudaGraphEdgeData **edges,
                                                        size_t *num_dependencies);
CUDASIM_MUST_CHECK cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                    unsigned long long flags);
/* Else the first launch does it, which takes CUDASIM_GRAPH_UPLOAD_SECONDS of the device's clock. */
#define CUDASIM_GRAPH_UPLOAD_SECONDS 100
CUDASIM_MUST_CHECK cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
CUDASIM_MUST_CHECK cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
/* Of a node of the graph that `exec` was made of, which must still be there. */
CUDASIM_MUST_CHECK cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                       unsigned int enabled);
/* On a device that has failed the graph lives on. */
CUDASIM_MUST_CHECK cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
CUDASIM_MUST_CHECK cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* Memory. */

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04

CUDASIM_MUST_CHECK cudaError_t cudaMalloc(void **dev_ptr, size_t size);
/* Waits for the device, as the real one does. */
CUDASIM_MUST_CHECK cudaError_t cudaFree(void *dev_ptr);
CUDASIM_MUST_CHECK cudaError_t cudaHostAlloc(void **host_ptr, size_t size, unsigned int flags);
CUDASIM_MUST_CHECK cudaError_t cudaMallocHost(void **host_ptr, size_t size);
CUDASIM_MUST_CHECK cudaError_t cudaFreeHost(void *host_ptr);
#define cudaHostRegisterDefault 0x00
CUDASIM_MUST_CHECK cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags);
CUDASIM_MUST_CHECK cudaError_t cudaHostUnregister(void *ptr);
CUDASIM_MUST_CHECK cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
CUDASIM_MUST_CHECK cudaError_t cudaMemcpy(void *dst, const void *src, size_t count,
                                          enum cudaMemcpyKind kind);
CUDASIM_MUST_CHECK cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count,
                                               enum cudaMemcpyKind kind, cudaStream_t stream);
CUDASIM_MUST_CHECK cudaError_t cudaMemset(void *dev_ptr, int value, size_t count);
CUDASIM_MUST_CHECK cudaError_t cudaMemsetAsync(void *dev_ptr, int value, size_t count,
                                               cudaStream_t stream);

/* Kernels. */

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxShared = 100,
    cudaSharedmemCarveoutMaxL1 = 0,
};

CUDASIM_MUST_CHECK cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr,
                                                    int value);
/* A subset of NVIDIA's. */
struct cudaFuncAttributes {
    int ptxVersion;
};
CUDASIM_MUST_CHECK cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr,
                                                     const void *func);

/* Counted for the largest carve-out: with shared memory, the kernel must have asked for it. */
CUDASIM_MUST_CHECK cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *num_blocks, const void *func, int block_size, size_t dynamic_shared_bytes);

#ifdef __cplusplus
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attr, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attr, value);
}
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, void (*kernel)(P...)) {
    return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(kernel));
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *num_blocks, void (*kernel)(P...),
                                                          int block_size,
                                                          size_t dynamic_shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        num_blocks, reinterpret_cast<const void *>(kernel), block_size, dynamic_shared_bytes);
}
/* As NVIDIA's C++ header: memory of any type. */
template <class T> cudaError_t cudaMalloc(T **dev_ptr, size_t size) {
    return cudaMalloc(reinterpret_cast<void **>(dev_ptr), size);
}
template <class T> cudaError_t cudaMallocHost(T **host_ptr, size_t size) {
    return cudaMallocHost(reinterpret_cast<void **>(host_ptr), size);
}
#endif

#endif
