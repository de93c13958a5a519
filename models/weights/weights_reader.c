#include "models/weights/weights_reader.h"

#include "config/base/check.h"
#include "models/weights/model_digest.h"
#include "models/weights/tensor_names.h"

#include <pthread.h>
#include <stdlib.h>

struct weights_reader {
    const struct model *model;
    int32_t num_ranks;
    struct content_hash *hash;
    void *chunk; /* [WEIGHTS_CHUNK_BYTES] */
    struct weights_progress progress;
    size_t num_bytes; /* of all tensors that are to be read */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    int32_t num_waiting;
    uint64_t num_reads;
    size_t bytes_read;
    const struct tensor_info *tensor; /* of the piece that is waited for */
    size_t offset;
    struct error error; /* of the read, or the rank, that failed */
};

int weights_reader_create(const struct model *model, int32_t num_ranks, struct weights_reader **out,
                          struct error *err) {
    CHECK(num_ranks > 0);
    struct weights_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL)
        return error_set(err, ERROR_MEMORY, "no memory to read a model");
    reader->model = model;
    reader->num_ranks = num_ranks;
    CHECK(pthread_mutex_init(&reader->lock, NULL) == 0);
    CHECK(pthread_cond_init(&reader->changed, NULL) == 0);
    reader->hash = content_hash_create();
    reader->chunk = malloc(WEIGHTS_CHUNK_BYTES);
    int status = 0;
    if (reader->hash == NULL || reader->chunk == NULL)
        status = error_set(err, ERROR_MEMORY, "no memory to read %zu tensors",
                           tensor_file_num_tensors(model->file));
    else
        status =
            model_digest_add_settings(reader->hash, model, reader->chunk, WEIGHTS_CHUNK_BYTES, err);
    if (status == 0)
        *out = reader;
    else
        weights_reader_destroy(reader);
    return status;
}

void weights_reader_destroy(struct weights_reader *reader) {
    if (reader == NULL)
        return;
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    content_hash_destroy(reader->hash);
    free(reader->chunk);
    free(reader);
}

static size_t count_bytes(const struct model *model) {
    size_t bytes = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        if (!tensor_names_is_ignorable(&model->config, tensor->name))
            bytes += tensor->bytes;
    }
    return bytes;
}

void weights_reader_set_progress(struct weights_reader *reader, struct weights_progress progress) {
    reader->progress = progress;
    reader->num_bytes = count_bytes(reader->model);
}

static void report_locked(struct weights_reader *reader, size_t bytes) {
    const struct weights_progress *progress = &reader->progress;
    reader->bytes_read += bytes;
    if (progress->report != NULL)
        progress->report(progress->context, reader->bytes_read, reader->num_bytes);
}

/* With the lock held: nobody uses the chunk, since every rank has asked for the next. */
static void read_locked(struct weights_reader *reader, const struct tensor_info *tensor,
                        size_t offset, size_t bytes) {
    if (offset == 0)
        model_digest_add_tensor(reader->hash, tensor);
    if (tensor_read(reader->model->file, tensor, offset, bytes, reader->chunk, &reader->error) ==
        0) {
        content_hash_add(reader->hash, reader->chunk, bytes);
        report_locked(reader, bytes);
    }
    reader->num_waiting = 0;
    reader->num_reads++;
    pthread_cond_broadcast(&reader->changed);
}

const void *weights_reader_read(struct weights_reader *reader, const struct tensor_info *tensor,
                                size_t offset, size_t bytes, struct error *err) {
    CHECK(bytes <= WEIGHTS_CHUNK_BYTES);
    pthread_mutex_lock(&reader->lock);
    uint64_t number = reader->num_reads;
    CHECK(reader->num_waiting == 0 || (reader->tensor == tensor && reader->offset == offset));
    reader->tensor = tensor;
    reader->offset = offset;
    if (reader->error.code == ERROR_NONE && ++reader->num_waiting == reader->num_ranks)
        read_locked(reader, tensor, offset, bytes);
    while (reader->error.code == ERROR_NONE && reader->num_reads == number)
        pthread_cond_wait(&reader->changed, &reader->lock);
    struct error error = reader->error;
    pthread_mutex_unlock(&reader->lock);
    if (error.code == ERROR_NONE)
        return reader->chunk;
    error_set(err, error.code, "%s", error.message);
    return NULL;
}

void weights_reader_abandon(struct weights_reader *reader, const struct error *why) {
    CHECK(why->code != ERROR_NONE);
    pthread_mutex_lock(&reader->lock);
    if (reader->error.code == ERROR_NONE)
        reader->error = *why;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

void weights_reader_digest(const struct weights_reader *reader,
                           uint8_t out[static CONTENT_HASH_BYTES]) {
    content_hash_digest(reader->hash, out);
}
