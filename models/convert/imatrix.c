#include "models/convert/imatrix.h"

#include "config/base/array.h"
#include "models/files/input_file.h"
#include "models/files/tensor_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1 << 16, MAX_NAME_BYTES = 255 };

/* The older format's: where an entry's values are. */
struct entry {
    char name[MAX_NAME_BYTES + 1];
    uint64_t offset;
    uint32_t num_values;
    int32_t num_calls;
};

struct imatrix {
    struct tensor_file *gguf; /* NULL: the older format */
    struct input_file file;
    struct entry *entries;
    size_t num_entries, capacity;
    int32_t num_chunks;
    char dataset[MAX_NAME_BYTES + 1];
};

/* --- The older format --- */

struct reader {
    const struct input_file *file;
    uint64_t position;
    struct error *err;
};

static int refuse(const struct reader *r, const char *what) {
    return error_set(r->err, ERROR_MODEL, "%s: is not an importance matrix: %s at byte %" PRIu64,
                     r->file->path, what, r->position);
}

static int take(struct reader *r, void *out, size_t bytes, const char *what) {
    if (bytes > r->file->bytes - r->position)
        return refuse(r, "the file ends");
    if (input_file_read(r->file, r->position, bytes, out, what, r->err) != 0)
        return -1;
    r->position += bytes;
    return 0;
}

static int take_i32(struct reader *r, int32_t min, int32_t max, const char *what, int32_t *out) {
    int32_t value;
    if (take(r, &value, sizeof(value), what) != 0)
        return -1;
    if (value >= min && value <= max) {
        *out = value;
        return 0;
    }
    return error_set(r->err, ERROR_MODEL,
                     "%s: is not an importance matrix: %s %" PRId32 " at byte %" PRIu64
                     " (allowed: %d to %d)",
                     r->file->path, what, value, r->position - sizeof(value), min, max);
}

static int take_name(struct reader *r, int32_t min, char *out) {
    int32_t length = 0;
    if (take_i32(r, min, MAX_NAME_BYTES, "length of a name", &length) != 0 ||
        take(r, out, (size_t)length, "name of an entry") != 0)
        return -1;
    out[length] = '\0';
    return 0;
}

static int read_entry(struct reader *r, struct entry *out) {
    int32_t num_values = 0;
    if (take_name(r, 1, out->name) != 0 ||
        take_i32(r, 0, INT32_MAX, "number of calls", &out->num_calls) != 0 ||
        take_i32(r, 1, INT32_MAX, "number of values", &num_values) != 0)
        return -1;
    out->num_values = (uint32_t)num_values;
    out->offset = r->position;
    uint64_t bytes = (uint64_t)num_values * sizeof(float);
    if (bytes > r->file->bytes - r->position)
        return refuse(r, "the file ends inside values");
    r->position += bytes;
    return 0;
}

static int read_entries(struct imatrix *imatrix, struct error *err) {
    struct reader r = {.file = &imatrix->file, .err = err};
    int32_t count = 0;
    if (take_i32(&r, 1, MAX_ENTRIES, "number of entries", &count) != 0)
        return -1;
    for (int32_t i = 0; i < count; i++) {
        if (!array_reserve(&imatrix->entries, &imatrix->capacity, imatrix->num_entries + 1,
                           sizeof(*imatrix->entries)))
            return error_set(err, ERROR_MEMORY, "%s: no memory for its entries", r.file->path);
        if (read_entry(&r, &imatrix->entries[imatrix->num_entries]) != 0)
            return -1;
        imatrix->num_entries++;
    }
    if (r.position == r.file->bytes)
        return 0;
    if (take_i32(&r, 0, INT32_MAX, "number of chunks", &imatrix->num_chunks) != 0)
        return -1;
    return r.position < r.file->bytes ? take_name(&r, 0, imatrix->dataset) : 0;
}

static int read_values(const struct imatrix *imatrix, const struct entry *entry, size_t count,
                       float *out, struct error *err) {
    const char *path = imatrix->file.path;
    if (entry->num_values != count)
        return error_set(err, ERROR_MODEL,
                         "%s: entry '%s': has %" PRIu32 " values, and the tensor %zu columns", path,
                         entry->name, entry->num_values, count);
    if (input_file_read(&imatrix->file, entry->offset, count * sizeof(*out), out, entry->name,
                        err) != 0)
        return -1;
    float calls = entry->num_calls > 0 ? (float)entry->num_calls : 1.0F;
    for (size_t i = 0; i < count; i++)
        out[i] /= calls;
    return 0;
}

/* --- GGUF --- */

static const struct tensor_info *find_tensor(const struct imatrix *imatrix, const char *name,
                                             const char *suffix) {
    char full[MAX_NAME_BYTES + 1];
    snprintf(full, sizeof(full), "%s%s", name, suffix);
    return tensor_file_find(imatrix->gguf, full);
}

static int check_tensor(const struct imatrix *imatrix, const struct tensor_info *tensor,
                        size_t count, struct error *err) {
    const char *path = tensor_file_path(imatrix->gguf);
    if (tensor->dtype == DTYPE_F32 && tensor->bytes == count * sizeof(float))
        return 0;
    return error_set(err, ERROR_MODEL, "%s: tensor '%.*s': must be %zu values of f32", path,
                     text_print_length(tensor->name), tensor->name.data, count);
}

/* An expert that saw no token counts as one whose columns are all alike. */
static int read_sums(const struct imatrix *imatrix, const char *name, size_t num_matrices,
                     size_t cols, float *out, bool *found, struct error *err) {
    const struct tensor_info *sums = find_tensor(imatrix, name, ".in_sum2");
    const struct tensor_info *counts = find_tensor(imatrix, name, ".counts");
    *found = sums != NULL && counts != NULL;
    if (!*found)
        return 0;
    if (check_tensor(imatrix, sums, num_matrices * cols, err) != 0 ||
        check_tensor(imatrix, counts, num_matrices, err) != 0 ||
        tensor_read(imatrix->gguf, sums, 0, sums->bytes, out, err) != 0)
        return -1;
    for (size_t m = 0; m < num_matrices; m++) {
        float count;
        if (tensor_read(imatrix->gguf, counts, m * sizeof(count), sizeof(count), &count, err) != 0)
            return -1;
        for (size_t i = 0; i < cols; i++)
            out[m * cols + i] = count > 0.0F ? out[m * cols + i] / count : 1.0F;
    }
    return 0;
}

static void read_metadata(struct imatrix *imatrix) {
    const struct metadata *chunks = tensor_file_find_metadata(imatrix->gguf, "imatrix.chunk_count");
    const struct metadata *datasets = tensor_file_find_metadata(imatrix->gguf, "imatrix.datasets");
    if (chunks != NULL && chunks->type == METADATA_UINT && chunks->as_uint <= INT32_MAX)
        imatrix->num_chunks = (int32_t)chunks->as_uint;
    if (datasets != NULL && datasets->type == METADATA_ARRAY && datasets->as_array.count > 0 &&
        datasets->as_array.element_type == METADATA_STRING) {
        struct text name = metadata_array_string(datasets, 0);
        snprintf(imatrix->dataset, sizeof(imatrix->dataset), "%.*s", text_print_length(name),
                 name.data);
    }
    for (size_t i = 0; i < tensor_file_num_tensors(imatrix->gguf); i++)
        imatrix->num_entries +=
            text_ends_with(tensor_file_tensor(imatrix->gguf, i)->name, ".in_sum2");
}

static int open_gguf(struct imatrix *imatrix, const char *path, struct error *err) {
    if (tensor_file_open(path, &imatrix->gguf, err) != 0)
        return -1;
    read_metadata(imatrix);
    if (imatrix->num_entries > 0)
        return 0;
    return error_set(err, ERROR_MODEL, "%s: is not an importance matrix: no tensor NAME.in_sum2",
                     path);
}

/* --- Both --- */

static int open_any(struct imatrix *imatrix, const char *path, struct error *err) {
    char magic[4] = "";
    if (input_file_open(path, &imatrix->file, err) != 0)
        return -1;
    if (imatrix->file.bytes >= sizeof(magic) &&
        input_file_read(&imatrix->file, 0, sizeof(magic), magic, NULL, err) != 0)
        return -1;
    return memcmp(magic, "GGUF", sizeof(magic)) == 0 ? open_gguf(imatrix, path, err)
                                                     : read_entries(imatrix, err);
}

int imatrix_open(const char *path, struct imatrix **out, struct error *err) {
    struct imatrix *imatrix = calloc(1, sizeof(*imatrix));
    if (imatrix == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    if (open_any(imatrix, path, err) != 0) {
        imatrix_close(imatrix);
        return -1;
    }
    *out = imatrix;
    return 0;
}

void imatrix_close(struct imatrix *imatrix) {
    if (imatrix == NULL)
        return;
    tensor_file_close(imatrix->gguf);
    input_file_finish(&imatrix->file);
    free(imatrix->entries);
    free(imatrix);
}

size_t imatrix_num_entries(const struct imatrix *imatrix) {
    return imatrix->num_entries;
}

int32_t imatrix_num_chunks(const struct imatrix *imatrix) {
    return imatrix->num_chunks;
}

struct text imatrix_dataset(const struct imatrix *imatrix) {
    return (struct text){imatrix->dataset, strlen(imatrix->dataset)};
}

static int check_values(const char *path, const char *name, const float *values, size_t count,
                        struct error *err) {
    for (size_t i = 0; i < count; i++)
        if (!(values[i] >= 0.0F && values[i] <= 1e20F))
            return error_set(err, ERROR_MODEL,
                             "%s: entry '%s': value %zu is %g (allowed: 0 to 1e20)", path, name, i,
                             (double)values[i]);
    return 0;
}

int imatrix_read(const struct imatrix *imatrix, const char *name, int64_t num_matrices,
                 int64_t cols, float *out, bool *found, struct error *err) {
    size_t count = (size_t)num_matrices * (size_t)cols;
    int status = 0;
    *found = false;
    if (imatrix->gguf != NULL)
        status = read_sums(imatrix, name, (size_t)num_matrices, (size_t)cols, out, found, err);
    for (size_t i = 0; i < imatrix->num_entries && imatrix->gguf == NULL && !*found; i++) {
        *found = strcmp(imatrix->entries[i].name, name) == 0;
        if (*found)
            status = read_values(imatrix, &imatrix->entries[i], count, out, err);
    }
    if (status != 0 || !*found)
        return status;
    return check_values(imatrix->file.path, name, out, count, err);
}
