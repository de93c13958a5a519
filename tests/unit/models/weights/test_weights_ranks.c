/* The weights of several ranks, each loaded by a thread of its own, against those of one. */
#include "models/weights/weights.h"
#include "models/weights/weights_reader.h"

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

/* What the reader reported. */
struct reports {
    size_t num_reports, bytes_read, num_bytes;
    bool is_disordered;
    uint8_t digest[CONTENT_HASH_BYTES];
};

static void note_report(void *context, size_t bytes_read, size_t num_bytes) {
    struct reports *reports = context;
    reports->is_disordered |= bytes_read <= reports->bytes_read || bytes_read > num_bytes;
    reports->num_reports++;
    reports->bytes_read = bytes_read;
    reports->num_bytes = num_bytes;
}

struct rank {
    const struct model *model;
    struct weights_reader *reader;
    struct model_shard shard;
    struct backend *backend;
    struct weights *weights;
    int status;
    struct error error;
};

static void *load_rank(void *argument) {
    struct rank *r = argument;
    r->status = weights_load(r->backend, r->model, &r->shard, r->reader, &as_stored, &r->weights,
                             &r->error);
    return NULL;
}

static void open_rank(struct rank *r, const struct model *model, int32_t rank, int32_t num_ranks,
                      int32_t num_stages) {
    const struct backend_config config = {
        .num_threads = 1, .limits.max_num_batched_tokens = 8, .limits.max_num_seqs = 1};
    struct error err = {0};
    *r = (struct rank){.model = model};
    if (model_shard_init_stage(model, DTYPE_NONE, rank, num_ranks, num_stages, &r->shard, &err) !=
        0)
        fail_msg("%s", err.message);
    assert_non_null(r->backend = backend_open("cpu-ref", &config, &err));
}

static void close_rank(struct rank *r) {
    weights_free(r->backend, r->weights);
    backend_close(r->backend);
}

/* per_stage: ranks of each of num_stages; abandoned: the rank that does not load; -1: none. */
static struct reports load_stages(struct rank *ranks, const struct model *model, int32_t per_stage,
                                  int32_t num_stages, int32_t abandoned) {
    int32_t num_ranks = per_stage * num_stages;
    struct reports reports = {0};
    const struct error why = {.code = ERROR_DEVICE, .message = "no such card"};
    struct weights_reader *reader;
    pthread_t threads[MAX_RANKS];
    struct error err = {0};
    if (weights_reader_create(model, num_ranks, &reader, &err) != 0)
        fail_msg("%s", err.message);
    weights_reader_set_progress(reader, (struct weights_progress){note_report, &reports});
    for (int32_t i = 0; i < num_ranks; i++) {
        open_rank(&ranks[i], model, i, per_stage, num_stages);
        ranks[i].reader = reader;
        if (i != abandoned)
            assert_int_equal(pthread_create(&threads[i], NULL, load_rank, &ranks[i]), 0);
    }
    if (abandoned >= 0)
        weights_reader_abandon(reader, &why);
    for (int32_t i = 0; i < num_ranks; i++)
        if (i != abandoned)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
    weights_digest_sum(weights_reader_digest(reader), reports.digest);
    weights_reader_destroy(reader);
    return reports;
}

static struct reports load_ranks(struct rank *ranks, const struct model *model, int32_t num_ranks,
                                 int32_t abandoned) {
    return load_stages(ranks, model, num_ranks, 1, abandoned);
}

/* --- Products --- */

static void multiply(const struct rank *r, const struct matrix *matrix, const float *x,
                     float *out) {
    r->backend->ops->linear(
        r->backend,
        &(struct linear_args){
            .x = x, .weight = matrix, .out = out, .num_rows = 1, .scale = 1.0F, .float_out = true});
}

static void fill(float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        x[i] = sinf((float)(7 * i + 1));
}

static void check_close(const char *what, const float *got, const float *want, int32_t n,
                        float allowed) {
    for (int32_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= allowed))
            fail_msg("%s: element %d is %g, expected %g", what, i, (double)got[i], (double)want[i]);
}

/* Outputs at `at` of the rank's are those at `from` of the whole. */
static void check_outputs(const char *what, const float *part, int32_t at, const float *whole,
                          int32_t from, int32_t n) {
    check_close(what, part + at, whole + from, n, 0.0F);
}

static void check_column_parallel(const struct rank *r, const struct rank *whole, int32_t layer) {
    const struct model_config *config = &r->model->config;
    const struct model_shard *s = &r->shard;
    const struct layer_weights *part = &r->weights->layers[layer];
    const struct layer_weights *all = &whole->weights->layers[layer];
    int32_t dim = config->head_dim, ffn = config->intermediate_size;
    int32_t q = s->num_heads * dim, kv = s->num_kv_heads * dim;
    int32_t all_q = config->num_heads * dim, all_kv = config->num_kv_heads * dim;
    float x[MAX_WIDTH], got[MAX_WIDTH], want[MAX_WIDTH];
    fill(x, config->hidden_size);
    multiply(r, part->qkv.matrix, x, got);
    multiply(whole, all->qkv.matrix, x, want);
    check_outputs("q", got, 0, want, s->first_head * dim, q);
    check_outputs("k", got, q, want, all_q + s->first_kv_head * dim, kv);
    check_outputs("v", got, q + kv, want, all_q + all_kv + s->first_kv_head * dim, kv);
    multiply(r, part->gate_up.matrix, x, got);
    multiply(whole, all->gate_up.matrix, x, want);
    check_outputs("gate", got, 0, want, s->first_intermediate, s->intermediate_size);
    check_outputs("up", got, s->intermediate_size, want, ffn + s->first_intermediate,
                  s->intermediate_size);
}

/* The ranks' partial sums, each of its own inputs, make up the whole; the bias is in it once. */
static void check_row_parallel(const struct rank *ranks, int32_t num_ranks,
                               const struct rank *whole, int32_t layer, bool down) {
    const struct model_config *config = &whole->model->config;
    int32_t width = down ? config->intermediate_size : config->num_heads * config->head_dim;
    float x[MAX_WIDTH], part[MAX_WIDTH], sum[MAX_WIDTH] = {0}, want[MAX_WIDTH];
    fill(x, width);
    const struct layer_weights *all = &whole->weights->layers[layer];
    multiply(whole, down ? all->down.matrix : all->attention_out.matrix, x, want);
    for (int32_t i = 0; i < num_ranks; i++) {
        const struct model_shard *s = &ranks[i].shard;
        const struct layer_weights *w = &ranks[i].weights->layers[layer];
        multiply(&ranks[i], down ? w->down.matrix : w->attention_out.matrix,
                 x + (down ? s->first_intermediate : s->first_head * config->head_dim), part);
        for (int32_t k = 0; k < config->hidden_size; k++)
            sum[k] += part[k];
    }
    check_close(down ? "down" : "attention_out", sum, want, config->hidden_size, 1e-4F);
}

/* One choice of each of four experts, with an input of its own: [4][width] x. */
static void multiply_experts(const struct rank *r, const struct matrix *matrix, const float *x,
                             int32_t num_own, float *out) {
    int32_t experts[] = {0, 1, 2, 3}, order[4], first[5];
    float weights[] = {1.0F, 1.0F, 1.0F, 1.0F};
    for (int32_t e = 0; e <= num_own; e++)
        first[e] = e;
    for (int32_t e = 0; e < num_own; e++)
        order[e] = r->shard.first_expert + e;
    const struct expert_choices choices = {experts, weights, order, first};
    r->backend->ops->linear_experts(r->backend, &(struct expert_linear_args){.x = x,
                                                                             .per_choice = true,
                                                                             .weight = matrix,
                                                                             .choices = &choices,
                                                                             .out = out,
                                                                             .num_tokens = 1,
                                                                             .num_chosen = 4,
                                                                             .num_own = num_own});
}

/* The ranks' inner elements of every expert are those of the whole, and their sums make it up. */
static void check_experts(const struct rank *ranks, int32_t num_ranks, const struct rank *whole,
                          int32_t layer) {
    enum { EXPERTS = 4 };
    const struct model_config *config = &whole->model->config;
    const struct layer_weights *all = &whole->weights->layers[layer];
    int32_t hidden = config->hidden_size, size = config->moe.expert_size;
    float x[EXPERTS * MAX_WIDTH], want[EXPERTS * MAX_WIDTH], sum[EXPERTS * MAX_WIDTH] = {0};
    fill(x, EXPERTS * hidden);
    multiply_experts(whole, all->expert_gate_up.matrix, x, EXPERTS, want);
    for (int32_t i = 0; i < num_ranks; i++) {
        const struct model_shard *s = &ranks[i].shard;
        float got[EXPERTS * MAX_WIDTH];
        multiply_experts(&ranks[i], ranks[i].weights->layers[layer].expert_gate_up.matrix, x,
                         s->num_experts, got);
        for (int32_t e = s->first_expert; e < s->first_expert + s->num_experts; e++) {
            const float *part = got + (size_t)(e * 2 * s->expert_size);
            const float *from = want + (size_t)(e * 2 * size + s->first_expert_inner);
            check_close("an expert's gate", part, from, s->expert_size, 0.0F);
            check_close("an expert's up", part + s->expert_size, from + size, s->expert_size, 0.0F);
        }
    }
    fill(x, EXPERTS * size);
    multiply_experts(whole, all->expert_down.matrix, x, EXPERTS, want);
    for (int32_t i = 0; i < num_ranks; i++) {
        const struct model_shard *s = &ranks[i].shard;
        float inner[EXPERTS * MAX_WIDTH], part[EXPERTS * MAX_WIDTH] = {0};
        for (int32_t e = 0; e < EXPERTS; e++)
            memcpy(inner + (size_t)(e * s->expert_size),
                   x + (size_t)(e * size + s->first_expert_inner),
                   (size_t)s->expert_size * sizeof(float));
        multiply_experts(&ranks[i], ranks[i].weights->layers[layer].expert_down.matrix, inner,
                         s->num_experts, part);
        for (int32_t k = 0; k < EXPERTS * hidden; k++)
            sum[k] += part[k];
    }
    check_close("an expert's down", sum, want, EXPERTS * hidden, 1e-4F);
}

static void check_norms(const struct rank *r, const struct rank *whole, int32_t layer) {
    const struct model_config *config = &r->model->config;
    const struct layer_weights *part = &r->weights->layers[layer];
    const struct layer_weights *all = &whole->weights->layers[layer];
    bool full = config->qk_norm == QK_NORM_FULL;
    int32_t dim = config->head_dim;
    assert_int_equal(part->attention_norm.bytes, all->attention_norm.bytes);
    assert_memory_equal(part->attention_norm.data, all->attention_norm.data,
                        all->attention_norm.bytes);
    check_outputs("q_norm", part->q_norm.data, 0, all->q_norm.data,
                  full ? r->shard.first_head * dim : 0, full ? r->shard.num_heads * dim : dim);
    check_outputs("k_norm", part->k_norm.data, 0, all->k_norm.data,
                  full ? r->shard.first_kv_head * dim : 0,
                  full ? r->shard.num_kv_heads * dim : dim);
}

static void check_vocab(const struct rank *r, const struct rank *whole) {
    float x[MAX_WIDTH], got[MAX_WIDTH], want[MAX_WIDTH];
    fill(x, r->model->config.hidden_size);
    multiply(r, r->weights->head, x, got);
    multiply(whole, whole->weights->head, x, want);
    check_outputs("head", got, 0, want, r->shard.first_vocab, r->shard.vocab_size);
    multiply(r, r->weights->embedding, x, got);
    multiply(whole, whole->weights->embedding, x, want);
    check_outputs("embedding", got, 0, want, r->shard.first_vocab, r->shard.vocab_size);
}

static size_t file_bytes(const struct model_image *image) {
    size_t bytes = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(image->model.file); i++)
        bytes += tensor_file_tensor(image->model.file, i)->bytes;
    return bytes;
}

static void check_reports(const struct reports *reports, int num_reports, size_t num_bytes) {
    assert_int_equal(reports->num_reports, num_reports);
    assert_int_equal(reports->bytes_read, num_bytes);
    assert_int_equal(reports->num_bytes, num_bytes);
    assert_false(reports->is_disordered);
}

static void check_ranks(const struct model_config *config, struct image_form form,
                        int32_t num_ranks) {
    struct model_image image;
    struct rank whole, ranks[MAX_RANKS];
    model_image_init(&image, config, form);
    model_image_open(&image);
    struct reports alone = load_ranks(&whole, &image.model, 1, -1);
    struct reports reports = load_ranks(ranks, &image.model, num_ranks, -1);
    check_reports(&reports, image.num_tensors, file_bytes(&image));
    assert_int_equal(whole.status, 0);
    assert_memory_equal(reports.digest, alone.digest, CONTENT_HASH_BYTES);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (ranks[i].status != 0)
            fail_msg("%s", ranks[i].error.message);
        assert_int_equal(ranks[i].weights->bytes, weights_needed(&image.model, &ranks[i].shard,
                                                                 &as_stored, ranks[i].backend));
        check_vocab(&ranks[i], &whole);
        for (int32_t layer = 0; layer < config->num_layers; layer++) {
            check_column_parallel(&ranks[i], &whole, layer);
            check_norms(&ranks[i], &whole, layer);
        }
    }
    for (int32_t layer = 0; layer < config->num_layers; layer++) {
        check_row_parallel(ranks, num_ranks, &whole, layer, false);
        check_row_parallel(ranks, num_ranks, &whole, layer, true);
    }
    for (int32_t i = 0; i < num_ranks; i++)
        close_rank(&ranks[i]);
    close_rank(&whole);
    model_image_finish(&image);
}

static void test_shares_make_up_the_whole(void **state) {
    struct model_config config = model_image_config();
    for (int i = 0; i < 4; i++) {
        const struct image_form form = {.fused = i & 1, .biased = i & 2, .dtype = DTYPE_F32};
        config.qk_norm = i & 1 ? QK_NORM_FULL : QK_NORM_HEAD;
        check_ranks(&config, form, 2);
    }
    config.qk_norm = QK_NORM_HEAD;
    config.tied_embeddings = true;
    check_ranks(&config, (struct image_form){.dtype = DTYPE_BF16}, 3);
    check_ranks(&config, (struct image_form){.biased = true, .dtype = DTYPE_F16}, 4);
    config.num_heads = 8, config.num_kv_heads = 4;
    check_ranks(&config, (struct image_form){.fused = true, .dtype = DTYPE_Q8_0}, 3);
}

/* Everything that one rank has, some stage has, and nothing else; the digest is of the whole. */
static void check_stages(const struct model_config *config, int32_t per_stage, int32_t num_stages) {
    struct model_image image;
    struct rank whole, ranks[MAX_RANKS];
    model_image_init(&image, config, (struct image_form){.biased = true, .dtype = DTYPE_F32});
    model_image_open(&image);
    struct reports alone = load_ranks(&whole, &image.model, 1, -1);
    struct reports reports = load_stages(ranks, &image.model, per_stage, num_stages, -1);
    check_reports(&reports, image.num_tensors, file_bytes(&image));
    assert_memory_equal(reports.digest, alone.digest, CONTENT_HASH_BYTES);
    for (int32_t i = 0; i < per_stage * num_stages; i++) {
        const struct weights *w = ranks[i].weights;
        const struct model_shard *shard = &ranks[i].shard;
        assert_int_equal(ranks[i].status, 0);
        assert_int_equal(w->bytes,
                         weights_needed(&image.model, shard, &as_stored, ranks[i].backend));
        assert_int_equal(w->head != NULL,
                         shard->has_head || (shard->has_embedding && config->tied_embeddings));
        assert_int_equal(w->output_norm.data != NULL, shard->has_head);
        assert_int_equal(w->embedding != NULL,
                         shard->has_embedding || (shard->has_head && config->tied_embeddings));
        for (int32_t layer = 0; layer < config->num_layers; layer++) {
            bool is_kept = model_shard_has_layer(shard, layer);
            assert_int_equal(w->layers[layer].qkv.matrix != NULL, is_kept);
            assert_int_equal(w->layers[layer].attention_norm.data != NULL, is_kept);
            if (is_kept)
                check_column_parallel(&ranks[i], &whole, layer);
        }
        close_rank(&ranks[i]);
    }
    close_rank(&whole);
    model_image_finish(&image);
}

static void test_stages_make_up_the_whole(void **state) {
    struct model_config config = model_image_config();
    config.num_layers = 3;
    for (int tied = 0; tied < 2; tied++) {
        config.tied_embeddings = tied == 1;
        check_stages(&config, 1, 3);
        check_stages(&config, 2, 2);
    }
}

static void check_expert_ranks(enum dtype dtype, enum tensor_naming naming, int32_t num_ranks,
                               int32_t num_experts) {
    struct model_config config = model_image_config();
    struct model_image image;
    struct rank whole, ranks[MAX_RANKS];
    model_image_set_sparse(&config);
    config.naming = naming;
    config.num_heads = 8, config.num_kv_heads = 4; /* in whole blocks */
    model_image_init(&image, &config, (struct image_form){.dtype = dtype});
    model_image_open(&image);
    struct reports alone = load_ranks(&whole, &image.model, 1, -1);
    struct reports reports = load_ranks(ranks, &image.model, num_ranks, -1);
    assert_memory_equal(reports.digest, alone.digest, CONTENT_HASH_BYTES);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (ranks[i].status != 0)
            fail_msg("%s", ranks[i].error.message);
        assert_int_equal(ranks[i].shard.num_experts, num_experts);
        assert_int_equal(ranks[i].weights->bytes, weights_needed(&image.model, &ranks[i].shard,
                                                                 &as_stored, ranks[i].backend));
    }
    check_experts(ranks, num_ranks, &whole, 1);
    for (int32_t i = 0; i < num_ranks; i++)
        close_rank(&ranks[i]);
    close_rank(&whole);
    model_image_finish(&image);
}

/* Each has a part of every expert; where one block is all there is of an expert, whole experts. */
static void test_experts_are_cut_or_dealt_out(void **state) {
    check_expert_ranks(DTYPE_F32, TENSOR_NAMING_GGUF, 2, 4);
    check_expert_ranks(DTYPE_BF16, TENSOR_NAMING_HF, 3, 4);
    check_expert_ranks(DTYPE_Q8_0, TENSOR_NAMING_GGUF, 2, 2);
    check_expert_ranks(DTYPE_Q8_0, TENSOR_NAMING_HF, 2, 2);
}

static void test_reports_leave_out_what_is_not_read(void **state) {
    const struct model_config config = model_image_config();
    struct model_image image;
    struct rank rank;
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_put(&image, "rope_freqs.weight", 0, 8, DTYPE_F32);
    model_image_open(&image);
    struct reports reports = load_ranks(&rank, &image.model, 1, -1);
    assert_int_equal(rank.status, 0);
    check_reports(&reports, image.num_tensors - 1, file_bytes(&image) - 8 * sizeof(float));
    close_rank(&rank);
    model_image_finish(&image);
}

/* --- Failures --- */

static void check_all_failed(struct rank *ranks, int32_t num_ranks, int32_t except,
                             enum error_code code, const char *piece) {
    for (int32_t i = 0; i < num_ranks; i++) {
        if (i != except) {
            assert_int_equal(ranks[i].status, -1);
            assert_int_equal(ranks[i].error.code, code);
            if (strstr(ranks[i].error.message, piece) == NULL)
                fail_msg("'%s' without '%s'", ranks[i].error.message, piece);
        }
        assert_null(ranks[i].weights);
        close_rank(&ranks[i]);
    }
}

static void test_one_that_does_not_load_ends_all(void **state) {
    const struct model_config config = model_image_config();
    struct model_image image;
    struct rank ranks[MAX_RANKS];
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_open(&image);
    for (int32_t abandoned = 0; abandoned < 3; abandoned++) {
        load_ranks(ranks, &image.model, 3, abandoned);
        check_all_failed(ranks, 3, abandoned, ERROR_DEVICE, "no such card");
    }
    model_image_finish(&image);
}

static void test_a_missing_tensor_ends_all(void **state) {
    const struct model_config config = model_image_config();
    struct model_image image;
    struct rank ranks[MAX_RANKS];
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_remove(&image, "blk.1.ffn_gate.weight");
    model_image_open(&image);
    load_ranks(ranks, &image.model, 2, -1);
    check_all_failed(ranks, 2, -1, ERROR_MODEL, "'blk.1.ffn_gate.weight' is missing");
    model_image_finish(&image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_make_up_the_whole),
        cmocka_unit_test(test_stages_make_up_the_whole),
        cmocka_unit_test(test_experts_are_cut_or_dealt_out),
        cmocka_unit_test(test_reports_leave_out_what_is_not_read),
        cmocka_unit_test(test_one_that_does_not_load_ends_all),
        cmocka_unit_test(test_a_missing_tensor_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
