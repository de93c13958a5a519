/* Every call of the CUDA runtime and of cuBLASLt goes through one of these, so that no status is
 * lost and each failure names file, line and operation. */
#ifndef QUIRE_KERNELS_CUDA_STATE_CUDA_CHECK_H
#define QUIRE_KERNELS_CUDA_STATE_CUDA_CHECK_H

#include "kernels/cuda/state/cuda_state.h"

/* While running: true if nothing has failed so far. */
#define CUDA_OK(b) ((b)->failure.code == ERROR_NONE)

/* While running: evaluates `call` (a cudaError_t) unless something failed before, and keeps its
 * failure. True when it succeeded. */
#define CUDA_TRY(b, call) (CUDA_OK(b) ? cuda_check_keep(b, call, #call, __FILE__, __LINE__) : false)

/* While memory and handles are released: evaluates `call` even after a failure, and keeps its
 * failure if it is the first. */
#define CUDA_RELEASE(b, call) cuda_check_keep(b, call, #call, __FILE__, __LINE__)

/* At start: evaluates `call`, 0 or -1 with err. Out of memory is ERROR_MEMORY, the rest
 * ERROR_DEVICE. */
#define CUDA_START(call, err) cuda_check_start(call, #call, __FILE__, __LINE__, err)

/* Returns whether `status` is success; the first failure is kept in b->failure. */
bool cuda_check_keep(struct cuda_backend *b, cudaError_t status, const char *operation,
                     const char *file, int line);
/* Sets err to what failed, where and why. */
int cuda_check_describe(enum error_code code, const char *operation, const char *file, int line,
                        const char *why, const char *name, struct error *err);
int cuda_check_start(cudaError_t status, const char *operation, const char *file, int line,
                     struct error *err);

#endif
