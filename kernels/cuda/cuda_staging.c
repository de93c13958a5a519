/* Two sets of pinned memory, for a step that ended and for the one that is enqueued meanwhile. A set
 * is an arena for each direction, filled from the front and empty again once its step was waited
 * for. A large upload goes in chunks, so that the device copies one chunk while the next is being
 * filled in. */
#include "kernels/cuda/cuda_staging.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cuda/cuda_check.h"

#include <stdlib.h>
#include <string.h>

#define UPLOAD_BYTES ((size_t)16 << 20)
#define CHUNK_BYTES ((size_t)1 << 20)
#define DOWNLOAD_BYTES (2 * CUDA_STAGING_DOWNLOAD_BYTES)
#define MAX_DOWNLOADS 64
#define ALIGNMENT 256
#define NUM_SETS 2

struct download {
    void *dst;
    const void *pinned;
    size_t bytes;
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

static int create_set(struct cuda_backend *b, struct staging_set *set, struct error *err) {
    size_t step_bytes = b->step.memory.bytes;
    size_t up_bytes = step_bytes > UPLOAD_BYTES ? step_bytes : UPLOAD_BYTES;
    if (cuda_host_alloc(&b->base, up_bytes, &set->up.pinned, err) != 0 ||
        cuda_host_alloc(&b->base, DOWNLOAD_BYTES, &set->down.pinned, err) != 0)
        return -1;
    return CUDA_START(cudaEventCreateWithFlags(&set->end, cudaEventDisableTiming), err);
}

int cuda_staging_create(struct cuda_backend *b, struct error *err) {
    b->staging = calloc(1, sizeof(*b->staging));
    if (b->staging == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    for (int i = 0; i < NUM_SETS; i++)
        if (create_set(b, &b->staging->sets[i], err) != 0)
            return -1;
    return 0;
}

void cuda_staging_destroy(struct cuda_backend *b) {
    if (b->staging == NULL)
        return;
    for (int i = 0; i < NUM_SETS; i++) {
        struct staging_set *set = &b->staging->sets[i];
        cuda_host_free(&b->base, &set->up.pinned);
        cuda_host_free(&b->base, &set->down.pinned);
        if (set->end != NULL)
            CUDA_RELEASE(b, cudaEventDestroy(set->end));
    }
    free(b->staging);
    b->staging = NULL;
}

/* Of the step that is being enqueued. */
static struct staging_set *current_set(const struct cuda_backend *b) {
    struct cuda_staging *staging = b->staging;
    CHECK(staging->num_ended - staging->num_waited_for < NUM_SETS);
    return &staging->sets[staging->num_ended % NUM_SETS];
}

/* Once its copies are done. After a failure the promises are dropped, not left: their targets may be
 * gone by the next call. */
static void empty_set(struct cuda_backend *b, struct staging_set *set) {
    for (int i = 0; CUDA_OK(b) && i < set->num_downloads; i++)
        memcpy(set->downloads[i].dst, set->downloads[i].pinned, set->downloads[i].bytes);
    set->num_downloads = 0;
    set->up.used = 0;
    set->down.used = 0;
}

static void drain(struct cuda_backend *b) {
    CUDA_TRY(b, cudaStreamSynchronize(b->stream));
    for (int i = 0; i < NUM_SETS; i++)
        empty_set(b, &b->staging->sets[i]);
}

void cuda_staging_end(struct cuda_backend *b) {
    CUDA_TRY(b, cudaEventRecord(current_set(b)->end, b->stream));
    b->staging->num_ended++;
}

void cuda_staging_wait(struct cuda_backend *b) {
    struct cuda_staging *staging = b->staging;
    CHECK(staging->num_waited_for < staging->num_ended);
    struct staging_set *set = &staging->sets[staging->num_waited_for++ % NUM_SETS];
    CUDA_TRY(b, cudaEventSynchronize(set->end));
    empty_set(b, set);
}

void cuda_staging_synchronize(struct cuda_backend *b) {
    drain(b);
    b->staging->num_waited_for = b->staging->num_ended;
}

void *cuda_staging_reserve(struct cuda_backend *b, size_t bytes) {
    struct arena *up = &current_set(b)->up;
    CHECK(bytes <= up->pinned.bytes);
    if (!arena_has_room(up, bytes))
        drain(b);
    return CUDA_OK(b) ? arena_take(up, bytes) : NULL;
}

void cuda_staging_send(struct cuda_backend *b, void *device_dst, const void *reserved,
                       size_t bytes) {
    if (bytes > 0)
        CUDA_TRY(b,
                 cudaMemcpyAsync(device_dst, reserved, bytes, cudaMemcpyHostToDevice, b->stream));
}

void cuda_staging_upload(struct cuda_backend *b, void *device_dst, const void *src, size_t bytes) {
    while (bytes > 0) {
        size_t chunk = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;
        void *pinned = cuda_staging_reserve(b, chunk);
        if (pinned == NULL)
            return;
        memcpy(pinned, src, chunk);
        cuda_staging_send(b, device_dst, pinned, chunk);
        device_dst = (char *)device_dst + chunk;
        src = (const char *)src + chunk;
        bytes -= chunk;
    }
}

void cuda_staging_download(struct cuda_backend *b, void *dst, const void *device_src,
                           size_t bytes) {
    struct staging_set *set = current_set(b);
    CHECK(bytes <= CUDA_STAGING_DOWNLOAD_BYTES);
    if (set->num_downloads == MAX_DOWNLOADS || !arena_has_room(&set->down, bytes))
        drain(b);
    if (!CUDA_OK(b) || bytes == 0)
        return;
    void *pinned = arena_take(&set->down, bytes);
    if (CUDA_TRY(b, cudaMemcpyAsync(pinned, device_src, bytes, cudaMemcpyDeviceToHost, b->stream)))
        set->downloads[set->num_downloads++] = (struct download){dst, pinned, bytes};
}

void cuda_upload(struct backend *b, void *dst, const void *src, size_t bytes) {
    cuda_staging_upload((struct cuda_backend *)b, dst, src, bytes);
}

void cuda_download(struct backend *base, void *dst, const void *src, size_t bytes) {
    for (size_t first = 0, count; first < bytes; first += count) {
        count = min_size(bytes - first, CUDA_STAGING_DOWNLOAD_BYTES);
        cuda_staging_download((struct cuda_backend *)base, (char *)dst + first,
                              (const char *)src + first, count);
    }
}
