#include "models/files/tensor_table.h"

#include "config/base/checked.h"

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
