#include "models/files/input_file.h"

#include "config/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel reads at most some 2 GiB at once. */
#define MAX_READ_BYTES ((size_t)1 << 30)

/* O_NONBLOCK: opening a FIFO nobody writes to must not hang; it means nothing for a regular file.
 */
static int open_for_reading(const char *path) {
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static int check_regular(const char *path, const struct stat *st, struct error *err) {
    if (S_ISDIR(st->st_mode))
        return error_set(err, ERROR_MODEL, "%s: is a directory; a file is expected", path);
    if (!S_ISREG(st->st_mode))
        return error_set(err, ERROR_MODEL, "%s: is not a regular file", path);
    if (st->st_size == 0)
        return error_set(err, ERROR_MODEL, "%s: is empty", path);
    return 0;
}

static int find_bytes(const char *path, int fd, uint64_t *out, struct error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set(err, ERROR_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (check_regular(path, &st, err) != 0)
        return -1;
    *out = (uint64_t)st.st_size;
    return 0;
}

int input_file_open(const char *path, struct input_file *out, struct error *err) {
    struct input_file file = {.fd = open_for_reading(path)};
    if (file.fd < 0)
        return error_set(err, ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    int status = find_bytes(path, file.fd, &file.bytes, err);
    if (status == 0 && (file.path = strdup(path)) == NULL)
        status = error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    if (status != 0) {
        close(file.fd);
        return -1;
    }
    *out = file;
    return 0;
}

void input_file_finish(struct input_file *file) {
    if (file->path == NULL)
        return;
    close(file->fd);
    free(file->path);
    *file = (struct input_file){0};
}

static int refuse_end(const struct input_file *file, uint64_t at, const char *what,
                      struct error *err) {
    return error_set(err, ERROR_MODEL,
                     "%s: %s%sthe file ended at byte %" PRIu64 " of %" PRIu64
                     ": it was truncated while it was read",
                     file->path, what != NULL ? what : "", what != NULL ? ": " : "", at,
                     file->bytes);
}

static int refuse_read(const struct input_file *file, uint64_t at, const char *what,
                       struct error *err) {
    return error_set(err, ERROR_IO, "%s: %s%scannot read at byte %" PRIu64 ": %s", file->path,
                     what != NULL ? what : "", what != NULL ? ": " : "", at, strerror(errno));
}

int input_file_read(const struct input_file *file, uint64_t offset, size_t bytes, void *dst,
                    const char *what, struct error *err) {
    CHECK(offset <= file->bytes && bytes <= file->bytes - offset);
    uint8_t *at = dst;
    while (bytes > 0) {
        size_t piece = bytes < MAX_READ_BYTES ? bytes : MAX_READ_BYTES;
        ssize_t count = pread(file->fd, at, piece, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return refuse_read(file, offset, what, err);
        if (count == 0)
            return refuse_end(file, offset, what, err);
        at += count;
        offset += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return 0;
}

static char *read_all(const struct input_file *file, size_t max_bytes, struct error *err) {
    if (file->bytes > max_bytes) {
        error_set(err, ERROR_MODEL, "%s: has %" PRIu64 " bytes (at most %zu)", file->path,
                  file->bytes, max_bytes);
        return NULL;
    }
    size_t bytes = (size_t)file->bytes;
    char *data = malloc(bytes + 1);
    if (data == NULL) {
        error_set(err, ERROR_MEMORY, "%s: no memory for its %zu bytes", file->path, bytes);
        return NULL;
    }
    if (input_file_read(file, 0, bytes, data, NULL, err) != 0) {
        free(data);
        return NULL;
    }
    data[bytes] = '\0';
    return data;
}

char *input_file_read_all(const char *path, size_t max_bytes, size_t *out_length,
                          struct error *err) {
    CHECK(max_bytes < SIZE_MAX);
    struct input_file file;
    if (input_file_open(path, &file, err) != 0)
        return NULL;
    char *data = read_all(&file, max_bytes, err);
    if (data != NULL)
        *out_length = (size_t)file.bytes;
    input_file_finish(&file);
    return data;
}
