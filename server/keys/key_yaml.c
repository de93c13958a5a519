/* Read through libyaml's event interface, as the configuration file is: what else YAML can express
 * (aliases, deeper nesting, several documents) is refused with its line. */
#include "server/keys/key_yaml.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; YAML_NO_EVENT: none */
    const char *path;
    struct key_file *file;
    struct error *err;
};

static int refuse(struct reader *reader, size_t line, const char *what) {
    return error_set(reader->err, ERROR_CONFIG, "api-key-file %.200s line %zu: %s", reader->path,
                     line, what);
}

static size_t line_of(const struct reader *reader) {
    return reader->event.start_mark.line + 1;
}

static int refuse_here(struct reader *reader, const char *what) {
    return refuse(reader, line_of(reader), what);
}

/* Moves on to the next event. */
static int next(struct reader *reader) {
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event) == 1)
        return 0;
    const char *problem = reader->parser.problem;
    memset(&reader->event, 0, sizeof(reader->event));
    return refuse(reader, reader->parser.problem_mark.line + 1,
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
    return entry->num_models > 0 ? 0 : refuse(reader, line, what);
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
            return refuse(reader, line, "name is that of another key of the file");
        if (memcmp(&other->hash, &last->hash, sizeof(last->hash)) == 0)
            return refuse(reader, line, "hash is that of another key of the file");
    }
    return 0;
}

/* The current event begins an item of the list. */
static int read_key(struct reader *reader) {
    size_t line = line_of(reader);
    char what[KEY_WHAT_BYTES];
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return refuse(reader, line, "a key must be a map of fields: name, hash, ...");
    if (reader->file->num_keys == KEY_FILE_MAX_KEYS)
        return refuse(reader, line, "there are more than 1024 keys");
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
        return refuse(reader, line, what);
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

int key_yaml_read(const char *path, const char *text, size_t length, struct key_file *file,
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
