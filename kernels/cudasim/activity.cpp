#include "activity.h"

#include "fatal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <deque>
#include <set>
#include <string>

namespace cudasim {

const uint32_t FIRST_CALL_NUMBER = 1000; /* after NVIDIA's */
const uint32_t FIRST_STREAM = 7;

struct call_name {
    std::string name; /* as CUPTI gives it */
    CUpti_CallbackDomain domain;
    uint32_t cbid;
};

/* Used with the device's lock held. */
struct recorder {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    CUpti_TimestampCallbackFunc clock;
    std::set<CUpti_ActivityKind> kinds;
    std::map<std::pair<CUpti_CallbackDomain, uint32_t>, bool> chosen; /* calls, one by one */
    std::deque<call_name> calls; /* names stay where they are */
    std::map<cudaStream_t, uint32_t> streams;
    uint32_t correlation, graph; /* of the launch that is replayed, 0: none */
    uint8_t *buffer;
    size_t size, used, dropped;
};

static recorder &the_recorder() {
    static recorder *const all = new recorder();
    return *all;
}

static uint64_t now() {
    recorder &r = the_recorder();
    if (r.clock != nullptr)
        return r.clock();
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

static void give_back_buffer() {
    recorder &r = the_recorder();
    if (r.buffer != nullptr)
        r.complete(nullptr, 0, r.buffer, r.size, r.used);
    r.buffer = nullptr;
}

template <class T> static void append(const T &record) {
    recorder &r = the_recorder();
    if (r.buffer != nullptr && r.size - r.used < sizeof record)
        give_back_buffer();
    if (r.buffer == nullptr) {
        size_t most;
        r.size = r.used = 0;
        r.request(&r.buffer, &r.size, &most);
    }
    if (r.buffer == nullptr || r.size < sizeof record) {
        r.dropped++;
        return;
    }
    memcpy(r.buffer + r.used, &record, sizeof record);
    r.used += sizeof record;
}

/* --- Work of the device --- */

static uint32_t number_of(cudaStream_t stream) {
    std::map<cudaStream_t, uint32_t> &streams = the_recorder().streams;
    return streams.emplace(stream, FIRST_STREAM + (uint32_t)streams.size()).first->second;
}

template <class T>
static void append_work(T &record, const activity &what, uint64_t start, uint32_t correlation) {
    record.kind = what.kind;
    record.start = start;
    record.end = now();
    record.streamId = number_of(what.stream);
    record.correlationId = correlation;
    record.graphId = the_recorder().graph;
    append(record);
}

static void append_activity(const activity &what, uint64_t start, uint32_t correlation) {
    if (what.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        CUpti_ActivityKernel10 kernel = {};
        kernel.name = what.name;
        append_work(kernel, what, start, correlation);
    } else if (what.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        CUpti_ActivityMemcpy6 copy = {};
        copy.copyKind = what.copy_kind;
        copy.bytes = what.bytes;
        copy.runtimeCorrelationId = correlation;
        copy.copyCount = 1;
        append_work(copy, what, start, correlation);
    } else {
        CUpti_ActivityMemset4 fill = {};
        fill.bytes = what.bytes;
        append_work(fill, what, start, correlation);
    }
}

std::function<void()> recorded(const api_call &call, const activity &what,
                               std::function<void()> work) {
    if (the_recorder().kinds.count(what.kind) == 0)
        return work;
    return [what, correlation = call.correlation, work = std::move(work)] {
        uint32_t replayed = the_recorder().correlation;
        uint64_t start = now();
        work();
        append_activity(what, start, replayed != 0 ? replayed : correlation);
    };
}

std::function<void()> replayed(const api_call &call, uint32_t graph, std::function<void()> work) {
    return [graph, correlation = call.correlation, work = std::move(work)] {
        the_recorder().correlation = correlation;
        the_recorder().graph = graph;
        work();
        the_recorder().correlation = the_recorder().graph = 0;
    };
}

/* --- Calls --- */

static CUpti_CallbackDomain domain_of(const char *name) {
    return strncmp(name, "cuda", 4) == 0 ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
}

/* NVIDIA's names of runtime calls end with the version that brought them. */
static const call_name &find_call(const char *name) {
    std::deque<call_name> &calls = the_recorder().calls;
    if (calls.empty()) {
        calls.push_back({"cudaGetLastError_v3020", CUPTI_CB_DOMAIN_RUNTIME_API,
                         CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020});
        calls.push_back({"cudaPeekAtLastError_v3020", CUPTI_CB_DOMAIN_RUNTIME_API,
                         CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020});
        calls.push_back({"cuLaunchKernelEx", CUPTI_CB_DOMAIN_DRIVER_API,
                         CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx});
    }
    CUpti_CallbackDomain domain = domain_of(name);
    std::string full = name;
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API)
        full += "_v3020";
    for (const call_name &call : calls)
        if (call.name == full)
            return call;
    calls.push_back({full, domain, FIRST_CALL_NUMBER + (uint32_t)calls.size()});
    return calls.back();
}

static CUpti_ActivityKind kind_of(const call_name &call) {
    return call.domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME
                                                      : CUPTI_ACTIVITY_KIND_DRIVER;
}

uint64_t call_started(const char *name) {
    const recorder &r = the_recorder();
    if (r.request == nullptr)
        return 0;
    const call_name &call = find_call(name);
    auto chosen = r.chosen.find({call.domain, call.cbid});
    bool wanted = chosen != r.chosen.end() ? chosen->second : r.kinds.count(kind_of(call)) > 0;
    return wanted ? now() : 0;
}

void call_ended(const char *name, uint64_t start, uint32_t correlation, cudaError_t result) {
    const call_name &call = find_call(name);
    CUpti_ActivityAPI record = {};
    record.kind = kind_of(call);
    record.cbid = call.cbid;
    record.start = start;
    record.end = now();
    record.processId = (uint32_t)getpid();
    record.threadId = (uint32_t)gettid();
    record.correlationId = correlation;
    record.returnValue = result;
    append(record);
}

void load_injection() {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (path == nullptr)
        return;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        fatal("CUDA_INJECTION64_PATH: %s", dlerror());
    auto initialize = reinterpret_cast<int (*)(void)>(dlsym(library, "InitializeInjection"));
    if (initialize == nullptr)
        fatal("CUDA_INJECTION64_PATH: %s has no InitializeInjection", path);
    initialize();
}

} // namespace cudasim

/* --- CUPTI --- */

using namespace cudasim;

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    *timestamp = now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    *text = result == CUPTI_SUCCESS                         ? "CUPTI_SUCCESS"
            : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                            : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    for (const call_name &call : the_recorder().calls) {
        if (call.domain == domain && call.cbid == cbid) {
            *name = call.name.c_str();
            return CUPTI_SUCCESS;
        }
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    if (requested == nullptr || completed == nullptr)
        return CUPTI_ERROR_INVALID_PARAMETER;
    the_recorder().request = requested;
    the_recorder().complete = completed;
    return CUPTI_SUCCESS;
}

static CUptiResult status_from_environment(const char *name) {
    const char *status = getenv(name);
    return status != nullptr ? static_cast<CUptiResult>(atoi(status)) : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    if (clock == nullptr)
        return CUPTI_ERROR_INVALID_PARAMETER;
    CUptiResult status = status_from_environment("QUIRE_CUDASIM_CUPTI_CLOCK_STATUS");
    if (status == CUPTI_SUCCESS)
        the_recorder().clock = clock;
    return status;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    if (the_recorder().request == nullptr)
        return CUPTI_ERROR_INVALID_OPERATION;
    CUptiResult status = status_from_environment("QUIRE_CUDASIM_CUPTI_STATUS");
    if (status == CUPTI_SUCCESS)
        the_recorder().kinds.insert(kind);
    return status;
}

static CUptiResult choose(CUpti_CallbackDomain domain, uint32_t cbid, bool wanted) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    the_recorder().chosen[{domain, cbid}] = wanted;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
    return choose(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, enable != 0);
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
    return choose(CUPTI_CB_DOMAIN_DRIVER_API, cbid, enable != 0);
}

static size_t record_bytes(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        return sizeof(CUpti_ActivityAPI);
    }
    return 0;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    if (buffer == nullptr)
        return CUPTI_ERROR_INVALID_PARAMETER;
    uint8_t *at = reinterpret_cast<uint8_t *>(*record);
    uint8_t *next = at == nullptr ? buffer : at + record_bytes((*record)->kind);
    if (next == at)
        return CUPTI_ERROR_INVALID_KIND;
    if (next >= buffer + valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity *>(next);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *dropped) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    *dropped = the_recorder().dropped;
    the_recorder().dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t) {
    std::lock_guard<std::recursive_mutex> guard(the_machine().lock);
    if (the_recorder().complete == nullptr)
        return CUPTI_ERROR_INVALID_OPERATION;
    give_back_buffer();
    return CUPTI_SUCCESS;
}
