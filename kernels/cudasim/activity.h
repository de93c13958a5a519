/* The device's work and the API calls, for recording through include/cupti.h. */
#ifndef CUDASIM_ACTIVITY_H
#define CUDASIM_ACTIVITY_H

#include "cupti.h"
#include "device.h"

namespace cudasim {

/* A piece of work on a stream: a kernel, a copy or a fill. */
struct activity {
    CUpti_ActivityKind kind;
    const char *name; /* of a kernel */
    uint8_t copy_kind;
    uint64_t bytes;
    cudaStream_t stream;
};

/* Returns the work that a call enqueues; when such work is recorded now, each time it runs will be,
 * as enqueued by that call. */
std::function<void()> recorded(const api_call &call, const activity &what,
                               std::function<void()> work);

/* Returns what a graph has recorded as work that this launch of it enqueues. */
std::function<void()> replayed(const api_call &call, uint32_t graph, std::function<void()> work);

/* The clock of records; 0 when calls of this name are not recorded. */
uint64_t call_started(const char *name);
void call_ended(const char *name, uint64_t start, uint32_t correlation, cudaError_t result);

/* Loads what CUDA_INJECTION64_PATH names. */
void load_injection();

} // namespace cudasim

#endif
