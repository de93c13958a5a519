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

bool input_file_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool input_file_is_missing(const char *path) {
    return access(path, F_OK) != 0 && errno == ENOENT;
}

int input_file_join_path(const char *folder, const char *name, char out[static PATH_MAX],
                         struct error *err) {
    size_t length = strlen(folder), name_length = strlen(name);
    while (length > 0 && folder[length - 1] == '/')
        length--;
    if (length + 1 + name_length >= PATH_MAX)
        return error_set(err, ERROR_MODEL, "%.64s...: the path is too long", folder);
    memcpy(out, folder, length);
    out[length] = '/';
    memcpy(out + length + 1, name, name_length + 1);
    return 0;
}

int input_file_open(const char *path, struct input_file *out, struct error *err) {
    int fd;
    do { /* O_NONBLOCK: opening a FIFO that nobody writes to must not hang */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    char *copy = NULL;
    if (fstat(fd, &st) != 0)
        error_set(err, ERROR_IO, "%s: cannot stat: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode))
        error_set(err, ERROR_MODEL, "%s: is a directory; a file is expected", path);
    else if (!S_ISREG(st.st_mode))
        error_set(err, ERROR_MODEL, "%s: is not a regular file", path);
    else if (st.st_size == 0)
        error_set(err, ERROR_MODEL, "%s: is empty", path);
    else if ((copy = strdup(path)) == NULL)
        error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    if (copy == NULL) {
        close(fd);
        return -1;
    }
    *out = (struct input_file){.path = copy, .fd = fd, .bytes = (uint64_t)st.st_size};
    return 0;
}

int input_file_refresh(const struct input_file *file, struct error *err) {
    struct stat there, opened;
    struct input_file now;
    if (stat(file->path, &there) != 0 || fstat(file->fd, &opened) != 0 ||
        (there.st_dev == opened.st_dev && there.st_ino == opened.st_ino))
        return 0;
    if (input_file_open(file->path, &now, err) != 0)
        return -1;
    int status = dup3(now.fd, file->fd, O_CLOEXEC);
    if (status < 0)
        error_set(err, ERROR_IO, "%s: cannot open again: %s", file->path, strerror(errno));
    input_file_finish(&now);
    return status < 0 ? -1 : 0;
}

void input_file_finish(struct input_file *file) {
    if (file->path == NULL)
        return;
    close(file->fd);
    free(file->path);
    *file = (struct input_file){0};
}

int input_file_read(const struct input_file *file, uint64_t offset, size_t bytes, void *dst,
                    const char *what, struct error *err) {
    CHECK(offset <= file->bytes && bytes <= file->bytes - offset);
    const char *prefix = what != NULL ? what : "", *colon = what != NULL ? ": " : "";
    uint8_t *at = dst;
    while (bytes > 0) {
        size_t count_max = bytes < MAX_READ_BYTES ? bytes : MAX_READ_BYTES;
        ssize_t count = pread(file->fd, at, count_max, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return error_set(err, ERROR_IO, "%s: %s%scannot read at byte %" PRIu64 ": %s",
                             file->path, prefix, colon, offset, strerror(errno));
        if (count == 0)
            return error_set(err, ERROR_MODEL,
                             "%s: %s%sthe file ended at byte %" PRIu64 " of %" PRIu64
                             ": it was truncated while it was read",
                             file->path, prefix, colon, offset, file->bytes);
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
