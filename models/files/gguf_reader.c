/* Metadata values stay where they are in the image; an array of strings gets one index of offsets,
 * so that element i is found at once. */
#include "models/files/gguf_reader.h"

#include "config/base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_KEY_BYTES = 65535,  /* the specification's limit */
    MIN_ENTRY_BYTES = 14,   /* key of one byte, type, value of one byte */
    MIN_STRING_BYTES = 8,   /* its length */
    MAX_METADATA = 1 << 20, /* real files hold a few dozen */
};

enum { GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };

struct gguf_type {
    enum metadata_type type;
    uint8_t bytes; /* 0: not a number */
};

static const struct gguf_type gguf_types[] = {
    [0] = {METADATA_UINT, 1},
    [1] = {METADATA_INT, 1},
    [2] = {METADATA_UINT, 2},
    [3] = {METADATA_INT, 2},
    [4] = {METADATA_UINT, 4},
    [5] = {METADATA_INT, 4},
    [6] = {METADATA_FLOAT, 4},
    [GGUF_BOOL] = {METADATA_UINT, 1},
    [GGUF_STRING] = {METADATA_STRING, 0},
    [GGUF_ARRAY] = {METADATA_ARRAY, 0},
    [10] = {METADATA_UINT, 8},
    [11] = {METADATA_INT, 8},
    [12] = {METADATA_FLOAT, 8},
};

enum { NUM_GGUF_TYPES = sizeof(gguf_types) / sizeof(gguf_types[0]) };

int gguf_reader_take(struct gguf_reader *r, size_t bytes) {
    if (file_image_require(r->image, r->position + bytes, r->err) != 0)
        return -1;
    r->position += bytes;
    return 0;
}

static int read_bytes(struct gguf_reader *r, const char *what, void *out, size_t bytes) {
    if (bytes > gguf_reader_bytes_left(r))
        return error_set(r->err, ERROR_MODEL,
                         "%s: %s: the file ends at byte %zu, inside the value at byte %zu",
                         r->image->name, what, r->image->bytes, r->position);
    if (gguf_reader_take(r, bytes) != 0)
        return -1;
    memcpy(out, r->image->data + r->position - bytes, bytes);
    return 0;
}

int gguf_reader_u32(struct gguf_reader *r, const char *what, uint32_t *out) {
    return read_bytes(r, what, out, sizeof(*out));
}

int gguf_reader_u64(struct gguf_reader *r, const char *what, uint64_t *out) {
    return read_bytes(r, what, out, sizeof(*out));
}

int gguf_reader_string(struct gguf_reader *r, const char *what, struct text *out) {
    uint64_t length;
    if (gguf_reader_u64(r, what, &length) != 0)
        return -1;
    if (length > gguf_reader_bytes_left(r))
        return error_set(r->err, ERROR_MODEL,
                         "%s: %s: string of %" PRIu64 " bytes at byte %zu, but the file has %zu",
                         r->image->name, what, length, r->position, r->image->bytes);
    *out = (struct text){(const char *)r->image->data + r->position, (size_t)length};
    return gguf_reader_take(r, (size_t)length);
}

int gguf_reader_name(struct gguf_reader *r, const char *what, size_t max_bytes, struct text *out) {
    struct text name;
    if (gguf_reader_string(r, what, &name) != 0)
        return -1;
    if (tensor_table_check_name(r->image->name, what, name, max_bytes, r->err) != 0)
        return -1;
    *out = name;
    return 0;
}

static int refuse(const struct gguf_reader *r, struct text key, const char *reason) {
    return error_set(r->err, ERROR_MODEL, "%s: metadata '%.*s': %s", r->image->name,
                     text_print_length(key), key.data, reason);
}

static int read_type(struct gguf_reader *r, struct text key, uint32_t *out) {
    uint32_t type;
    if (gguf_reader_u32(r, "type of a metadata value", &type) != 0)
        return -1;
    if (type >= NUM_GGUF_TYPES)
        return error_set(r->err, ERROR_MODEL,
                         "%s: metadata '%.*s': unknown value type %" PRIu32 " (known: 0 to %d)",
                         r->image->name, text_print_length(key), key.data, type,
                         NUM_GGUF_TYPES - 1);
    *out = type;
    return 0;
}

/* Advances past `count` elements, which are then in memory; -1 when the file does not hold that
 * many. */
static int take_elements(struct gguf_reader *r, struct text key, uint64_t count, size_t each) {
    size_t bytes;
    if (!checked_mul((size_t)count, each, &bytes) || bytes > gguf_reader_bytes_left(r))
        return error_set(r->err, ERROR_MODEL,
                         "%s: metadata '%.*s': %" PRIu64
                         " elements of %zu bytes, but only %zu bytes are left in the file",
                         r->image->name, text_print_length(key), key.data, count, each,
                         gguf_reader_bytes_left(r));
    return gguf_reader_take(r, bytes);
}

static int check_bools(const struct gguf_reader *r, struct text key, const uint8_t *data,
                       uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (data[i] > 1)
            return refuse(r, key, "a bool is neither 0 nor 1");
    return 0;
}

static void convert_number(const uint8_t *src, struct gguf_type type, struct metadata *out) {
    uint64_t bits = 0;
    memcpy(&bits, src, type.bytes);
    if (type.type == METADATA_UINT) {
        out->as_uint = bits;
    } else if (type.type == METADATA_INT) {
        unsigned shift = 64 - 8U * type.bytes;
        out->as_int = (int64_t)(bits << shift) >> shift;
    } else if (type.bytes == sizeof(float)) {
        float value;
        memcpy(&value, src, sizeof(value));
        out->as_float = (double)value;
    } else {
        memcpy(&out->as_float, src, sizeof(out->as_float));
    }
}

static int read_number(struct gguf_reader *r, struct metadata *out, uint32_t type) {
    const uint8_t *src = r->image->data + r->position;
    if (take_elements(r, out->key, 1, gguf_types[type].bytes) != 0)
        return -1;
    if (type == GGUF_BOOL && check_bools(r, out->key, src, 1) != 0)
        return -1;
    convert_number(src, gguf_types[type], out);
    return 0;
}

/* The reader stands at the first element; offsets has room for count. */
static int index_strings(struct gguf_reader *r, struct text key, uint64_t count,
                         uint64_t *offsets) {
    size_t start = r->position;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length;
        offsets[i] = r->position - start;
        if (gguf_reader_bytes_left(r) < sizeof(length))
            return refuse(r, key, "the file ends inside the array");
        if (gguf_reader_take(r, sizeof(length)) != 0)
            return -1;
        memcpy(&length, r->image->data + r->position - sizeof(length), sizeof(length));
        if (length > gguf_reader_bytes_left(r))
            return refuse(r, key, "a string of the array ends beyond the file");
        if (gguf_reader_take(r, (size_t)length) != 0)
            return -1;
    }
    return 0;
}

static int read_string_array(struct gguf_reader *r, struct metadata *out, uint64_t count) {
    if (count > gguf_reader_header_left(r) / MIN_STRING_BYTES)
        return error_set(r->err, ERROR_MODEL,
                         "%s: metadata '%.*s': %" PRIu64
                         " strings, but only %zu bytes are left in the file",
                         r->image->name, text_print_length(out->key), out->key.data, count,
                         gguf_reader_header_left(r));
    uint64_t *offsets = calloc((size_t)count + 1, sizeof(*offsets));
    if (offsets == NULL)
        return error_set(r->err, ERROR_MEMORY, "%s: no memory to index %" PRIu64 " strings",
                         r->image->name, count);
    if (index_strings(r, out->key, count, offsets) != 0) {
        free(offsets);
        return -1;
    }
    out->as_array.string_offsets = offsets;
    return 0;
}

static int read_array(struct gguf_reader *r, struct metadata *out) {
    uint32_t type = 0;
    uint64_t count = 0;
    if (read_type(r, out->key, &type) != 0)
        return -1;
    if (type == GGUF_ARRAY)
        return refuse(r, out->key, "is an array of arrays, which is not supported");
    if (gguf_reader_u64(r, "length of a metadata array", &count) != 0)
        return -1;
    out->as_array.element_type = gguf_types[type].type;
    out->as_array.element_bytes = gguf_types[type].bytes;
    out->as_array.count = count;
    out->as_array.data = r->image->data + r->position;
    if (type == GGUF_STRING) {
        if (read_string_array(r, out, count) != 0)
            return -1;
    } else {
        const uint8_t *data = r->image->data + r->position;
        if (take_elements(r, out->key, count, gguf_types[type].bytes) != 0)
            return -1;
        if (type == GGUF_BOOL && check_bools(r, out->key, data, count) != 0)
            return -1;
        out->as_array.string_offsets = NULL;
    }
    out->type = METADATA_ARRAY;
    return 0;
}

/* out->type becomes ARRAY only once the array is whole, so that a table given up half way never
 * frees what was not allocated. */
static int read_value(struct gguf_reader *r, struct metadata *out) {
    char what[160];
    uint32_t type = 0;
    if (read_type(r, out->key, &type) != 0)
        return -1;
    if (type == GGUF_ARRAY)
        return read_array(r, out);
    out->type = gguf_types[type].type;
    if (type != GGUF_STRING)
        return read_number(r, out, type);
    snprintf(what, sizeof(what), "metadata '%.*s'", text_print_length(out->key), out->key.data);
    return gguf_reader_string(r, what, &out->as_string);
}

static int read_entry(struct gguf_reader *r, uint64_t index, struct metadata *out) {
    char what[64];
    snprintf(what, sizeof(what), "metadata key %" PRIu64, index);
    if (gguf_reader_name(r, what, MAX_KEY_BYTES, &out->key) != 0)
        return -1;
    size_t begin = r->position;
    if (read_value(r, out) != 0)
        return -1;
    out->raw = (struct text){(const char *)r->image->data + begin, r->position - begin};
    return 0;
}

int gguf_reader_metadata(struct gguf_reader *r, uint64_t count, struct tensor_table *table) {
    if (count > MAX_METADATA || count > gguf_reader_header_left(r) / MIN_ENTRY_BYTES)
        return error_set(r->err, ERROR_MODEL,
                         "%s: header: %" PRIu64 " metadata entries do not fit into %zu bytes "
                         "(at most %d)",
                         r->image->name, count, r->image->bytes, MAX_METADATA);
    table->metadata = calloc((size_t)count + 1, sizeof(*table->metadata));
    if (table->metadata == NULL)
        return error_set(r->err, ERROR_MEMORY, "%s: no memory for %" PRIu64 " metadata entries",
                         r->image->name, count);
    table->num_metadata = (size_t)count;
    for (uint64_t i = 0; i < count; i++)
        if (read_entry(r, i, &table->metadata[i]) != 0)
            return -1;
    return 0;
}
