#include "server/keys/key_file.h"

#include "server/keys/key_yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is read, with a NUL behind it. */
struct file_text {
    char *data;
    size_t length;
};

static int refuse(const char *path, const char *what, struct error *err) {
    return error_set(err, ERROR_CONFIG, "api-key-file %.200s: %s", path, what);
}

static int refuse_line(const char *path, int line, const char *what, struct error *err) {
    return error_set(err, ERROR_CONFIG, "api-key-file %.200s line %d: %s", path, line, what);
}

/* Reads up to KEY_FILE_MAX_BYTES + 1 bytes and adds a NUL. */
static int read_text(int fd, struct file_text *text) {
    text->data = malloc(KEY_FILE_MAX_BYTES + 2);
    if (!text->data)
        return -1;
    for (;;) {
        size_t room = KEY_FILE_MAX_BYTES + 1 - text->length;
        ssize_t count = read(fd, text->data + text->length, room);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        text->length += (size_t)count;
        text->data[text->length] = '\0';
        if (count == 0 || text->length > KEY_FILE_MAX_BYTES)
            return 0;
    }
}

/* O_NONBLOCK: opening a FIFO nobody writes to must not hang. */
static int read_file(const char *path, struct file_text *text, bool *out_exposed,
                     struct error *err) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse(path, strerror(errno), err);
    int rc = 0;
    if (fstat(fd, &status) != 0)
        rc = refuse(path, strerror(errno), err);
    else if (!S_ISREG(status.st_mode))
        rc = refuse(path, "is not a regular file", err);
    else if (read_text(fd, text) != 0)
        rc = refuse(path, strerror(errno), err);
    else if (text->length > KEY_FILE_MAX_BYTES)
        rc = refuse(path, "is larger than 1 MiB", err);
    *out_exposed = rc == 0 && (status.st_mode & (S_IRWXO | S_IWGRP)) != 0;
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
    struct key_entry *entry = &file->keys[file->num_keys++];
    key_entry_init(entry);
    return auth_hash_key(text, &entry->hash, err);
}

static int split(const char *path, const struct file_text *text, struct key_file *file,
                 struct error *err) {
    char *from = text->data, *stop = text->data + text->length;
    for (int line = 1; from < stop; line++) {
        char *end = memchr(from, '\n', (size_t)(stop - from));
        if (!end)
            end = stop;
        if (take_line(path, line, from, end, file, err) != 0)
            return -1;
        from = end + 1;
    }
    return 0;
}

/* Returns whether the first line that says something is the word, alone or before a blank. */
static bool begins_with(const char *text, const char *word) {
    while (is_blank(*text) || *text == '\n' || *text == '#')
        text += *text == '#' ? strcspn(text, "\n") : 1;
    if (strncmp(text, word, strlen(word)) != 0)
        return false;
    char next = text[strlen(word)];
    return is_blank(next) || next == '\n' || next == '\0';
}

static int parse(const char *path, const struct file_text *text, struct key_file *file,
                 struct error *err) {
    file->keys = calloc(KEY_FILE_MAX_KEYS, sizeof(*file->keys));
    if (file->keys == NULL)
        return error_set(err, ERROR_MEMORY, "api-key-file %.200s: no memory to read it", path);
    bool is_yaml = begins_with(text->data, "keys:") || begins_with(text->data, "---");
    int rc = is_yaml ? key_yaml_read(path, text->data, text->length, file, err)
                     : split(path, text, file, err);
    if (rc == 0 && file->num_keys == 0)
        rc = refuse(path, "holds no key", err);
    return rc;
}

int key_file_parse(const char *path, char *data, size_t length, struct key_file *out,
                   struct error *err) {
    struct key_file file = {0};
    struct file_text text = {data, length};
    int rc = parse(path, &text, &file, err);
    explicit_bzero(data, length);
    if (rc == 0)
        *out = file;
    else
        key_file_finish(&file);
    return rc;
}

int key_file_read(const char *path, struct key_file *out, struct error *err) {
    struct file_text text = {0};
    bool is_exposed = false;
    int rc = read_file(path, &text, &is_exposed, err);
    if (rc == 0)
        rc = key_file_parse(path, text.data, text.length, out, err);
    else if (text.data != NULL)
        explicit_bzero(text.data, text.length); /* it may hold keys all the same */
    if (rc == 0)
        out->is_exposed = is_exposed;
    free(text.data);
    return rc;
}

void key_file_finish(struct key_file *file) {
    for (int i = 0; i < file->num_keys; i++)
        key_entry_finish(&file->keys[i]);
    free(file->keys);
    *file = (struct key_file){0};
}
