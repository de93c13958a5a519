/* The weights of ranks that are processes, each a thread here with a reader and a file of its own,
 * against those of one rank that reads everything. */
#include "models/weights/weights.h"
#include "models/weights/weights_reader.h"

#include "tests/kernels/fake_transport.h"
#include "tests/unit/models/config/model_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { MAX_RANKS = 4, MAX_WIDTH = 512 };

static const struct weights_options as_stored = {.max_model_len = 8, .quantization = DTYPE_NONE};

struct process {
    struct model_image image;
    struct model_shard shard;
    struct transport *transport;
    enum weights_load_mode mode;
    bool abandons; /* it does not load at all */
    struct backend *backend;
    struct weights_reader *reader;
    struct weights *weights;
    int status;
    struct error error;
};

struct fleet {
    struct fake_network *network;
    struct process processes[MAX_RANKS];
    int32_t num_ranks;
};

static struct model_config config_of_three_layers(void) {
    struct model_config config = model_image_config();
    config.num_layers = 3;
    return config;
}

/* Of the embedding, which is the head too, so that neither of two ranks needs all of them. */
static struct model_config config_of_three_pieces(void) {
    struct model_config config = config_of_three_layers();
    config.vocab_size = (int32_t)(2 * WEIGHTS_CHUNK_BYTES / sizeof(float)) / config.hidden_size + 4;
    config.tied_embeddings = true;
    return config;
}

static struct backend *open_backend(void) {
    const struct backend_config config = {
        .num_threads = 1, .limits.max_num_batched_tokens = 8, .limits.max_num_seqs = 1};
    struct error err = {0};
    struct backend *backend = backend_open("cpu-ref", &config, &err);
    assert_non_null(backend);
    return backend;
}

static void *load(void *argument) {
    static const struct error why = {.code = ERROR_MEMORY, .message = "no room here"};
    struct process *p = argument;
    if (p->abandons) {
        weights_reader_abandon(p->reader, &why);
        p->status = -1;
        return NULL;
    }
    p->status = weights_load(p->backend, &p->image.model, &p->shard, p->reader, &as_stored,
                             &p->weights, &p->error);
    return NULL;
}

static void open_fleet(struct fleet *fleet, const struct model_config *config,
                       enum weights_load_mode mode, int32_t per_stage, int32_t num_stages) {
    *fleet = (struct fleet){.num_ranks = per_stage * num_stages};
    fleet->network = fake_network_create(fleet->num_ranks, 0);
    for (int32_t r = 0; r < fleet->num_ranks; r++) {
        struct process *p = &fleet->processes[r];
        p->mode = mode;
        p->transport = fake_network_transport(fleet->network, r);
        p->backend = open_backend();
        model_image_init(&p->image, config,
                         (struct image_form){.biased = true, .dtype = DTYPE_F32});
        model_image_open(&p->image);
        assert_int_equal(model_shard_init_stage(&p->image.model, DTYPE_NONE, r, per_stage,
                                                num_stages, &p->shard, NULL),
                         0);
    }
}

static void load_fleet(struct fleet *fleet) {
    pthread_t threads[MAX_RANKS];
    struct error err = {0};
    for (int32_t r = 0; r < fleet->num_ranks; r++) {
        struct process *p = &fleet->processes[r];
        if (weights_reader_create_remote(&p->image.model, p->transport, p->mode, &p->reader,
                                         &err) != 0)
            fail_msg("%s", err.message);
        assert_int_equal(pthread_create(&threads[r], NULL, load, p), 0);
    }
    for (int32_t r = 0; r < fleet->num_ranks; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
}

static void close_fleet(struct fleet *fleet) {
    for (int32_t r = 0; r < fleet->num_ranks; r++) {
        struct process *p = &fleet->processes[r];
        weights_free(p->backend, p->weights);
        backend_close(p->backend);
        weights_reader_destroy(p->reader);
        model_image_finish(&p->image);
    }
    fake_network_destroy(fleet->network);
}

/* --- Against threads of one process --- */

static void multiply(struct backend *backend, const struct matrix *matrix, int32_t rows,
                     float *out) {
    float x[MAX_WIDTH];
    for (int32_t i = 0; i < MAX_WIDTH; i++)
        x[i] = sinf((float)(7 * i + 1));
    memset(out, 0, (size_t)rows * sizeof(*out));
    backend->ops->linear(
        backend,
        &(struct linear_args){
            .x = x, .weight = matrix, .out = out, .num_rows = 1, .scale = 1.0F, .float_out = true});
}

static void check_matrix(const struct process *p, const struct matrix *got,
                         const struct matrix *want, int32_t rows) {
    float *outputs[2] = {test_malloc((size_t)rows * sizeof(float)),
                         test_malloc((size_t)rows * sizeof(float))};
    assert_int_equal(got != NULL, want != NULL);
    if (got != NULL) {
        multiply(p->backend, got, rows, outputs[0]);
        multiply(p->backend, want, rows, outputs[1]);
        assert_memory_equal(outputs[0], outputs[1], (size_t)rows * sizeof(float));
    }
    test_free(outputs[0]);
    test_free(outputs[1]);
}

/* A rank's weights are those of the same rank whose process reads all. */
static void check_weights(const struct process *p) {
    const struct model_config *config = &p->image.model.config;
    struct weights *expected;
    struct error err = {0};
    assert_int_equal(p->status, 0);
    if (weights_load_alone(p->backend, &p->image.model, &p->shard, &as_stored, &expected, &err) !=
        0)
        fail_msg("%s", err.message);
    int32_t qkv = (p->shard.num_heads + 2 * p->shard.num_kv_heads) * config->head_dim;
    check_matrix(p, p->weights->head, expected->head, weights_head_rows(&p->shard, 1));
    for (int32_t layer = 0; layer < config->num_layers; layer++) {
        const struct layer_weights *got = &p->weights->layers[layer],
                                   *want = &expected->layers[layer];
        check_matrix(p, got->qkv.matrix, want->qkv.matrix, qkv);
        check_matrix(p, got->attention_out.matrix, want->attention_out.matrix, config->hidden_size);
        check_matrix(p, got->down.matrix, want->down.matrix, config->hidden_size);
        if (got->attention_norm.data != NULL)
            assert_memory_equal(got->attention_norm.data, want->attention_norm.data,
                                (size_t)config->hidden_size * sizeof(float));
    }
    weights_free(p->backend, expected);
}

static void write_digest_of_all(const struct model *model, uint8_t out[static CONTENT_HASH_BYTES]) {
    struct backend *backend = open_backend();
    struct weights_reader *reader;
    struct weights *weights;
    struct model_shard shard;
    struct error err = {0};
    assert_int_equal(model_shard_init(model, DTYPE_NONE, 0, 1, &shard, NULL), 0);
    assert_int_equal(weights_reader_create(model, 1, &reader, &err), 0);
    assert_int_equal(weights_load(backend, model, &shard, reader, &as_stored, &weights, &err), 0);
    weights_digest_sum(weights_reader_digest(reader), out);
    weights_reader_destroy(reader);
    weights_free(backend, weights);
    backend_close(backend);
}

static size_t count_unread(const struct weights_digest *digest) {
    static const uint8_t not_read[CONTENT_HASH_BYTES];
    size_t unread = 0;
    for (size_t i = 0; i < digest->num_pieces; i++)
        unread += memcmp(digest->pieces[i], not_read, sizeof(not_read)) == 0;
    return unread;
}

static bool has_content_hash(void) {
    static const uint8_t none[CONTENT_HASH_BYTES];
    uint8_t hash[CONTENT_HASH_BYTES];
    content_hash_of("", 0, hash);
    return memcmp(hash, none, sizeof(none)) != 0;
}

/* Puts together what all know; false where two have read other bytes. */
static bool merge(struct fleet *fleet) {
    struct weights_digest *all = weights_reader_digest(fleet->processes[0].reader);
    bool agree = true;
    for (int32_t r = 1; r < fleet->num_ranks; r++) {
        const struct weights_digest *other = weights_reader_digest(fleet->processes[r].reader);
        assert_int_equal(all->num_pieces, other->num_pieces);
        assert_memory_equal(all->settings, other->settings, CONTENT_HASH_BYTES);
        agree &= weights_digest_merge(all, other->pieces);
    }
    return agree;
}

static void check_digest(struct fleet *fleet) {
    uint8_t sum[CONTENT_HASH_BYTES], expected[CONTENT_HASH_BYTES];
    assert_true(merge(fleet));
    weights_digest_sum(weights_reader_digest(fleet->processes[0].reader), sum);
    write_digest_of_all(&fleet->processes[0].image.model, expected);
    assert_memory_equal(sum, expected, CONTENT_HASH_BYTES);
}

static void check_shards(int32_t per_stage, int32_t num_stages) {
    const struct model_config config = config_of_three_pieces();
    struct fleet fleet;
    open_fleet(&fleet, &config, WEIGHTS_LOAD_SHARDS, per_stage, num_stages);
    load_fleet(&fleet);
    for (int32_t r = 0; r < fleet.num_ranks; r++) {
        check_weights(&fleet.processes[r]);
        if (has_content_hash())
            assert_true(count_unread(weights_reader_digest(fleet.processes[r].reader)) >= 1);
    }
    check_digest(&fleet);
    close_fleet(&fleet);
}

static void test_each_reads_its_shards(void **state) {
    check_shards(2, 1);
    check_shards(1, 3);
    check_shards(2, 2);
}

/* A byte of a row that both read, and one of a row that only rank 1 reads: the first of a matrix.
 */
static void test_files_that_differ_are_noticed(void **state) {
    const struct model_config config = config_of_three_layers();
    if (!has_content_hash())
        skip();
    for (int by_sample = 0; by_sample < 2; by_sample++) {
        struct fleet fleet;
        open_fleet(&fleet, &config, WEIGHTS_LOAD_SHARDS, by_sample ? 1 : 2, by_sample ? 2 : 1);
        struct process *p = &fleet.processes[1];
        const struct tensor_info *tensor =
            tensor_file_find(p->image.model.file, "blk.2.attn_output.weight");
        p->image.writer.data[tensor->offset + (by_sample ? 0 : tensor->bytes - 1)] ^= 1;
        load_fleet(&fleet);
        const struct weights_digest *own = weights_reader_digest(fleet.processes[0].reader);
        const struct weights_digest *other = weights_reader_digest(p->reader);
        bool same_samples = memcmp(own->samples, other->samples, CONTENT_HASH_BYTES) == 0;
        assert_int_equal(same_samples, !by_sample);
        assert_int_equal(merge(&fleet), by_sample);
        close_fleet(&fleet);
    }
}

/* --- Rank 0 reads for all --- */

/* The bytes of every tensor of the file become zeros. */
static void erase(struct model_image *image) {
    for (size_t i = 0; i < tensor_file_num_tensors(image->model.file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(image->model.file, i);
        memset(image->writer.data + tensor->offset, 0, tensor->bytes);
    }
}

static void check_broadcast(int32_t per_stage, int32_t num_stages) {
    const struct model_config config = config_of_three_layers();
    struct fleet fleet;
    open_fleet(&fleet, &config, WEIGHTS_LOAD_BROADCAST, per_stage, num_stages);
    for (int32_t r = 1; r < fleet.num_ranks; r++)
        erase(&fleet.processes[r].image);
    fake_network_delay(fleet.network, 100 * 1000);
    load_fleet(&fleet);
    for (int32_t r = 1; r < fleet.num_ranks; r++) {
        struct process *p = &fleet.processes[r];
        model_image_finish(&p->image);
        model_image_init(&p->image, &config,
                         (struct image_form){.biased = true, .dtype = DTYPE_F32});
        model_image_open(&p->image);
    }
    for (int32_t r = 0; r < fleet.num_ranks; r++)
        check_weights(&fleet.processes[r]);
    check_digest(&fleet);
    close_fleet(&fleet);
}

static void test_only_rank_0_reads(void **state) {
    check_broadcast(2, 1);
    check_broadcast(1, 3);
    check_broadcast(2, 2);
}

static void check_error(const struct process *p, enum error_code code, const char *piece) {
    assert_int_equal(p->status, -1);
    assert_null(p->weights);
    assert_int_equal(p->error.code, code);
    if (strstr(p->error.message, piece) == NULL)
        fail_msg("'%s' without '%s'", p->error.message, piece);
}

/* The others load, also those that are behind it. */
static void test_a_rank_that_does_not_load_passes_on(void **state) {
    const struct model_config config = config_of_three_layers();
    struct fleet fleet;
    open_fleet(&fleet, &config, WEIGHTS_LOAD_BROADCAST, 1, 3);
    fleet.processes[1].abandons = true;
    load_fleet(&fleet);
    check_weights(&fleet.processes[0]);
    check_weights(&fleet.processes[2]);
    assert_null(fleet.processes[1].weights);
    close_fleet(&fleet);
}

static void test_rank_0_that_does_not_load_ends_all(void **state) {
    const struct model_config config = config_of_three_layers();
    struct fleet fleet;
    open_fleet(&fleet, &config, WEIGHTS_LOAD_BROADCAST, 1, 3);
    fleet.processes[0].abandons = true;
    load_fleet(&fleet);
    check_error(&fleet.processes[1], ERROR_MEMORY, "no room here");
    check_error(&fleet.processes[2], ERROR_MEMORY, "no room here");
    close_fleet(&fleet);
}

static void test_a_tensor_that_rank_0_lacks_ends_all(void **state) {
    const struct model_config config = config_of_three_layers();
    struct fleet fleet;
    open_fleet(&fleet, &config, WEIGHTS_LOAD_BROADCAST, 1, 2);
    struct model_image *image = &fleet.processes[0].image;
    model_image_finish(image);
    model_image_init(image, &config, (struct image_form){.biased = true, .dtype = DTYPE_F32});
    model_image_remove(image, "blk.1.ffn_gate.weight");
    model_image_open(image);
    load_fleet(&fleet);
    check_error(&fleet.processes[0], ERROR_MODEL, "'blk.1.ffn_gate.weight' is missing");
    check_error(&fleet.processes[1], ERROR_MODEL, "'blk.1.ffn_gate.weight' is missing");
    close_fleet(&fleet);
}

/* Rank 1 of three has tensors of another size, more of them or fewer: it says so, rank 2 loads. */
static void test_a_rank_with_another_model_passes_on(void **state) {
    const struct model_config usual = config_of_three_layers();
    for (int i = 0; i < 3; i++) {
        struct model_config config = usual;
        struct fleet fleet;
        open_fleet(&fleet, &usual, WEIGHTS_LOAD_BROADCAST, 1, 3);
        struct process *p = &fleet.processes[1];
        config.vocab_size += i == 0;
        config.num_layers += i == 1 ? 1 : i == 2 ? -1 : 0;
        model_image_finish(&p->image);
        model_image_init(&p->image, &config,
                         (struct image_form){.biased = true, .dtype = DTYPE_F32});
        model_image_open(&p->image);
        load_fleet(&fleet);
        check_error(p, ERROR_MODEL, "model: rank 0's files have");
        check_weights(&fleet.processes[0]);
        check_weights(&fleet.processes[2]);
        close_fleet(&fleet);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_reads_its_shards),
        cmocka_unit_test(test_files_that_differ_are_noticed),
        cmocka_unit_test(test_only_rank_0_reads),
        cmocka_unit_test(test_a_rank_that_does_not_load_passes_on),
        cmocka_unit_test(test_rank_0_that_does_not_load_ends_all),
        cmocka_unit_test(test_a_tensor_that_rank_0_lacks_ends_all),
        cmocka_unit_test(test_a_rank_with_another_model_passes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
