/* Two sets of pinned memory, for a step that ended and for the one that is enqueued meanwhile. A
 * set is an arena for each direction, filled from the front and empty again once its step was
 * waited for. A large upload goes in chunks, so that the device copies one chunk while the next is
 * being filled in. */
#include "kernels/cuda/step/cuda_staging.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/cuda/step/cuda_streams.h"

#include <stdlib.h>
#include <string.h>

#define UPLOAD_BYTES ((size_t)16 << 20)
#define DOWNLOAD_BYTES (2 * CUDA_STAGING_DOWNLOAD_BYTES)
#define MAX_DOWNLOADS 64
#define ALIGNMENT 256
#define NUM_SETS 2

struct download {
    void *dst;
    const void *pinned;
    size_t bytes;
    bool is_tokens; /* of sample outputs */
};

struct arena {
    struct buffer pinned;
    size_t used;
};

struct staging_set {
    struct arena up, down;
    struct download downloads[MAX_DOWNLOADS];
    int num_downloads;
    cudaEvent_t end; /* of the step */
};

struct cuda_staging {
    struct staging_set sets[NUM_SETS]; /* step i, of all that ended, has set i % NUM_SETS */
    uint64_t num_ended, num_waited_for;
    struct staging_set *recorded; /* of the recording that was begun; NULL: none */
};

static bool arena_has_room(const struct arena *arena, size_t bytes) {
    return bytes <= arena->pinned.bytes - arena->used;
}

static void *arena_take(struct arena *arena, size_t bytes) {
    char *taken = (char *)arena->pinned.data + arena->used;
    size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t left = arena->pinned.bytes - arena->used;
    arena->used += padded < left ? padded : left;
    return taken;
}

static int alloc_set(struct cuda_backend *b, struct staging_set *set, size_t up_bytes,
                     size_t down_bytes, struct error *err) {
    return cuda_host_alloc(&b->base, up_bytes, &set->up.pinned, err) != 0 ||
                   cuda_host_alloc(&b->base, down_bytes, &set->down.pinned, err) != 0
               ? -1
               : 0;
}

static void finish_set(struct cuda_backend *b, struct staging_set *set) {
    cuda_host_free(&b->base, &set->up.pinned);
    cuda_host_free(&b->base, &set->down.pinned);
    if (set->end != NULL)
        CUDA_RELEASE(b, cudaEventDestroy(set->end));
}

static int create_set(struct cuda_backend *b, struct staging_set *set, size_t step_bytes,
                      struct error *err) {
    if (alloc_set(b, set, UPLOAD_BYTES + step_bytes, DOWNLOAD_BYTES, err) != 0)
        return -1;
    return CUDA_START(cudaEventCreateWithFlags(&set->end, cudaEventDisableTiming), err);
}

int cuda_staging_create(struct cuda_backend *b, size_t step_bytes, struct error *err) {
    b->staging = calloc(1, sizeof(*b->staging));
    if (b->staging == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    for (int i = 0; i < NUM_SETS; i++)
        if (create_set(b, &b->staging->sets[i], step_bytes, err) != 0)
            return -1;
    return 0;
}

void cuda_staging_destroy(struct cuda_backend *b) {
    if (b->staging == NULL)
        return;
    for (int i = 0; i < NUM_SETS; i++)
        finish_set(b, &b->staging->sets[i]);
    free(b->staging);
    b->staging = NULL;
}

/* Of the recording, or of the step that is being enqueued. */
static struct staging_set *current_set(const struct cuda_backend *b) {
    struct cuda_staging *staging = b->staging;
    if (staging->recorded != NULL)
        return staging->recorded;
    CHECK(staging->num_ended - staging->num_waited_for < NUM_SETS);
    return &staging->sets[staging->num_ended % NUM_SETS];
}

static void keep_promise(const struct download *download) {
    if (!download->is_tokens) {
        memcpy(download->dst, download->pinned, download->bytes);
        return;
    }
    struct sample_output *out = download->dst;
    const int32_t *tokens = download->pinned;
    for (size_t i = 0; i < download->bytes / sizeof(*tokens); i++)
        out[i].token = tokens[i];
}

/* Once its copies are done. After a failure the promises are dropped, not left: their targets may
 * be gone by the next call. */
static void empty_set(struct cuda_backend *b, struct staging_set *set) {
    for (int i = 0; CUDA_OK(b) && i < set->num_downloads; i++)
        keep_promise(&set->downloads[i]);
    set->num_downloads = 0;
    set->up.used = 0;
    set->down.used = 0;
}

static void drain(struct cuda_backend *b) {
    CHECK(b->staging->recorded == NULL);
    cuda_streams_synchronize(b);
    for (int i = 0; i < NUM_SETS; i++)
        empty_set(b, &b->staging->sets[i]);
}

static void make_room(struct cuda_backend *b) {
    if (b->staging->recorded == NULL)
        drain(b);
    else if (CUDA_OK(b))
        error_set(&b->failure, ERROR_MEMORY,
                  "a recording copies more between host and device than the %.1f MiB each way, or "
                  "the %d results, that it has room for",
                  mib(b->staging->recorded->up.pinned.bytes), MAX_DOWNLOADS);
}

void cuda_staging_end(struct cuda_backend *b) {
    CHECK(b->staging->recorded == NULL);
    cuda_streams_end_step(b);
    CUDA_TRY(b, cudaEventRecord(current_set(b)->end, b->stream));
    b->staging->num_ended++;
}

/* What is not ready is an error to the runtime, which would be blamed on the next kernel. A failure
 * is the wait's to report. */
bool cuda_staging_is_done(struct cuda_backend *b) {
    const struct cuda_staging *staging = b->staging;
    CHECK(staging->num_waited_for < staging->num_ended);
    if (!CUDA_OK(b))
        return true;
    bool is_done =
        cudaEventQuery(staging->sets[staging->num_waited_for % NUM_SETS].end) != cudaErrorNotReady;
    if (!is_done)
        cudaGetLastError();
    if (!is_done && b->comm != NULL)
        cuda_comm_look(b);
    return is_done || !CUDA_OK(b);
}

void cuda_staging_wait(struct cuda_backend *b) {
    struct cuda_staging *staging = b->staging;
    CHECK(staging->num_waited_for < staging->num_ended && staging->recorded == NULL);
    struct staging_set *set = &staging->sets[staging->num_waited_for++ % NUM_SETS];
    cuda_streams_await(b, set->end);
    empty_set(b, set);
}

void cuda_staging_synchronize(struct cuda_backend *b) {
    drain(b);
    b->staging->num_waited_for = b->staging->num_ended;
}

void *cuda_staging_reserve(struct cuda_backend *b, size_t bytes) {
    struct arena *up = &current_set(b)->up;
    CHECK(bytes <= up->pinned.bytes || b->staging->recorded != NULL);
    if (!arena_has_room(up, bytes))
        make_room(b);
    return CUDA_OK(b) ? arena_take(up, bytes) : NULL;
}

void cuda_staging_upload(struct cuda_backend *b, void *device_dst, const void *src, size_t bytes) {
    while (bytes > 0) {
        size_t chunk = min_size(bytes, CUDA_STAGING_CHUNK_BYTES);
        void *pinned = cuda_staging_reserve(b, chunk);
        if (pinned == NULL)
            return;
        memcpy(pinned, src, chunk);
        CUDA_TRY(b, cudaMemcpyAsync(device_dst, pinned, chunk, cudaMemcpyHostToDevice, b->stream));
        device_dst = (char *)device_dst + chunk;
        src = (const char *)src + chunk;
        bytes -= chunk;
    }
}

static void download(struct cuda_backend *b, void *dst, const void *device_src, size_t bytes,
                     bool is_tokens) {
    struct staging_set *set = current_set(b);
    CHECK(bytes <= CUDA_STAGING_DOWNLOAD_BYTES);
    if (set->num_downloads == MAX_DOWNLOADS || !arena_has_room(&set->down, bytes))
        make_room(b);
    if (!CUDA_OK(b) || bytes == 0)
        return;
    void *pinned = arena_take(&set->down, bytes);
    if (CUDA_TRY(b, cudaMemcpyAsync(pinned, device_src, bytes, cudaMemcpyDeviceToHost, b->stream)))
        set->downloads[set->num_downloads++] = (struct download){dst, pinned, bytes, is_tokens};
}

void cuda_staging_download(struct cuda_backend *b, void *dst, const void *device_src,
                           size_t bytes) {
    download(b, dst, device_src, bytes, false);
}

void cuda_staging_fetch(struct cuda_backend *b, void *dst, const void *device_src, size_t bytes) {
    download(b, dst, device_src, bytes, false);
    drain(b);
}

void cuda_staging_download_tokens(struct cuda_backend *b, struct sample_output *out,
                                  const int32_t *device_src, int32_t num_tokens) {
    download(b, out, device_src, (size_t)num_tokens * sizeof(*device_src), true);
}

int cuda_staging_record(struct cuda_backend *b, size_t bytes, struct staging_set **out,
                        struct error *err) {
    struct staging_set *set = calloc(1, sizeof(*set));
    if (set == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a recording");
    if (alloc_set(b, set, bytes, bytes, err) != 0) {
        cuda_staging_set_free(b, set);
        return -1;
    }
    b->staging->recorded = *out = set;
    return 0;
}

void cuda_staging_record_end(struct cuda_backend *b) {
    b->staging->recorded = NULL;
}

void cuda_staging_promise(struct cuda_backend *b, const struct staging_set *recorded) {
    struct staging_set *set = current_set(b);
    if (recorded->num_downloads == 0)
        return;
    for (int i = 0; i < set->num_downloads; i++)
        if (set->downloads[i].pinned == recorded->downloads[0].pinned)
            return;
    if (set->num_downloads + recorded->num_downloads > MAX_DOWNLOADS)
        drain(b);
    for (int i = 0; i < recorded->num_downloads; i++)
        set->downloads[set->num_downloads++] = recorded->downloads[i];
}

void cuda_staging_set_free(struct cuda_backend *b, struct staging_set *set) {
    if (set != NULL)
        finish_set(b, set);
    free(set);
}

void cuda_upload(struct backend *b, void *dst, const void *src, size_t bytes) {
    cuda_streams_before_anything(cuda_state_of(b));
    cuda_staging_upload(cuda_state_of(b), dst, src, bytes);
}

void cuda_download(struct backend *base, void *dst, const void *src, size_t bytes) {
    cuda_streams_before_anything(cuda_state_of(base));
    for (size_t first = 0, count; first < bytes; first += count) {
        count = min_size(bytes - first, CUDA_STAGING_DOWNLOAD_BYTES);
        cuda_staging_download(cuda_state_of(base), (char *)dst + first, (const char *)src + first,
                              count);
    }
}
