/* The part of CUPTI, the CUDA Profiling Tools Interface, that records activities, simulated:
 * NVIDIA's names, values and record layouts (CUDA 13.0). A field that nobody fills is `reserved`.
 *
 * The simulator loads the library that CUDA_INJECTION64_PATH names at its first call and calls its
 * InitializeInjection, as the driver does. The functions below are found in the module that holds
 * the simulator. Records say when work really ran on the host and how long each call of the runtime
 * took, by the registered clock or CLOCK_REALTIME; a call's record comes when it ends, after those
 * of the work that ran in it.
 *
 * Environment, read at each call:
 *   QUIRE_CUDASIM_CUPTI_STATUS=N         cuptiActivityEnable gives N
 *   QUIRE_CUDASIM_CUPTI_CLOCK_STATUS=N   cuptiActivityRegisterTimestampCallback gives N */
#ifndef CUDASIM_CUPTI_H
#define CUDASIM_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUPTI_API_VERSION 130001
#define CUPTIAPI
#define CUDASIM_EXPORT __attribute__((visibility("default")))

typedef enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_INVALID_OPERATION = 7,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_INVALID_KIND = 21,
    CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_ERROR_UNKNOWN = 999,
} CUptiResult;

typedef struct CUctx_st *CUcontext;

CUDASIM_EXPORT CUptiResult cuptiGetVersion(uint32_t *version);
CUDASIM_EXPORT CUptiResult cuptiGetTimestamp(uint64_t *timestamp);
CUDASIM_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **text);

/* Calls of the API. The simulated runtime numbers most of its calls as they come. */

typedef uint32_t CUpti_CallbackId;
typedef enum {
    CUPTI_CB_DOMAIN_DRIVER_API = 1,
    CUPTI_CB_DOMAIN_RUNTIME_API = 2,
} CUpti_CallbackDomain;

enum {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020 = 10,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020 = 11,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx = 652,
};

CUDASIM_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                                const char **name);

/* Records. */

typedef enum {
    CUPTI_ACTIVITY_KIND_MEMCPY = 1,
    CUPTI_ACTIVITY_KIND_MEMSET = 2,
    CUPTI_ACTIVITY_KIND_DRIVER = 4,
    CUPTI_ACTIVITY_KIND_RUNTIME = 5,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
} CUpti_ActivityKind;

enum {
    CUPTI_ACTIVITY_MEMCPY_KIND_HTOD = 1,
    CUPTI_ACTIVITY_MEMCPY_KIND_DTOH = 2,
    CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8,
    CUPTI_ACTIVITY_MEMCPY_KIND_HTOH = 9,
};
enum { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1 };

typedef struct {
    CUpti_ActivityKind kind;
} CUpti_Activity;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t reserved0[3];
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ;
    int32_t blockX, blockY, blockZ;
    uint32_t reserved1[4];
    uint32_t correlationId;
    int64_t gridId;
    const char *name;
    uint64_t reserved2[4];
    uint64_t graphNodeId;
    uint32_t reserved3;
    uint32_t graphId;
    uint64_t reserved4[7];
} CUpti_ActivityKernel10;

typedef struct {
    CUpti_ActivityKind kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t correlationId, runtimeCorrelationId;
    uint32_t reserved0;
    uint64_t reserved1;
    uint64_t graphNodeId;
    uint32_t graphId;
    uint32_t reserved2[3];
    uint64_t copyCount;
} CUpti_ActivityMemcpy6;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t value;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t correlationId;
    uint32_t reserved0[2];
    uint64_t reserved1;
    uint64_t graphNodeId;
    uint32_t graphId;
    uint32_t reserved2[3];
} CUpti_ActivityMemset4;

typedef struct {
    CUpti_ActivityKind kind;
    CUpti_CallbackId cbid;
    uint64_t start, end;
    uint32_t processId, threadId;
    uint32_t correlationId;
    uint32_t returnValue;
} CUpti_ActivityAPI;

/* Buffers of records. A NULL buffer drops records until the next one that is wanted. */
typedef void(CUPTIAPI *CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size,
                                                         size_t *maxNumRecords);
typedef void(CUPTIAPI *CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t streamId,
                                                          uint8_t *buffer, size_t size,
                                                          size_t validSize);
typedef uint64_t(CUPTIAPI *CUpti_TimestampCallbackFunc)(void);

CUDASIM_EXPORT CUptiResult
cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                               CUpti_BuffersCallbackCompleteFunc funcBufferCompleted);
CUDASIM_EXPORT CUptiResult
cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp);
CUDASIM_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUDASIM_EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable);
CUDASIM_EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable);
CUDASIM_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t validBufferSizeBytes,
                                                      CUpti_Activity **record);
CUDASIM_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId,
                                                             size_t *dropped);
CUDASIM_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag);

#ifdef __cplusplus
}
#endif

#endif
