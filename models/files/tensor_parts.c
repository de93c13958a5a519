#include "models/files/tensor_parts.h"

#include "config/base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tensor_table_finish(struct tensor_table *table) {
    for (size_t i = 0; i < table->num_metadata; i++) {
        const struct metadata *entry = &table->metadata[i];
        if (entry->type == METADATA_ARRAY)
            free((void *)entry->as_array.string_offsets);
    }
    free(table->metadata);
    free(table->tensors);
    free(table->names);
    *table = (struct tensor_table){0};
}

const struct metadata *tensor_table_find_metadata(const struct tensor_table *table,
                                                  const char *key) {
    const struct text wanted = {key, strlen(key)};
    for (size_t i = 0; i < table->num_metadata; i++)
        if (text_compare(table->metadata[i].key, wanted) == 0)
            return &table->metadata[i];
    return NULL;
}

int tensor_table_check_name(const char *file, const char *what, struct text name, size_t max_bytes,
                            struct error *err) {
    if (name.length == 0 || name.length > max_bytes)
        return error_set(err, ERROR_MODEL, "%s: %s: name of %zu bytes (allowed: 1 to %zu)", file,
                         what, name.length, max_bytes);
    for (size_t i = 0; i < name.length; i++)
        if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7f)
            return error_set(err, ERROR_MODEL, "%s: %s: the name holds a control character", file,
                             what);
    return 0;
}

int tensor_table_size(const char *file, struct tensor_info *tensor, struct error *err) {
    int name_length = text_print_length(tensor->name);
    size_t cols = tensor->num_dims > 0 ? (size_t)tensor->shape[tensor->num_dims - 1] : 1;
    size_t block = 1, block_bytes = 0;
    if (tensor->unsupported != NULL) {
        block_bytes = tensor->unsupported->bytes;
    } else {
        block = (size_t)dtype_block_elements(tensor->dtype);
        block_bytes = dtype_block_bytes(tensor->dtype);
    }
    if (cols % block != 0)
        return error_set(err, ERROR_MODEL,
                         "%s: tensor '%.*s': rows of %zu elements are not a multiple of the %zu of "
                         "a %s block",
                         file, name_length, tensor->name.data, cols, block,
                         dtype_name(tensor->dtype));
    size_t bytes, elements = cols;
    bool fits = checked_mul(cols / block, block_bytes, &bytes);
    for (int i = 0; fits && i < tensor->num_dims - 1; i++)
        fits = checked_mul(bytes, (size_t)tensor->shape[i], &bytes) &&
               checked_mul(elements, (size_t)tensor->shape[i], &elements);
    if (!fits || elements > INT64_MAX || bytes > INT64_MAX)
        return error_set(err, ERROR_MODEL, "%s: tensor '%.*s': its size is beyond 2^63-1", file,
                         name_length, tensor->name.data);
    tensor->bytes = bytes;
    return 0;
}

static int compare_offsets(const void *a, const void *b) {
    const struct tensor_info *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

const struct tensor_info **tensor_table_by_offset(const struct tensor_table *table) {
    const struct tensor_info **sorted = calloc(table->num_tensors + 1, sizeof(*sorted));
    if (sorted == NULL)
        return NULL;
    for (size_t i = 0; i < table->num_tensors; i++)
        sorted[i] = &table->tensors[i];
    qsort(sorted, table->num_tensors, sizeof(*sorted), compare_offsets);
    return sorted;
}

/* --- Parts ---
 * Every part is parsed by itself into a table; then the tables are joined to one, whose names are
 * sorted once, so that look-ups are binary searches and duplicates show up as neighbours. */

static struct tensor_part *add_part(struct tensor_file *file, struct error *err) {
    size_t count = (size_t)file->num_parts;
    struct tensor_part **parts = realloc(file->parts, (count + 1) * sizeof(*parts));
    if (parts != NULL)
        file->parts = parts;
    struct tensor_part *part = calloc(1, sizeof(*part));
    if (parts == NULL || part == NULL) {
        error_set(err, ERROR_MEMORY, "%s: no memory to open it", file->path);
        free(part);
        return NULL;
    }
    file->parts[file->num_parts++] = part;
    return part;
}

int tensor_parts_open(struct tensor_file *file, const char *path, tensor_parser parse,
                      struct error *err) {
    struct tensor_part *part = add_part(file, err);
    if (part == NULL)
        return -1;
    if (input_file_open(path, &part->input, err) != 0)
        return -1;
    if (file_image_create(&part->input, &part->image, err) != 0)
        return -1;
    return parse(&part->image, &part->table, err);
}

int tensor_parts_open_memory(struct tensor_file *file, const void *data, size_t bytes,
                             const char *name, tensor_parser parse, struct error *err) {
    struct tensor_part *part = add_part(file, err);
    if (part == NULL)
        return -1;
    part->image = file_image_of_memory(data, bytes, name);
    return parse(&part->image, &part->table, err);
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
    return error_set(err, ERROR_MODEL, "%s: %s '%.*s' occurs more than once", file->path, what,
                     text_print_length(name), name.data);
}

static int join_tensors(struct tensor_file *file, struct error *err) {
    size_t count = 0;
    for (int i = 0; i < file->num_parts; i++)
        count += file->parts[i]->table.num_tensors;
    file->tensors = calloc(count + 1, sizeof(*file->tensors));
    file->tensors_by_name = calloc(count + 1, sizeof(*file->tensors_by_name));
    if (file->tensors == NULL || file->tensors_by_name == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for %zu tensors", file->path, count);
    for (int i = 0; i < file->num_parts; i++) {
        const struct tensor_table *table = &file->parts[i]->table;
        for (size_t j = 0; j < table->num_tensors; j++) {
            file->tensors[file->num_tensors] = table->tensors[j];
            file->tensors[file->num_tensors++].part = i;
        }
    }
    return 0;
}

static int index_tensors(struct tensor_file *file, struct error *err) {
    const struct tensor_info **sorted = file->tensors_by_name;
    for (size_t i = 0; i < file->num_tensors; i++)
        sorted[i] = &file->tensors[i];
    qsort(sorted, file->num_tensors, sizeof(*sorted), compare_tensors);
    for (size_t i = 1; i < file->num_tensors; i++)
        if (text_compare(sorted[i - 1]->name, sorted[i]->name) == 0)
            return refuse_duplicate(file, "tensor", sorted[i]->name, err);
    return 0;
}

static int index_metadata(struct tensor_file *file, struct error *err) {
    const struct tensor_table *table = &file->parts[0]->table;
    size_t count = table->num_metadata;
    file->metadata_by_key = calloc(count + 1, sizeof(*file->metadata_by_key));
    if (file->metadata_by_key == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for %zu metadata keys", file->path,
                         count);
    const struct metadata **sorted = file->metadata_by_key;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &table->metadata[i];
    qsort(sorted, count, sizeof(*sorted), compare_metadata);
    for (size_t i = 1; i < count; i++)
        if (text_compare(sorted[i - 1]->key, sorted[i]->key) == 0)
            return refuse_duplicate(file, "metadata key", sorted[i]->key, err);
    return 0;
}

int tensor_parts_join(struct tensor_file *file, struct error *err) {
    if (join_tensors(file, err) != 0 || index_tensors(file, err) != 0)
        return -1;
    return index_metadata(file, err);
}
