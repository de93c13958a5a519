#include "kernels/cuda/state/cuda_check.h"

#include <string.h>

/* The compiler is given paths relative to the build folder. */
static const char *source_path(const char *file) {
    while (strncmp(file, "../", 3) == 0)
        file += 3;
    return file;
}

/* Cuts the call's text to the function's name. */
int cuda_check_describe(enum error_code code, const char *operation, const char *file, int line,
                        const char *why, const char *name, struct error *err) {
    return error_set(err, code, "%.*s failed at %s:%d: %s (%s)", (int)strcspn(operation, "( "),
                     operation, source_path(file), line, why, name);
}

static int report(enum error_code code, cudaError_t status, const char *operation, const char *file,
                  int line, struct error *err) {
    return cuda_check_describe(code, operation, file, line, cudaGetErrorString(status),
                               cudaGetErrorName(status), err);
}

bool cuda_check_keep(struct cuda_backend *b, cudaError_t status, const char *operation,
                     const char *file, int line) {
    if (status == cudaSuccess)
        return true;
    if (CUDA_OK(b))
        report(ERROR_DEVICE, status, operation, file, line, &b->failure);
    return false;
}

int cuda_check_start(cudaError_t status, const char *operation, const char *file, int line,
                     struct error *err) {
    if (status == cudaSuccess)
        return 0;
    bool no_memory = status == cudaErrorMemoryAllocation;
    return report(no_memory ? ERROR_MEMORY : ERROR_DEVICE, status, operation, file, line, err);
}
