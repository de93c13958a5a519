/* Weights from a cache: the bits of those that were read, of one rank and of several. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "models/weights/packed_cache.h"
#include "models/weights/weights_reader.h"

#include "tests/unit/models/config/model_image.h"
#include "tests/unit/temporary_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { MAX_RANKS = 2, MAX_WIDTH = 1024, MAX_FILES = 4 };

struct setting {
    struct temporary_folder folder;
    char cache[300];
    struct model_image image;
    struct model model; /* of the image, in a file */
    struct packed_cache_place place;
    struct weights_options options;
};

static void open_model(struct setting *s) {
    struct error err = {0};
    s->model = s->image.model;
    if (tensor_file_open(temporary_file(&s->folder, "m.gguf"), &s->model.file, &err) != 0)
        fail_msg("%s", err.message);
}

static void begin(struct setting *s, const struct model_config *config, struct image_form form) {
    *s = (struct setting){0};
    temporary_folder_make(&s->folder);
    snprintf(s->cache, sizeof(s->cache), "%s/cache", s->folder.path);
    model_image_init(&s->image, config, form);
    model_image_open(&s->image);
    temporary_write(&s->folder, "m.gguf", s->image.writer.data, s->image.writer.bytes);
    open_model(s);
    s->place = (struct packed_cache_place){s->cache, UINT64_MAX, "build"};
    s->options = (struct weights_options){
        .max_model_len = 8, .quantization = DTYPE_NONE, .packed_cache = &s->place};
}

static void end(struct setting *s) {
    tensor_file_close(s->model.file);
    model_image_finish(&s->image);
    temporary_folder_remove(&s->folder);
}

struct rank {
    const struct setting *setting;
    struct weights_reader *reader;
    struct model_shard shard;
    struct backend *backend;
    struct weights *weights;
    int status;
    struct error error;
};

struct loaded {
    struct rank ranks[MAX_RANKS];
    int32_t num_ranks;
    size_t mapped_bytes;
    uint8_t digest[CONTENT_HASH_BYTES];
};

static void *load_rank(void *argument) {
    struct rank *r = argument;
    r->status = weights_load(r->backend, &r->setting->model, &r->shard, r->reader,
                             &r->setting->options, &r->weights, &r->error);
    return NULL;
}

static void open_rank(struct rank *r, const struct setting *s, const char *device, int32_t rank,
                      int32_t num_ranks) {
    const struct backend_config config = {
        .num_threads = 1, .limits.max_num_batched_tokens = 8, .limits.max_num_seqs = 1};
    struct error err = {0};
    *r = (struct rank){.setting = s};
    if (model_shard_init(&s->model, s->options.quantization, rank, num_ranks, &r->shard, &err) != 0)
        fail_msg("%s", err.message);
    assert_non_null(r->backend = backend_open(device, &config, &err));
}

static void load_on(struct loaded *out, const struct setting *s, const char *device,
                    int32_t num_ranks) {
    pthread_t threads[MAX_RANKS];
    struct weights_reader *reader;
    *out = (struct loaded){.num_ranks = num_ranks};
    assert_int_equal(weights_reader_create(&s->model, num_ranks, &reader, NULL), 0);
    for (int32_t i = 0; i < num_ranks; i++) {
        open_rank(&out->ranks[i], s, device, i, num_ranks);
        out->ranks[i].reader = reader;
        assert_int_equal(pthread_create(&threads[i], NULL, load_rank, &out->ranks[i]), 0);
    }
    for (int32_t i = 0; i < num_ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (out->ranks[i].status != 0)
            fail_msg("rank %d: %s", i, out->ranks[i].error.message);
        out->mapped_bytes += out->ranks[i].weights->mapped_bytes;
    }
    weights_digest_sum(weights_reader_digest(reader), out->digest);
    weights_reader_destroy(reader);
}

static void load(struct loaded *out, const struct setting *s, int32_t num_ranks) {
    load_on(out, s, "cpu", num_ranks);
}

static void unload(struct loaded *loaded) {
    for (int32_t i = 0; i < loaded->num_ranks; i++) {
        weights_free(loaded->ranks[i].backend, loaded->ranks[i].weights);
        backend_close(loaded->ranks[i].backend);
    }
}

/* --- Files of the cache --- */

struct files {
    int count;
    char paths[MAX_FILES][700];
};

static void list_files(const struct setting *s, struct files *out) {
    DIR *folder = opendir(s->cache);
    const struct dirent *entry;
    out->count = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *end = strrchr(entry->d_name, '.');
        if (end != NULL && strcmp(end, ".packed") == 0 && out->count < MAX_FILES)
            snprintf(out->paths[out->count++], sizeof(out->paths[0]), "%s/%s", s->cache,
                     entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
}

static int num_files(const struct setting *s) {
    struct files files;
    list_files(s, &files);
    return files.count;
}

/* Loads and waits until the cache has that many files. */
static void fill_cache(const struct setting *s, int32_t num_ranks, int wanted) {
    struct loaded loaded;
    load(&loaded, s, num_ranks);
    assert_int_equal(loaded.mapped_bytes, 0);
    while (num_files(s) < wanted)
        usleep(1000);
    unload(&loaded);
    assert_int_equal(num_files(s), wanted);
}

static void assert_mapped(const struct setting *s, int32_t num_ranks, bool is_mapped) {
    struct loaded loaded;
    load(&loaded, s, num_ranks);
    assert_true((loaded.mapped_bytes > 0) == is_mapped);
    unload(&loaded);
}

/* --- Comparison --- */

static void assert_same_matrix(const struct rank *a, const struct matrix *x, const struct rank *b,
                               const struct matrix *y) {
    const struct packing_ops *packing = a->backend->ops->packing;
    assert_true((x == NULL) == (y == NULL));
    if (x == NULL)
        return;
    struct packed_bytes first = packing->bytes_of(x), second = packing->bytes_of(y);
    assert_int_equal(first.bytes, second.bytes);
    assert_memory_equal(first.data, second.data, first.bytes);
}

static void assert_same_product(const struct rank *a, const struct matrix *x, const struct rank *b,
                                const struct matrix *y, int32_t rows, int32_t cols) {
    float in[MAX_WIDTH], first[MAX_WIDTH], second[MAX_WIDTH];
    struct linear_args args = {.x = in, .num_rows = 1, .scale = 1.0F, .float_out = true};
    assert_true(rows <= MAX_WIDTH && cols <= MAX_WIDTH);
    for (int32_t i = 0; i < cols; i++)
        in[i] = sinf((float)(7 * i + 1));
    args.weight = x, args.out = first;
    a->backend->ops->linear(a->backend, &args);
    args.weight = y, args.out = second;
    b->backend->ops->linear(b->backend, &args);
    assert_memory_equal(first, second, (size_t)rows * sizeof(float));
}

static void assert_same_buffer(const struct buffer *a, const struct buffer *b) {
    assert_int_equal(a->bytes, b->bytes);
    if (a->bytes > 0)
        assert_memory_equal(a->data, b->data, a->bytes);
}

static void assert_same_layer(const struct rank *a, const struct rank *b, int32_t layer) {
    const struct layer_weights *x = &a->weights->layers[layer], *y = &b->weights->layers[layer];
#define SAME_MATRIX(name) assert_same_matrix(a, x->name.matrix, b, y->name.matrix)
    SAME_MATRIX(qkv), SAME_MATRIX(attention_out), SAME_MATRIX(gate_up), SAME_MATRIX(down);
    SAME_MATRIX(q_a), SAME_MATRIX(kv_a), SAME_MATRIX(key_up), SAME_MATRIX(value_up);
    SAME_MATRIX(router), SAME_MATRIX(expert_gate_up), SAME_MATRIX(expert_down);
#define SAME_BUFFER(name) assert_same_buffer(&x->name, &y->name)
    SAME_BUFFER(attention_norm), SAME_BUFFER(ffn_norm), SAME_BUFFER(q_norm), SAME_BUFFER(k_norm);
    SAME_BUFFER(key_bias), SAME_BUFFER(kv_a_norm), SAME_BUFFER(q_a_norm);
    const struct model_config *config = &a->setting->model.config;
    if (x->qkv.matrix != NULL && config->latent.kv_rank == 0) /* with its biases */
        assert_same_product(a, x->qkv.matrix, b, y->qkv.matrix,
                            model_shard_qkv_width(&a->shard, config), config->hidden_size);
}

static void assert_same(const struct loaded *a, const struct loaded *b) {
    assert_memory_equal(a->digest, b->digest, sizeof(a->digest));
    for (int32_t r = 0; r < a->num_ranks; r++) {
        const struct rank *x = &a->ranks[r], *y = &b->ranks[r];
        assert_int_equal(x->weights->bytes, y->weights->bytes);
        assert_same_matrix(x, x->weights->embedding, y, y->weights->embedding);
        assert_same_matrix(x, x->weights->head, y, y->weights->head);
        assert_same_buffer(&x->weights->output_norm, &y->weights->output_norm);
        for (int32_t layer = 0; layer < x->weights->num_layers; layer++)
            assert_same_layer(x, y, layer);
    }
}

/* --- Tests --- */

static void check_mapped(struct setting *s, int32_t num_ranks) {
    struct loaded plain, mapped;
    s->options.packed_cache = NULL;
    load(&plain, s, num_ranks);
    s->options.packed_cache = &s->place;
    load(&mapped, s, num_ranks);
    assert_true(mapped.mapped_bytes > 0 && plain.mapped_bytes == 0);
    assert_same(&plain, &mapped);
    unload(&mapped);
    unload(&plain);
}

/* What loading makes of the vectors is not in the file: it serves every kind of KV cache. */
static void check_round_trip(struct setting *s, int32_t num_ranks) {
    fill_cache(s, num_ranks, num_ranks);
    check_mapped(s, num_ranks);
    s->options.cuts_key_bias = true;
    check_mapped(s, num_ranks);
}

static void test_mapped_weights_are_those_that_were_read(void **state) {
    static const struct image_form forms[] = {{.dtype = DTYPE_F32},
                                              {.biased = true, .dtype = DTYPE_BF16},
                                              {.fused = true, .dtype = DTYPE_Q8_0}};
    for (int32_t kind = 0; kind < 3; kind++) {
        for (int32_t num_ranks = 1; num_ranks <= 2; num_ranks++) {
            struct setting s;
            struct model_config config = model_image_config();
            if (kind == 1)
                model_image_set_sparse(&config);
            if (kind == 2)
                model_image_set_latent(&config, 0);
            begin(&s, &config, kind == 2 ? (struct image_form){.dtype = DTYPE_F32} : forms[kind]);
            check_round_trip(&s, num_ranks);
            end(&s);
        }
    }
}

static void test_what_decides_the_bytes(void **state) {
    struct setting s;
    const struct model_config config = model_image_config();
    begin(&s, &config, (struct image_form){.biased = true, .dtype = DTYPE_F32});
    fill_cache(&s, 1, 1);
    s.place.build = "another build";
    fill_cache(&s, 1, 2);
    s.options.quantization = DTYPE_Q8_0;
    fill_cache(&s, 1, 3);
    assert_mapped(&s, 1, true);
    s.options.quantization = DTYPE_NONE;
    s.place.build = "build";
    assert_mapped(&s, 1, true);
    s.options.max_model_len = 16; /* decides none of them */
    assert_mapped(&s, 1, true);
    /* Under another name and path it is the same model; touched, it is not. */
    char path[512];
    snprintf(path, sizeof(path), "%s", temporary_file(&s.folder, "m.gguf"));
    const struct timespec times[2] = {{5, 0}, {5, 7}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_mapped(&s, 1, false);
    end(&s);
}

static void test_a_copy_of_the_model_is_another(void **state) {
    struct setting s;
    const struct model_config config = model_image_config();
    begin(&s, &config, (struct image_form){.dtype = DTYPE_F32});
    fill_cache(&s, 1, 1);
    tensor_file_close(s.model.file);
    unlink(temporary_file(&s.folder, "m.gguf"));
    temporary_write(&s.folder, "other", "a file that takes the inode", 27);
    temporary_write(&s.folder, "m.gguf", s.image.writer.data, s.image.writer.bytes);
    open_model(&s);
    assert_mapped(&s, 1, false);
    end(&s);
}

/* One rank that must read needs the others to read with it. */
static void test_all_ranks_are_found_or_none(void **state) {
    struct setting s;
    struct files files;
    const struct model_config config = model_image_config();
    begin(&s, &config, (struct image_form){.biased = true, .dtype = DTYPE_F32});
    fill_cache(&s, 2, 2);
    list_files(&s, &files);
    unlink(files.paths[0]);
    fill_cache(&s, 2, 2);
    assert_mapped(&s, 2, true);
    assert_mapped(&s, 1, false);
    end(&s);
}

static void damage(const char *path, off_t at) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_a_damaged_file_is_replaced(void **state) {
    struct setting s;
    struct files files;
    struct loaded loaded;
    const struct model_config config = model_image_config();
    begin(&s, &config, (struct image_form){.dtype = DTYPE_F32});
    fill_cache(&s, 1, 1);
    list_files(&s, &files);
    for (off_t at = 0; at < 100000; at += 30000) {
        struct stat before, after;
        damage(files.paths[0], at);
        assert_int_equal(stat(files.paths[0], &before), 0);
        load(&loaded, &s, 1);
        assert_int_equal(loaded.mapped_bytes, 0);
        do {
            usleep(1000);
            assert_int_equal(stat(files.paths[0], &after), 0);
        } while (after.st_ino == before.st_ino && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
        unload(&loaded);
        assert_mapped(&s, 1, true);
    }
    end(&s);
}

/* Nothing that the cache cannot do fails a load. */
static void test_without_a_cache_the_model_is_read(void **state) {
    struct setting s;
    const struct model_config config = model_image_config();
    begin(&s, &config, (struct image_form){.dtype = DTYPE_F32});
    struct loaded loaded;
    load_on(&loaded, &s, "cpu-ref", 1);
    assert_int_equal(loaded.mapped_bytes, 0);
    unload(&loaded);
    assert_int_equal(num_files(&s), 0);
    s.place.max_bytes = 1000;
    assert_mapped(&s, 1, false);
    assert_int_equal(num_files(&s), 0);
    temporary_write(&s.folder, "file", "", 0);
    snprintf(s.cache, sizeof(s.cache), "%s/file/cache", s.folder.path);
    assert_mapped(&s, 1, false);
    snprintf(s.cache, sizeof(s.cache), "%s/missing/cache", s.folder.path);
    assert_mapped(&s, 1, false);
    snprintf(s.cache, sizeof(s.cache), "%s/file", s.folder.path);
    assert_mapped(&s, 1, false);
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapped_weights_are_those_that_were_read),
        cmocka_unit_test(test_what_decides_the_bytes),
        cmocka_unit_test(test_a_copy_of_the_model_is_another),
        cmocka_unit_test(test_all_ranks_are_found_or_none),
        cmocka_unit_test(test_a_damaged_file_is_replaced),
        cmocka_unit_test(test_without_a_cache_the_model_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
