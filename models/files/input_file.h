/* Paths of model files, and a regular file that is read and never mapped, so that truncating it
 * while in use makes a call fail instead of raising a signal. Opened once; reading is safe from any
 * thread.
 *
 * Messages are one line that begins with the path. */
#ifndef QUIRE_MODELS_FILES_INPUT_FILE_H
#define QUIRE_MODELS_FILES_INPUT_FILE_H

#include "config/base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool input_file_is_folder(const char *path);
/* Returns whether nothing exists at this path. A file that cannot be examined is not missing:
 * opening it reports why. */
bool input_file_is_missing(const char *path);
/* Writes FOLDER/NAME; slashes at the folder's end count as one. ERROR_MODEL when that is too
 * long. */
int input_file_join_path(const char *folder, const char *name, char out[static PATH_MAX],
                         struct error *err);

struct input_file {
    char *path;
    int fd;
    uint64_t bytes; /* when it was opened; never 0 */
};

/* ERROR_IO when it cannot be opened; ERROR_MODEL when it is empty or not a regular file: a folder,
 * a FIFO and a device are refused without waiting for them. */
int input_file_open(const char *path, struct input_file *out, struct error *err);
/* If the path now names another file (a copy), reads from that one from now on, with the same
 * descriptor. A deleted file continues to be read. Called while nobody reads it. Returns -1 like
 * input_file_open. */
int input_file_refresh(const struct input_file *file, struct error *err);
/* Accepts a zeroed one. */
void input_file_finish(struct input_file *file);

/* Reads [offset, offset + bytes), which lies inside the file as it was opened (CHECKed). Messages
 * name `what` ("tensor 'x'"); NULL means the whole file. ERROR_MODEL when the file has become
 * shorter, ERROR_IO when the system cannot read it. */
int input_file_read(const struct input_file *file, uint64_t offset, size_t bytes, void *dst,
                    const char *what, struct error *err);

/* Reads the whole file into memory that the caller frees, followed by a NUL; NULL on failure. A
 * file of more than max_bytes is ERROR_MODEL. */
char *input_file_read_all(const char *path, size_t max_bytes, size_t *out_length,
                          struct error *err);

#endif
