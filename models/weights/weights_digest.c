#include "models/weights/weights_digest.h"

#include "models/files/input_file.h"

#include <stdlib.h>
#include <string.h>

/* --- Settings and tensors --- */

static struct text array_bytes(const struct metadata *metadata) {
    const char *data = metadata->as_array.data;
    uint64_t count = metadata->as_array.count;
    if (metadata->as_array.element_type != METADATA_STRING || count == 0)
        return (struct text){data, count * metadata->as_array.element_bytes};
    struct text last = metadata_array_string(metadata, count - 1);
    return (struct text){data, (size_t)(last.data + last.length - data)};
}

static void add_metadata(struct content_hash *hash, const struct metadata *metadata) {
    const int32_t type = metadata->type;
    struct text bytes = {(const char *)&metadata->as_uint, sizeof(metadata->as_uint)};
    if (metadata->type == METADATA_STRING)
        bytes = metadata->as_string;
    if (metadata->type == METADATA_ARRAY)
        bytes = array_bytes(metadata);
    content_hash_add_sized(hash, metadata->key.data, metadata->key.length);
    content_hash_add(hash, &type, sizeof(type));
    content_hash_add_sized(hash, bytes.data, bytes.length);
}

static int add_file(struct content_hash *hash, const char *path, void *chunk, size_t chunk_bytes,
                    struct error *err) {
    struct input_file file;
    if (input_file_open(path, &file, err) != 0)
        return 0; /* nothing reads it: it would have been refused before */
    content_hash_add(hash, &file.bytes, sizeof(file.bytes));
    int status = 0;
    for (uint64_t done = 0; done < file.bytes && status == 0; done += chunk_bytes) {
        uint64_t left = file.bytes - done;
        size_t bytes = left < chunk_bytes ? (size_t)left : chunk_bytes;
        status = input_file_read(&file, done, bytes, chunk, NULL, err);
        if (status == 0)
            content_hash_add(hash, chunk, bytes);
    }
    input_file_finish(&file);
    return status;
}

/* Adds the files that model_folder.c and the tokenizer read. */
static int add_folder(struct content_hash *hash, const char *folder, void *chunk,
                      size_t chunk_bytes, struct error *err) {
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.json",
        "chat_template.jinja",
        "additional_chat_templates/tool_use.jinja",
    };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (input_file_join_path(folder, names[i], path, err) != 0)
            return -1;
        if (input_file_is_missing(path))
            continue;
        content_hash_add_sized(hash, names[i], strlen(names[i]));
        if (add_file(hash, path, chunk, chunk_bytes, err) != 0)
            return -1;
    }
    return 0;
}

int weights_digest_add_settings(struct content_hash *hash, const struct model *model, void *chunk,
                                size_t chunk_bytes, struct error *err) {
    for (size_t i = 0; i < tensor_file_num_metadata(model->file); i++)
        add_metadata(hash, tensor_file_metadata(model->file, i));
    return model->folder != NULL ? add_folder(hash, model->folder, chunk, chunk_bytes, err) : 0;
}

void weights_digest_add_tensor(struct content_hash *hash, const struct tensor_info *tensor) {
    const int32_t type = tensor->dtype;
    content_hash_add_sized(hash, tensor->name.data, tensor->name.length);
    content_hash_add(hash, &type, sizeof(type));
    content_hash_add_sized(hash, tensor->shape, (size_t)tensor->num_dims * sizeof(*tensor->shape));
}

/* --- Pieces --- */

#define FIRST_CAPACITY 256

static const uint8_t not_read[CONTENT_HASH_BYTES];

static int grow(struct weights_digest *digest, struct error *err) {
    size_t capacity = digest->capacity > 0 ? 2 * digest->capacity : FIRST_CAPACITY;
    void *pieces = realloc(digest->pieces, capacity * sizeof(*digest->pieces));
    if (pieces == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the hashes of %zu pieces of a model",
                         capacity);
    digest->pieces = pieces;
    digest->capacity = capacity;
    return 0;
}

int weights_digest_add_piece(struct weights_digest *digest, const void *data, size_t bytes,
                             struct error *err) {
    if (digest->num_pieces == digest->capacity && grow(digest, err) != 0)
        return -1;
    uint8_t *piece = digest->pieces[digest->num_pieces++];
    memcpy(piece, not_read, sizeof(not_read));
    if (data != NULL)
        content_hash_of(data, bytes, piece);
    return 0;
}

bool weights_digest_merge(struct weights_digest *digest,
                          const uint8_t (*pieces)[CONTENT_HASH_BYTES]) {
    for (size_t i = 0; i < digest->num_pieces; i++) {
        bool is_known = memcmp(digest->pieces[i], not_read, sizeof(not_read)) != 0;
        bool is_new = memcmp(pieces[i], not_read, sizeof(not_read)) != 0;
        if (is_known && is_new && memcmp(digest->pieces[i], pieces[i], sizeof(not_read)) != 0)
            return false;
        if (is_new)
            memcpy(digest->pieces[i], pieces[i], sizeof(not_read));
    }
    return true;
}

void weights_digest_sum(const struct weights_digest *digest,
                        uint8_t out[static CONTENT_HASH_BYTES]) {
    uint8_t parts[2][CONTENT_HASH_BYTES];
    memcpy(parts[0], digest->settings, CONTENT_HASH_BYTES);
    content_hash_of(digest->pieces, digest->num_pieces * CONTENT_HASH_BYTES, parts[1]);
    content_hash_of(parts, sizeof(parts), out);
}

int weights_digest_copy(const struct weights_digest *digest, struct weights_digest *out,
                        struct error *err) {
    size_t bytes = digest->num_pieces * CONTENT_HASH_BYTES;
    void *pieces = malloc(bytes + 1);
    if (pieces == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the hashes of %zu pieces of a model",
                         digest->num_pieces);
    *out = *digest;
    out->pieces = pieces;
    out->capacity = digest->num_pieces;
    if (bytes > 0)
        memcpy(pieces, digest->pieces, bytes);
    return 0;
}

void weights_digest_finish(struct weights_digest *digest) {
    free(digest->pieces);
    *digest = (struct weights_digest){0};
}
