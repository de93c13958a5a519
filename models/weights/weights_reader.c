#include "models/weights/weights_reader.h"

#include "config/base/check.h"
#include "kernels/dtype.h"
#include "models/weights/model_digest.h"
#include "models/config/tensor_names.h"
#include "models/weights/weights_chain.h"

#include <pthread.h>
#include <stdlib.h>

struct weights_reader {
    const struct model *model;
    int32_t num_ranks;          /* in this process */
    bool skips;                 /* what its only rank does not keep */
    struct weights_chain chain; /* from process to process */
    struct content_hash *settings, *samples;
    struct weights_digest digest;
    void *chunk; /* [WEIGHTS_CHUNK_BYTES] */
    struct weights_progress progress;
    size_t num_bytes; /* of all tensors that are to be read */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    int32_t num_waiting;
    uint64_t num_reads;
    size_t bytes_read;
    struct weights_piece piece; /* that is waited for, or was read last */
    bool is_read;
    struct error error; /* of the read, or the rank, that failed */
};

static size_t count_bytes(const struct model *model) {
    size_t bytes = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        if (!tensor_names_is_ignorable(&model->config, tensor->name))
            bytes += tensor->bytes;
    }
    return bytes;
}

int weights_reader_create(const struct model *model, int32_t num_ranks, struct weights_reader **out,
                          struct error *err) {
    CHECK(num_ranks > 0);
    struct weights_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL)
        return error_set(err, ERROR_MEMORY, "no memory to read a model");
    reader->model = model;
    reader->num_ranks = num_ranks;
    reader->num_bytes = count_bytes(model);
    CHECK(pthread_mutex_init(&reader->lock, NULL) == 0);
    CHECK(pthread_cond_init(&reader->changed, NULL) == 0);
    reader->settings = content_hash_create();
    reader->samples = content_hash_create();
    reader->chunk = malloc(WEIGHTS_CHUNK_BYTES);
    int status = 0;
    if (reader->settings == NULL || reader->samples == NULL || reader->chunk == NULL)
        status = error_set(err, ERROR_MEMORY, "no memory to read %zu tensors",
                           tensor_file_num_tensors(model->file));
    else
        status = model_digest_add_settings(reader->settings, model, reader->chunk,
                                           WEIGHTS_CHUNK_BYTES, err);
    if (status == 0)
        *out = reader;
    else
        weights_reader_destroy(reader);
    return status;
}

int weights_reader_create_remote(const struct model *model, struct transport *transport,
                                 enum weights_load_mode mode, struct weights_reader **out,
                                 struct error *err) {
    if (weights_reader_create(model, 1, out, err) != 0)
        return -1;
    struct weights_reader *reader = *out;
    reader->skips = mode == WEIGHTS_LOAD_SHARDS;
    if (mode == WEIGHTS_LOAD_BROADCAST)
        reader->chain = weights_chain_begin(transport, reader->num_bytes);
    return 0;
}

void weights_reader_destroy(struct weights_reader *reader) {
    if (reader == NULL)
        return;
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    content_hash_destroy(reader->settings);
    content_hash_destroy(reader->samples);
    weights_digest_finish(&reader->digest);
    free(reader->chunk);
    free(reader);
}

void weights_reader_set_progress(struct weights_reader *reader, struct weights_progress progress) {
    reader->progress = progress;
}

/* --- One piece --------------------------------------------------------------------------------- */

/* So that a process notices other files also where it keeps nothing of a matrix. */
static int add_sample(struct weights_reader *reader, const struct tensor_info *tensor,
                      struct error *err) {
    size_t bytes = dtype_row_bytes(tensor->dtype, (size_t)tensor->shape[tensor->num_dims - 1]);
    if (tensor_read(reader->model->file, tensor, 0, bytes, reader->chunk, err) != 0)
        return -1;
    content_hash_add(reader->samples, reader->chunk, bytes);
    return 0;
}

static bool is_chained(const struct weights_reader *reader) {
    return reader->chain.transport != NULL;
}

/* *out_is_read: the bytes are in the chunk. */
static int fetch(struct weights_reader *reader, const struct weights_piece *piece,
                 bool *out_is_read, struct error *err) {
    *out_is_read = !reader->skips || piece->is_kept;
    if (reader->skips && piece->offset == 0 && piece->tensor->num_dims > 1 &&
        add_sample(reader, piece->tensor, err) != 0)
        return -1;
    bool reads = *out_is_read && (!is_chained(reader) || weights_chain_reads(&reader->chain));
    if (reads && tensor_read(reader->model->file, piece->tensor, piece->offset, piece->bytes,
                             reader->chunk, err) != 0)
        return -1;
    return is_chained(reader) ? weights_chain_next(&reader->chain, reader->chunk, piece->bytes, err)
                              : 0;
}

static void report_locked(struct weights_reader *reader, size_t bytes) {
    const struct weights_progress *progress = &reader->progress;
    reader->bytes_read += bytes;
    if (progress->report != NULL)
        progress->report(progress->context, reader->bytes_read, reader->num_bytes);
}

/* With the lock held: nobody uses the chunk, since every rank has asked for the next. */
static void read_locked(struct weights_reader *reader) {
    const struct weights_piece *piece = &reader->piece;
    if (piece->offset == 0)
        model_digest_add_tensor(reader->settings, piece->tensor);
    if (fetch(reader, piece, &reader->is_read, &reader->error) == 0 &&
        weights_digest_add_piece(&reader->digest, reader->is_read ? reader->chunk : NULL,
                                 piece->bytes, &reader->error) == 0)
        report_locked(reader, piece->bytes);
    reader->num_waiting = 0;
    reader->num_reads++;
    pthread_cond_broadcast(&reader->changed);
}

int weights_reader_read(struct weights_reader *reader, const struct weights_piece *piece,
                        const void **out, struct error *err) {
    CHECK(piece->bytes <= WEIGHTS_CHUNK_BYTES);
    pthread_mutex_lock(&reader->lock);
    uint64_t number = reader->num_reads;
    CHECK(reader->num_waiting == 0 ||
          (reader->piece.tensor == piece->tensor && reader->piece.offset == piece->offset));
    reader->piece = *piece;
    if (reader->error.code == ERROR_NONE && ++reader->num_waiting == reader->num_ranks)
        read_locked(reader);
    while (reader->error.code == ERROR_NONE && reader->num_reads == number)
        pthread_cond_wait(&reader->changed, &reader->lock);
    struct error error = reader->error;
    bool is_read = reader->is_read;
    pthread_mutex_unlock(&reader->lock);
    if (error.code != ERROR_NONE)
        return error_set(err, error.code, "%s", error.message);
    *out = is_read ? reader->chunk : NULL;
    return 0;
}

int weights_reader_end(struct weights_reader *reader, struct error *err) {
    if (!is_chained(reader) || reader->chain.has_ended)
        return 0;
    return error_set(err, ERROR_MODEL, "model: rank 0's files have more tensors");
}

void weights_reader_abandon(struct weights_reader *reader, const struct error *why) {
    CHECK(why->code != ERROR_NONE);
    pthread_mutex_lock(&reader->lock);
    if (reader->error.code == ERROR_NONE)
        reader->error = *why;
    if (is_chained(reader))
        weights_chain_abandon(&reader->chain, reader->chunk, &reader->error);
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

struct weights_digest *weights_reader_digest(struct weights_reader *reader) {
    content_hash_digest(reader->settings, reader->digest.settings);
    if (reader->skips)
        content_hash_digest(reader->samples, reader->digest.samples);
    return &reader->digest;
}
