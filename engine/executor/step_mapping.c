#include "engine/executor/step_mapping.h"

#include "engine/executor/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What is not there with the C library's headers, of a kernel since 5.1. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int create_file(const char *name, int min_fd) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, min_fd);
    close(fd);
    return high;
}

int step_files_create(struct step_files *out, int min_fd, struct error *err) {
    *out = (struct step_files){create_file("quire-batches", min_fd), -1};
    if (out->batches >= 0)
        out->results = create_file("quire-results", min_fd);
    if (out->results >= 0)
        return 0;
    error_set(err, ERROR_IO, "memory of the steps: %s", strerror(errno));
    step_files_close(out);
    return -1;
}

void step_files_close(struct step_files *files) {
    if (files->batches >= 0)
        close(files->batches);
    if (files->results >= 0)
        close(files->results);
    *files = (struct step_files){-1, -1};
}

/* Returns -1 when the steps do not fit into memory. */
static int measure(struct step_mapping *mapping, const struct batch_capacity *capacity) {
    size_t total = step_memory_bytes(capacity);
    if (total > SIZE_MAX / (2 * EXECUTOR_MAX_STEPS))
        return -1;
    mapping->batch_bytes = step_result_offset(capacity);
    size_t results = total - mapping->batch_bytes;
    mapping->result_bytes =
        (results + STEP_PART_ALIGNMENT - 1) / STEP_PART_ALIGNMENT * STEP_PART_ALIGNMENT;
    return 0;
}

static size_t mapped_bytes(const struct step_mapping *mapping) {
    return EXECUTOR_MAX_STEPS * (mapping->batch_bytes + mapping->result_bytes);
}

static int map_part(char *address, size_t bytes, int protection, int fd, size_t offset) {
    void *mapped = mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
    return mapped == MAP_FAILED ? -1 : 0;
}

static int map_steps(struct step_mapping *mapping, const struct step_files *files,
                     int batch_protection) {
    void *memory = mmap(NULL, mapped_bytes(mapping), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    mapping->memory = memory;
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        size_t batch_bytes = mapping->batch_bytes, result_bytes = mapping->result_bytes;
        char *step = step_mapping_step(mapping, i);
        if (map_part(step, batch_bytes, batch_protection, files->batches,
                     (size_t)i * batch_bytes) != 0 ||
            map_part(step + batch_bytes, result_bytes, PROT_READ | PROT_WRITE, files->results,
                     (size_t)i * result_bytes) != 0) {
            step_mapping_finish(mapping);
            return -1;
        }
    }
    return 0;
}

/* An older kernel knows no seal that leaves the mappings that are there alone: the rank process then
 * maps the batches read-only of its own accord. */
static int seal(const struct step_files *files) {
    const int size = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fcntl(files->results, F_ADD_SEALS, size | F_SEAL_SEAL) != 0)
        return -1;
    if (fcntl(files->batches, F_ADD_SEALS, size | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
        return 0;
    return errno == EINVAL ? fcntl(files->batches, F_ADD_SEALS, size | F_SEAL_SEAL) : -1;
}

int step_mapping_create(struct step_mapping *mapping, const struct batch_capacity *capacity,
                        const struct step_files *files) {
    *mapping = (struct step_mapping){0};
    if (measure(mapping, capacity) != 0 ||
        ftruncate(files->batches, (off_t)(EXECUTOR_MAX_STEPS * mapping->batch_bytes)) != 0 ||
        ftruncate(files->results, (off_t)(EXECUTOR_MAX_STEPS * mapping->result_bytes)) != 0 ||
        map_steps(mapping, files, PROT_READ | PROT_WRITE) != 0)
        return -1;
    if (seal(files) == 0)
        return 0;
    step_mapping_finish(mapping);
    return -1;
}

int step_mapping_open(struct step_mapping *mapping, const struct batch_capacity *capacity,
                      const struct step_files *files) {
    *mapping = (struct step_mapping){0};
    return measure(mapping, capacity) != 0 ? -1 : map_steps(mapping, files, PROT_READ);
}

void step_mapping_finish(struct step_mapping *mapping) {
    if (mapping->memory != NULL)
        munmap(mapping->memory, mapped_bytes(mapping));
    *mapping = (struct step_mapping){0};
}

void *step_mapping_step(const struct step_mapping *mapping, int32_t step) {
    return mapping->memory + (size_t)step * (mapping->batch_bytes + mapping->result_bytes);
}

int32_t step_mapping_find(const struct step_mapping *mapping, const void *address) {
    size_t offset = (size_t)((const char *)address - mapping->memory);
    return (int32_t)(offset / (mapping->batch_bytes + mapping->result_bytes));
}
