#include "server/client/chat/chat_history.h"

#include "config/base/byte_buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes the folders above path, as far as they are missing. */
static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool is_there = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!is_there)
            return false;
    }
    return true;
}

bool chat_history_path(char *out, size_t capacity) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length;
    if (state != NULL && state[0] == '/') /* another one is to be ignored (XDG base directories) */
        length = snprintf(out, capacity, "%s/quire/chat_history", state);
    else if (home != NULL && home[0] == '/')
        length = snprintf(out, capacity, "%s/.local/state/quire/chat_history", home);
    else
        return false;
    return length > 0 && (size_t)length < capacity && make_folders(out);
}

/* Reads the last max_bytes of the file, from the begin of a line. */
static void read_end(const char *path, size_t max_bytes, struct byte_buffer *out,
                     bool *out_is_cut) {
    char data[65536];
    ssize_t count;
    struct stat status;
    *out_is_cut = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        *out_is_cut = status.st_size > (off_t)CHAT_HISTORY_MAX_BYTES;
        if (*out_is_cut)
            lseek(fd, status.st_size - (off_t)max_bytes, SEEK_SET);
        out->max_length = CHAT_HISTORY_MAX_BYTES;
        while (!out->failed && (count = read(fd, data, sizeof(data))) > 0)
            byte_buffer_append(out, data, (size_t)count);
    }
    close(fd);
    const char *first = *out_is_cut ? memchr(out->data, '\n', out->length) : NULL;
    if (first != NULL)
        byte_buffer_consume(out, (size_t)(first + 1 - out->data));
}

static void write_file(const char *path, int flags, const char *data, size_t length) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    if (fd < 0)
        return;
    ssize_t written = write(fd, data, length); /* one call: entries of others are not torn */
    (void)written;
    close(fd);
}

/* Decodes a line in its place. */
static void decode(char *line) {
    char *to = line;
    for (const char *from = line; *from != '\0'; from++) {
        bool is_escaped = *from == '\\' && from[1] != '\0';
        from += is_escaped;
        *to++ = is_escaped && *from == 'n' ? '\n' : *from;
    }
    *to = '\0';
}

void chat_history_load(const char *path, void (*take)(void *context, const char *text),
                       void *context) {
    bool is_cut;
    struct byte_buffer text = {0};
    read_end(path, CHAT_HISTORY_MAX_BYTES / 2, &text, &is_cut);
    if (is_cut)
        write_file(path, O_TRUNC, text.data, text.length);
    text.max_length = 0;
    byte_buffer_append(&text, "", 1);
    char *line = text.failed ? NULL : text.data, *end;
    for (; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        decode(line);
        if (line[0] != '\0')
            take(context, line);
    }
    byte_buffer_finish(&text);
}

void chat_history_add(const char *path, const char *text) {
    struct byte_buffer line = {0};
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            byte_buffer_append_text(&line, "\\n");
        else if (*text == '\\')
            byte_buffer_append_text(&line, "\\\\");
        else
            byte_buffer_append(&line, text, 1);
    }
    byte_buffer_append_text(&line, "\n");
    if (!line.failed)
        write_file(path, O_APPEND, line.data, line.length);
    byte_buffer_finish(&line);
}
