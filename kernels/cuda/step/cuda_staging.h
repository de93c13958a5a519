/* Pinned memory between host arrays and the device, for two steps at a time (backend.h: step_end).
 * Copies are in stream order and never wait, except when a step copies more than its part of the
 * memory holds: then the stream is drained first. Recordings have their own memory. */
#ifndef QUIRE_KERNELS_CUDA_STEP_CUDA_STAGING_H
#define QUIRE_KERNELS_CUDA_STEP_CUDA_STAGING_H

#include "kernels/cuda/state/cuda_state.h"

struct staging_set;

/* Copies to the device; `src` may be changed as soon as the call returns. Any size. */
void cuda_staging_upload(struct cuda_backend *b, void *device_dst, const void *src, size_t bytes);

/* Returns pinned memory for the caller to fill before it enqueues what reads it: at most the
 * largest step's arrays, or a chunk. It is reserved until the step was waited for. A copy in chunks
 * overlaps with filling the next chunk. NULL after a failure. */
#define CUDA_STAGING_CHUNK_BYTES ((size_t)1 << 20)
void *cuda_staging_reserve(struct cuda_backend *b, size_t bytes);

/* Copies to the host; `dst` is filled by the wait for the step. At most CUDA_STAGING_DOWNLOAD_BYTES
 * a call (CHECKed). */
#define CUDA_STAGING_DOWNLOAD_BYTES ((size_t)1 << 20)
void cuda_staging_download(struct cuda_backend *b, void *dst, const void *device_src, size_t bytes);
/* The same at once: waits for the stream. */
void cuda_staging_fetch(struct cuda_backend *b, void *dst, const void *device_src, size_t bytes);
/* The same for token i of num_tokens, to out[i].token. */
void cuda_staging_download_tokens(struct cuda_backend *b, struct sample_output *out,
                                  const int32_t *device_src, int32_t num_tokens);

/* End a step, wait for the oldest ended step, or wait for everything: the destinations of
 * cuda_staging_download are then filled. A failure is kept. */
void cuda_staging_end(struct cuda_backend *b);
void cuda_staging_wait(struct cuda_backend *b);
bool cuda_staging_is_done(struct cuda_backend *b); /* the wait would return at once */
void cuda_staging_synchronize(struct cuda_backend *b);

/* Recorded copies use a separate set with this much pinned memory in each direction, which is not
 * overwritten while the recording lives. The set is used from `record` to `record_end`; a copy that
 * does not fit is a failure. Fails with ERROR_MEMORY or ERROR_DEVICE. */
int cuda_staging_record(struct cuda_backend *b, size_t bytes, struct staging_set **out,
                        struct error *err);
void cuda_staging_record_end(struct cuda_backend *b);
/* Called before the recorded copies are enqueued: their downloads then belong to the step that they
 * are part of. */
void cuda_staging_promise(struct cuda_backend *b, const struct staging_set *recorded);
void cuda_staging_set_free(struct cuda_backend *b, struct staging_set *set); /* accepts NULL */

#endif
