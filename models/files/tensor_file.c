/* Detects the format, puts a struct tensor_file together from its parts, finds tensors and
 * reads them. */
#include "models/files/tensor_file.h"

#include "config/base/check.h"
#include "models/files/input_file.h"
#include "models/files/gguf.h"
#include "models/files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tensor_file *create(const char *path, struct error *err) {
    struct tensor_file *file = calloc(1, sizeof(*file));
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
        free(file);
        return NULL;
    }
    return file;
}

void tensor_file_close(struct tensor_file *file) {
    if (file == NULL)
        return;
    for (int i = 0; i < file->num_parts; i++) {
        tensor_table_finish(&file->parts[i]->table);
        file_image_finish(&file->parts[i]->image);
        input_file_finish(&file->parts[i]->input);
        free(file->parts[i]);
    }
    free(file->parts);
    free(file->tensors);
    free(file->tensors_by_name);
    free(file->metadata_by_key);
    free(file->path);
    free(file);
}

static int refuse_format(const struct file_image *image, struct error *err) {
    return error_set(err, ERROR_MODEL,
                     "%s: not a model file: it does not start with the magic of a known format "
                     "(known: GGUF, or a folder with safetensors)",
                     image->name);
}

/* A safetensors file by itself has no configuration and no tokenizer. */
static int parse_file(struct file_image *image, struct tensor_table *out, struct error *err) {
    if (gguf_matches(image))
        return gguf_parse(image, out, err);
    if (safetensors_matches(image))
        return error_set(err, ERROR_MODEL,
                         "%s: is a safetensors file; name the folder that holds it and its "
                         "config.json",
                         image->name);
    return refuse_format(image, err);
}

static int parse_memory(struct file_image *image, struct tensor_table *out, struct error *err) {
    if (gguf_matches(image))
        return gguf_parse(image, out, err);
    return safetensors_matches(image) ? safetensors_parse(image, out, err)
                                      : refuse_format(image, err);
}

int tensor_file_open(const char *path, struct tensor_file **out, struct error *err) {
    struct tensor_file *file = create(path, err);
    if (file == NULL)
        return -1;
    int status = 0;
    if (input_file_is_folder(path))
        status = safetensors_open_folder(file, err);
    else if (tensor_parts_open(file, path, parse_file, err) != 0 || gguf_open_rest(file, err) != 0)
        status = -1;
    if (status != 0) {
        tensor_file_close(file);
        return -1;
    }
    *out = file;
    return 0;
}

int tensor_file_open_safetensors(const char *path, struct tensor_file **out, struct error *err) {
    struct tensor_file *file = create(path, err);
    if (file == NULL)
        return -1;
    snprintf(file->format, sizeof(file->format), "safetensors");
    if (tensor_parts_open(file, path, safetensors_parse, err) != 0 ||
        tensor_parts_join(file, err) != 0) {
        tensor_file_close(file);
        return -1;
    }
    *out = file;
    return 0;
}

int tensor_file_open_memory(const void *data, size_t bytes, const char *name,
                            struct tensor_file **out, struct error *err) {
    struct tensor_file *file = create(name, err);
    if (file == NULL)
        return -1;
    if (tensor_parts_open_memory(file, data, bytes, file->path, parse_memory, err) != 0 ||
        tensor_parts_join(file, err) != 0) {
        tensor_file_close(file);
        return -1;
    }
    struct file_image *image = &file->parts[0]->image;
    if (gguf_matches(image))
        snprintf(file->format, sizeof(file->format), "GGUF v%d", gguf_version(image));
    else
        snprintf(file->format, sizeof(file->format), "safetensors");
    *out = file;
    return 0;
}

const char *tensor_file_path(const struct tensor_file *file) {
    return file->path;
}

const char *tensor_file_format(const struct tensor_file *file) {
    return file->format;
}

size_t tensor_file_bytes(const struct tensor_file *file) {
    size_t bytes = 0;
    for (int i = 0; i < file->num_parts; i++)
        bytes += file->parts[i]->image.bytes;
    return bytes;
}

int tensor_file_num_parts(const struct tensor_file *file) {
    return file->num_parts;
}

const struct input_file *tensor_file_part(const struct tensor_file *file, int part) {
    CHECK(part >= 0 && part < file->num_parts);
    const struct input_file *input = &file->parts[part]->input;
    return input->path != NULL ? input : NULL;
}

size_t tensor_file_num_tensors(const struct tensor_file *file) {
    return file->num_tensors;
}

const struct tensor_info *tensor_file_tensor(const struct tensor_file *file, size_t index) {
    CHECK(index < file->num_tensors);
    return &file->tensors[index];
}

static int compare_tensor(const void *name, const void *element) {
    const struct tensor_info *const *tensor = element;
    return text_compare(*(const struct text *)name, (*tensor)->name);
}

const struct tensor_info *tensor_file_find(const struct tensor_file *file, const char *name) {
    const struct text wanted = {name, strlen(name)};
    const struct tensor_info **found = bsearch(&wanted, file->tensors_by_name, file->num_tensors,
                                               sizeof(*file->tensors_by_name), compare_tensor);
    return found != NULL ? *found : NULL;
}

int tensor_read(const struct tensor_file *file, const struct tensor_info *tensor, size_t offset,
                size_t bytes, void *dst, struct error *err) {
    CHECK(offset <= tensor->bytes && bytes <= tensor->bytes - offset);
    const struct tensor_part *part = file->parts[tensor->part];
    char what[160];
    if (part->input.path == NULL) {
        memcpy(dst, part->image.data + tensor->offset + offset, bytes);
        return 0;
    }
    snprintf(what, sizeof(what), "tensor '%.*s'", text_print_length(tensor->name),
             tensor->name.data);
    return input_file_read(&part->input, tensor->offset + offset, bytes, dst, what, err);
}

int tensor_file_refresh(const struct tensor_file *file, struct error *err) {
    for (int i = 0; i < file->num_parts; i++) {
        const struct tensor_part *part = file->parts[i];
        if (part->input.path == NULL)
            continue;
        if (input_file_refresh(&part->input, err) != 0)
            return -1;
        if (!file_image_is_current(&part->image))
            return error_set(err, ERROR_MODEL, "%s: the model's files have changed since the start",
                             part->input.path);
    }
    return 0;
}

size_t tensor_file_num_metadata(const struct tensor_file *file) {
    return file->parts[0]->table.num_metadata;
}

const struct metadata *tensor_file_metadata(const struct tensor_file *file, size_t index) {
    CHECK(index < file->parts[0]->table.num_metadata);
    return &file->parts[0]->table.metadata[index];
}

static int compare_entry(const void *key, const void *element) {
    const struct metadata *const *entry = element;
    return text_compare(*(const struct text *)key, (*entry)->key);
}

const struct metadata *tensor_file_find_metadata(const struct tensor_file *file, const char *key) {
    const struct text wanted = {key, strlen(key)};
    const struct metadata **found =
        bsearch(&wanted, file->metadata_by_key, tensor_file_num_metadata(file),
                sizeof(*file->metadata_by_key), compare_entry);
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
