#include "kernels/cuda/matrix/cublas_check.h"

#include <string.h>

/* The compiler is given paths relative to the build folder. */
static const char *source_path(const char *file) {
    while (strncmp(file, "../", 3) == 0)
        file += 3;
    return file;
}

static int report(enum error_code code, cublasStatus_t status, const char *function,
                  const char *file, int line, struct error *err) {
    return error_set(err, code, "%s failed at %s:%d: %s (%s)", function, source_path(file), line,
                     cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

bool cublas_check_keep(struct cuda_backend *b, cublasStatus_t status, const char *function,
                       const char *file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    if (CUDA_OK(b))
        report(ERROR_DEVICE, status, function, file, line, &b->failure);
    return false;
}

int cublas_check_start(cublasStatus_t status, const char *function, const char *file, int line,
                       struct error *err) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    bool no_memory = status == CUBLAS_STATUS_ALLOC_FAILED;
    return report(no_memory ? ERROR_MEMORY : ERROR_DEVICE, status, function, file, line, err);
}
