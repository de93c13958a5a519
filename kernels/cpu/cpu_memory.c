/* Large buffers are private mappings: their pages are zero without being written, so a KV pool
 * takes memory as it fills. Huge pages spare the product and the attention most of their TLB
 * misses; they are requested from LARGE_BYTES up. */
#include "kernels/cpu/cpu_memory.h"

#include "config/base/checked.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT 64
#define LARGE_BYTES ((size_t)4 << 20)

static int out_of_memory(size_t bytes, struct error *err) {
    return error_set(err, ERROR_MEMORY, "cannot allocate %zu bytes: %s", bytes, strerror(ENOMEM));
}

int cpu_memory_alloc(size_t bytes, struct buffer *out, struct error *err) {
    if (bytes >= LARGE_BYTES) {
        void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED)
            return out_of_memory(bytes, err);
        madvise(data, bytes, MADV_HUGEPAGE);
        *out = (struct buffer){.data = data, .bytes = bytes};
        return 0;
    }
    size_t padded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    void *data = aligned_alloc(ALIGNMENT, padded);
    if (data == NULL)
        return out_of_memory(bytes, err);
    memset(data, 0, padded);
    *out = (struct buffer){.data = data, .bytes = bytes};
    return 0;
}

void cpu_memory_free(struct buffer *buffer) {
    if (buffer->bytes >= LARGE_BYTES)
        munmap(buffer->data, buffer->bytes);
    else
        free(buffer->data);
    *buffer = (struct buffer){0};
}

/* The number after `key` at the start of a line; an empty key means the file's first number. */
static bool read_number(const char *path, const char *key, uint64_t *out) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char line[256];
    bool found = false;
    size_t key_length = strlen(key);
    while (!found && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, key, key_length) == 0)
            found = sscanf(line + key_length, "%" SCNu64, out) == 1;
    fclose(file);
    return found;
}

static bool read_cgroup_number(const char *dir, const char *name, uint64_t *out) {
    char path[512];
    int length = snprintf(path, sizeof(path), "%s/%s", dir, name);
    return length > 0 && (size_t)length < sizeof(path) && read_number(path, "", out);
}

void cpu_memory_info(const char *meminfo_path, const char *cgroup_dir, size_t *out_free,
                     size_t *out_total) {
    uint64_t total_kib = 0, free_kib = 0;
    *out_free = 0;
    *out_total = 0;
    if (!read_number(meminfo_path, "MemTotal:", &total_kib) ||
        !read_number(meminfo_path, "MemAvailable:", &free_kib))
        return;
    uint64_t total_bytes = total_kib * 1024, free_bytes = free_kib * 1024;
    uint64_t limit_bytes, used_bytes;
    if (read_cgroup_number(cgroup_dir, "memory.max", &limit_bytes) &&
        read_cgroup_number(cgroup_dir, "memory.current", &used_bytes)) {
        uint64_t left_bytes = limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
        total_bytes = limit_bytes < total_bytes ? limit_bytes : total_bytes;
        free_bytes = left_bytes < free_bytes ? left_bytes : free_bytes;
    }
    *out_free = (size_t)free_bytes;
    *out_total = (size_t)total_bytes;
}
