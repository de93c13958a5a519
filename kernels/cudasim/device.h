/* State of the simulated devices, and what every call of the runtime API does first and last. */
#ifndef CUDASIM_DEVICE_H
#define CUDASIM_DEVICE_H

#include "cuda_runtime_api.h"

#include "fail_file.h"
#include "memory_range.h"

#include <stdint.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace cudasim {

typedef std::deque<std::function<void()>> work_queue;

/* What a stream is given between cudaStreamBeginCapture and cudaStreamEndCapture. */
struct stream_capture {
    std::shared_ptr<work_queue> nodes;
    std::thread::id thread; /* that began it */
    bool invalid;           /* something was done that may not be done meanwhile */
};

struct device;

/* A queue of a device, which another device's work waits for. */
struct awaited_queue {
    device *dev;
    std::shared_ptr<work_queue> queue;
};

struct device {
    int ordinal;
    bool failed;          /* every call returns cudaErrorIllegalAddress */
    uint64_t num_kernels; /* that ran */
    uint64_t fail_after;  /* QUIRE_CUDASIM_FAIL_AFTER */
    fail_file failure;    /* QUIRE_CUDASIM_FAIL_FILE */
    bool in_graph;        /* what runs is a piece of one */
    const char *skipped;  /* QUIRE_CUDASIM_SKIP; NULL: nothing */
    bool hung;            /* a kernel runs that never ends, and no work after it begins */
    uint64_t hang_after;  /* QUIRE_CUDASIM_HANG_AFTER */
    size_t memory_bytes;  /* QUIRE_CUDASIM_MEMORY */
    size_t allocated_bytes;
    int num_multiprocessors;            /* QUIRE_CUDASIM_SMS */
    int capability;                     /* QUIRE_CUDASIM_CAPABILITY */
    std::chrono::nanoseconds worked;    /* its clock: time for which it was at work, and more where
                                           that    was simulated */
    bool unfinished;                    /* the work that ran last must continue */
    std::vector<awaited_queue> awaited; /* if so: after some of these advanced */
    std::shared_ptr<work_queue> default_queue;       /* of every stream that is not non-blocking */
    std::vector<std::shared_ptr<work_queue>> queues; /* the default one, then as created */
    std::map<uintptr_t, memory_range> device_memory; /* by start */
    std::map<uintptr_t, memory_range> pinned_memory;
    std::map<const void *, int> max_shared_bytes; /* by kernel, where set */
    std::map<const void *, int> carveouts;        /* likewise */
    std::map<cudaStream_t, std::shared_ptr<work_queue>> streams;
    std::map<cudaStream_t, stream_capture> captures; /* that have begun and not ended */
};

/* Created by the first call, never destroyed. */
struct machine {
    std::recursive_mutex lock;     /* of all devices */
    bool injected;                 /* CUDA_INJECTION64_PATH was looked at */
    uint32_t num_calls;            /* of the API */
    std::vector<device *> devices; /* QUIRE_CUDASIM_DEVICES */
    device *at_work;               /* device_memory.h; NULL: none */
    std::chrono::steady_clock::time_point at_work_since;
    bool is_memory_open; /* its memory can be touched */
};
machine &the_machine();
/* The one that this thread has set. */
device &the_device();

/* Holds the devices for one API call, and records it (activity.h) under the name of the function
 * that does it; NULL: it is part of another. */
class api_call {
  public:
    device &dev;
    const uint32_t correlation; /* unique to this call */
    explicit api_call(const char *name = __builtin_FUNCTION());
    api_call(const api_call &) = delete;
    ~api_call();
    /* Gives what the call returns: the failure of the device before anything else. Keeps an error
     * for cudaGetLastError. */
    cudaError_t end(cudaError_t result);

  private:
    const char *const function;
    uint64_t start; /* 0: not recorded */
    cudaError_t result;
};

/* The device's clock, which events have. */
std::chrono::nanoseconds device_time(const device &dev);

/* Within a piece of work of the device at work: by its clock the block takes that time, regardless
 * of the time on the host. */
class simulated_duration {
  public:
    explicit simulated_duration(std::chrono::nanoseconds duration);
    simulated_duration(const simulated_duration &) = delete;
    ~simulated_duration();

  private:
    device &dev;
    const std::chrono::nanoseconds end;
};

/* Returns whether work of that name is to be left undone. */
bool is_skipped(const device &dev, const char *name);

/* The queue that a stream's work runs from. NULL: no such stream. */
std::shared_ptr<work_queue> queue_of(device &dev, cudaStream_t stream);
/* Gives where new work goes: that queue, or the nodes of the stream's capture. NULL with the call's
 * error: no such stream, or its capture is invalid. */
std::shared_ptr<work_queue> target_of(device &dev, cudaStream_t stream, cudaError_t *out_error);
bool is_capturing(const device &dev, cudaStream_t stream);
/* For calls that no stream may see while it is captured: waits and queries of it. An error then,
 * and the capture is invalid from here on. */
cudaError_t refuse_captured(device &dev, cudaStream_t stream);
/* The same for calls that a thread may not make while it captures any stream: memory, waits for the
 * whole device. */
cudaError_t refuse_while_capturing(device &dev);
/* Runs the oldest piece of work; false when there is none. On a hung device always true, and
 * nothing runs. Work that calls wait_for_devices stays the oldest, and is run again. */
bool run_one(device &dev, work_queue &queue);
/* Called by work of `dev`: it cannot continue before other devices have advanced in these
 * queues. */
void wait_for_devices(device &dev, std::vector<awaited_queue> queues);
/* Lets the devices that dev's unfinished work waits for do one piece of work each. Returns whether
 * that helped; otherwise their hosts must enqueue more. */
bool run_awaited(device &dev);
/* Lets other threads call the API for a moment, in which no device works. */
void pause_call();
/* The same for a host that waits for this queue: in all orders except forward another queue may
 * advance first (cudasim/order.h). */
bool run_towards(device &dev, work_queue &wanted);
/* Run all of it. On a hung device they do not return. */
void run_all(device &dev, work_queue &queue);
void run_all_streams(device &dev);

/* Returns whether [start, start + bytes) lies in one allocation of `memory`. */
bool range_within(const std::map<uintptr_t, memory_range> &memory, const void *start, size_t bytes);
bool range_touches(const std::map<uintptr_t, memory_range> &memory, const void *address);

} // namespace cudasim

#endif
