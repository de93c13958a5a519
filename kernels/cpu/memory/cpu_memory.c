/* Large buffers are private mappings: their pages are zero without being written, so a KV pool
 * takes memory as it fills. Huge pages spare the product and the attention most of their TLB
 * misses; they are requested from LARGE_BYTES up. */
#include "kernels/cpu/memory/cpu_memory.h"

#include "config/base/control_group.h"

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

/* Adds the numbers after the keys at the start of a line of the file; false: it is not there. */
static bool add_numbers(const char *path, const char *const *keys, uint64_t *sum) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char line[256];
    uint64_t number;
    while (fgets(line, sizeof(line), file) != NULL)
        for (int i = 0; keys[i] != NULL; i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0 &&
                sscanf(line + strlen(keys[i]), "%" SCNu64, &number) == 1)
                *sum += number;
    fclose(file);
    return true;
}

static bool read_number(const char *folder, const char *name, uint64_t *out) {
    char line[CONTROL_GROUP_LINE_BYTES];
    return control_group_read(folder, name, line) && sscanf(line, "%" SCNu64, out) == 1;
}

/* What a group may use, of each version, and what it does. Of version 1 the memory of the groups
 * below is in the sums that begin with total_. */
static const struct {
    const char *limits[2], *usage;
    const char *reclaimable[4]; /* of memory.stat */
} versions[] = {
    {{"memory.max", "memory.high"},
     "memory.current",
     {"inactive_file ", "active_file ", "slab_reclaimable "}},
    {{"memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
};

struct memory_info {
    uint64_t free_bytes, total_bytes;
};

static void limit_by(struct memory_info *info, const char *folder, int version) {
    char stat[4096];
    uint64_t limit, least = UINT64_MAX, used, reclaimable = 0;
    for (int i = 0; i < 2 && versions[version].limits[i] != NULL; i++)
        if (read_number(folder, versions[version].limits[i], &limit) && limit < least)
            least = limit;
    if (least == UINT64_MAX || !read_number(folder, versions[version].usage, &used))
        return;
    int length = snprintf(stat, sizeof(stat), "%s/memory.stat", folder);
    if (length > 0 && (size_t)length < sizeof(stat))
        add_numbers(stat, versions[version].reclaimable, &reclaimable);
    used = used > reclaimable ? used - reclaimable : 0;
    uint64_t left = least > used ? least - used : 0;
    info->total_bytes = least < info->total_bytes ? least : info->total_bytes;
    info->free_bytes = left < info->free_bytes ? left : info->free_bytes;
}

static void limit_by_group(void *context, const char *folder) {
    for (int i = 0; i < (int)(sizeof(versions) / sizeof(versions[0])); i++)
        limit_by(context, folder, i);
}

void cpu_memory_info(const char *root, size_t *out_free, size_t *out_total) {
    static const char *const total[] = {"MemTotal:", NULL}, *const available[] = {"MemAvailable:",
                                                                                  NULL};
    char path[4096];
    uint64_t total_kib = 0, free_kib = 0;
    *out_free = 0;
    *out_total = 0;
    int length = snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (length < 0 || (size_t)length >= sizeof(path) || !add_numbers(path, total, &total_kib) ||
        !add_numbers(path, available, &free_kib))
        return;
    struct memory_info info = {.free_bytes = free_kib * 1024, .total_bytes = total_kib * 1024};
    control_group_visit(root, "memory", limit_by_group, &info);
    *out_free = (size_t)info.free_bytes;
    *out_total = (size_t)info.total_bytes;
}
