#include "server/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const char *path, const char *what, struct error *err) {
    return error_set(err, ERROR_CONFIG, "api-key-file %.200s: %s", path, what);
}

static int refuse_line(const char *path, int line, const char *what, struct error *err) {
    return error_set(err, ERROR_CONFIG, "api-key-file %.200s line %d: %s", path, line, what);
}

/* Reads up to KEY_FILE_MAX_BYTES + 1 bytes and a NUL into file->text. */
static int read_text(int fd, struct key_file *file) {
    file->text = malloc(KEY_FILE_MAX_BYTES + 2);
    if (!file->text)
        return -1;
    for (;;) {
        size_t room = KEY_FILE_MAX_BYTES + 1 - file->text_bytes;
        ssize_t count = read(fd, file->text + file->text_bytes, room);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        file->text_bytes += (size_t)count;
        file->text[file->text_bytes] = '\0';
        if (count == 0 || file->text_bytes > KEY_FILE_MAX_BYTES)
            return 0;
    }
}

/* O_NONBLOCK: opening a FIFO nobody writes to must not hang. */
static int read_file(const char *path, struct key_file *file, struct error *err) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse(path, strerror(errno), err);
    int rc = 0;
    if (fstat(fd, &status) != 0)
        rc = refuse(path, strerror(errno), err);
    else if (!S_ISREG(status.st_mode))
        rc = refuse(path, "is not a regular file", err);
    else if (read_text(fd, file) != 0)
        rc = refuse(path, strerror(errno), err);
    else if (file->text_bytes > KEY_FILE_MAX_BYTES)
        rc = refuse(path, "is larger than 1 MiB", err);
    file->is_exposed = rc == 0 && (status.st_mode & (S_IRWXO | S_IWGRP)) != 0;
    close(fd);
    return rc;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_visible(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return false;
    return true;
}

/* Reads the line from text up to end, whose byte may be overwritten. */
static int take_line(const char *path, int line, char *text, char *end, struct key_file *file,
                     struct error *err) {
    while (text < end && is_blank(*text))
        text++;
    while (end > text && is_blank(end[-1]))
        end--;
    size_t length = (size_t)(end - text);
    if (length == 0 || *text == '#')
        return 0;
    if (length > KEY_FILE_MAX_KEY_BYTES)
        return refuse_line(path, line, "a key has at most 255 bytes", err);
    if (!is_visible(text, length))
        return refuse_line(path, line, "a key holds only visible ASCII characters", err);
    if (file->num_keys == KEY_FILE_MAX_KEYS)
        return refuse_line(path, line, "there are more than 1024 keys", err);
    *end = '\0';
    file->keys[file->num_keys++] = text;
    return 0;
}

static int split(const char *path, struct key_file *file, struct error *err) {
    char *text = file->text, *stop = file->text + file->text_bytes;
    for (int line = 1; text < stop; line++) {
        char *end = memchr(text, '\n', (size_t)(stop - text));
        if (!end)
            end = stop;
        if (take_line(path, line, text, end, file, err) != 0)
            return -1;
        text = end + 1;
    }
    return file->num_keys > 0 ? 0 : refuse(path, "holds no key", err);
}

int key_file_read(const char *path, struct key_file *out, struct error *err) {
    struct key_file file = {0};
    if (read_file(path, &file, err) != 0 || split(path, &file, err) != 0) {
        key_file_finish(&file);
        return -1;
    }
    *out = file;
    return 0;
}

void key_file_finish(struct key_file *file) {
    if (file->text)
        explicit_bzero(file->text, file->text_bytes);
    free(file->text);
    *file = (struct key_file){0};
}
