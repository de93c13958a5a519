/* Address space for the longest header is reserved at once without memory; pages are made
 * accessible, and filled from the file, a step at a time. */
#include "models/files/file_image.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEP_BYTES ((size_t)256 << 10) /* a multiple of every page size in use */

struct file_image file_image_of_memory(const void *data, size_t bytes, const char *name) {
    return (struct file_image){.name = name, .bytes = bytes, .data = data, .available = bytes};
}

static size_t round_up(size_t bytes, size_t step) {
    return (bytes + step - 1) / step * step;
}

int file_image_create(const struct input_file *file, struct file_image *out, struct error *err) {
    size_t bytes = (size_t)file->bytes;
    size_t reserved = round_up(min_size(bytes, FILE_IMAGE_MAX_BYTES), STEP_BYTES);
    void *memory = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(err, ERROR_MEMORY, "%s: no address space for %zu bytes of header",
                         file->path, reserved);
    *out = (struct file_image){.name = file->path,
                               .bytes = bytes,
                               .data = memory,
                               .file = file,
                               .memory = memory,
                               .reserved = reserved};
    return 0;
}

bool file_image_is_current(const struct file_image *image) {
    uint8_t now[4096];
    bool is_equal = true;
    for (size_t done = 0; image->file != NULL && is_equal && done < image->available;) {
        size_t left = image->available - done, bytes = left < sizeof(now) ? left : sizeof(now);
        is_equal = input_file_read(image->file, done, bytes, now, NULL, NULL) == 0 &&
                   memcmp(now, image->data + done, bytes) == 0;
        done += bytes;
    }
    return is_equal;
}

void file_image_finish(struct file_image *image) {
    if (image->memory != NULL)
        munmap(image->memory, image->reserved);
    *image = (struct file_image){0};
}

/* `available` is a multiple of STEP_BYTES until the file's end is reached. */
int file_image_require(struct file_image *image, size_t end, struct error *err) {
    CHECK(end <= image->bytes);
    if (end <= image->available)
        return 0;
    if (end > FILE_IMAGE_MAX_BYTES)
        return error_set(err, ERROR_MODEL, "%s: header: continues at byte %zu (at most %zu bytes)",
                         image->name, end, FILE_IMAGE_MAX_BYTES);
    size_t begin = image->available, step_end = round_up(end, STEP_BYTES);
    if (mprotect(image->memory + begin, step_end - begin, PROT_READ | PROT_WRITE) != 0)
        return error_set(err, ERROR_MEMORY, "%s: no memory for %zu bytes of header: %s",
                         image->name, step_end, strerror(errno));
    size_t target = min_size(step_end, image->bytes);
    if (input_file_read(image->file, begin, target - begin, image->memory + begin, "header", err) !=
        0)
        return -1;
    image->available = target;
    return 0;
}
