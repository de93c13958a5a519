#include "server/keys/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* --- YAML --- */

/* Read through libyaml's event interface, as the configuration file is: what else YAML can express
 * (aliases, deeper nesting, several documents) is refused with its line. */

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; YAML_NO_EVENT: none */
    const char *path;
    struct key_file *file;
    struct error *err;
};

static int refuse_at(struct reader *reader, size_t line, const char *what) {
    return error_set(reader->err, ERROR_CONFIG, "api-key-file %.200s line %zu: %s", reader->path,
                     line, what);
}

static size_t line_of(const struct reader *reader) {
    return reader->event.start_mark.line + 1;
}

static int refuse_here(struct reader *reader, const char *what) {
    return refuse_at(reader, line_of(reader), what);
}

/* Moves on to the next event. */
static int next(struct reader *reader) {
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event) == 1)
        return 0;
    const char *problem = reader->parser.problem;
    memset(&reader->event, 0, sizeof(reader->event));
    return refuse_at(reader, reader->parser.problem_mark.line + 1,
                     problem != NULL ? problem : "is not valid YAML");
}

static int expect(struct reader *reader, yaml_event_type_t type, const char *what) {
    if (next(reader) != 0)
        return -1;
    return reader->event.type == type ? 0 : refuse_here(reader, what);
}

/* Sets a field of the entry to the current scalar. */
static int use_value(struct reader *reader, struct key_entry *entry, int field) {
    char what[KEY_WHAT_BYTES];
    const char *text = (const char *)reader->event.data.scalar.value;
    if (reader->event.type != YAML_SCALAR_EVENT ||
        strlen(text) != reader->event.data.scalar.length) {
        snprintf(what, sizeof(what), "%s takes %s", key_field_name(field),
                 key_field_is_list(field) ? "a list of plain values" : "one plain value");
        return refuse_here(reader, what);
    }
    return key_entry_set(entry, field, text, what) == 0 ? 0 : refuse_here(reader, what);
}

static int read_value(struct reader *reader, struct key_entry *entry, int field) {
    if (next(reader) != 0)
        return -1;
    bool is_list = key_field_is_list(field) && reader->event.type == YAML_SEQUENCE_START_EVENT;
    if (!is_list)
        return use_value(reader, entry, field);
    size_t line = line_of(reader);
    while (next(reader) == 0 && reader->event.type != YAML_SEQUENCE_END_EVENT)
        if (use_value(reader, entry, field) != 0)
            return -1;
    if (reader->event.type != YAML_SEQUENCE_END_EVENT)
        return -1;
    char what[KEY_WHAT_BYTES];
    snprintf(what, sizeof(what), "%s is an empty list", key_field_name(field));
    return entry->num_models > 0 ? 0 : refuse_at(reader, line, what);
}

static int read_field(struct reader *reader, struct key_entry *entry) {
    const char *name = (const char *)reader->event.data.scalar.value;
    int field = reader->event.type == YAML_SCALAR_EVENT
                    ? key_field_find(name, reader->event.data.scalar.length)
                    : -1;
    char what[KEY_WHAT_BYTES + 64], list[KEY_WHAT_BYTES];
    if (field < 0) {
        key_field_list(list);
        snprintf(what, sizeof(what), "unknown field; a key may have %s", list);
        return refuse_here(reader, what);
    }
    if ((entry->given >> field & 1) != 0) {
        snprintf(what, sizeof(what), "%s is given twice", key_field_name(field));
        return refuse_here(reader, what);
    }
    return read_value(reader, entry, field);
}

/* Compares the last key with all before it. */
static int check_unique(struct reader *reader, size_t line) {
    const struct key_file *file = reader->file;
    const struct key_entry *last = &file->keys[file->num_keys - 1];
    for (const struct key_entry *other = file->keys; other < last; other++) {
        if (strcmp(other->name, last->name) == 0)
            return refuse_at(reader, line, "name is that of another key of the file");
        if (memcmp(&other->hash, &last->hash, sizeof(last->hash)) == 0)
            return refuse_at(reader, line, "hash is that of another key of the file");
    }
    return 0;
}

/* The current event begins an item of the list. */
static int read_key(struct reader *reader) {
    size_t line = line_of(reader);
    char what[KEY_WHAT_BYTES];
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return refuse_at(reader, line, "a key must be a map of fields: name, hash, ...");
    if (reader->file->num_keys == KEY_FILE_MAX_KEYS)
        return refuse_at(reader, line, "there are more than 1024 keys");
    struct key_entry *entry = &reader->file->keys[reader->file->num_keys++];
    key_entry_init(entry);
    for (;;) {
        if (next(reader) != 0)
            return -1;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            break;
        if (read_field(reader, entry) != 0)
            return -1;
    }
    if (key_entry_check(entry, what) != 0)
        return refuse_at(reader, line, what);
    return check_unique(reader, line);
}

static int read_list(struct reader *reader) {
    if (expect(reader, YAML_SEQUENCE_START_EVENT, "keys must be a list of keys") != 0)
        return -1;
    for (;;) {
        if (next(reader) != 0)
            return -1;
        if (reader->event.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        if (read_key(reader) != 0)
            return -1;
    }
}

static int read_document(struct reader *reader) {
    static const char shape[] = "must be one map with the list `keys`";
    if (expect(reader, YAML_STREAM_START_EVENT, shape) != 0 ||
        expect(reader, YAML_DOCUMENT_START_EVENT, shape) != 0 ||
        expect(reader, YAML_MAPPING_START_EVENT, shape) != 0 ||
        expect(reader, YAML_SCALAR_EVENT, shape) != 0)
        return -1;
    if (strcmp((const char *)reader->event.data.scalar.value, "keys") != 0)
        return refuse_here(reader, shape);
    if (read_list(reader) != 0)
        return -1;
    if (expect(reader, YAML_MAPPING_END_EVENT, shape) != 0 ||
        expect(reader, YAML_DOCUMENT_END_EVENT, shape) != 0)
        return -1;
    return expect(reader, YAML_STREAM_END_EVENT, "must be a single document");
}

/* Adds the keys of the text to file->keys, which has room for KEY_FILE_MAX_KEYS. ERROR_CONFIG as
 * key_file_read; what was added before an error stays the caller's. */
static int read_yaml(const char *path, const char *text, size_t length, struct key_file *file,
                     struct error *err) {
    struct reader reader = {.path = path, .file = file, .err = err};
    if (yaml_parser_initialize(&reader.parser) != 1)
        return error_set(err, ERROR_MEMORY, "api-key-file %.200s: no memory to read it", path);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, length);
    int rc = read_document(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return rc;
}

/* --- Files --- */

/* The file's contents, followed by a NUL. */
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
    int rc = is_yaml ? read_yaml(path, text->data, text->length, file, err)
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
