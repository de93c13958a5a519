#include "models/weights/key_bias.h"
#include "models/weights/rope.h"
#include "models/weights/weights.h"
#include "models/weights/weights_reader.h"

#include "tests/unit/models/config/model_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct weights_options as_stored = {.max_model_len = 8, .quantization = DTYPE_NONE};
static const struct weights_options int8 = {.max_model_len = 8, .quantization = DTYPE_Q8_0};

static struct backend *open_backend(void) {
    const struct backend_config config = {
        .num_threads = 1, .limits.max_num_batched_tokens = 8, .limits.max_num_seqs = 1};
    struct error err;
    struct backend *backend = backend_open("cpu-ref", &config, &err);
    assert_non_null(backend);
    return backend;
}

static struct model_shard whole(const struct model *model) {
    struct model_shard shard;
    assert_int_equal(model_shard_init(model, DTYPE_NONE, 0, 1, &shard, NULL), 0);
    return shard;
}

static int load_whole(struct backend *backend, const struct model *model,
                      const struct weights_options *options, struct weights **out,
                      struct error *err) {
    const struct model_shard shard = whole(model);
    return weights_load_alone(backend, model, &shard, options, out, err);
}

static size_t whole_needs(const struct model *model, const struct weights_options *options,
                          const struct backend *backend) {
    const struct model_shard shard = whole(model);
    return weights_needed(model, &shard, options, backend);
}

/* An image loaded on a backend. */
struct loaded {
    struct model_image image;
    struct backend *backend;
    struct weights *weights;
};

static void load_image(struct loaded *l, const struct weights_options *options) {
    struct error err = {0};
    model_image_open(&l->image);
    l->backend = open_backend();
    if (load_whole(l->backend, &l->image.model, options, &l->weights, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(l->weights->bytes, whole_needs(&l->image.model, options, l->backend));
}

static void load(struct loaded *l, const struct model_config *config, struct image_form form) {
    *l = (struct loaded){0};
    model_image_init(&l->image, config, form);
    load_image(l, &as_stored);
}

static void unload(struct loaded *l) {
    weights_free(l->backend, l->weights);
    backend_close(l->backend);
    model_image_finish(&l->image);
}

static struct model_config hf_config(void) {
    struct model_config config = model_image_config();
    config.naming = TENSOR_NAMING_HF;
    snprintf(config.tensor_prefix, sizeof(config.tensor_prefix), "model.");
    return config;
}

/* --- What a matrix and a buffer hold -----------------------------------------------------------
 */

/* The product with a row of zeros is the bias; with a row of the unit matrix a column, plus the
 * bias. */
static void read_column(struct loaded *l, const struct matrix *matrix, int32_t rows, int32_t cols,
                        int32_t column, float *out) {
    float *x = calloc((size_t)cols, sizeof(*x));
    assert_non_null(x);
    if (column >= 0)
        x[column] = 1.0F;
    l->backend->ops->linear(
        l->backend,
        &(struct linear_args){
            .x = x, .weight = matrix, .out = out, .num_rows = 1, .scale = 1.0F, .float_out = true});
    free(x);
}

/* Rows of a matrix from first_row on are the tensor; their biases are those of the file times
 * bias_scale. */
static void check_rows(struct loaded *l, const struct matrix *matrix, int32_t num_rows,
                       int32_t first_row, enum tensor_role role, int32_t layer, float bias_scale,
                       float allowed) {
    const struct image_tensor *tensor = model_image_find(&l->image, role, layer, "weight");
    const struct image_tensor *bias = model_image_find(&l->image, role, layer, "bias");
    assert_non_null(tensor);
    float *values = model_image_values(tensor);
    float *biases = bias != NULL ? model_image_values(bias) : NULL;
    float *got = malloc((size_t)num_rows * sizeof(float));
    assert_non_null(got);
    for (int32_t column = -1; column < tensor->cols; column++) {
        read_column(l, matrix, num_rows, tensor->cols, column, got);
        for (int32_t row = 0; row < tensor->rows; row++) {
            float want = biases != NULL ? bias_scale * biases[row] : 0.0F;
            if (column >= 0)
                want += values[row * tensor->cols + column];
            if (!(fabsf(got[first_row + row] - want) <= allowed))
                fail_msg("%s: row %d, column %d: %g, expected %g", tensor->name, row, column,
                         (double)got[first_row + row], (double)want);
        }
    }
    free(values);
    free(biases);
    free(got);
}

static void check_norm(struct loaded *l, const struct buffer *buffer, enum tensor_role role,
                       int32_t layer, float added, float scale) {
    const struct image_tensor *tensor = model_image_find(&l->image, role, layer, "weight");
    if (tensor == NULL) {
        assert_null(buffer->data);
        return;
    }
    float *values = model_image_values(tensor);
    const float *got = buffer->data;
    assert_int_equal(buffer->bytes, (size_t)tensor->cols * sizeof(float));
    for (int32_t i = 0; i < tensor->cols; i++)
        assert_true(got[i] == (values[i] + added) * scale);
    free(values);
}

static void check_fused_layer(struct loaded *l, int32_t layer, float allowed) {
    const struct model_config *config = &l->image.model.config;
    const struct layer_weights *w = &l->weights->layers[layer];
    int32_t ffn = config->intermediate_size;
    int32_t qkv = (config->num_heads + 2 * config->num_kv_heads) * config->head_dim;
    check_rows(l, w->qkv.matrix, qkv, 0, TENSOR_QKV, layer, 1.0F, allowed);
    check_rows(l, w->gate_up.matrix, 2 * ffn, 0, TENSOR_GATE_UP, layer, 1.0F, allowed);
}

static void check_split_layer(struct loaded *l, int32_t layer, float allowed) {
    const struct model_config *config = &l->image.model.config;
    const struct layer_weights *w = &l->weights->layers[layer];
    int32_t ffn = config->intermediate_size;
    int32_t q = config->num_heads * config->head_dim, kv = config->num_kv_heads * config->head_dim;
    check_rows(l, w->qkv.matrix, q + 2 * kv, 0, TENSOR_Q, layer, 1.0F, allowed);
    check_rows(l, w->qkv.matrix, q + 2 * kv, q, TENSOR_K, layer, 1.0F, allowed);
    check_rows(l, w->qkv.matrix, q + 2 * kv, q + kv, TENSOR_V, layer, 1.0F, allowed);
    check_rows(l, w->gate_up.matrix, 2 * ffn, 0, TENSOR_GATE, layer, 1.0F, allowed);
    check_rows(l, w->gate_up.matrix, 2 * ffn, ffn, TENSOR_UP, layer, 1.0F, allowed);
}

static void check_norms(struct loaded *l, int32_t layer) {
    const struct model_config *config = &l->image.model.config;
    const struct layer_weights *w = &l->weights->layers[layer];
    float added = config->norm_plus_one ? 1.0F : 0.0F, post = config->residual_scale;
    if (config->pre_norm)
        check_norm(l, &w->attention_norm, TENSOR_ATTENTION_NORM, layer, added, 1.0F);
    else
        assert_null(w->attention_norm.data);
    if (config->pre_norm && !config->parallel_residual)
        check_norm(l, &w->ffn_norm, TENSOR_FFN_NORM, layer, added, 1.0F);
    else
        assert_null(w->ffn_norm.data);
    if (config->post_norm)
        check_norm(l, &w->attention_post_norm, TENSOR_ATTENTION_POST_NORM, layer, added, post);
    else
        assert_null(w->attention_post_norm.data);
    check_norm(l, &w->ffn_post_norm, TENSOR_FFN_POST_NORM, layer, added, post);
    check_norm(l, &w->q_norm, TENSOR_Q_NORM, layer, added, 1.0F);
    check_norm(l, &w->k_norm, TENSOR_K_NORM, layer, added, 1.0F);
}

static void check_weights(struct loaded *l, struct image_form form, float allowed) {
    const struct model_config *config = &l->image.model.config;
    const struct weights *weights = l->weights;
    float added = config->norm_plus_one ? 1.0F : 0.0F;
    float bias_scale = config->post_norm ? 1.0F : config->residual_scale;
    check_rows(l, weights->embedding, config->vocab_size, 0, TENSOR_EMBEDDING, 0, 1.0F, allowed);
    if (config->tied_embeddings)
        assert_ptr_equal(weights->head, weights->embedding);
    else
        check_rows(l, weights->head, config->vocab_size, 0, TENSOR_HEAD, 0, 1.0F, allowed);
    check_norm(l, &weights->output_norm, TENSOR_OUTPUT_NORM, 0, added, 1.0F);
    assert_int_equal(weights->num_layers, config->num_layers);
    for (int32_t layer = 0; layer < config->num_layers; layer++) {
        const struct layer_weights *w = &weights->layers[layer];
        if (form.fused)
            check_fused_layer(l, layer, allowed);
        else
            check_split_layer(l, layer, allowed);
        check_rows(l, w->attention_out.matrix, config->hidden_size, 0, TENSOR_ATTENTION_OUT, layer,
                   bias_scale, allowed);
        check_rows(l, w->down.matrix, config->hidden_size, 0, TENSOR_DOWN, layer, bias_scale,
                   allowed);
        check_norms(l, layer);
    }
}

static void check_variant(const struct model_config *config, struct image_form form) {
    struct loaded l;
    load(&l, config, form);
    check_weights(&l, form, 1e-6F);
    unload(&l);
}

/* --- What loads --------------------------------------------------------------------------------
 */

static void for_every_form(struct model_config config) {
    for (int naming = TENSOR_NAMING_GGUF; naming <= TENSOR_NAMING_HF; naming++) {
        config.naming = (enum tensor_naming)naming;
        for (int i = 0; i < 8; i++) {
            const struct image_form form = {
                .fused = i & 1, .biased = i & 2, .dtype = i & 4 ? DTYPE_BF16 : DTYPE_F32};
            check_variant(&config, form);
        }
    }
}

static void test_pre_norm(void **state) {
    struct model_config config = hf_config();
    for_every_form(config);
    config.tied_embeddings = true;
    for_every_form(config);
    config.residual_scale = 0.25F;
    for_every_form(config);
}

static void test_post_norm(void **state) {
    struct model_config config = hf_config();
    config.post_norm = true;
    for_every_form(config);
    config.norm_plus_one = true;
    config.residual_scale = 0.25F;
    for_every_form(config);
    config.pre_norm = false;
    config.qk_norm = QK_NORM_FULL;
    for_every_form(config);
}

static void test_parallel_residual(void **state) {
    struct model_config config = hf_config();
    config.parallel_residual = true;
    config.qk_norm = QK_NORM_HEAD;
    for_every_form(config);
}

static void test_rope_tables(void **state) {
    struct model_config config = model_image_config();
    struct loaded l;
    config.num_ropes = 2;
    config.rotary_dim = 8;
    config.ropes[1] = (struct rope_config){.theta = 100.0F, .attention_factor = 2.0F};
    load(&l, &config, (struct image_form){.dtype = DTYPE_F32});
    for (int rope = 0; rope < 2; rope++) {
        assert_int_equal(l.weights->rope_tables[rope].bytes, 8 * 8 * sizeof(float));
        const float *table = l.weights->rope_tables[rope].data;
        double theta = rope == 0 ? 10000.0 : 100.0, factor = rope == 0 ? 1.0 : 2.0;
        for (int i = 0; i < 4; i++) {
            double angle = 7.0 * pow(theta, -2.0 * i / 8);
            assert_true(fabs((double)table[7 * 8 + i] - factor * cos(angle)) < 1e-5);
            assert_true(fabs((double)table[7 * 8 + 4 + i] - factor * sin(angle)) < 1e-5);
        }
    }
    unload(&l);
}

/* --- Key biases --------------------------------------------------------------------------------
 */

/* What attention adds to the scores of a key at a position, for a query of ones there. */
static float turned_bias(const struct loaded *l, int32_t layer, int32_t head, int32_t element) {
    const struct key_bias *bias =
        (const struct key_bias *)l->weights->layers[layer].key_bias.data + head;
    const struct key_biases *turning = &l->weights->layers[layer].key_biases;
    int32_t half = turning->rotary_dim / 2;
    for (int32_t i = 0; i < bias->num_pairs; i++)
        for (int k = 0; k < 2; k++)
            if (element == bias->pairs[i] + k * half)
                return bias->values[i][k];
    return 0.0F;
}

/* The bias of the keys in the matrix and what was cut are together the file's; those of q and v
 * stay. */
static void check_cut(bool fused, bool expected, struct model_config config) {
    static const struct weights_options cutting = {
        .max_model_len = 70, .quantization = DTYPE_NONE, .cuts_key_bias = true};
    struct loaded l = {0};
    int32_t q = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
    float got[256];
    model_image_init(&l.image, &config,
                     (struct image_form){.fused = fused, .biased = true, .dtype = DTYPE_F32});
    for (int32_t layer = 0; layer < IMAGE_LAYERS; layer++)
        model_image_scale(&l.image, fused ? TENSOR_QKV : TENSOR_K, layer, "bias", 30.0F);
    load_image(&l, &cutting);
    for (int32_t layer = 0; layer < IMAGE_LAYERS; layer++) {
        const struct layer_weights *w = &l.weights->layers[layer];
        float *k = model_image_values(
            model_image_find(&l.image, fused ? TENSOR_QKV : TENSOR_K, layer, "bias"));
        assert_true(q + 2 * kv <= 256);
        assert_int_equal(w->key_biases.heads != NULL, expected);
        read_column(&l, w->qkv.matrix, q + 2 * kv, config.hidden_size, -1, got);
        for (int32_t i = 0; i < kv; i++) {
            float cut =
                expected ? turned_bias(&l, layer, i / config.head_dim, i % config.head_dim) : 0.0F;
            assert_true(cut == 0.0F || got[q + i] == 0.0F);
            assert_true(got[q + i] + cut == k[fused ? q + i : i]);
        }
        if (fused)
            for (int32_t i = 0; i < q; i++)
                assert_true(got[i] == k[i] && got[q + kv + i % kv] == k[q + kv + i % kv]);
        if (expected) /* a column of the table, and zeros behind it */
            for (int32_t p = 0; p < 128; p++)
                assert_true(w->key_biases.rope_columns[3 * w->key_biases.stride + p] ==
                            (p < 70 ? ((float *)l.weights->rope_tables[0].data)[p * 16 + 3] : 0));
        free(k);
    }
    unload(&l);
}

static void test_key_biases_are_cut(void **state) {
    struct model_config config = model_image_config();
    check_cut(false, true, config);
    check_cut(true, true, config);
    config.qk_norm = QK_NORM_HEAD;
    check_cut(false, false, config);
}

/* The largest pairs, no more than there is room for, none of a small bias; what never turns is in
 * no list, but where a cap bends the scores. */
static void test_which_key_biases_are_cut(void **state) {
    enum { DIM = 176, ROTARY = 160, LARGE = 70 };
    struct model_config config = {.head_dim = DIM, .rotary_dim = ROTARY};
    float bias[DIM], before[DIM];
    struct key_bias out;
    for (int with_cap = 0; with_cap < 2; with_cap++) {
        config.attention_soft_cap = with_cap ? 30.0F : 0.0F;
        for (int i = 0; i < DIM; i++)
            before[i] = bias[i] = i < LARGE ? 10.0F + (float)i : 1.0F;
        key_bias_cut(&config, 0, 1, bias, &out);
        assert_int_equal(out.num_pairs, KEY_BIAS_MAX_PAIRS);
        for (int i = 0; i < DIM; i++) {
            int pair = i % (ROTARY / 2);
            bool is_cut =
                i < ROTARY ? pair >= LARGE - KEY_BIAS_MAX_PAIRS && pair < LARGE : !with_cap;
            assert_true(bias[i] == (is_cut ? 0.0F : before[i]));
        }
        for (int i = 0; i < KEY_BIAS_MAX_PAIRS; i++) {
            assert_int_equal(out.pairs[i], LARGE - 1 - i);
            assert_true(out.values[i][0] == (float)(LARGE + 9 - i) && out.values[i][1] == 1.0F);
        }
    }
    config.rope_interleaved = true;
    for (int i = 0; i < DIM; i++)
        bias[i] = i == 7 ? -9.0F : 1.0F;
    key_bias_cut(&config, 0, 1, bias, &out);
    assert_int_equal(out.num_pairs, 1);
    assert_int_equal(out.pairs[0], 3);
    assert_true(out.values[0][0] == 1.0F && out.values[0][1] == -9.0F && bias[6] == 0.0F);
    config.layers[0].rope = -1;
    key_bias_cut(&config, 0, 1, bias, &out);
    assert_int_equal(out.num_pairs, 0);
}

/* Powers of 2 move from k to q, the same for a pair; a weight of 0 stays; so do all of a plain
 * cache. */
static void test_norms_are_balanced(void **state) {
    struct model_config config = {.head_dim = 8, .rotary_dim = 4};
    const float q0[8] = {1, 3, 1, 4, 2, 0, 1, 5}, k0[8] = {60, 3, -80, 4, 32, 7, -1, 1e-9F};
    const float moved[8] = {8, 1, 8, 1, 4, 1, 1, 1};
    float q[8], k[8];
    memcpy(q, q0, sizeof(q)), memcpy(k, k0, sizeof(k));
    key_bias_balance_norms(&config, 0, q, k);
    for (int i = 0; i < 8; i++)
        assert_true(q[i] == q0[i] * moved[i] && k[i] == k0[i] / moved[i]);
    config.rope_interleaved = true;
    memcpy(q, q0, sizeof(q)), memcpy(k, k0, sizeof(k));
    key_bias_balance_norms(&config, 0, q, k);
    assert_true(q[0] == 4 && q[1] == 12 && k[0] == 15 && k[1] == 0.75F && q[2] == 4 && k[2] == -20);
}

static void test_norms_of_a_quantised_cache(void **state) {
    struct model_config config = model_image_config();
    for (int is_quantised = 0; is_quantised < 2; is_quantised++) {
        const struct weights_options options = {
            .max_model_len = 8, .quantization = DTYPE_NONE, .cuts_key_bias = is_quantised};
        struct loaded l = {0};
        config.qk_norm = QK_NORM_HEAD;
        model_image_init(&l.image, &config, (struct image_form){.dtype = DTYPE_F32});
        model_image_scale(&l.image, TENSOR_K_NORM, 1, "weight", 64.0F);
        load_image(&l, &options);
        float *q = model_image_values(model_image_find(&l.image, TENSOR_Q_NORM, 1, "weight"));
        float *k = model_image_values(model_image_find(&l.image, TENSOR_K_NORM, 1, "weight"));
        const float *got_q = l.weights->layers[1].q_norm.data;
        const float *got_k = l.weights->layers[1].k_norm.data;
        bool differs = false;
        for (int32_t i = 0; i < config.head_dim; i++) {
            assert_true(got_q[i] * got_k[i] == q[i] * k[i]);
            differs |= got_k[i] != k[i];
        }
        assert_int_equal(differs, is_quantised);
        free(q);
        free(k);
        unload(&l);
    }
}

static struct backend_ops counting_ops;
static size_t largest_upload;
static void (*real_upload)(struct backend *, void *, const void *, size_t);

static void count_upload(struct backend *b, void *dst, const void *src, size_t bytes) {
    largest_upload = bytes > largest_upload ? bytes : largest_upload;
    real_upload(b, dst, src, bytes);
}

/* Ten chunks, the last one shorter: no second copy of a long table is held. */
static void test_a_rope_table_of_many_pieces(void **state) {
    enum { DIM = 16, POSITIONS = 600001 };
    struct model_config config = model_image_config();
    struct loaded l = {.backend = open_backend()};
    const struct weights_options options = {.max_model_len = POSITIONS, .quantization = DTYPE_NONE};
    struct error err = {0};
    float row[DIM];
    model_image_init(&l.image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_open(&l.image);
    counting_ops = *l.backend->ops;
    real_upload = counting_ops.upload;
    counting_ops.upload = count_upload;
    l.backend->ops = &counting_ops;
    if (load_whole(l.backend, &l.image.model, &options, &l.weights, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(largest_upload, WEIGHTS_CHUNK_BYTES);
    const float *table = l.weights->rope_tables[0].data;
    for (int32_t at = 0; at < POSITIONS; at += 7) {
        rope_fill_table(&config.ropes[0], DIM, POSITIONS, at, 1, row);
        assert_memory_equal(table + (size_t)at * DIM, row, sizeof(row));
    }
    unload(&l);
}

/* More than one chunk, the last one shorter. */
static void test_a_matrix_of_many_pieces(void **state) {
    struct model_config config = model_image_config();
    struct loaded l = {0};
    config.vocab_size = 140001; /* of 64 floats: 34 MiB */
    config.num_layers = 1;
    config.tied_embeddings = true;
    model_image_init(&l.image, &config, (struct image_form){.dtype = DTYPE_F32});
    load_image(&l, &as_stored);
    float *values = model_image_values(model_image_find(&l.image, TENSOR_EMBEDDING, 0, "weight"));
    float *column = malloc((size_t)config.vocab_size * sizeof(float));
    assert_non_null(column);
    read_column(&l, l.weights->embedding, config.vocab_size, config.hidden_size, 63, column);
    for (int32_t row = 0; row < config.vocab_size; row++)
        assert_true(column[row] == values[row * config.hidden_size + 63]);
    free(column);
    free(values);
    unload(&l);
}

/* Q8_0 keeps 0.5 within 0.5 / 127 / 2, and its scale within an f16. */
static void test_int8(void **state) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct model_config config = hf_config();
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        struct loaded l = {0}, plain;
        const struct image_form form = {.fused = i == 1, .biased = true, .dtype = dtypes[i]};
        model_image_init(&l.image, &config, form);
        load_image(&l, &int8);
        check_weights(&l, form, 0.0025F);
        load(&plain, &config, form);
        assert_true(l.weights->bytes < plain.weights->bytes * 3 / 4);
        unload(&plain);
        unload(&l);
    }
}

/* Rows that are no whole number of blocks stay as they are, and so does what is quantised. */
static void test_int8_leaves_alone(void **state) {
    struct model_config config = model_image_config();
    struct loaded l = {0};
    const struct image_form form = {.dtype = DTYPE_F32};
    config.intermediate_size = 88;
    model_image_init(&l.image, &config, form);
    load_image(&l, &int8);
    check_rows(&l, l.weights->layers[0].down.matrix, config.hidden_size, 0, TENSOR_DOWN, 0, 1.0F,
               0.0F);
    unload(&l);
    config = model_image_config();
    const struct image_form q8_0 = {.dtype = DTYPE_Q8_0};
    l = (struct loaded){0};
    model_image_init(&l.image, &config, q8_0);
    load_image(&l, &int8);
    check_weights(&l, q8_0, 0.0F);
    unload(&l);
}

/* As of a device that holds every matrix in 16 bits. */
static size_t bf16_matrix_bytes(const struct backend *b, const struct matrix_part *parts,
                                int num_parts, int32_t cols, enum matrix_use use) {
    size_t rows = 0;
    for (int i = 0; i < num_parts; i++)
        rows += (size_t)parts[i].rows;
    return 2 * rows * (size_t)cols;
}

static void test_room_needed_on_a_card(void **state) {
    const struct model_config config = model_image_config();
    struct model_image image;
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_Q8_0});
    model_image_open(&image);
    size_t expected = 8 * 16 * sizeof(float); /* the rope table */
    for (int i = 0; i < image.num_tensors; i++) {
        const struct image_tensor *tensor = &image.tensors[i];
        expected += tensor->rows > 0 ? (size_t)tensor->rows * (size_t)tensor->cols * 2
                                     : (size_t)tensor->cols * sizeof(float);
    }
    const struct backend_ops ops = {.matrix_bytes = bf16_matrix_bytes};
    const struct backend backend = {.ops = &ops, .head_rows_step = 1};
    assert_int_equal(whole_needs(&image.model, &as_stored, &backend), expected);
    model_image_finish(&image);
}

static void test_spare_tensors(void **state) {
    struct model_config config = model_image_config();
    struct loaded l = {0};
    config.tied_embeddings = true;
    model_image_init(&l.image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_put(&l.image, "rope_freqs.weight", 0, 8, DTYPE_F32);
    model_image_put(&l.image, "output.weight", 40, 64, DTYPE_F32);
    load_image(&l, &as_stored);
    unload(&l);
}

struct digest {
    uint8_t bytes[CONTENT_HASH_BYTES];
};

/* Of a model whose file has one byte changed, unless it is 0. */
static struct digest digest_of(struct model_image image, const struct weights_options *options,
                               size_t changed_from_end) {
    struct loaded l = {.image = image};
    struct error err = {0};
    struct digest digest;
    model_image_open(&l.image);
    l.backend = open_backend();
    l.image.writer.data[l.image.writer.bytes - 1 - changed_from_end] ^= changed_from_end > 0;
    struct weights_reader *reader;
    const struct model_shard shard = whole(&l.image.model);
    if (weights_reader_create(&l.image.model, 1, &reader, &err) != 0 ||
        weights_load(l.backend, &l.image.model, &shard, reader, options, &l.weights, &err) != 0)
        fail_msg("%s", err.message);
    weights_digest_sum(weights_reader_digest(reader), digest.bytes);
    weights_reader_destroy(reader);
    unload(&l);
    return digest;
}

static struct model_image plain_image(enum dtype dtype) {
    struct model_config config = hf_config();
    struct model_image image;
    model_image_init(&image, &config, (struct image_form){.dtype = dtype});
    return image;
}

static void test_digest(void **state) {
    static const struct digest without_library;
    struct digest usual = digest_of(plain_image(DTYPE_F16), &as_stored, 0), other;
    if (memcmp(&usual, &without_library, sizeof(usual)) == 0)
        skip();
    other = digest_of(plain_image(DTYPE_F16), &as_stored, 0);
    assert_memory_equal(&usual, &other, sizeof(usual));
    other = digest_of(plain_image(DTYPE_F16), &as_stored, 2048); /* a byte of the last tensors */
    assert_memory_not_equal(&usual, &other, sizeof(usual));
    other = digest_of(plain_image(DTYPE_BF16), &as_stored, 0);
    assert_memory_not_equal(&usual, &other, sizeof(usual));
    /* It is about what the files say, not what is made of it. */
    other = digest_of(plain_image(DTYPE_F16), &int8, 0);
    assert_memory_equal(&usual, &other, sizeof(usual));
}

/* --- What does not -----------------------------------------------------------------------------
 */

static void assert_refused(struct model_image *image, const char *reason) {
    struct backend *backend = open_backend();
    struct weights *weights = NULL;
    struct error err = {0};
    model_image_open(image);
    assert_int_equal(load_whole(backend, &image->model, &as_stored, &weights, &err), -1);
    assert_null(weights);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(strncmp(err.message, "m.gguf: ", 8), 0);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
    backend_close(backend);
    model_image_finish(image);
}

/* A model with every kind of tensor. */
static struct model_image full_image(void) {
    struct model_config config = hf_config();
    struct model_image image;
    config.post_norm = true;
    config.qk_norm = QK_NORM_HEAD;
    model_image_init(&image, &config, (struct image_form){.biased = true, .dtype = DTYPE_F32});
    return image;
}

/* A bias that no tensor has in layer 0 is one that others do not miss. */
static bool is_optional(const struct image_tensor *tensor) {
    return strstr(tensor->name, "layers.0.self_attn.o_proj.bias") != NULL ||
           strstr(tensor->name, "layers.0.mlp.down_proj.bias") != NULL;
}

static void test_missing_tensors(void **state) {
    int num_tensors = full_image().num_tensors;
    for (int i = 0; i < num_tensors; i++) {
        struct model_image image = full_image();
        const struct image_tensor missing = image.tensors[i];
        char reason[TENSOR_NAME_BYTES + 32];
        model_image_remove(&image, missing.name);
        if (is_optional(&missing))
            snprintf(reason, sizeof(reason), "is not part of a test model");
        else
            snprintf(reason, sizeof(reason), "tensor '%s' is missing", missing.name);
        assert_refused(&image, reason);
    }
}

static void test_shapes_that_do_not_fit(void **state) {
    int num_tensors = full_image().num_tensors;
    for (int i = 0; i < num_tensors; i++) {
        struct model_image image = full_image();
        struct image_tensor t = image.tensors[i];
        model_image_put(&image, t.name, t.rows > 0 ? t.rows + 32 : 0,
                        t.rows > 0 ? t.cols : t.cols + 32, DTYPE_F32);
        assert_refused(&image, t.name);
        image = full_image();
        model_image_put(&image, t.name, t.rows > 0 ? 0 : 1, t.cols, DTYPE_F32);
        assert_refused(&image, t.name);
    }
    struct model_config config = model_image_config();
    struct model_image image;
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_put(&image, "blk.0.attn_q.weight", 32, 64, DTYPE_F32);
    assert_refused(&image, "tensor 'blk.0.attn_q.weight': shape [32, 64], expected [96, 64]");
}

/* Keys' and values' parts of all heads, in one tensor or apart. */
static void test_latent_attention_that_does_not_fit(void **state) {
    static const struct {
        enum tensor_naming naming;
        const char *name;
        int32_t rows, cols; /* 0: it is missing */
        const char *reason;
    } cases[] = {
        {TENSOR_NAMING_HF, "layers.0.self_attn.kv_b_proj.weight", 0, 0,
         "tensor 'layers.0.self_attn.kv_b_proj.weight' is missing"},
        {TENSOR_NAMING_HF, "layers.1.self_attn.kv_b_proj.weight", 239, 32,
         "kv_b_proj.weight': shape [239, 32], expected [240, 32]"},
        {TENSOR_NAMING_HF, "layers.1.self_attn.kv_b_proj.weight", 240, 64,
         "kv_b_proj.weight': shape [240, 64], expected [240, 32]"},
        {TENSOR_NAMING_HF, "layers.0.self_attn.q_b_proj.weight", 192, 24,
         "q_b_proj.weight': shape [192, 24], expected [192, 32]"},
        {TENSOR_NAMING_HF, "layers.0.self_attn.kv_a_proj_with_mqa.weight", 32, 64,
         "shape [32, 64], expected [40, 64]"},
        {TENSOR_NAMING_GGUF, "blk.1.attn_k_b.weight", 32, 24,
         "tensor 'blk.1.attn_k_b.weight': shape [32, 24], expected [6, 32, 24]"},
        {TENSOR_NAMING_GGUF, "blk.0.attn_kv_a_norm.weight", 0, 0,
         "attn_kv_a_norm.weight' is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_config config = model_image_config();
        struct model_image image;
        model_image_set_latent(&config, 32);
        config.naming = cases[i].naming;
        model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
        if (cases[i].rows > 0)
            model_image_put(&image, cases[i].name, cases[i].rows, cases[i].cols, DTYPE_F32);
        else
            model_image_remove(&image, cases[i].name);
        assert_refused(&image, cases[i].reason);
    }
}

static void test_quantised_vectors(void **state) {
    static const char *const names[] = {"model.norm.weight",
                                        "model.layers.1.self_attn.q_proj.bias"};
    for (int i = 0; i < 2; i++) {
        struct model_image image = full_image();
        model_image_put(&image, names[i], 0, i == 0 ? 64 : 96, DTYPE_Q8_0);
        assert_refused(&image, "type q8_0, expected f32, f16 or bf16");
    }
}

static void test_tensors_nobody_asked_for(void **state) {
    static const struct {
        const char *name, *reason;
    } cases[] = {
        {"blk.0.attn_norm.bias", "tensor 'blk.0.attn_norm.bias' is not part of a test model"},
        {"blk.2.attn_norm.weight", "tensor 'blk.2.attn_norm.weight' is not part of a test model"},
        {"blk.1.attn_q.bias", "tensor 'blk.1.attn_q.bias' is not part of a test model"},
        {"output.bias", "tensor 'output.bias' is not part of a test model"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct model_config config = model_image_config();
        struct model_image image;
        model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
        model_image_put(&image, cases[i].name, 0, 64, DTYPE_F32);
        assert_refused(&image, cases[i].reason);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pre_norm),
        cmocka_unit_test(test_post_norm),
        cmocka_unit_test(test_parallel_residual),
        cmocka_unit_test(test_key_biases_are_cut),
        cmocka_unit_test(test_which_key_biases_are_cut),
        cmocka_unit_test(test_norms_are_balanced),
        cmocka_unit_test(test_norms_of_a_quantised_cache),
        cmocka_unit_test(test_rope_tables),
        cmocka_unit_test(test_a_rope_table_of_many_pieces),
        cmocka_unit_test(test_a_matrix_of_many_pieces),
        cmocka_unit_test(test_int8),
        cmocka_unit_test(test_int8_leaves_alone),
        cmocka_unit_test(test_room_needed_on_a_card),
        cmocka_unit_test(test_spare_tensors),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_shapes_that_do_not_fit),
        cmocka_unit_test(test_latent_attention_that_does_not_fit),
        cmocka_unit_test(test_quantised_vectors),
        cmocka_unit_test(test_tensors_nobody_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
