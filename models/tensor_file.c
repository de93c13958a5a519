/* Opening a model file: map it, let the parser of its format fill a table, and sort the names once
 * so that look-ups are binary searches and duplicates show up as neighbours. */
#include "models/tensor_file.h"

#include "config/check.h"
#include "models/gguf.h"
#include "models/input_file.h"
#include "models/tensor_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tensor_file {
    char *path;
    struct input_file input; /* zeroed: the image is in memory that is not ours */
    struct file_image image;
    struct tensor_table table;
    const struct tensor_info **tensors_by_name;
    const struct metadata **metadata_by_key;
};

void tensor_table_finish(struct tensor_table *table) {
    for (size_t i = 0; i < table->num_metadata; i++) {
        const struct metadata *entry = &table->metadata[i];
        if (entry->type == METADATA_ARRAY)
            free((void *)entry->as_array.string_offsets);
    }
    free(table->metadata);
    free(table->tensors);
    *table = (struct tensor_table){0};
}

int text_compare(struct text a, struct text b) {
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;
    if (order != 0)
        return order;
    return (a.length > b.length) - (a.length < b.length);
}

int text_print_length(struct text text) {
    return text.length < 100 ? (int)text.length : 100;
}

static int compare_tensors(const void *a, const void *b) {
    const struct tensor_info *const *x = a, *const *y = b;
    return text_compare((*x)->name, (*y)->name);
}

static int compare_metadata(const void *a, const void *b) {
    const struct metadata *const *x = a, *const *y = b;
    return text_compare((*x)->key, (*y)->key);
}

static int refuse_duplicate(const struct tensor_file *file, const char *what, struct text name,
                            struct error *err) {
    return error_set(err, ERROR_MODEL, "%s: %s '%.*s' occurs more than once", file->image.name,
                     what, text_print_length(name), name.data);
}

static int index_tensors(struct tensor_file *file, struct error *err) {
    size_t count = file->table.num_tensors;
    file->tensors_by_name = calloc(count + 1, sizeof(*file->tensors_by_name));
    if (file->tensors_by_name == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for %zu tensors", file->image.name,
                         count);
    const struct tensor_info **sorted = file->tensors_by_name;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &file->table.tensors[i];
    qsort(sorted, count, sizeof(*sorted), compare_tensors);
    for (size_t i = 1; i < count; i++)
        if (text_compare(sorted[i - 1]->name, sorted[i]->name) == 0)
            return refuse_duplicate(file, "tensor", sorted[i]->name, err);
    return 0;
}

static int index_metadata(struct tensor_file *file, struct error *err) {
    size_t count = file->table.num_metadata;
    file->metadata_by_key = calloc(count + 1, sizeof(*file->metadata_by_key));
    if (file->metadata_by_key == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for %zu metadata keys", file->image.name,
                         count);
    const struct metadata **sorted = file->metadata_by_key;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &file->table.metadata[i];
    qsort(sorted, count, sizeof(*sorted), compare_metadata);
    for (size_t i = 1; i < count; i++)
        if (text_compare(sorted[i - 1]->key, sorted[i]->key) == 0)
            return refuse_duplicate(file, "metadata key", sorted[i]->key, err);
    return 0;
}

static int parse(struct tensor_file *file, struct error *err) {
    if (!gguf_matches(&file->image))
        return error_set(err, ERROR_MODEL,
                         "%s: not a model file: it does not start with the magic of a known format "
                         "(known: GGUF)",
                         file->image.name);
    if (gguf_parse(&file->image, &file->table, err) != 0)
        return -1;
    if (index_metadata(file, err) != 0)
        return -1;
    return index_tensors(file, err);
}

static struct tensor_file *create(const char *name, struct error *err) {
    struct tensor_file *file = calloc(1, sizeof(*file));
    char *path = strdup(name);
    if (file == NULL || path == NULL) {
        free(file);
        free(path);
        error_set(err, ERROR_MEMORY, "%s: no memory to open it", name);
        return NULL;
    }
    file->path = path;
    file->image.name = path;
    return file;
}

int tensor_file_open_memory(const void *data, size_t bytes, const char *name,
                            struct tensor_file **out, struct error *err) {
    struct tensor_file *file = create(name, err);
    if (file == NULL)
        return -1;
    file->image.data = data;
    file->image.bytes = bytes;
    if (parse(file, err) != 0) {
        tensor_file_close(file);
        return -1;
    }
    *out = file;
    return 0;
}

static int map_file(struct tensor_file *file, struct error *err) {
    if (input_file_open(file->path, &file->input, err) != 0)
        return -1;
    size_t bytes = (size_t)file->input.bytes;
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file->input.fd, 0);
    if (data == MAP_FAILED)
        return error_set(err, ERROR_IO, "%s: cannot map %zu bytes: %s", file->path, bytes,
                         strerror(errno));
    file->image.data = data;
    file->image.bytes = bytes;
    return 0;
}

int tensor_file_open(const char *path, struct tensor_file **out, struct error *err) {
    struct tensor_file *file = create(path, err);
    if (file == NULL)
        return -1;
    if (map_file(file, err) != 0 || parse(file, err) != 0) {
        tensor_file_close(file);
        return -1;
    }
    *out = file;
    return 0;
}

void tensor_file_close(struct tensor_file *file) {
    if (file == NULL)
        return;
    tensor_table_finish(&file->table);
    free(file->tensors_by_name);
    free(file->metadata_by_key);
    if (file->input.path != NULL && file->image.data != NULL)
        munmap((void *)file->image.data, file->image.bytes);
    input_file_finish(&file->input);
    free(file->path);
    free(file);
}

const char *tensor_file_path(const struct tensor_file *file) {
    return file->path;
}

const char *tensor_file_format(const struct tensor_file *file) {
    return file->table.format;
}

size_t tensor_file_bytes(const struct tensor_file *file) {
    return file->image.bytes;
}

size_t tensor_file_num_tensors(const struct tensor_file *file) {
    return file->table.num_tensors;
}

const struct tensor_info *tensor_file_tensor(const struct tensor_file *file, size_t index) {
    CHECK(index < file->table.num_tensors);
    return &file->table.tensors[index];
}

const struct tensor_info *tensor_file_find(const struct tensor_file *file, const char *name) {
    const struct tensor_info wanted = {.name = {name, strlen(name)}};
    const struct tensor_info *key = &wanted;
    const struct tensor_info **found = bsearch(&key, file->tensors_by_name, file->table.num_tensors,
                                               sizeof(*file->tensors_by_name), compare_tensors);
    return found != NULL ? *found : NULL;
}

int tensor_read(const struct tensor_file *file, const struct tensor_info *tensor, size_t offset,
                size_t bytes, void *dst, struct error *err) {
    CHECK(offset <= tensor->bytes && bytes <= tensor->bytes - offset);
    char what[160];
    if (file->input.path == NULL) {
        memcpy(dst, file->image.data + tensor->offset + offset, bytes);
        return 0;
    }
    snprintf(what, sizeof(what), "tensor '%.*s'", text_print_length(tensor->name),
             tensor->name.data);
    return input_file_read(&file->input, tensor->offset + offset, bytes, dst, what, err);
}

/* Whole pages around the tensor: neighbours that lose one fault it in again. */
void tensor_file_release(const struct tensor_file *file, const struct tensor_info *tensor) {
    if (file->input.path == NULL)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)tensor->data & ~(page - 1);
    uintptr_t end = (uintptr_t)tensor->data + tensor->bytes;
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

size_t tensor_file_num_metadata(const struct tensor_file *file) {
    return file->table.num_metadata;
}

const struct metadata *tensor_file_metadata(const struct tensor_file *file, size_t index) {
    CHECK(index < file->table.num_metadata);
    return &file->table.metadata[index];
}

const struct metadata *tensor_file_find_metadata(const struct tensor_file *file, const char *key) {
    const struct metadata wanted = {.key = {key, strlen(key)}};
    const struct metadata *entry = &wanted;
    const struct metadata **found = bsearch(&entry, file->metadata_by_key, file->table.num_metadata,
                                            sizeof(*file->metadata_by_key), compare_metadata);
    return found != NULL ? *found : NULL;
}

/* Little-endian, sign-extended; bytes is 1, 2, 4 or 8. */
static int64_t load_signed(const uint8_t *src, size_t bytes) {
    uint64_t bits = 0;
    memcpy(&bits, src, bytes);
    unsigned shift = 64 - 8 * (unsigned)bytes;
    return (int64_t)(bits << shift) >> shift;
}

static double load_float(const uint8_t *src, size_t bytes) {
    if (bytes == sizeof(float)) {
        float value;
        memcpy(&value, src, sizeof(value));
        return (double)value;
    }
    double value;
    memcpy(&value, src, sizeof(value));
    return value;
}

double metadata_array_number(const struct metadata *array, uint64_t i) {
    CHECK(array->type == METADATA_ARRAY && i < array->as_array.count);
    CHECK(array->as_array.element_type != METADATA_STRING);
    size_t bytes = array->as_array.element_bytes;
    const uint8_t *src = (const uint8_t *)array->as_array.data + (size_t)i * bytes;
    if (array->as_array.element_type == METADATA_FLOAT)
        return load_float(src, bytes);
    if (array->as_array.element_type == METADATA_INT)
        return (double)load_signed(src, bytes);
    uint64_t value = 0;
    memcpy(&value, src, bytes);
    return (double)value;
}

struct text metadata_array_string(const struct metadata *array, uint64_t i) {
    CHECK(array->type == METADATA_ARRAY && i < array->as_array.count);
    CHECK(array->as_array.element_type == METADATA_STRING);
    const char *src = (const char *)array->as_array.data + array->as_array.string_offsets[i];
    uint64_t length;
    memcpy(&length, src, sizeof(length));
    return (struct text){src + sizeof(length), (size_t)length};
}
