/* Spans of a file: settings and samples of the digest, its pieces, then vectors and matrices. */
#include "models/weights/packed_cache.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/cores.h"
#include "config/base/log.h"
#include "models/files/input_file.h"
#include "models/weights/packed_file.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEY_VERSION 1
#define WRITER_NICE 19
#define NAME_BYTES (2 * CONTENT_HASH_BYTES + sizeof(PACKED_FILE_SUFFIX))

enum { SPAN_SETTINGS, SPAN_PIECES, FIRST_LOADED };

struct packed_cache {
    struct packed_cache_place place;
    const struct model *model;
    uint8_t key[CONTENT_HASH_BYTES], files[CONTENT_HASH_BYTES];
    char name[NAME_BYTES], path[PATH_MAX];
    /* Found: */
    struct packed_file file;
    size_t next; /* span */
    /* Not found: to be written. `owned` are the vectors among them, and the digest. */
    struct packed_bytes *spans;
    bool *owned;
    size_t num_spans, capacity;
    bool is_incomplete; /* memory was short */
    bool has_writer;
    pthread_t writer;
    atomic_bool stop;
};

/* --- What decides the bytes --- */

static void add_number(struct content_hash *hash, int64_t number) {
    content_hash_add(hash, &number, sizeof(number));
}

/* Hashes what the system knows of the model's files. Returns -1 if they cannot be examined. */
static int hash_files(const struct tensor_file *file, uint8_t *out) {
    struct content_hash *hash = content_hash_create();
    int num_parts = tensor_file_num_parts(file), status = hash == NULL ? -1 : 0;
    for (int i = 0; i < num_parts && status == 0; i++) {
        const struct input_file *part = tensor_file_part(file, i);
        struct stat stat;
        status = part == NULL ? -1 : fstat(part->fd, &stat);
        if (status != 0)
            break;
        add_number(hash, stat.st_size);
        add_number(hash, (int64_t)stat.st_ino);
        add_number(hash, stat.st_mtim.tv_sec);
        add_number(hash, stat.st_mtim.tv_nsec);
        add_number(hash, stat.st_ctim.tv_sec);
        add_number(hash, stat.st_ctim.tv_nsec);
    }
    if (status == 0)
        content_hash_digest(hash, out);
    content_hash_destroy(hash);
    return status;
}

static void add_tensors(struct content_hash *hash, const struct tensor_file *file) {
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(file, i);
        weights_digest_add_tensor(hash, tensor);
        add_number(hash, tensor->part);
        add_number(hash, (int64_t)tensor->offset);
    }
}

static void add_shard(struct content_hash *hash, const struct model_shard *shard) {
    const int32_t numbers[] = {
        shard->rank,         shard->num_ranks,          shard->first_layer,
        shard->num_layers,   shard->has_embedding,      shard->has_head,
        shard->first_head,   shard->num_heads,          shard->first_kv_head,
        shard->num_kv_heads, shard->first_intermediate, shard->intermediate_size,
        shard->first_expert, shard->num_experts,        shard->first_expert_inner,
        shard->expert_size,  shard->first_shared_inner, shard->shared_size,
        shard->first_vocab,  shard->vocab_size,
    };
    content_hash_add_sized(hash, numbers, sizeof(numbers));
}

static int make_key(struct packed_cache *cache, const struct backend *backend,
                    const struct model_shard *shard, const struct weights_options *options,
                    const uint8_t *settings) {
    const struct model *model = cache->model;
    char layouts[DTYPE_COUNT + 1];
    struct content_hash *hash = content_hash_create();
    if (hash == NULL || hash_files(model->file, cache->files) != 0) {
        content_hash_destroy(hash);
        return -1;
    }
    backend->ops->packing->layouts(backend, layouts);
    add_number(hash, KEY_VERSION);
    content_hash_add_sized(hash, cache->place.build, strlen(cache->place.build));
    content_hash_add_sized(hash, layouts, strlen(layouts));
    content_hash_add(hash, settings, CONTENT_HASH_BYTES);
    content_hash_add(hash, cache->files, CONTENT_HASH_BYTES);
    add_tensors(hash, model->file);
    add_shard(hash, shard);
    add_number(hash, options->quantization);
    add_number(hash, backend->head_rows_step);
    add_number(hash, model->config.is_mtp);
    content_hash_digest(hash, cache->key);
    content_hash_destroy(hash);
    return 0;
}

/* --- Found --- */

/* Returns false, having logged why, if there can be no file. */
static bool make_path(struct packed_cache *cache) {
    const char *folder = cache->place.folder;
    struct error err;
    for (size_t i = 0; i < CONTENT_HASH_BYTES; i++)
        snprintf(cache->name + 2 * i, 3, "%02x", cache->key[i]);
    strcat(cache->name, PACKED_FILE_SUFFIX);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        log_warning("packed-cache: cannot make %s: %s", folder, strerror(errno));
        return false;
    }
    if (input_file_join_path(folder, cache->name, cache->path, &err) == 0)
        return true;
    log_warning("packed-cache: %s", err.message);
    return false;
}

static double gib(size_t bytes) {
    return (double)bytes / (double)((size_t)1 << 30);
}

static double seconds_since(int64_t begin_ns) {
    return (double)(clock_now_ns() - begin_ns) / (double)CLOCK_NS_PER_S;
}

static void look(struct packed_cache *cache) {
    struct error err = {0};
    int64_t begin_ns = clock_now_ns();
    switch (packed_file_map(cache->path, cache->key, cores_available(), &cache->file, &err)) {
    case PACKED_FILE_VALID:
        log_info("packed     %.2f GiB of weights mapped from %s in %.2f s", gib(cache->file.bytes),
                 cache->path, seconds_since(begin_ns));
        break;
    case PACKED_FILE_UNUSABLE:
        log_warning("packed-cache: %s: it is not used", err.message);
        break;
    case PACKED_FILE_MISSING:
        break;
    }
    cache->next = FIRST_LOADED;
}

struct packed_cache *packed_cache_open(const struct backend *backend, const struct model *model,
                                       const struct model_shard *shard,
                                       const struct weights_options *options,
                                       const uint8_t settings[static CONTENT_HASH_BYTES]) {
    if (backend->ops->packing == NULL) {
        log_warning("packed-cache: is for the cpu, and not used by the device %s", backend->name);
        return NULL;
    }
    struct packed_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    cache->place = *options->packed_cache;
    cache->model = model;
    if (make_key(cache, backend, shard, options, settings) != 0) {
        log_warning("packed-cache: cannot examine %s", tensor_file_path(model->file));
        free(cache);
        return NULL;
    }
    if (!make_path(cache)) {
        free(cache);
        return NULL;
    }
    look(cache);
    return cache;
}

bool packed_cache_is_found(const struct packed_cache *cache) {
    return cache != NULL && cache->file.data != NULL;
}

void packed_cache_forget(struct packed_cache *cache) {
    if (packed_cache_is_found(cache))
        packed_file_unmap(&cache->file);
}

int packed_cache_get_digest(const struct packed_cache *cache, struct weights_digest *out,
                            struct error *err) {
    struct packed_bytes settings = packed_file_span(&cache->file, SPAN_SETTINGS);
    struct packed_bytes pieces = packed_file_span(&cache->file, SPAN_PIECES);
    CHECK(settings.bytes == sizeof(out->settings) + sizeof(out->samples));
    struct weights_digest stored = {.pieces = pieces.data,
                                    .num_pieces = pieces.bytes / CONTENT_HASH_BYTES};
    memcpy(stored.settings, settings.data, sizeof(stored.settings));
    memcpy(stored.samples, (const uint8_t *)settings.data + sizeof(stored.settings),
           sizeof(stored.samples));
    return weights_digest_copy(&stored, out, err);
}

int packed_cache_next(struct packed_cache *cache, size_t bytes, struct packed_bytes *out,
                      struct error *err) {
    if (cache->next == cache->file.num_spans)
        return error_set(err, ERROR_MODEL, "%s: has too few weights; delete it", cache->path);
    *out = packed_file_span(&cache->file, cache->next++);
    return bytes == SIZE_MAX || bytes == out->bytes
               ? 0
               : error_set(err, ERROR_MODEL, "%s: has other weights; delete it", cache->path);
}

size_t packed_cache_mapped_bytes(const struct packed_cache *cache) {
    return packed_cache_is_found(cache) ? cache->file.bytes : 0;
}

/* --- To be written --- */

static void drop_spans(struct packed_cache *cache) {
    for (size_t i = 0; i < cache->num_spans; i++)
        if (cache->owned[i])
            free(cache->spans[i].data);
    free(cache->spans);
    free(cache->owned);
    cache->spans = NULL;
    cache->owned = NULL;
    cache->num_spans = cache->capacity = 0;
}

static bool has_room(struct packed_cache *cache) {
    size_t capacity = cache->capacity > 0 ? 2 * cache->capacity : 256;
    if (cache->num_spans < cache->capacity)
        return true;
    struct packed_bytes *spans = realloc(cache->spans, capacity * sizeof(*spans));
    cache->spans = spans != NULL ? spans : cache->spans;
    bool *owned = realloc(cache->owned, capacity * sizeof(*owned));
    cache->owned = owned != NULL ? owned : cache->owned;
    cache->is_incomplete |= spans == NULL || owned == NULL;
    cache->capacity = cache->is_incomplete ? cache->capacity : capacity;
    return !cache->is_incomplete;
}

static void add_span(struct packed_cache *cache, struct packed_bytes span, bool is_owned) {
    cache->spans[cache->num_spans] = span;
    cache->owned[cache->num_spans++] = is_owned;
}

static void add_copy(struct packed_cache *cache, const void *data, size_t bytes) {
    void *copy = malloc(bytes + 1);
    cache->is_incomplete |= copy == NULL;
    if (copy == NULL || !has_room(cache)) {
        free(copy);
        return;
    }
    if (bytes > 0)
        memcpy(copy, data, bytes);
    add_span(cache, (struct packed_bytes){copy, bytes}, true);
}

/* Room for the digest, which is known last and stored first. */
static bool is_recording(struct packed_cache *cache) {
    if (cache == NULL || packed_cache_is_found(cache) || cache->is_incomplete)
        return false;
    while (cache->num_spans < FIRST_LOADED && has_room(cache))
        add_span(cache, (struct packed_bytes){0}, true);
    return !cache->is_incomplete;
}

void packed_cache_add_vector(struct packed_cache *cache, const float *values, size_t count) {
    if (is_recording(cache))
        add_copy(cache, values, count * sizeof(*values));
}

void packed_cache_add_matrix(struct packed_cache *cache, struct packed_bytes packed) {
    if (is_recording(cache) && has_room(cache))
        add_span(cache, packed, false);
}

/* Puts the digest before what was loaded. */
static void add_digest(struct packed_cache *cache, const struct weights_digest *digest) {
    uint8_t settings[2][CONTENT_HASH_BYTES];
    memcpy(settings[0], digest->settings, CONTENT_HASH_BYTES);
    memcpy(settings[1], digest->samples, CONTENT_HASH_BYTES);
    const struct packed_bytes parts[] = {
        [SPAN_SETTINGS] = {settings, sizeof(settings)},
        [SPAN_PIECES] = {digest->pieces, digest->num_pieces * CONTENT_HASH_BYTES},
    };
    for (size_t i = 0; i < FIRST_LOADED && !cache->is_incomplete; i++) {
        add_copy(cache, parts[i].data, parts[i].bytes);
        if (!cache->is_incomplete)
            cache->spans[i] = cache->spans[--cache->num_spans];
    }
}

static void *write_file(void *context) {
    struct packed_cache *cache = context;
    uint64_t bytes = packed_file_bytes(cache->spans, cache->num_spans);
    struct error err = {0};
    bool is_written = false;
    int64_t begin_ns = clock_now_ns();
    sigset_t too_large; /* a file above the process's limit is an error, not the end */
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &too_large, NULL);
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE); /* of this thread only */
    packed_file_prune(cache->place.folder, cache->name, bytes, cache->place.max_bytes);
    if (packed_file_write(cache->path, cache->key, cache->spans, cache->num_spans, &cache->stop,
                          &is_written, &err) != 0)
        log_warning("packed-cache: %s: the next start reads the model again", err.message);
    else if (is_written)
        log_info("packed     %.2f GiB of weights written to %s in %.1f s", gib(bytes), cache->path,
                 seconds_since(begin_ns));
    return NULL;
}

/* Returns why the file is not to be written; NULL: it is. */
static const char *why_not(const struct packed_cache *cache) {
    uint8_t files[CONTENT_HASH_BYTES];
    if (cache->is_incomplete)
        return "memory is short";
    if (packed_file_bytes(cache->spans, cache->num_spans) > cache->place.max_bytes)
        return "the weights are larger than packed-cache-bytes";
    if (hash_files(cache->model->file, files) != 0 ||
        memcmp(files, cache->files, sizeof(files)) != 0)
        return "the model's files have changed while they were read";
    return NULL;
}

void packed_cache_write(struct packed_cache *cache, const struct weights_digest *digest) {
    if (!is_recording(cache))
        return;
    add_digest(cache, digest);
    const char *why = why_not(cache);
    if (why == NULL) {
        cache->has_writer = pthread_create(&cache->writer, NULL, write_file, cache) == 0;
        why = cache->has_writer ? NULL : "no thread can be started";
    }
    if (why != NULL)
        log_warning("packed-cache: %s is not written: %s", cache->path, why);
}

void packed_cache_end_writing(struct packed_cache *cache) {
    if (cache == NULL)
        return;
    atomic_store(&cache->stop, true);
    if (cache->has_writer)
        CHECK(pthread_join(cache->writer, NULL) == 0);
    cache->has_writer = false;
}

void packed_cache_close(struct packed_cache *cache) {
    if (cache == NULL)
        return;
    packed_cache_end_writing(cache);
    drop_spans(cache);
    packed_file_unmap(&cache->file);
    free(cache);
}
