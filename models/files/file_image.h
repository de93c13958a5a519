/* Private to models/: the beginning of a file, read as far as its parser has advanced. The bytes
 * lie in our own memory at an address that never changes, so a table may point at names and values
 * in it. The file is not mapped, so truncating or rewriting it meanwhile does no harm. One thread,
 * while the file is opened; immutable afterwards. */
#ifndef QUIRE_MODELS_FILES_FILE_IMAGE_H
#define QUIRE_MODELS_FILES_FILE_IMAGE_H

#include "models/files/input_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum header size: Gemma's 262144 tokens with scores and merges take some 20 MB, and
 * safetensors allows 100 MB. */
#define FILE_IMAGE_MAX_BYTES ((size_t)256 << 20)

struct file_image {
    const char *name;
    size_t bytes;        /* of the file */
    const uint8_t *data; /* [available] */
    size_t available;
    const struct input_file *file; /* NULL: all bytes are in the caller's memory */
    uint8_t *memory;               /* reserved address space; NULL as file */
    size_t reserved;
};

/* Makes a complete image of bytes that outlive it. */
struct file_image file_image_of_memory(const void *data, size_t bytes, const char *name);
/* Reads nothing yet. The file outlives the image. */
int file_image_create(const struct input_file *file, struct file_image *out, struct error *err);
/* Returns whether the file still begins with the bytes that were read. */
bool file_image_is_current(const struct file_image *image);
/* Accepts a zeroed one. */
void file_image_finish(struct file_image *image);

/* Makes data[0..end) readable; end <= bytes (CHECKed). ERROR_MODEL when the file has become shorter
 * or end is beyond FILE_IMAGE_MAX_BYTES. */
int file_image_require(struct file_image *image, size_t end, struct error *err);

#endif
