/* GGUF v2 and v3: header, tensor table, and the checks that put every tensor's data inside the
 * file. */
#include "models/files/gguf.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "models/files/gguf_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_VERSION = 2, /* as 3, which adds big-endian files; 1 has 32-bit counts */
    MAX_VERSION = 3,
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MAX_NAME_BYTES = 64,   /* the specification's limit */
    MIN_TENSOR_BYTES = 33, /* name of one byte, one dimension */
    MAX_TENSORS = 1 << 20, /* real files hold a few hundred to some thousand */
};

static const char gguf_magic[4] = {'G', 'G', 'U', 'F'};

/* Type numbers of the format. Those without a dtype here are named so that a message can say what
 * a file holds instead. */
struct tensor_type {
    const char *name;
    int dtype; /* -1: not supported */
};

static const struct tensor_type tensor_types[] = {
    [0] = {"f32", DTYPE_F32},
    [1] = {"f16", DTYPE_F16},
    [2] = {"q4_0", DTYPE_Q4_0},
    [3] = {"q4_1", DTYPE_Q4_1},
    [4] = {"q4_2", -1},
    [5] = {"q4_3", -1},
    [6] = {"q5_0", DTYPE_Q5_0},
    [7] = {"q5_1", DTYPE_Q5_1},
    [8] = {"q8_0", DTYPE_Q8_0},
    [9] = {"q8_1", -1},
    [10] = {"q2_k", DTYPE_Q2_K},
    [11] = {"q3_k", DTYPE_Q3_K},
    [12] = {"q4_k", DTYPE_Q4_K},
    [13] = {"q5_k", DTYPE_Q5_K},
    [14] = {"q6_k", DTYPE_Q6_K},
    [15] = {"q8_k", -1},
    [16] = {"iq2_xxs", DTYPE_IQ2_XXS},
    [17] = {"iq2_xs", DTYPE_IQ2_XS},
    [18] = {"iq3_xxs", DTYPE_IQ3_XXS},
    [19] = {"iq1_s", DTYPE_IQ1_S},
    [20] = {"iq4_nl", DTYPE_IQ4_NL},
    [21] = {"iq3_s", DTYPE_IQ3_S},
    [22] = {"iq2_s", DTYPE_IQ2_S},
    [23] = {"iq4_xs", DTYPE_IQ4_XS},
    [24] = {"i8", -1},
    [25] = {"i16", -1},
    [26] = {"i32", -1},
    [27] = {"i64", -1},
    [28] = {"f64", -1},
    [29] = {"iq1_m", DTYPE_IQ1_M},
    [30] = {"bf16", DTYPE_BF16},
    [31] = {"q4_0_4_4", -1},
    [32] = {"q4_0_4_8", -1},
    [33] = {"q4_0_8_8", -1},
    [34] = {"tq1_0", DTYPE_TQ1_0},
    [35] = {"tq2_0", DTYPE_TQ2_0},
    [36] = {"iq4_nl_4_4", -1},
    [37] = {"iq4_nl_4_8", -1},
    [38] = {"iq4_nl_8_8", -1},
    [39] = {"mxfp4", DTYPE_MXFP4},
    [40] = {"nvfp4", -1},
    [41] = {"q1_0", -1},
};

enum { NUM_TENSOR_TYPES = sizeof(tensor_types) / sizeof(tensor_types[0]) };

/* Returns NUM_TENSOR_TYPES for a type that the format does not have. */
static uint32_t find_type(enum dtype dtype) {
    uint32_t type = 0;
    while (type < NUM_TENSOR_TYPES &&
           (tensor_types[type].name == NULL || tensor_types[type].dtype != (int)dtype))
        type++;
    return type;
}

bool gguf_has_type(enum dtype dtype) {
    return find_type(dtype) < NUM_TENSOR_TYPES;
}

uint32_t gguf_type_number(enum dtype dtype) {
    CHECK(gguf_has_type(dtype));
    return find_type(dtype);
}

bool gguf_matches(struct file_image *image) {
    return image->bytes >= sizeof(gguf_magic) &&
           file_image_require(image, sizeof(gguf_magic), NULL) == 0 &&
           memcmp(image->data, gguf_magic, sizeof(gguf_magic)) == 0;
}

int gguf_version(const struct file_image *image) {
    uint32_t version;
    memcpy(&version, image->data + sizeof(gguf_magic), sizeof(version));
    return (int)version;
}

static int check_version(const struct gguf_reader *r, uint32_t version) {
    if (version >= MIN_VERSION && version <= MAX_VERSION)
        return 0;
    if (__builtin_bswap32(version) <= 0xffff && version > 0xffff)
        return error_set(r->err, ERROR_MODEL,
                         "%s: is a big-endian GGUF file; only little-endian ones are supported",
                         r->image->name);
    return error_set(r->err, ERROR_MODEL, "%s: GGUF version %" PRIu32 " (supported: %d, %d)",
                     r->image->name, version, MIN_VERSION, MAX_VERSION);
}

static int refuse_tensor(const struct gguf_reader *r, struct text name, const char *reason) {
    return error_set(r->err, ERROR_MODEL, "%s: tensor '%.*s': %s", r->image->name,
                     text_print_length(name), name.data, reason);
}

static int read_tensor_type(struct gguf_reader *r, struct tensor_info *tensor) {
    uint32_t type;
    if (gguf_reader_u32(r, "type of a tensor", &type) != 0)
        return -1;
    const char *name = type < NUM_TENSOR_TYPES ? tensor_types[type].name : NULL;
    if (name != NULL && tensor_types[type].dtype >= 0) {
        tensor->dtype = (enum dtype)tensor_types[type].dtype;
        return 0;
    }
    return error_set(
        r->err, ERROR_MODEL,
        "%s: tensor '%.*s': type %" PRIu32 " (%s) is not supported (supported: f32, "
        "f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k, iq1_s to iq4_xs, tq1_0, tq2_0, "
        "mxfp4)",
        r->image->name, text_print_length(tensor->name), tensor->name.data, type,
        name != NULL ? name : "unknown");
}

/* The file lists the innermost dimension first, struct tensor_info the outermost. */
static int read_shape(struct gguf_reader *r, struct tensor_info *tensor) {
    uint32_t num_dims;
    if (gguf_reader_u32(r, "number of dimensions of a tensor", &num_dims) != 0)
        return -1;
    if (num_dims < 1 || num_dims > TENSOR_MAX_DIMS)
        return error_set(r->err, ERROR_MODEL,
                         "%s: tensor '%.*s': %" PRIu32 " dimensions (allowed: 1 to %d)",
                         r->image->name, text_print_length(tensor->name), tensor->name.data,
                         num_dims, TENSOR_MAX_DIMS);
    tensor->num_dims = (int)num_dims;
    for (int i = tensor->num_dims - 1; i >= 0; i--) {
        uint64_t dim;
        if (gguf_reader_u64(r, "dimension of a tensor", &dim) != 0)
            return -1;
        if (dim == 0 || dim > INT64_MAX)
            return refuse_tensor(r, tensor->name, "a dimension is zero or beyond 2^63-1");
        tensor->shape[i] = (int64_t)dim;
    }
    return 0;
}

/* tensor->offset counts from where the data begins, which is known after the last entry:
 * place_tensors adds it. */
static int read_tensor(struct gguf_reader *r, uint64_t index, struct tensor_info *tensor) {
    char what[64];
    snprintf(what, sizeof(what), "tensor %" PRIu64, index);
    if (gguf_reader_name(r, what, MAX_NAME_BYTES, &tensor->name) != 0)
        return -1;
    if (read_shape(r, tensor) != 0 || read_tensor_type(r, tensor) != 0)
        return -1;
    if (gguf_reader_u64(r, "offset of a tensor", &tensor->offset) != 0)
        return -1;
    return tensor_table_size(r->image->name, tensor, r->err);
}

static int find_alignment(const struct gguf_reader *r, const struct tensor_table *table,
                          size_t *out) {
    const struct metadata *entry = tensor_table_find_metadata(table, "general.alignment");
    *out = DEFAULT_ALIGNMENT;
    if (entry == NULL)
        return 0;
    if (entry->type != METADATA_UINT)
        return error_set(r->err, ERROR_MODEL, "%s: general.alignment: is not an unsigned number",
                         r->image->name);
    uint64_t value = entry->as_uint;
    if (value < MIN_ALIGNMENT || value > UINT32_MAX || (value & (value - 1)) != 0)
        return error_set(r->err, ERROR_MODEL,
                         "%s: general.alignment: %" PRIu64
                         " (allowed: a power of two from %d to 2^31)",
                         r->image->name, value, MIN_ALIGNMENT);
    *out = (size_t)value;
    return 0;
}

static int place_tensor(const struct gguf_reader *r, struct tensor_info *tensor, size_t data_start,
                        size_t alignment) {
    size_t begin, end;
    if (tensor->offset % alignment != 0)
        return error_set(r->err, ERROR_MODEL,
                         "%s: tensor '%.*s': offset %" PRIu64 " is not a multiple of %zu",
                         r->image->name, text_print_length(tensor->name), tensor->name.data,
                         tensor->offset, alignment);
    if (!checked_add(data_start, (size_t)tensor->offset, &begin) ||
        !checked_add(begin, tensor->bytes, &end))
        return refuse_tensor(r, tensor->name, "its offset is beyond 2^64-1");
    if (end > r->image->bytes)
        return error_set(r->err, ERROR_MODEL,
                         "%s: tensor '%.*s': data ends at byte %zu but the file has %zu",
                         r->image->name, text_print_length(tensor->name), tensor->name.data, end,
                         r->image->bytes);
    tensor->offset = begin;
    return 0;
}

static int place_tensors(const struct gguf_reader *r, struct tensor_table *table) {
    size_t alignment, data_start;
    if (find_alignment(r, table, &alignment) != 0)
        return -1;
    if (!checked_add(r->position, alignment - 1, &data_start))
        return error_set(r->err, ERROR_MODEL, "%s: general.alignment: too large", r->image->name);
    data_start &= ~(alignment - 1);
    for (size_t i = 0; i < table->num_tensors; i++)
        if (place_tensor(r, &table->tensors[i], data_start, alignment) != 0)
            return -1;
    return 0;
}

static int check_overlap(const struct gguf_reader *r, const struct tensor_table *table) {
    const struct tensor_info **sorted = tensor_table_by_offset(table);
    if (sorted == NULL)
        return error_set(r->err, ERROR_MEMORY, "%s: no memory for %zu tensors", r->image->name,
                         table->num_tensors);
    int status = 0;
    for (size_t i = 1; i < table->num_tensors && status == 0; i++) {
        const struct tensor_info *first = sorted[i - 1], *second = sorted[i];
        if (second->offset < first->offset + first->bytes)
            status = error_set(r->err, ERROR_MODEL, "%s: tensors '%.*s' and '%.*s' overlap",
                               r->image->name, text_print_length(first->name), first->name.data,
                               text_print_length(second->name), second->name.data);
    }
    free(sorted);
    return status;
}

static int parse_tensors(struct gguf_reader *r, uint64_t count, struct tensor_table *table) {
    if (count > gguf_reader_header_left(r) / MIN_TENSOR_BYTES)
        return error_set(r->err, ERROR_MODEL,
                         "%s: header: %" PRIu64 " tensors, but only %zu bytes are left for them",
                         r->image->name, count, gguf_reader_header_left(r));
    table->tensors = calloc((size_t)count + 1, sizeof(*table->tensors));
    if (table->tensors == NULL)
        return error_set(r->err, ERROR_MEMORY, "%s: no memory for %" PRIu64 " tensors",
                         r->image->name, count);
    table->num_tensors = (size_t)count;
    for (uint64_t i = 0; i < count; i++)
        if (read_tensor(r, i, &table->tensors[i]) != 0)
            return -1;
    return place_tensors(r, table) != 0 ? -1 : check_overlap(r, table);
}

static int parse_sections(struct gguf_reader *r, struct tensor_table *table) {
    uint32_t version;
    uint64_t num_tensors, num_metadata;
    r->position = sizeof(gguf_magic);
    if (gguf_reader_u32(r, "header", &version) != 0 || check_version(r, version) != 0)
        return -1;
    if (gguf_reader_u64(r, "header", &num_tensors) != 0 ||
        gguf_reader_u64(r, "header", &num_metadata) != 0)
        return -1;
    if (num_tensors > MAX_TENSORS)
        return error_set(r->err, ERROR_MODEL, "%s: header: %" PRIu64 " tensors (at most %d)",
                         r->image->name, num_tensors, MAX_TENSORS);
    if (gguf_reader_metadata(r, num_metadata, table) != 0)
        return -1;
    return parse_tensors(r, num_tensors, table);
}

int gguf_parse(struct file_image *image, struct tensor_table *out, struct error *err) {
    struct gguf_reader reader = {.image = image, .err = err};
    struct tensor_table table = {0};
    if (parse_sections(&reader, &table) != 0) {
        tensor_table_finish(&table);
        return -1;
    }
    *out = table;
    return 0;
}

/* --- Models of several files --- */

struct split {
    uint64_t number, count, num_tensors;
};

/* The length of "-00001-of-00003.gguf", in which the paths of the parts differ. */
#define ENDING_LENGTH 20

static int read_number(const struct tensor_part *part, const char *key, uint64_t *out,
                       struct error *err) {
    const struct metadata *entry = tensor_table_find_metadata(&part->table, key);
    if (entry == NULL)
        return error_set(err, ERROR_MODEL, "%s: metadata '%s': is missing", part->image.name, key);
    if (entry->type == METADATA_UINT)
        *out = entry->as_uint;
    else if (entry->type == METADATA_INT && entry->as_int >= 0)
        *out = (uint64_t)entry->as_int;
    else
        return error_set(err, ERROR_MODEL, "%s: metadata '%s': is not a number from 0",
                         part->image.name, key);
    return 0;
}

static int read_split(const struct tensor_part *part, struct split *out, struct error *err) {
    struct split split;
    if (read_number(part, "split.no", &split.number, err) != 0 ||
        read_number(part, "split.count", &split.count, err) != 0 ||
        read_number(part, "split.tensors.count", &split.num_tensors, err) != 0)
        return -1;
    if (split.count > TENSOR_MAX_PARTS)
        return error_set(err, ERROR_MODEL,
                         "%s: metadata 'split.count': %" PRIu64 " (allowed: 0 to %d)",
                         part->image.name, split.count, TENSOR_MAX_PARTS);
    *out = split;
    return 0;
}

static int expect(const struct tensor_part *part, const char *key, uint64_t value,
                  uint64_t expected, struct error *err) {
    if (value == expected)
        return 0;
    return error_set(err, ERROR_MODEL, "%s: metadata '%s': %" PRIu64 ", expected %" PRIu64,
                     part->image.name, key, value, expected);
}

static int check_first(const struct tensor_file *file, const struct split *first,
                       struct error *err) {
    char ending[32];
    size_t length = strlen(file->path);
    snprintf(ending, sizeof(ending), "-00001-of-%05d.gguf", (int)first->count);
    if (length <= ENDING_LENGTH || strcmp(file->path + length - ENDING_LENGTH, ending) != 0)
        return error_set(err, ERROR_MODEL,
                         "%s: is one of %d parts; the first is needed, and its name ends in %s",
                         file->path, (int)first->count, ending);
    return expect(file->parts[0], "split.no", first->number, 0, err);
}

static int open_parts(struct tensor_file *file, const struct split *first, struct error *err) {
    int count = (int)first->count, prefix_length = (int)strlen(file->path) - ENDING_LENGTH;
    if (check_first(file, first, err) != 0)
        return -1;
    for (int i = 1; i < count; i++) {
        char *path = NULL;
        if (asprintf(&path, "%.*s-%05d-of-%05d.gguf", prefix_length, file->path, i + 1, count) < 0)
            return error_set(err, ERROR_MEMORY, "%s: no memory to open it", file->path);
        int status = tensor_parts_open(file, path, gguf_parse, err);
        free(path);
        struct split split;
        const struct tensor_part *part = file->parts[file->num_parts - 1];
        if (status != 0 || read_split(part, &split, err) != 0 ||
            expect(part, "split.no", split.number, (uint64_t)i, err) != 0 ||
            expect(part, "split.count", split.count, first->count, err) != 0 ||
            expect(part, "split.tensors.count", split.num_tensors, first->num_tensors, err) != 0)
            return -1;
    }
    snprintf(file->format, sizeof(file->format), "GGUF v%d, %d files",
             gguf_version(&file->parts[0]->image), count);
    return 0;
}

/* Parts that were merged again keep the keys: a count of 0, and any number of tensors. */
static bool is_split(const struct tensor_part *part) {
    const struct metadata *count = tensor_table_find_metadata(&part->table, "split.count");
    return count != NULL && !(count->type <= METADATA_INT && count->as_uint <= 1);
}

int gguf_open_rest(struct tensor_file *file, struct error *err) {
    const struct tensor_part *part = file->parts[0];
    struct split first;
    snprintf(file->format, sizeof(file->format), "GGUF v%d", gguf_version(&part->image));
    if (!is_split(part))
        return tensor_parts_join(file, err);
    if (read_split(part, &first, err) != 0 || open_parts(file, &first, err) != 0)
        return -1;
    if (tensor_parts_join(file, err) != 0)
        return -1;
    if (first.num_tensors != file->num_tensors)
        return error_set(err, ERROR_MODEL,
                         "%s: metadata 'split.tensors.count': %" PRIu64
                         ", but the parts hold %zu tensors",
                         file->path, first.num_tensors, file->num_tensors);
    return 0;
}
