#include "server/telemetry/record_file.h"

#include "config/base/log.h"
#include "engine/record/record_header.h"
#include "server/process/outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define GATHER_MS 200
#define CLOSE_MS 5000

struct record_file {
    char path[PATH_MAX], old_path[PATH_MAX];
    struct outbox *outbox;
    int fd;         /* the outbox's thread's, once it runs */
    bool has_begun; /* likewise */
    bool has_failed;
};

/* --- The outbox's thread --- */

/* Locked, so that another process does not take it for an old one. */
static int make(const struct record_file *file) {
    int fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

static int begin_next(struct record_file *file) {
    close(file->fd);
    file->fd = -1;
    if (rename(file->path, file->old_path) != 0)
        return -1;
    file->fd = make(file);
    return file->fd >= 0 ? 0 : -1;
}

static int write_all(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written < 0 && errno != EINTR)
            return -1;
        if (written > 0) {
            data += written;
            length -= (size_t)written;
        }
    }
    return 0;
}

/* Up to the next header. */
static size_t run_of(const char *data, size_t length) {
    size_t bytes = record_frame_bytes(data);
    while (bytes < length && data[bytes] != RECORD_HEADER)
        bytes += record_frame_bytes(data + bytes);
    return bytes;
}

static int32_t deliver(void *context, const struct byte_buffer *items, int32_t num_items) {
    struct record_file *file = context;
    const char *data = items->data;
    for (size_t left = items->length; left > 0 && !file->has_failed;) {
        size_t length = run_of(data, left);
        bool begins = data[0] == RECORD_HEADER;
        file->has_failed = (begins && file->has_begun && begin_next(file) != 0) ||
                           write_all(file->fd, data, length) != 0;
        file->has_begun = true;
        data += length;
        left -= length;
        if (file->has_failed)
            log_error("record %.400s: cannot be written: %s", file->path, strerror(errno));
    }
    return file->has_failed ? num_items : 0;
}

/* --- The engine's --- */

int record_file_write(void *context, bool begins, const void *data, size_t length) {
    struct record_file *file = context;
    outbox_put(file->outbox, data, length);
    return outbox_num_lost(file->outbox) == 0 ? 0 : -1;
}

/* --- Opening and closing --- */

static bool is_recording(const char *path) {
    struct record_frames frames = {.file = fopen(path, "re")};
    enum record_kind kind;
    struct record_input in;
    struct error err;
    if (frames.file == NULL)
        return false;
    bool is_one = record_frames_next(&frames, &kind, &in, &err) > 0 && record_header_is_one(&in);
    record_frames_finish(&frames);
    fclose(frames.file);
    return is_one;
}

/* Returns whether a process still writes it. */
static bool is_written(const char *path) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool is_locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return is_locked;
}

/* Returns 1 for a recording, or an empty file; 0 where nothing is; -1 for anything else. */
static int look_at(const char *path, struct error *err) {
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT
                   ? 0
                   : error_set(err, ERROR_CONFIG, "record %.400s: %s", path, strerror(errno));
    if (S_ISREG(status.st_mode) && (status.st_size == 0 || is_recording(path)))
        return 1;
    return error_set(err, ERROR_CONFIG, "record %.400s: exists and is not a recording", path);
}

/* One that received nothing is not a loss, and does not replace one with contents. */
static int put_aside(const struct record_file *file) {
    struct stat status;
    if (lstat(file->path, &status) == 0 && status.st_size == 0)
        return unlink(file->path);
    return rename(file->path, file->old_path);
}

/* Sets the paths. Returns 1 if there is a file to put aside, 0 if not, -1 on failure. */
static int check_paths(struct record_file *file, const char *path, struct error *err) {
    if (snprintf(file->path, sizeof(file->path), "%s", path) >= (int)sizeof(file->path) ||
        snprintf(file->old_path, sizeof(file->old_path), "%s.1", path) >=
            (int)sizeof(file->old_path))
        return error_set(err, ERROR_CONFIG, "record %.400s: is too long", path);
    int found = look_at(file->path, err);
    if (found < 0 || look_at(file->old_path, err) < 0)
        return -1;
    if (found == 1 && is_written(file->path))
        return error_set(err, ERROR_CONFIG, "record %.400s: another process is writing to it",
                         path);
    return found;
}

static int open_path(struct record_file *file, const char *path, struct error *err) {
    int found = check_paths(file, path, err);
    if (found < 0)
        return -1;
    if ((found == 0 || put_aside(file) == 0) && (file->fd = make(file)) >= 0)
        return 0;
    return error_set(err, ERROR_CONFIG, "record %.400s: %s", path, strerror(errno));
}

int record_file_check(const char *path, struct error *err) {
    struct record_file file;
    if (check_paths(&file, path, err) < 0)
        return -1;
    char *slash = strrchr(file.old_path, '/');
    if (slash != NULL)
        slash[1] = '\0';
    return access(slash != NULL ? file.old_path : ".", W_OK | X_OK) == 0
               ? 0
               : error_set(err, ERROR_CONFIG, "record %.400s: %s", path, strerror(errno));
}

static void free_file(struct record_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

int record_file_open(const char *path, struct record_file **out, struct error *err) {
    struct record_file *file = calloc(1, sizeof(*file));
    if (file == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the recording");
    file->fd = -1;
    const struct outbox_config config = {.name = "quire-record",
                                         .max_bytes = RECORD_FILE_MAX_BYTES / 2,
                                         .max_items = INT32_MAX,
                                         .gather_ms = GATHER_MS,
                                         .deliver = deliver,
                                         .context = file};
    if (open_path(file, path, err) != 0 || outbox_create(&config, &file->outbox, err) != 0) {
        free_file(file);
        return -1;
    }
    *out = file;
    return 0;
}

/* A thread that does not end in time keeps the file, and the process ends with it. */
void record_file_close(struct record_file *file) {
    if (file != NULL && outbox_destroy(file->outbox, CLOSE_MS))
        free_file(file);
}
