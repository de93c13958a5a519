#include "models/model_config.h"
#include "models/weights.h"

#include "tests/unit/models/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

/* --- A one-layer model with distinct sizes, of which one tensor may be changed ------------------
 */

enum { HIDDEN = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, FFN = 64, VOCAB = 5 };

struct tensor {
    const char *name;
    uint32_t num_dims;
    uint64_t dims[2]; /* innermost first */
    uint32_t type;
};

static const struct tensor tensors[] = {
    {"token_embd.weight", 2, {HIDDEN, VOCAB}},
    {"output_norm.weight", 1, {HIDDEN}},
    {"blk.0.attn_norm.weight", 1, {HIDDEN}},
    {"blk.0.attn_q.weight", 2, {HIDDEN, HEADS *HEAD_DIM}},
    {"blk.0.attn_k.weight", 2, {HIDDEN, KV_HEADS *HEAD_DIM}},
    {"blk.0.attn_v.weight", 2, {HIDDEN, KV_HEADS *HEAD_DIM}},
    {"blk.0.attn_output.weight", 2, {HEADS * HEAD_DIM, HIDDEN}},
    {"blk.0.ffn_norm.weight", 1, {HIDDEN}},
    {"blk.0.ffn_gate.weight", 2, {HIDDEN, FFN}},
    {"blk.0.ffn_up.weight", 2, {HIDDEN, FFN}},
    {"blk.0.ffn_down.weight", 2, {FFN, HIDDEN}},
};

/* Of a model that has them; their elements are 1, 2, 3, ... up to QKV_ROWS. */
static const struct tensor biases[] = {
    {"blk.0.attn_q.bias", 1, {HEADS * HEAD_DIM}},
    {"blk.0.attn_k.bias", 1, {KV_HEADS * HEAD_DIM}},
    {"blk.0.attn_v.bias", 1, {KV_HEADS * HEAD_DIM}},
};

enum {
    NUM_TENSORS = sizeof(tensors) / sizeof(tensors[0]),
    NUM_BIASES = sizeof(biases) / sizeof(biases[0]),
    QKV_ROWS = (HEADS + 2 * KV_HEADS) * HEAD_DIM,
};

static void put_config(struct gguf_writer *w) {
    gguf_put_key_string(w, "general.architecture", "llama");
    gguf_put_key_u32(w, "llama.block_count", 1);
    gguf_put_key_u32(w, "llama.context_length", 64);
    gguf_put_key_u32(w, "llama.embedding_length", HIDDEN);
    gguf_put_key_u32(w, "llama.feed_forward_length", FFN);
    gguf_put_key_u32(w, "llama.attention.head_count", HEADS);
    gguf_put_key_u32(w, "llama.attention.head_count_kv", KV_HEADS);
    gguf_put_key_u32(w, "llama.attention.key_length", HEAD_DIM);
    gguf_put_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf_put_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
    gguf_put_zeros(w, VOCAB * 8);
}

enum { NUM_CONFIG_KEYS = 10 };

static uint64_t tensor_bytes(const struct tensor *tensor) {
    uint64_t elements = tensor->dims[0] * (tensor->num_dims == 2 ? tensor->dims[1] : 1);
    return tensor->type == GGUF_TENSOR_Q8_0 ? elements / 32 * 34 : elements * 4;
}

static uint64_t put_entry(struct gguf_writer *w, const struct tensor *tensor, uint64_t offset) {
    gguf_put_tensor(w, tensor->name, tensor->num_dims, tensor->dims, tensor->type, offset);
    return (offset + tensor_bytes(tensor) + 31) & ~(uint64_t)31;
}

/* `change` replaces the tensor of its name or joins the others; `without` is left out. */
struct variant {
    bool biased;
    const struct tensor *change;
    const char *without;
};

static bool is_kept(const struct variant *variant, const struct tensor *tensor) {
    const struct tensor *change = variant->change;
    return !(change != NULL && strcmp(change->name, tensor->name) == 0) &&
           !(variant->without != NULL && strcmp(variant->without, tensor->name) == 0);
}

static void put_data(struct gguf_writer *w, uint64_t bytes) {
    float values[QKV_ROWS];
    for (int i = 0; i < QKV_ROWS; i++)
        values[i] = (float)(i + 1);
    gguf_put(w, values, sizeof(values));
    gguf_put_zeros(w, bytes - sizeof(values));
}

/* Biases come first, where put_data has its numbers. */
static struct gguf_writer make_image(const struct variant *variant) {
    struct gguf_writer w = {0}, entries = {0};
    const struct tensor *change = variant->change;
    uint64_t count = 0, offset = 0;
    for (size_t i = 0; i < NUM_BIASES && variant->biased; i++)
        if (is_kept(variant, &biases[i])) {
            offset = put_entry(&entries, &biases[i], offset);
            count++;
        }
    for (size_t i = 0; i < NUM_TENSORS; i++)
        if (is_kept(variant, &tensors[i])) {
            offset = put_entry(&entries, &tensors[i], offset);
            count++;
        }
    if (change != NULL) {
        offset = put_entry(&entries, change, offset);
        count++;
    }
    gguf_put_header(&w, 3, count, NUM_CONFIG_KEYS);
    put_config(&w);
    gguf_put(&w, entries.data, entries.bytes);
    gguf_pad(&w, 32);
    put_data(&w, offset);
    gguf_finish(&entries);
    return w;
}

/* weights_load reads the file and the configuration only; there is no tokenizer here. */
static int load_variant(const struct variant *variant, struct backend *backend,
                        struct weights **out, struct error *err) {
    struct gguf_writer w = make_image(variant);
    struct model model = {0};
    assert_int_equal(tensor_file_open_memory(w.data, w.bytes, "m.gguf", &model.file, err), 0);
    assert_int_equal(config_gguf_read(model.file, &model.config, err), 0);
    const struct weights_options options = {.max_model_len = 8, .quantization = DTYPE_COUNT};
    int status = weights_load(backend, &model, &options, out, err);
    tensor_file_close(model.file);
    gguf_finish(&w);
    return status;
}

static int load(const struct tensor *change, const char *without, struct backend *backend,
                struct weights **out, struct error *err) {
    const struct variant variant = {.change = change, .without = without};
    return load_variant(&variant, backend, out, err);
}

static struct backend *open_backend(void) {
    const struct backend_config config = {
        .num_threads = 1, .max_step_tokens = 8, .max_step_seqs = 1};
    struct error err;
    struct backend *backend = backend_open("cpu-ref", &config, &err);
    assert_non_null(backend);
    return backend;
}

static void assert_variant_refused(const struct variant *variant, const char *reason) {
    struct backend *backend = open_backend();
    struct weights *weights = NULL;
    struct error err = {0};
    assert_int_equal(load_variant(variant, backend, &weights, &err), -1);
    assert_null(weights);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(strncmp(err.message, "m.gguf: ", 8), 0);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
    backend_close(backend);
}

static void assert_refused(const struct tensor *change, const char *without, const char *reason) {
    const struct variant variant = {.change = change, .without = without};
    assert_variant_refused(&variant, reason);
}

/* ---------------------------------------------------------------------------------------------- */

/* The product with zeros is the bias alone. */
static void test_loads_biases_of_the_attention(void **state) {
    const struct variant variant = {.biased = true};
    struct backend *backend = open_backend();
    struct weights *weights;
    struct error err;
    float x[HIDDEN] = {0}, out[QKV_ROWS];
    assert_int_equal(load_variant(&variant, backend, &weights, &err), 0);
    backend->ops->linear(backend, &(struct linear_args){.x = x,
                                                        .weight = weights->layers[0].qkv,
                                                        .out = out,
                                                        .num_rows = 1,
                                                        .scale = 1.0F,
                                                        .float_out = true});
    for (int i = 0; i < QKV_ROWS; i++)
        assert_true(out[i] == (float)(i + 1));
    weights_free(backend, weights);
    backend_close(backend);
}

static void test_biases_that_do_not_fit(void **state) {
    for (size_t i = 0; i < NUM_BIASES; i++) {
        char reason[96];
        struct variant variant = {.biased = true, .without = biases[i].name};
        snprintf(reason, sizeof(reason), "tensor '%s' is missing", biases[i].name);
        assert_variant_refused(&variant, reason);
        struct tensor change = biases[i];
        change.dims[0] += 32;
        variant = (struct variant){.biased = true, .change = &change};
        assert_variant_refused(&variant, biases[i].name);
        change = biases[i];
        change.type = GGUF_TENSOR_Q8_0;
        assert_variant_refused(&variant, "type q8_0, expected f32, f16 or bf16");
    }
}

static void test_loads_tied(void **state) {
    struct backend *backend = open_backend();
    struct weights *weights;
    struct error err;
    assert_int_equal(load(NULL, NULL, backend, &weights, &err), 0);
    assert_int_equal(weights->num_layers, 1);
    assert_ptr_equal(weights->head, weights->embedding);
    assert_true(weights->bytes > 8 * HEAD_DIM * sizeof(float));
    weights_free(backend, weights);
    backend_close(backend);
}

static void test_loads_head_of_its_own(void **state) {
    const struct tensor head = {"output.weight", 2, {HIDDEN, VOCAB}, GGUF_TENSOR_Q8_0};
    struct backend *backend = open_backend();
    struct weights *weights;
    struct error err;
    assert_int_equal(load(&head, NULL, backend, &weights, &err), 0);
    assert_ptr_not_equal(weights->head, weights->embedding);
    weights_free(backend, weights);
    backend_close(backend);
}

static void test_rope_table(void **state) {
    struct backend *backend = open_backend();
    struct weights *weights;
    struct error err;
    assert_int_equal(load(NULL, NULL, backend, &weights, &err), 0);
    assert_int_equal(weights->rope_tables[0].bytes, 8 * HEAD_DIM * sizeof(float));
    const float *table = weights->rope_tables[0].data;
    for (int position = 0; position < 8; position++) {
        for (int i = 0; i < HEAD_DIM / 2; i++) {
            double angle = position * pow(10000.0, -2.0 * i / HEAD_DIM);
            const float *row = table + (ptrdiff_t)position * HEAD_DIM;
            assert_true(fabs((double)row[i] - cos(angle)) < 1e-6);
            assert_true(fabs((double)row[HEAD_DIM / 2 + i] - sin(angle)) < 1e-6);
        }
    }
    weights_free(backend, weights);
    backend_close(backend);
}

static void test_missing_tensors(void **state) {
    for (size_t i = 0; i < NUM_TENSORS; i++) {
        char reason[96];
        snprintf(reason, sizeof(reason), "tensor '%s' is missing", tensors[i].name);
        assert_refused(NULL, tensors[i].name, reason);
    }
}

static void test_shapes_that_do_not_fit(void **state) {
    for (size_t i = 0; i < NUM_TENSORS; i++) {
        struct tensor change = tensors[i];
        change.dims[change.num_dims - 1] += 32;
        assert_refused(&change, NULL, tensors[i].name);
        change = tensors[i];
        change.num_dims = 3 - change.num_dims;
        change.dims[1] = 1;
        assert_refused(&change, NULL, tensors[i].name);
    }
    const struct tensor change = {"blk.0.attn_q.weight", 2, {HIDDEN, 32}};
    assert_refused(&change, NULL,
                   "tensor 'blk.0.attn_q.weight': shape [32, 32], expected [64, 32]");
}

static void test_quantised_norm(void **state) {
    const struct tensor change = {"blk.0.ffn_norm.weight", 1, {HIDDEN}, GGUF_TENSOR_Q8_0};
    assert_refused(&change, NULL, "type q8_0, expected f32, f16 or bf16");
}

static void test_tensors_nobody_asked_for(void **state) {
    const struct tensor bias = {"blk.0.attn_norm.bias", 1, {HIDDEN}};
    assert_refused(&bias, NULL, "tensor 'blk.0.attn_norm.bias' is not part of a llama model");
    const struct tensor layer = {"blk.1.attn_norm.weight", 1, {HIDDEN}};
    assert_refused(&layer, NULL, "tensor 'blk.1.attn_norm.weight' is not part of a llama model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_tied),
        cmocka_unit_test(test_loads_head_of_its_own),
        cmocka_unit_test(test_loads_biases_of_the_attention),
        cmocka_unit_test(test_biases_that_do_not_fit),
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_shapes_that_do_not_fit),
        cmocka_unit_test(test_quantised_norm),
        cmocka_unit_test(test_tensors_nobody_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
