#include "engine/executor/host_memory.h"

#include "config/base/check.h"
#include "kernels/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_BYTES ((off_t)1 << 40) /* more than any pool has */
#define FILE_BYTES (POOL_BYTES * HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS)

int host_memory_create(int min_fd, struct error *err) {
    int made = memfd_create("kv host pools", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = made >= 0 ? fcntl(made, F_DUPFD_CLOEXEC, min_fd) : -1;
    if (fd >= 0 && ftruncate(fd, FILE_BYTES) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        close(made);
        return fd;
    }
    error_set(err, ERROR_IO, "cannot create memory that the rank process shares: %s%s",
              strerror(errno),
              errno == EFBIG ? "; it needs an unlimited file size (ulimit -f)" : "");
    if (made >= 0)
        close(made);
    if (fd >= 0)
        close(fd);
    return -1;
}

void *host_memory_map(int fd, int32_t pool, size_t bytes, struct error *err) {
    CHECK(pool >= 0 && pool < HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS);
    void *memory = bytes <= (size_t)POOL_BYTES ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                                      MAP_SHARED, fd, pool * POOL_BYTES)
                                               : MAP_FAILED;
    if (memory != MAP_FAILED)
        return memory;
    error_set(err, ERROR_MEMORY, "cannot map %.1f MiB of shared host memory: %s",
              (double)bytes / (1 << 20),
              bytes <= (size_t)POOL_BYTES ? strerror(errno) : "too much");
    return NULL;
}

void host_memory_release(void *memory, size_t bytes) {
    if (memory != NULL)
        madvise(memory, bytes, MADV_REMOVE);
}

void host_memory_unmap(void *memory, size_t bytes) {
    if (memory != NULL)
        munmap(memory, bytes);
}
