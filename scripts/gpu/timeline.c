/* Writes what a CUDA program does to a file: when each kernel, copy and fill ran on the device, and
 * how long each call of the runtime took on the host, as CUPTI's activity records tell. The driver
 * loads this library at the program's first call:
 *
 *   CUDA_INJECTION64_PATH=libquire-timeline.so QUIRE_TIMELINE=FILE PROGRAM...
 *
 *   QUIRE_CUPTI=FILE           the library of CUPTI, when the loader does not know it
 *   QUIRE_TIMELINE_RECORDS=N   at most so many records (two million); the rest is left out
 *
 * One line a record, in no order. Times are in nanoseconds by CLOCK_MONOTONIC, a stream is a number
 * of CUPTI's, a correlation is what a call has in common with the work it enqueued, a name stands
 * in a line of its own before it is used:
 *
 *   quire-timeline 1 VERSION OF CUPTI
 *   name    ID NAME
 *   kernel  START END STREAM CORRELATION GRAPH NAME_ID     graph 0: launched alone
 *   copy    START END STREAM CORRELATION GRAPH KIND BYTES  kind: htod, dtoh, dtod, other
 *   fill    START END STREAM CORRELATION GRAPH BYTES
 *   call    START END THREAD CORRELATION NAME_ID
 *   refused REASON                                         CUPTI does not work here
 *   end     RECORDS DROPPED CUT       only when the program ended by itself; dropped by CUPTI; cut
 *                                     by the limit
 *
 * The driver's own calls are left out but for the launches that cuBLASLt makes; so are calls that
 * only ask for the last error. A program that cannot be recorded runs as ever. */
#include <cupti.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_BYTES ((size_t)8 << 20)
#define DEFAULT_RECORDS 2000000
enum { MAX_NAMES = 2048, OTHER_NAME = 0 };

/* Later versions of CUPTI append to these records: what is read here lies where it does in all. */
_Static_assert(offsetof(CUpti_ActivityKernel10, start) == 16 &&
                   offsetof(CUpti_ActivityKernel10, streamId) == 48 &&
                   offsetof(CUpti_ActivityKernel10, correlationId) == 92 &&
                   offsetof(CUpti_ActivityKernel10, name) == 104 &&
                   offsetof(CUpti_ActivityKernel10, graphId) == 156,
               "a kernel's record");
_Static_assert(offsetof(CUpti_ActivityMemcpy6, copyKind) == 4 &&
                   offsetof(CUpti_ActivityMemcpy6, bytes) == 8 &&
                   offsetof(CUpti_ActivityMemcpy6, start) == 16 &&
                   offsetof(CUpti_ActivityMemcpy6, streamId) == 40 &&
                   offsetof(CUpti_ActivityMemcpy6, correlationId) == 44 &&
                   offsetof(CUpti_ActivityMemcpy6, graphId) == 72,
               "a copy's record");
_Static_assert(offsetof(CUpti_ActivityMemset4, bytes) == 8 &&
                   offsetof(CUpti_ActivityMemset4, start) == 16 &&
                   offsetof(CUpti_ActivityMemset4, streamId) == 40 &&
                   offsetof(CUpti_ActivityMemset4, correlationId) == 44 &&
                   offsetof(CUpti_ActivityMemset4, graphId) == 72,
               "a fill's record");
_Static_assert(offsetof(CUpti_ActivityAPI, start) == 8 &&
                   offsetof(CUpti_ActivityAPI, threadId) == 28 &&
                   offsetof(CUpti_ActivityAPI, correlationId) == 32,
               "a call's record");
_Static_assert(CUPTI_ACTIVITY_KIND_MEMCPY == 1 && CUPTI_ACTIVITY_KIND_MEMSET == 2 &&
                   CUPTI_ACTIVITY_KIND_DRIVER == 4 && CUPTI_ACTIVITY_KIND_RUNTIME == 5 &&
                   CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == 10,
               "kinds of records");

#define CUPTI_FUNCTIONS(X)                                                                         \
    X(cuptiActivityEnable)                                                                         \
    X(cuptiActivityEnableDriverApi)                                                                \
    X(cuptiActivityEnableRuntimeApi)                                                               \
    X(cuptiActivityFlushAll)                                                                       \
    X(cuptiActivityGetNextRecord)                                                                  \
    X(cuptiActivityGetNumDroppedRecords)                                                           \
    X(cuptiActivityRegisterCallbacks)                                                              \
    X(cuptiActivityRegisterTimestampCallback)                                                      \
    X(cuptiGetCallbackName)                                                                        \
    X(cuptiGetResultString)                                                                        \
    X(cuptiGetTimestamp)                                                                           \
    X(cuptiGetVersion)

struct cupti {
#define MEMBER(function) __typeof__(&function) function;
    CUPTI_FUNCTIONS(MEMBER)
};

static struct {
    struct cupti cupti;
    pthread_mutex_t lock; /* for what follows */
    FILE *file;           /* NULL: closed */
    uint64_t num_records, max_records, num_dropped, num_cut;
    uint64_t clock_ahead; /* of CUPTI's clock before ours */
    int num_names;
    const char *names[MAX_NAMES]; /* CUPTI's own, which stay */
} timeline = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* --- Records --- */

/* CUPTI gives the same kernel or call the same pointer; two of one name get two lines. */
static int name_id(const char *name) {
    for (int i = 0; i < timeline.num_names; i++)
        if (timeline.names[i] == name)
            return i;
    if (name == NULL || timeline.num_names == MAX_NAMES)
        return OTHER_NAME;
    fprintf(timeline.file, "name %d %s\n", timeline.num_names, name);
    timeline.names[timeline.num_names] = name;
    return timeline.num_names++;
}

/* 0 stays: CUPTI could not tell the time. */
static uint64_t by_our_clock(uint64_t time) {
    return time != 0 ? time - timeline.clock_ahead : 0;
}

static void write_kernel(const CUpti_ActivityKernel10 *k) {
    int id = name_id(k->name);
    fprintf(timeline.file,
            "kernel %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %d\n",
            by_our_clock(k->start), by_our_clock(k->end), k->streamId, k->correlationId, k->graphId,
            id);
}

static void write_copy(const CUpti_ActivityMemcpy6 *c) {
    const char *kind = c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "htod"
                       : c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "dtoh"
                       : c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD ? "dtod"
                                                                        : "other";
    fprintf(timeline.file,
            "copy %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %s %" PRIu64 "\n",
            by_our_clock(c->start), by_our_clock(c->end), c->streamId, c->correlationId, c->graphId,
            kind, c->bytes);
}

static void write_fill(const CUpti_ActivityMemset4 *f) {
    fprintf(timeline.file,
            "fill %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 "\n",
            by_our_clock(f->start), by_our_clock(f->end), f->streamId, f->correlationId, f->graphId,
            f->bytes);
}

static void write_call(const CUpti_ActivityAPI *c) {
    CUpti_CallbackDomain domain = c->kind == CUPTI_ACTIVITY_KIND_RUNTIME
                                      ? CUPTI_CB_DOMAIN_RUNTIME_API
                                      : CUPTI_CB_DOMAIN_DRIVER_API;
    const char *name = NULL;
    if (timeline.cupti.cuptiGetCallbackName(domain, c->cbid, &name) != CUPTI_SUCCESS)
        name = NULL;
    int id = name_id(name);
    fprintf(timeline.file, "call %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %d\n",
            by_our_clock(c->start), by_our_clock(c->end), c->threadId, c->correlationId, id);
}

static void write_record(const CUpti_Activity *record) {
    if (timeline.num_records == timeline.max_records) {
        timeline.num_cut++;
        return;
    }
    timeline.num_records++;
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        write_kernel((const CUpti_ActivityKernel10 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        write_copy((const CUpti_ActivityMemcpy6 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        write_fill((const CUpti_ActivityMemset4 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        write_call((const CUpti_ActivityAPI *)record);
        break;
    default:
        break;
    }
}

/* Without memory CUPTI drops records, and counts them. */
static void give_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
    *buffer = malloc(BUFFER_BYTES);
    *size = *buffer != NULL ? BUFFER_BYTES : 0;
    *max_records = 0;
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                        size_t valid) {
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    pthread_mutex_lock(&timeline.lock);
    while (timeline.file != NULL && valid > 0 &&
           timeline.cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        write_record(record);
    if (timeline.cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) ==
        CUPTI_SUCCESS)
        timeline.num_dropped += dropped;
    pthread_mutex_unlock(&timeline.lock);
    free(buffer);
}

/* --- Start and end --- */

static void refuse(const char *what, const char *why) {
    fprintf(stderr, "no timeline: %s: %s\n", what, why);
    fprintf(timeline.file, "refused %s: %s\n", what, why);
    fclose(timeline.file);
    timeline.file = NULL;
}

static bool works(CUptiResult result, const char *what) {
    const char *why = "unknown";
    if (result == CUPTI_SUCCESS)
        return true;
    (void)timeline.cupti.cuptiGetResultString(result, &why);
    refuse(what, why);
    return false;
}

static bool open_cupti(void) {
    const char *path = getenv("QUIRE_CUPTI");
    void *library = dlopen(path != NULL ? path : "libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        refuse("CUPTI", dlerror());
        return false;
    }
#define LOOK_UP(function)                                                                          \
    timeline.cupti.function = (__typeof__(&function))dlsym(library, #function);                    \
    if (timeline.cupti.function == NULL) {                                                         \
        refuse("CUPTI", "it has no " #function);                                                   \
        return false;                                                                              \
    }
    CUPTI_FUNCTIONS(LOOK_UP)
    return true;
}

/* The host's clock for all records. Where it may not be CUPTI's, both are looked at once. */
static bool set_clock(void) {
    const struct cupti *c = &timeline.cupti;
    uint64_t theirs = 0;
    if (c->cuptiActivityRegisterTimestampCallback(now) == CUPTI_SUCCESS)
        return true;
    if (!works(c->cuptiGetTimestamp(&theirs), "cuptiGetTimestamp"))
        return false;
    timeline.clock_ahead = theirs - now();
    return true;
}

/* Hundreds of kernels a step, and after each the program asks for the last error: recording those
 * calls too would cost more than it shows. What cannot be chosen so finely is recorded as it is. */
static void choose_calls(void) {
    const struct cupti *c = &timeline.cupti;
    (void)c->cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, 0);
    (void)c->cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, 0);
    (void)c->cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 1);
}

static bool start_recording(void) {
    static const CUpti_ActivityKind KINDS[] = {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME};
    const struct cupti *c = &timeline.cupti;
    if (!set_clock() || !works(c->cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
                               "cuptiActivityRegisterCallbacks"))
        return false;
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++)
        if (!works(c->cuptiActivityEnable(KINDS[i]), "cuptiActivityEnable"))
            return false;
    choose_calls();
    return true;
}

/* The program has waited for its device: what is still incomplete now never ends. */
static void finish(void) {
    (void)timeline.cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&timeline.lock);
    fprintf(timeline.file, "end %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", timeline.num_records,
            timeline.num_dropped, timeline.num_cut);
    fclose(timeline.file);
    timeline.file = NULL;
    pthread_mutex_unlock(&timeline.lock);
    if (timeline.num_cut > 0)
        fprintf(stderr,
                "the timeline is cut: it holds %" PRIu64 " records, and leaves out %" PRIu64 "\n",
                timeline.num_records, timeline.num_cut);
}

/* What the driver calls. */
__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void) {
    const char *path = getenv("QUIRE_TIMELINE"), *most = getenv("QUIRE_TIMELINE_RECORDS");
    uint32_t version = 0;
    timeline.file = path != NULL ? fopen(path, "w") : NULL;
    if (timeline.file == NULL) {
        fprintf(stderr, "no timeline: QUIRE_TIMELINE names no file that can be written\n");
        return 1;
    }
    timeline.max_records = most != NULL ? strtoull(most, NULL, 10) : DEFAULT_RECORDS;
    if (!open_cupti() || !works(timeline.cupti.cuptiGetVersion(&version), "cuptiGetVersion"))
        return 1;
    fprintf(timeline.file, "quire-timeline 1 %" PRIu32 "\n", version);
    (void)name_id("(other)");
    if (start_recording())
        atexit(finish);
    return 1;
}
