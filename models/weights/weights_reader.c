#include "models/weights/weights_reader.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/dtype.h"
#include "kernels/transport.h"
#include "models/config/tensor_names.h"

#include <pthread.h>
#include <stdlib.h>

/* --- From process to process ---
 * The bytes of a model on their way through processes of which only rank 0 reads them. Each rank
 * gets a piece from the one before it and passes it to the next, so that no link carries the model
 * twice and the next piece is read while this one is on its way. However long a piece takes, nobody
 * counts as lost: loading takes what the disk takes. */

struct chain {
    struct transport *transport; /* NULL: there is no chain */
    size_t bytes_left;           /* that rank 0 has still to read, as far as this rank knows */
    bool has_ended;              /* nothing comes any more: all is here, or an error passed */
};

/* Before each piece, whose bytes follow unless there is an error. */
struct piece_header {
    size_t bytes, bytes_left; /* of the piece; after it */
    struct error error;
};

static int pass_on(struct chain *chain, const struct piece_header *header, const void *chunk,
                   struct error *err) {
    struct transport *t = chain->transport;
    int32_t next = t->rank + 1;
    if (next == t->num_ranks)
        return 0;
    if (transport_send(t, TRANSPORT_SUMS, next, header, sizeof(*header), err) != 0)
        return -1;
    return header->error.code != ERROR_NONE
               ? 0
               : transport_send(t, TRANSPORT_SUMS, next, chunk, header->bytes, err);
}

/* 0 with a piece or an error in the header; -1: the chain is broken. */
static int take(struct chain *chain, struct piece_header *header, void *chunk, struct error *err) {
    struct transport *t = chain->transport;
    int32_t before = t->rank - 1;
    if (transport_receive(t, TRANSPORT_SUMS, before, header, sizeof(*header), err) != 0)
        return -1;
    if (header->error.code != ERROR_NONE)
        return 0;
    if (header->bytes > WEIGHTS_CHUNK_BYTES)
        return error_set(err, ERROR_DEVICE, "rank %d sends a piece of %zu bytes", before,
                         header->bytes);
    return transport_receive(t, TRANSPORT_SUMS, before, chunk, header->bytes, err);
}

/* Reads, on rank 0, or takes one piece, and passes it on. */
static int move(struct chain *chain, struct piece_header *header, void *chunk, struct error *err) {
    struct transport *t = chain->transport;
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = 0;
    int status = t->rank == 0 ? 0 : take(chain, header, chunk, err);
    if (status == 0)
        status = pass_on(chain, header, chunk, err);
    t->timeout_ns = timeout_ns;
    chain->bytes_left = status == 0 ? header->bytes_left : 0;
    chain->has_ended = chain->bytes_left == 0 || header->error.code != ERROR_NONE;
    return status;
}

/* On rank 0: passes on the piece that is in `chunk`. On others: waits for it there and passes it
 * on. The piece must have this size: ERROR_MODEL when rank 0's piece has another one, or there is
 * none. An error of rank 0's is this rank's; ERROR_DEVICE of the transport. */
static int chain_next(struct chain *chain, void *chunk, size_t bytes, struct error *err) {
    struct piece_header header = {.bytes = bytes, .bytes_left = chain->bytes_left - bytes};
    if (chain->has_ended)
        return error_set(err, ERROR_MODEL, "model: rank 0's files have fewer tensors");
    if (move(chain, &header, chunk, err) != 0)
        return -1;
    if (header.error.code != ERROR_NONE)
        return error_set(err, header.error.code, "%s", header.error.message);
    if (header.bytes != bytes)
        return error_set(err, ERROR_MODEL, "model: rank 0's files have other tensors");
    return 0;
}

/* This rank stops loading: tells the others if it is rank 0, otherwise takes and passes on what
 * still arrives, so that they can continue. chunk: [WEIGHTS_CHUNK_BYTES]. May be called several
 * times. */
static void chain_abandon(struct chain *chain, void *chunk, const struct error *why) {
    struct piece_header header = {.error = *why};
    struct error unseen;
    if (chain->transport->rank == 0 && !chain->has_ended)
        move(chain, &header, chunk, &unseen);
    while (!chain->has_ended)
        if (move(chain, &header, chunk, &unseen) != 0)
            return;
}

/* --- The reader --- */

struct weights_reader {
    const struct model *model;
    int32_t num_ranks;  /* in this process */
    bool skips;         /* what its only rank does not keep */
    struct chain chain; /* from process to process */
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
    int32_t num_agreed, num_found; /* of the ranks */
    bool is_restored;
    struct error error; /* of the read, or the rank, that failed */
};

static size_t count_bytes(const struct model *model) {
    size_t bytes = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        if (!tensor_names_is_ignorable(&model->config, tensor->name))
            bytes += tensor->bytes;
    }
    for (int32_t i = 0; i < model->config.num_layers && model->config.latent.kv_rank > 0; i++) {
        /* Read twice: for its keys, and for its values. */
        const struct tensor_place place = {TENSOR_KV_B, i, 0};
        const struct tensor_info *tensor = tensor_names_find(model, place, "weight");
        bytes += tensor != NULL ? tensor->bytes : 0;
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
        status = weights_digest_add_settings(reader->settings, model, reader->chunk,
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
        reader->chain = (struct chain){.transport = transport, .bytes_left = reader->num_bytes};
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

/* --- One piece --- */

/* So that a process notices other files also where it keeps nothing of a matrix. */
static int add_sample(struct weights_reader *reader, const struct tensor_info *tensor,
                      struct error *err) {
    size_t bytes = tensor->bytes;
    for (int i = 0; i < tensor->num_dims - 1; i++)
        bytes /= (size_t)tensor->shape[i];
    bytes = min_size(bytes, WEIGHTS_CHUNK_BYTES);
    if (tensor_read(reader->model->file, tensor, 0, bytes, reader->chunk, err) != 0)
        return -1;
    content_hash_add(reader->samples, reader->chunk, bytes);
    return 0;
}

bool weights_reader_is_chained(const struct weights_reader *reader) {
    return reader->chain.transport != NULL;
}

/* *out_is_read: the bytes are in the chunk. */
static int fetch(struct weights_reader *reader, const struct weights_piece *piece,
                 bool *out_is_read, struct error *err) {
    *out_is_read = !reader->skips || piece->is_kept;
    if (reader->skips && piece->offset == 0 && piece->tensor->num_dims > 1 &&
        add_sample(reader, piece->tensor, err) != 0)
        return -1;
    bool reads =
        *out_is_read && (!weights_reader_is_chained(reader) || reader->chain.transport->rank == 0);
    if (reads && tensor_read(reader->model->file, piece->tensor, piece->offset, piece->bytes,
                             reader->chunk, err) != 0)
        return -1;
    return weights_reader_is_chained(reader)
               ? chain_next(&reader->chain, reader->chunk, piece->bytes, err)
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
        weights_digest_add_tensor(reader->settings, piece->tensor);
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
    if (!weights_reader_is_chained(reader) || reader->chain.has_ended)
        return 0;
    return error_set(err, ERROR_MODEL, "model: rank 0's files have more tensors");
}

void weights_reader_abandon(struct weights_reader *reader, const struct error *why) {
    CHECK(why->code != ERROR_NONE);
    pthread_mutex_lock(&reader->lock);
    if (reader->error.code == ERROR_NONE)
        reader->error = *why;
    if (weights_reader_is_chained(reader))
        chain_abandon(&reader->chain, reader->chunk, &reader->error);
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

/* --- Weights that are not read --- */

int weights_reader_agree(struct weights_reader *reader, bool is_found, bool *out_all,
                         struct error *err) {
    pthread_mutex_lock(&reader->lock);
    reader->num_found += is_found ? 1 : 0;
    if (++reader->num_agreed == reader->num_ranks)
        pthread_cond_broadcast(&reader->changed);
    while (reader->error.code == ERROR_NONE && reader->num_agreed < reader->num_ranks)
        pthread_cond_wait(&reader->changed, &reader->lock);
    struct error error = reader->error;
    *out_all = reader->num_found == reader->num_ranks;
    pthread_mutex_unlock(&reader->lock);
    return error.code == ERROR_NONE ? 0 : error_set(err, error.code, "%s", error.message);
}

void weights_reader_hash_settings(struct weights_reader *reader,
                                  uint8_t out[static CONTENT_HASH_BYTES]) {
    pthread_mutex_lock(&reader->lock);
    content_hash_digest(reader->settings, out);
    pthread_mutex_unlock(&reader->lock);
}

void weights_reader_restore(struct weights_reader *reader, struct weights_digest *digest) {
    pthread_mutex_lock(&reader->lock);
    bool is_first = !reader->is_restored;
    if (is_first) {
        weights_digest_finish(&reader->digest);
        reader->digest = *digest;
        reader->is_restored = true;
        report_locked(reader, reader->num_bytes);
    }
    pthread_mutex_unlock(&reader->lock);
    if (!is_first)
        weights_digest_finish(digest);
}

/* --- The digest --- */

static void complete_digest(struct weights_reader *reader) {
    if (reader->is_restored)
        return;
    content_hash_digest(reader->settings, reader->digest.settings);
    if (reader->skips)
        content_hash_digest(reader->samples, reader->digest.samples);
}

int weights_reader_copy_digest(struct weights_reader *reader, struct weights_digest *out,
                               struct error *err) {
    pthread_mutex_lock(&reader->lock);
    complete_digest(reader);
    int status = weights_digest_copy(&reader->digest, out, err);
    pthread_mutex_unlock(&reader->lock);
    return status;
}

struct weights_digest *weights_reader_digest(struct weights_reader *reader) {
    complete_digest(reader);
    return &reader->digest;
}
