#include "models/files/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int gguf_split_open_rest(struct tensor_file *file, struct error *err) {
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
