/* Two arenas of pinned memory, filled from the front and empty again after each drain. A large
 * upload goes in chunks, so that the device copies one chunk while the next is being filled in. */
#include "kernels/cuda/cuda_staging.h"

#include "config/base/check.h"
#include "kernels/cuda/cuda_check.h"

#include <stdlib.h>
#include <string.h>

#define UPLOAD_BYTES ((size_t)16 << 20)
#define CHUNK_BYTES ((size_t)1 << 20)
#define DOWNLOAD_BYTES (2 * CUDA_STAGING_DOWNLOAD_BYTES)
#define MAX_DOWNLOADS 64
#define ALIGNMENT 256

struct download {
    void *dst;
    const void *pinned;
    size_t bytes;
};

struct arena {
    struct buffer pinned;
    size_t used;
};

struct cuda_staging {
    struct arena up, down;
    struct download downloads[MAX_DOWNLOADS];
    int num_downloads;
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

int cuda_staging_create(struct cuda_backend *b, struct error *err) {
    b->staging = calloc(1, sizeof(*b->staging));
    if (b->staging == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    size_t step_bytes = b->step.memory.bytes;
    size_t up_bytes = step_bytes > UPLOAD_BYTES ? step_bytes : UPLOAD_BYTES;
    if (cuda_host_alloc(&b->base, up_bytes, &b->staging->up.pinned, err) != 0)
        return -1;
    return cuda_host_alloc(&b->base, DOWNLOAD_BYTES, &b->staging->down.pinned, err);
}

void cuda_staging_destroy(struct cuda_backend *b) {
    if (b->staging == NULL)
        return;
    cuda_host_free(&b->base, &b->staging->up.pinned);
    cuda_host_free(&b->base, &b->staging->down.pinned);
    free(b->staging);
    b->staging = NULL;
}

void *cuda_staging_reserve(struct cuda_backend *b, size_t bytes) {
    struct arena *up = &b->staging->up;
    CHECK(bytes <= up->pinned.bytes);
    if (!arena_has_room(up, bytes))
        cuda_staging_drain(b);
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
    struct cuda_staging *staging = b->staging;
    CHECK(bytes <= CUDA_STAGING_DOWNLOAD_BYTES);
    if (staging->num_downloads == MAX_DOWNLOADS || !arena_has_room(&staging->down, bytes))
        cuda_staging_drain(b);
    if (!CUDA_OK(b) || bytes == 0)
        return;
    void *pinned = arena_take(&staging->down, bytes);
    if (CUDA_TRY(b, cudaMemcpyAsync(pinned, device_src, bytes, cudaMemcpyDeviceToHost, b->stream)))
        staging->downloads[staging->num_downloads++] = (struct download){dst, pinned, bytes};
}

/* After a failure the promises are dropped, not left: their targets may be gone by the next call.
 */
void cuda_staging_drain(struct cuda_backend *b) {
    struct cuda_staging *staging = b->staging;
    if (CUDA_TRY(b, cudaStreamSynchronize(b->stream)))
        for (int i = 0; i < staging->num_downloads; i++)
            memcpy(staging->downloads[i].dst, staging->downloads[i].pinned,
                   staging->downloads[i].bytes);
    staging->num_downloads = 0;
    staging->up.used = 0;
    staging->down.used = 0;
}

void cuda_upload(struct backend *b, void *dst, const void *src, size_t bytes) {
    cuda_staging_upload((struct cuda_backend *)b, dst, src, bytes);
}

void cuda_download(struct backend *base, void *dst, const void *src, size_t bytes) {
    struct cuda_backend *b = (struct cuda_backend *)base;
    CUDA_TRY(b, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, b->stream));
    cuda_staging_drain(b);
}
