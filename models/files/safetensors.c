#include "models/files/safetensors.h"

#include "models/files/input_file.h"
#include "models/files/json_file.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define MAX_HEADER_BYTES 100000000
#define MAX_NAME_BYTES 512
#define MAX_WHOLE 9007199254740991.0 /* 2^53 - 1: cJSON's numbers are doubles */

struct header {
    const char *file;
    size_t data_begin, data_bytes;
    struct error *err;
};

static const struct {
    const char *name;
    enum dtype dtype;
} types[] = {{"F32", DTYPE_F32}, {"F16", DTYPE_F16}, {"BF16", DTYPE_BF16}};

/* Masks, positions and counters are stored together with the weights; an ignorable one must not
 * cause a model to be refused. Types of less than a byte are left out: only weights have them. */
static const struct unsupported_type unsupported_types[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"F8_E8M0", 1},
    {"U16", 2},  {"I32", 4}, {"U32", 4}, {"I64", 8},     {"U64", 8},     {"F64", 8}, {"C64", 8},
};

bool safetensors_matches(struct file_image *image) {
    if (image->bytes <= LENGTH_BYTES || file_image_require(image, LENGTH_BYTES + 1, NULL) != 0)
        return false;
    return image->data[LENGTH_BYTES] == '{';
}

static int refuse(const struct header *h, const char *name, const char *reason) {
    const struct text text = {name, strlen(name)};
    return error_set(h->err, ERROR_MODEL, "%s: tensor '%.*s': %s", h->file, text_print_length(text),
                     name, reason);
}

static bool read_whole(const cJSON *item, uint64_t *out) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0 && item->valuedouble <= MAX_WHOLE) ||
        floor(item->valuedouble) != item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

static int read_type(const struct header *h, const cJSON *item, struct tensor_info *tensor) {
    if (!cJSON_IsString(item))
        return refuse(h, tensor->name.data, "dtype: is missing or no text");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(item->valuestring, types[i].name) == 0) {
            tensor->dtype = types[i].dtype;
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof(unsupported_types) / sizeof(unsupported_types[0]); i++) {
        if (strcmp(item->valuestring, unsupported_types[i].name) == 0) {
            tensor->dtype = DTYPE_NONE;
            tensor->unsupported = &unsupported_types[i];
            return 0;
        }
    }
    return error_set(
        h->err, ERROR_MODEL,
        "%s: tensor '%.*s': dtype '%.32s' is not known; weights are F32, F16 or BF16, those of "
        "quantised checkpoints also F8_E4M3, U8 or I32",
        h->file, text_print_length(tensor->name), tensor->name.data, item->valuestring);
}

static int read_shape(const struct header *h, const cJSON *shape, struct tensor_info *tensor) {
    const char *name = tensor->name.data;
    const cJSON *item;
    if (!cJSON_IsArray(shape))
        return refuse(h, name, "shape: is missing or no array");
    cJSON_ArrayForEach(item, shape) {
        uint64_t dim;
        if (tensor->num_dims == TENSOR_MAX_DIMS)
            return refuse(h, name, "shape: more than 4 dimensions");
        if (!read_whole(item, &dim) || dim == 0)
            return refuse(h, name, "shape: a dimension is not a whole number from 1 to 2^53-1");
        tensor->shape[tensor->num_dims++] = (int64_t)dim;
    }
    return 0;
}

/* check_order finds out whether the data lies inside the file. */
static int read_offsets(const struct header *h, const cJSON *offsets, struct tensor_info *tensor) {
    const char *name = tensor->name.data;
    uint64_t begin, end;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !read_whole(offsets->child, &begin) || !read_whole(offsets->child->next, &end))
        return refuse(h, name, "data_offsets: is not an array of two whole numbers up to 2^53-1");
    if (tensor_table_size(h->file, tensor, h->err) != 0)
        return -1;
    if (end < begin || end - begin != tensor->bytes)
        return error_set(h->err, ERROR_MODEL,
                         "%s: tensor '%.*s': data_offsets: %" PRIu64 " to %" PRIu64
                         ", but its shape and type take %zu bytes",
                         h->file, text_print_length(tensor->name), name, begin, end, tensor->bytes);
    tensor->offset = h->data_begin + begin;
    return 0;
}

static int read_tensor(const struct header *h, const cJSON *item, struct tensor_info *tensor) {
    if (tensor_table_check_name(h->file, "header", tensor->name, MAX_NAME_BYTES, h->err) != 0)
        return -1;
    const cJSON *field;
    if (!cJSON_IsObject(item))
        return refuse(h, item->string, "is not an object");
    cJSON_ArrayForEach(field, item) {
        if (strcmp(field->string, "dtype") != 0 && strcmp(field->string, "shape") != 0 &&
            strcmp(field->string, "data_offsets") != 0)
            return refuse(h, item->string, "an unknown field (known: dtype, shape, data_offsets)");
    }
    if (read_type(h, cJSON_GetObjectItemCaseSensitive(item, "dtype"), tensor) != 0 ||
        read_shape(h, cJSON_GetObjectItemCaseSensitive(item, "shape"), tensor) != 0)
        return -1;
    return read_offsets(h, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), tensor);
}

static int check_metadata(const struct header *h, const cJSON *metadata) {
    const cJSON *item;
    if (!cJSON_IsObject(metadata))
        return error_set(h->err, ERROR_MODEL, "%s: __metadata__: is not an object", h->file);
    cJSON_ArrayForEach(item, metadata) {
        if (!cJSON_IsString(item))
            return error_set(h->err, ERROR_MODEL, "%s: __metadata__: '%.64s' is not a text",
                             h->file, item->string);
    }
    return 0;
}

static int read_tensors(const struct header *h, const cJSON *json, struct tensor_table *table) {
    size_t count = 0, names_bytes = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, json) {
        count++;
        names_bytes += strlen(item->string) + 1;
    }
    table->tensors = calloc(count + 1, sizeof(*table->tensors));
    table->names = malloc(names_bytes + 1);
    if (table->tensors == NULL || table->names == NULL)
        return error_set(h->err, ERROR_MEMORY, "%s: no memory for %zu tensors", h->file, count);
    char *name = table->names;
    cJSON_ArrayForEach(item, json) {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (check_metadata(h, item) != 0)
                return -1;
            continue;
        }
        struct tensor_info *tensor = &table->tensors[table->num_tensors++];
        tensor->name = (struct text){name, strlen(item->string)};
        name = stpcpy(name, item->string) + 1;
        if (read_tensor(h, item, tensor) != 0)
            return -1;
    }
    return 0;
}

static int check_order(const struct header *h, const struct tensor_info **sorted, size_t count) {
    uint64_t at = h->data_begin, file_end = h->data_begin + h->data_bytes;
    for (size_t i = 0; i < count; i++) {
        const struct tensor_info *tensor = sorted[i];
        if (tensor->offset != at)
            return refuse(h, tensor->name.data,
                          tensor->offset < at
                              ? "data_offsets: its data overlaps that of another tensor"
                              : "data_offsets: a gap before its data belongs to no tensor");
        at += tensor->bytes;
        if (at > file_end)
            return error_set(
                h->err, ERROR_MODEL,
                "%s: tensor '%.*s': data ends at byte %" PRIu64 " but the file has %" PRIu64,
                h->file, text_print_length(tensor->name), tensor->name.data, at, file_end);
    }
    if (at < file_end)
        return error_set(h->err, ERROR_MODEL, "%s: the last %" PRIu64 " bytes belong to no tensor",
                         h->file, file_end - at);
    return 0;
}

static int check_cover(const struct header *h, const struct tensor_table *table) {
    const struct tensor_info **sorted = tensor_table_by_offset(table);
    if (sorted == NULL)
        return error_set(h->err, ERROR_MEMORY, "%s: no memory for %zu tensors", h->file,
                         table->num_tensors);
    int status = check_order(h, sorted, table->num_tensors);
    free(sorted);
    return status;
}

static int read_length(struct file_image *image, size_t *out, struct error *err) {
    uint64_t length;
    if (image->bytes <= LENGTH_BYTES)
        return error_set(err, ERROR_MODEL, "%s: header: the file ends at byte %zu, inside it",
                         image->name, image->bytes);
    if (file_image_require(image, LENGTH_BYTES, err) != 0)
        return -1;
    memcpy(&length, image->data, sizeof(length));
    if (length == 0 || length > MAX_HEADER_BYTES)
        return error_set(err, ERROR_MODEL, "%s: header: length %" PRIu64 " (allowed: 1 to %d)",
                         image->name, length, MAX_HEADER_BYTES);
    if (length > image->bytes - LENGTH_BYTES)
        return error_set(err, ERROR_MODEL, "%s: header: length %" PRIu64 ", but the file has %zu",
                         image->name, length, image->bytes);
    *out = (size_t)length;
    return file_image_require(image, LENGTH_BYTES + *out, err);
}

static cJSON *read_header(struct file_image *image, size_t length, struct error *err) {
    struct error why;
    if (image->data[LENGTH_BYTES] != '{') {
        error_set(err, ERROR_MODEL, "%s: header: does not begin with '{'", image->name);
        return NULL;
    }
    const char *text = (const char *)image->data + LENGTH_BYTES;
    cJSON *json = json_memory_read(text, length, "header", &why);
    if (json == NULL)
        error_set(err, why.code, "%s: %s", image->name, why.message);
    return json;
}

int safetensors_parse(struct file_image *image, struct tensor_table *out, struct error *err) {
    struct tensor_table table = {0};
    size_t length = 0;
    if (read_length(image, &length, err) != 0)
        return -1;
    cJSON *json = read_header(image, length, err);
    if (json == NULL)
        return -1;
    size_t data_begin = LENGTH_BYTES + length;
    const struct header header = {image->name, data_begin, image->bytes - data_begin, err};
    int status = read_tensors(&header, json, &table);
    cJSON_Delete(json);
    if (status == 0)
        status = check_cover(&header, &table);
    if (status != 0)
        tensor_table_finish(&table);
    else
        *out = table;
    return status;
}

/* --- Folders ---
 * Finds the files of a Hugging Face folder that hold the weights. The index names tensors and their
 * shards; names come from outside, so a shard is a plain file name inside the folder, never a
 * path. */

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define MAX_INDEX_BYTES ((size_t)32 << 20)

/* One folder being opened. */
struct folder {
    struct tensor_file *file;
    char index_path[PATH_MAX];
    const cJSON *weight_map;
    const char **shards; /* [num_shards], sorted: shard i is part i */
    int num_shards;
    struct error *err;
};

static int open_part(struct tensor_file *file, const char *name, struct error *err) {
    char path[PATH_MAX];
    if (input_file_join_path(file->path, name, path, err) != 0)
        return -1;
    return tensor_parts_open(file, path, safetensors_parse, err);
}

static bool name_ends_with(const char *name, const char *end) {
    return text_ends_with((struct text){name, strlen(name)}, end);
}

static bool is_shard_name(const char *name) {
    for (const char *at = name; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '/')
            return false;
    return name[0] != '.' && strlen(name) <= 255 && name_ends_with(name, ".safetensors");
}

static int check_map(const struct folder *f) {
    const cJSON *item;
    if (!cJSON_IsObject(f->weight_map) || f->weight_map->child == NULL)
        return error_set(f->err, ERROR_MODEL, "%s: weight_map: is missing, empty or no object",
                         f->index_path);
    cJSON_ArrayForEach(item, f->weight_map) {
        if (!cJSON_IsString(item) || !is_shard_name(item->valuestring))
            return error_set(f->err, ERROR_MODEL,
                             "%s: weight_map: '%.100s': the shard is not a plain file name that "
                             "ends in .safetensors",
                             f->index_path, item->string);
    }
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the distinct names of the map, sorted. */
static int list_shards(struct folder *f) {
    size_t count = (size_t)cJSON_GetArraySize(f->weight_map), num_shards = 0;
    f->shards = calloc(count + 1, sizeof(*f->shards));
    if (f->shards == NULL)
        return error_set(f->err, ERROR_MEMORY, "%s: no memory for %zu tensors", f->index_path,
                         count);
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, f->weight_map) f->shards[i++] = item->valuestring;
    qsort(f->shards, count, sizeof(*f->shards), compare_names);
    for (i = 0; i < count; i++)
        if (i == 0 || strcmp(f->shards[num_shards - 1], f->shards[i]) != 0)
            f->shards[num_shards++] = f->shards[i];
    if (num_shards > TENSOR_MAX_PARTS)
        return error_set(f->err, ERROR_MODEL, "%s: weight_map: %zu shards (at most %d)",
                         f->index_path, num_shards, TENSOR_MAX_PARTS);
    f->num_shards = (int)num_shards;
    return 0;
}

/* A tensor of the map that no shard has is not an error: real indices name a tied head that was not
 * stored. Loading names what is missing. */
static int compare_with_map(const struct folder *f) {
    const cJSON *item;
    cJSON_ArrayForEach(item, f->weight_map) {
        const struct tensor_info *tensor = tensor_file_find(f->file, item->string);
        if (tensor != NULL && strcmp(f->shards[tensor->part], item->valuestring) != 0)
            return error_set(f->err, ERROR_MODEL,
                             "%s: weight_map: tensor '%.100s' is in the shard %.100s and not, as "
                             "the map says, in %.100s",
                             f->index_path, item->string, f->shards[tensor->part],
                             item->valuestring);
    }
    return 0;
}

static int open_mapped(struct folder *f) {
    if (check_map(f) != 0 || list_shards(f) != 0)
        return -1;
    for (int i = 0; i < f->num_shards; i++)
        if (open_part(f->file, f->shards[i], f->err) != 0)
            return -1;
    if (tensor_parts_join(f->file, f->err) != 0)
        return -1;
    snprintf(f->file->format, sizeof(f->file->format), "safetensors, %d files", f->num_shards);
    return compare_with_map(f);
}

static int open_index(struct tensor_file *file, struct error *err) {
    struct folder folder = {.file = file, .err = err};
    if (input_file_join_path(file->path, INDEX_NAME, folder.index_path, err) != 0)
        return -1;
    cJSON *json = json_file_read(folder.index_path, MAX_INDEX_BYTES, err);
    int status = -1;
    if (json != NULL) {
        folder.weight_map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
        status = open_mapped(&folder);
    }
    free(folder.shards);
    cJSON_Delete(json);
    return status;
}

static bool is_pickle(const char *name) {
    return name_ends_with(name, ".bin") || name_ends_with(name, ".pth") ||
           name_ends_with(name, ".pt");
}

/* Advises by what lies in the folder. */
static int refuse_folder(const struct tensor_file *file, struct error *err) {
    char pickle[64] = "", gguf[64] = "";
    DIR *dir = opendir(file->path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (is_pickle(entry->d_name))
            snprintf(pickle, sizeof(pickle), "%.63s", entry->d_name);
        if (name_ends_with(entry->d_name, ".gguf"))
            snprintf(gguf, sizeof(gguf), "%.63s", entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    if (pickle[0] != '\0')
        return error_set(err, ERROR_MODEL,
                         "%s: holds its weights as %s: pickle files can run code and are never "
                         "read; " SINGLE_NAME " is needed",
                         file->path, pickle);
    if (gguf[0] != '\0')
        return error_set(err, ERROR_MODEL,
                         "%s: is a directory without " SINGLE_NAME
                         "; name the GGUF file in it (%s)",
                         file->path, gguf);
    return error_set(err, ERROR_MODEL,
                     "%s: is a directory with neither " SINGLE_NAME " nor " INDEX_NAME, file->path);
}

static bool has(const char *folder, const char *name) {
    char path[PATH_MAX];
    return input_file_join_path(folder, name, path, NULL) == 0 && !input_file_is_missing(path);
}

int safetensors_open_folder(struct tensor_file *file, struct error *err) {
    if (has(file->path, SINGLE_NAME)) {
        snprintf(file->format, sizeof(file->format), "safetensors");
        if (open_part(file, SINGLE_NAME, err) != 0)
            return -1;
        return tensor_parts_join(file, err);
    }
    return has(file->path, INDEX_NAME) ? open_index(file, err) : refuse_folder(file, err);
}
