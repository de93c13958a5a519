/* The configuration file: one flat YAML map of option names to scalars, or to sequences of scalars
 * for options that take several, or to a map of scalars for those that take JSON. Under `models`,
 * and only there, is a map of names to maps of that kind, or a sequence like that of `model`. Read
 * through libyaml's event interface; anything else YAML can express (deeper nesting, anchors,
 * several documents) is refused with its line. */
#include "config/options_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#define MAX_FILE_BYTES ((size_t)1 << 20)
#define MAX_JSON_BYTES 4096
#define MAX_NAME_BYTES 128 /* of a model: a hub's, with a quantisation, is shorter */
#define MODELS -2          /* in place of an option */

struct file_reader {
    yaml_parser_t parser;
    const char *path;
    options_file_set set;
    void *context;
    struct error *err;
    const char *model;  /* whose settings are read; NULL: the server's options */
    size_t *seen_line;  /* where each of NUM_SETTINGS was set; 0: not yet */
    size_t models_line; /* the same of `models` */
};

static int file_error(struct file_reader *reader, size_t line, const char *what) {
    bool in_model = reader->model != NULL;
    return error_set(reader->err, ERROR_CONFIG, "configuration file %.200s line %zu: %s%s%s%.200s",
                     reader->path, line, in_model ? "model " : "", in_model ? reader->model : "",
                     in_model ? ": " : "", what);
}

static struct option_origin origin_of(const struct file_reader *reader, size_t line) {
    return (struct option_origin){OPTION_LEVEL_FILE, reader->path, line, reader->model};
}

static int set_value(struct file_reader *reader, int option, const char *text, size_t line) {
    struct option_origin origin = origin_of(reader, line);
    return reader->set(reader->context, option, text, &origin, reader->err);
}

/* The caller deletes *event after success. */
static int next_event(struct file_reader *reader, yaml_event_t *event) {
    if (yaml_parser_parse(&reader->parser, event) == 1)
        return 0;
    const char *problem = reader->parser.problem;
    return file_error(reader, reader->parser.problem_mark.line + 1,
                      problem != NULL ? problem : "is not valid YAML");
}

static const char *scalar_text(const yaml_event_t *event) {
    return (const char *)event->data.scalar.value;
}

static int use_scalar(struct file_reader *reader, int option, const yaml_event_t *event) {
    size_t line = event->start_mark.line + 1;
    if (strlen(scalar_text(event)) != event->data.scalar.length)
        return file_error(reader, line, "a value holds a NUL character");
    return set_value(reader, option, scalar_text(event), line);
}

/* The items after '[' or '-' up to the sequence's end. */
static int read_sequence(struct file_reader *reader, const struct option_spec *spec, int option,
                         size_t line) {
    bool is_repeated = (spec->flags & OPTION_REPEATED) != 0 && reader->model == NULL;
    if (spec->type != OPTION_LIST && !is_repeated) {
        struct option_origin origin = origin_of(reader, line);
        return options_error(spec, NULL, &origin, reader->err, "takes one value, not a list");
    }
    for (;;) {
        yaml_event_t event;
        if (next_event(reader, &event) != 0)
            return -1;
        yaml_event_type_t type = event.type;
        int rc = 0;
        if (type == YAML_SCALAR_EVENT)
            rc = use_scalar(reader, option, &event);
        else if (type != YAML_SEQUENCE_END_EVENT)
            rc = file_error(reader, event.start_mark.line + 1, "a list may hold only plain values");
        yaml_event_delete(&event);
        if (rc != 0 || type == YAML_SEQUENCE_END_EVENT)
            return rc;
    }
}

static bool is_plain(const yaml_event_t *event) {
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* YAML's numbers and words that are JSON's as well. */
static bool is_json_value(const char *text) {
    bool is_number = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');
    return (is_number && text[strspn(text, "0123456789+-.eE")] == '\0') ||
           strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strcmp(text, "null") == 0;
}

/* Appends the scalar to the JSON text in out, which has MAX_JSON_BYTES; false where it is full. */
static bool append_json(const char *text, bool is_string, char *out) {
    size_t length = strlen(out);
    if (length + 2 * strlen(text) + sizeof("\"\":") > MAX_JSON_BYTES)
        return false;
    if (is_string)
        out[length++] = '"';
    for (; *text != '\0'; text++) {
        if (is_string && (*text == '"' || *text == '\\'))
            out[length++] = '\\';
        out[length++] = *text;
    }
    if (is_string)
        out[length++] = '"';
    out[length] = '\0';
    return true;
}

/* One key or value of a map. */
static int read_json_item(struct file_reader *reader, const yaml_event_t *event, bool is_key,
                          char *out) {
    size_t line = event->start_mark.line + 1;
    if (event->type != YAML_SCALAR_EVENT)
        return file_error(reader, line, "a map may hold only plain values");
    if (strlen(scalar_text(event)) != event->data.scalar.length)
        return file_error(reader, line, "a value holds a NUL character");
    bool is_string = is_key || !is_plain(event) || !is_json_value(scalar_text(event));
    if (!append_json(scalar_text(event), is_string, out))
        return file_error(reader, line, "a map is too long");
    return 0;
}

/* The keys and values after '{' up to the map's end, as one JSON object. */
static int read_json(struct file_reader *reader, int option, size_t line) {
    char json[MAX_JSON_BYTES] = "{";
    for (int items = 0;; items++) {
        yaml_event_t event;
        if (next_event(reader, &event) != 0)
            return -1;
        bool ended = event.type == YAML_MAPPING_END_EVENT, is_key = items % 2 == 0;
        if (!ended && items > 0)
            strcat(json, is_key ? "," : ":");
        int rc = ended ? 0 : read_json_item(reader, &event, is_key, json);
        yaml_event_delete(&event);
        if (rc != 0)
            return -1;
        if (ended)
            break;
    }
    strcat(json, "}");
    return set_value(reader, option, json, line);
}

static int unknown_key(struct file_reader *reader, const yaml_event_t *event) {
    char name[80], what[200];
    size_t length = event->data.scalar.length;
    options_quote(scalar_text(event), length, name);
    const struct option_spec *near = options_suggest(scalar_text(event), length);
    if (near != NULL && reader->model != NULL && (near->flags & OPTION_PER_MODEL) == 0)
        near = NULL;
    const char *others =
        reader->model == NULL ? "" : "; docs/models.md lists what a model can have";
    snprintf(what, sizeof(what), "unknown option \"%s\"%s%s%s", name,
             near != NULL ? "; did you mean " : "", near != NULL ? near->name : others,
             near != NULL ? "?" : "");
    return file_error(reader, event->start_mark.line + 1, what);
}

static bool has_key(const yaml_event_t *event, const char *key) {
    return strcmp(scalar_text(event), key) == 0 && event->data.scalar.length == strlen(key);
}

/* Returns the option or setting of a key, MODELS, or -1. */
static int find_key(const struct file_reader *reader, const yaml_event_t *event) {
    if (reader->model == NULL && has_key(event, "models"))
        return MODELS;
    if (reader->model != NULL && has_key(event, "aliases"))
        return options_find("served-model-name", strlen("served-model-name"));
    for (int i = OPTIONS_MAX; reader->model != NULL && i < NUM_SETTINGS; i++)
        if (has_key(event, options_spec(i)->name))
            return i;
    return options_find(scalar_text(event), event->data.scalar.length);
}

/* Notes that the option is given in this line. */
static int see_option(struct file_reader *reader, int option, size_t line) {
    char what[160];
    const char *name = option == MODELS ? "models" : options_spec(option)->name;
    size_t *seen_line = option == MODELS ? &reader->models_line : &reader->seen_line[option];
    if (*seen_line != 0) {
        snprintf(what, sizeof(what), "option %s is given twice, first in line %zu", name,
                 *seen_line);
        return file_error(reader, line, what);
    }
    *seen_line = line;
    return 0;
}

/* Checks a key and stores the index of its option, or MODELS, in *out. */
static int read_key(struct file_reader *reader, const yaml_event_t *event, int *out) {
    size_t line = event->start_mark.line + 1;
    if (event->type != YAML_SCALAR_EVENT)
        return file_error(reader, line, "expected an option's name");
    int option = find_key(reader, event);
    if (option == -1)
        return unknown_key(reader, event);
    char what[160];
    const struct option_spec *spec = option == MODELS ? NULL : options_spec(option);
    if (spec != NULL && reader->model != NULL && (spec->flags & OPTION_PER_MODEL) == 0) {
        snprintf(what, sizeof(what),
                 "option %s is of the server, not of a model; docs/models.md lists what a model "
                 "can have",
                 spec->name);
        return file_error(reader, line, what);
    }
    if (spec != NULL && (spec->flags & OPTION_NOT_IN_FILE) != 0) {
        snprintf(what, sizeof(what), "option %s cannot be set in the file itself", spec->name);
        return file_error(reader, line, what);
    }
    *out = option;
    return see_option(reader, option, line);
}

static int read_value(struct file_reader *reader, int option) {
    const struct option_spec *spec = options_spec(option);
    yaml_event_t event;
    if (next_event(reader, &event) != 0)
        return -1;
    size_t line = event.start_mark.line + 1;
    int rc;
    if (event.type == YAML_SCALAR_EVENT) {
        rc = use_scalar(reader, option, &event);
    } else if (event.type == YAML_SEQUENCE_START_EVENT) {
        rc = read_sequence(reader, spec, option, line);
    } else if (event.type == YAML_MAPPING_START_EVENT && (spec->flags & OPTION_JSON) != 0) {
        rc = read_json(reader, option, line);
    } else {
        struct option_origin origin = origin_of(reader, line);
        rc = options_error(spec, NULL, &origin, reader->err,
                           spec->type == OPTION_LIST ? "takes a value or a list of values"
                                                     : "takes one plain value");
    }
    yaml_event_delete(&event);
    return rc;
}

static int read_models(struct file_reader *reader);

/* Key and value pairs up to the map's end. */
static int read_map(struct file_reader *reader) {
    for (;;) {
        yaml_event_t event;
        if (next_event(reader, &event) != 0)
            return -1;
        bool ended = event.type == YAML_MAPPING_END_EVENT;
        int option = -1;
        int rc = ended ? 0 : read_key(reader, &event, &option);
        yaml_event_delete(&event);
        if (rc != 0 || ended)
            return rc;
        if ((option == MODELS ? read_models(reader) : read_value(reader, option)) != 0)
            return -1;
    }
}

/* --- `models` --- */

static int check_model_name(struct file_reader *reader, const yaml_event_t *event) {
    size_t line = event->start_mark.line + 1;
    if (event->type != YAML_SCALAR_EVENT)
        return file_error(reader, line, "expected a model's name");
    const char *name = scalar_text(event);
    size_t length = event->data.scalar.length;
    if (length >= 1 && length <= MAX_NAME_BYTES &&
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@") ==
            length)
        return 0;
    char shown[80], what[200];
    options_quote(name, length, shown);
    snprintf(what, sizeof(what),
             "model \"%s\": a name has 1 to %d letters, digits and any of . _ - / : @", shown,
             MAX_NAME_BYTES);
    return file_error(reader, line, what);
}

/* The settings after a model's name. */
static int read_settings(struct file_reader *reader, const char *name, size_t line) {
    size_t seen_line[NUM_SETTINGS] = {0}, *seen_before = reader->seen_line;
    yaml_event_t event;
    reader->model = name;
    reader->seen_line = seen_line;
    int rc = set_value(reader, -1, NULL, line);
    if (rc == 0)
        rc = next_event(reader, &event);
    if (rc == 0) {
        rc = event.type == YAML_MAPPING_START_EVENT
                 ? read_map(reader)
                 : file_error(reader, event.start_mark.line + 1,
                              "takes a map of settings, as {model: PATH}");
        yaml_event_delete(&event);
    }
    reader->model = NULL;
    reader->seen_line = seen_before;
    return rc;
}

/* Names and settings up to the map's end. */
static int read_model_map(struct file_reader *reader) {
    for (;;) {
        yaml_event_t event;
        if (next_event(reader, &event) != 0)
            return -1;
        bool ended = event.type == YAML_MAPPING_END_EVENT;
        int rc = ended ? 0 : check_model_name(reader, &event);
        if (rc == 0 && !ended)
            rc = read_settings(reader, scalar_text(&event), event.start_mark.line + 1);
        yaml_event_delete(&event);
        if (rc != 0 || ended)
            return rc;
    }
}

static int read_models(struct file_reader *reader) {
    yaml_event_t event;
    int option = options_find("model", strlen("model"));
    if (next_event(reader, &event) != 0)
        return -1;
    size_t line = event.start_mark.line + 1;
    int rc;
    if (event.type == YAML_MAPPING_START_EVENT)
        rc = read_model_map(reader);
    else if (event.type == YAML_SEQUENCE_START_EVENT)
        rc = see_option(reader, option, line) != 0
                 ? -1
                 : read_sequence(reader, options_spec(option), option, line);
    else
        rc =
            file_error(reader, line, "models takes a map of names to settings, or a list of paths");
    yaml_event_delete(&event);
    return rc;
}

/* One document holding a map, or none at all. */
static int read_stream(struct file_reader *reader) {
    bool had_map = false;
    for (;;) {
        yaml_event_t event;
        if (next_event(reader, &event) != 0)
            return -1;
        yaml_event_type_t type = event.type;
        size_t line = event.start_mark.line + 1;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT)
            return 0;
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_END_EVENT)
            continue;
        if (had_map)
            return file_error(reader, line, "must be a single document");
        if (type == YAML_DOCUMENT_START_EVENT)
            continue;
        if (type != YAML_MAPPING_START_EVENT)
            return file_error(reader, line, "must be a flat map of option names to values");
        if (read_map(reader) != 0)
            return -1;
        had_map = true;
    }
}

/* Reads until capacity or the end; the number of bytes, or -1 with errno. */
static ssize_t read_all(int fd, char *data, size_t capacity) {
    size_t total = 0;
    while (total < capacity) {
        ssize_t got = read(fd, data + total, capacity - total);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        total += (size_t)got;
    }
    return (ssize_t)total;
}

/* The whole file in heap memory; NULL with err filled. */
static char *load_file(const char *path, size_t *out_length, struct error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *data = fd >= 0 ? malloc(MAX_FILE_BYTES + 1) : NULL;
    ssize_t length = data != NULL ? read_all(fd, data, MAX_FILE_BYTES + 1) : -1;
    if (length < 0)
        error_set(err, ERROR_CONFIG, "configuration file %.200s: cannot be read: %s", path,
                  strerror(errno));
    else if ((size_t)length > MAX_FILE_BYTES)
        error_set(err, ERROR_CONFIG, "configuration file %.200s: is larger than %zu bytes", path,
                  MAX_FILE_BYTES);
    if (fd >= 0)
        close(fd);
    if (length < 0 || (size_t)length > MAX_FILE_BYTES) {
        free(data);
        return NULL;
    }
    *out_length = (size_t)length;
    return data;
}

int options_file_read(const char *path, options_file_set set, void *context, struct error *err) {
    size_t seen_line[NUM_SETTINGS] = {0};
    struct file_reader reader = {
        .path = path, .set = set, .context = context, .err = err, .seen_line = seen_line};
    size_t length;
    char *data = load_file(path, &length, err);
    if (data == NULL)
        return -1;
    int rc = -1;
    if (yaml_parser_initialize(&reader.parser) == 1) {
        yaml_parser_set_input_string(&reader.parser, (const unsigned char *)data, length);
        rc = read_stream(&reader);
        yaml_parser_delete(&reader.parser);
    } else {
        error_set(err, ERROR_MEMORY, "out of memory while reading %.200s", path);
    }
    free(data);
    return rc;
}
