#include "device.h"

#include "activity.h"
#include "cublaslt.h"
#include "fatal.h"
#include "order.h"
#include "shared_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 16

namespace cudasim {

static uint64_t number_from_environment(const char *name, uint64_t absent) {
    const char *text = getenv(name);
    if (text == nullptr)
        return absent;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0')
        fatal("%s is \"%s\": a number", name, text);
    return value;
}

static device *create_device(int ordinal) {
    device *dev = new device();
    bool is_faulty = (uint64_t)ordinal == number_from_environment("QUIRE_CUDASIM_FAULTY_DEVICE", 0);
    dev->ordinal = ordinal;
    dev->failure.path = is_faulty ? getenv("QUIRE_CUDASIM_FAIL_FILE") : nullptr;
    dev->fail_after = dev->hang_after = UINT64_MAX;
    if (is_faulty) {
        dev->fail_after = number_from_environment("QUIRE_CUDASIM_FAIL_AFTER", UINT64_MAX);
        dev->hang_after = number_from_environment("QUIRE_CUDASIM_HANG_AFTER", UINT64_MAX);
    }
    dev->memory_bytes = number_from_environment("QUIRE_CUDASIM_MEMORY", (uint64_t)1 << 30);
    dev->num_multiprocessors = (int)number_from_environment("QUIRE_CUDASIM_SMS", 4);
    dev->capability = (int)number_from_environment("QUIRE_CUDASIM_CAPABILITY", 90);
    dev->skipped = getenv("QUIRE_CUDASIM_SKIP");
    dev->default_queue = std::make_shared<work_queue>();
    dev->queues.push_back(dev->default_queue);
    return dev;
}

static machine *create_machine() {
    machine *all = new machine();
    uint64_t count = number_from_environment("QUIRE_CUDASIM_DEVICES", 1);
    if (count > MAX_DEVICES)
        fatal("QUIRE_CUDASIM_DEVICES is %d at most", MAX_DEVICES);
    for (int i = 0; i < (int)count; i++)
        all->devices.push_back(create_device(i));
    read_order_from_environment();
    read_products_from_environment();
    return all;
}

machine &the_machine() {
    static machine *const all = create_machine();
    return *all;
}

static thread_local int current_device;

device &the_device() {
    return *the_machine().devices[(size_t)current_device];
}

bool is_skipped(const device &dev, const char *name) {
    return dev.skipped != nullptr && strstr(name, dev.skipped) != nullptr;
}

static thread_local cudaError_t last_error;

static device &lock_devices() {
    the_machine().lock.lock();
    return the_device();
}

api_call::api_call(const char *name)
    : dev(lock_devices()), correlation(++the_machine().num_calls), function(name), start(0),
      result(cudaSuccess) {
    if (!the_machine().injected) {
        the_machine().injected = true;
        load_injection();
    }
    if (name != nullptr)
        start = call_started(name);
}

api_call::~api_call() {
    if (start != 0)
        call_ended(function, start, correlation, result);
    the_machine().lock.unlock();
}

cudaError_t api_call::end(cudaError_t status) {
    result = dev.failed ? cudaErrorIllegalAddress : status;
    if (result != cudaSuccess)
        last_error = result;
    return result;
}

} // namespace cudasim

using cudasim::api_call;

struct error_text {
    cudaError_t error;
    const char *name;
    const char *text;
};
static const error_text ERROR_TEXTS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

static const error_text *find_text(cudaError_t error) {
    for (const error_text &entry : ERROR_TEXTS)
        if (entry.error == error)
            return &entry;
    return nullptr;
}

const char *cudaGetErrorName(cudaError_t error) {
    const error_text *entry = find_text(error);
    return entry != nullptr ? entry->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const error_text *entry = find_text(error);
    return entry != nullptr ? entry->text : "unrecognized error code";
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = cudaPeekAtLastError();
    cudasim::last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    api_call call;
    return call.dev.failed ? cudaErrorIllegalAddress : cudasim::last_error;
}

cudaError_t cudaGetDeviceCount(int *count) {
    api_call call;
    *count = (int)cudasim::the_machine().devices.size();
    return call.end(cudaSuccess);
}

static bool is_device(int device) {
    return device >= 0 && device < (int)cudasim::the_machine().devices.size();
}

cudaError_t cudaSetDevice(int device) {
    api_call call;
    if (!is_device(device))
        return call.end(cudaErrorInvalidDevice);
    cudasim::current_device = device;
    return call.end(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device) {
    api_call call;
    *device = cudasim::current_device;
    return call.end(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    api_call call;
    if (!is_device(device))
        return call.end(cudaErrorInvalidDevice);
    cudaDeviceProp p = {};
    snprintf(p.name, sizeof p.name, "Simulated CUDA device");
    p.totalGlobalMem = call.dev.memory_bytes;
    p.sharedMemPerBlock = cudasim::MAX_SHARED_BYTES;
    p.sharedMemPerMultiprocessor = cudasim::MAX_SHARED_BYTES_OPTIN + 1024;
    p.sharedMemPerBlockOptin = cudasim::MAX_SHARED_BYTES_OPTIN;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = 1536;
    p.major = call.dev.capability / 10;
    p.minor = call.dev.capability % 10;
    p.multiProcessorCount = call.dev.num_multiprocessors;
    p.l2CacheSize = 256 << 10;
    p.memoryBusWidth = 256;
    *prop = p;
    return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
    cudaDeviceProp p = {};
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    if (device != cudasim::current_device)
        cudasim::fatal("attribute %d of device %d is asked for by a thread that has set device %d",
                       (int)attr, device, cudasim::current_device);
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        break;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    default:
        return api_call().end(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    api_call call;
    *version = CUDART_VERSION;
    return call.end(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
    return cudaRuntimeGetVersion(version);
}
