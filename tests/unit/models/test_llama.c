/* Every switch of the forward pass, alone and with others, on every path of the CPU, against
 * reference_forward. */
#include "models/llama.h"

#include "tests/unit/models/reference_forward.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NUM_TOKENS = 20, PREFILL = 13, BLOCK_SIZE = 16, NUM_BLOCKS = 2, VOCAB = 40, LOGIT_ROWS = 3 };
enum { MAX_PADDING = 8 };
enum { HIDDEN = 64 };

static const int32_t tokens[NUM_TOKENS] = {3,  17, 0, 39, 8, 8,  21, 5, 30, 1,
                                           12, 9,  2, 33, 8, 14, 27, 6, 0,  3};
static const char *const isas[] = {"portable", "avx2", "avx512vnni"};
enum { NUM_ISAS = sizeof(isas) / sizeof(isas[0]) };

static const int32_t block_table[NUM_BLOCKS] = {1, 0};

/* --- Running the product -----------------------------------------------------------------------
 */

static const struct serving_limits limits = {
    .max_num_seqs = 2, .max_num_batched_tokens = NUM_TOKENS, .max_logit_rows = LOGIT_ROWS};

struct run {
    struct backend *backend;
    const struct backend_ops *original;
    struct backend_ops ops; /* with `sample` and `linear` watched */
    struct model_shard shard;
    struct weights *weights;
    struct llama *llama;
    struct kv_cache cache;
};

static float *next_logits; /* where the next rows that are sampled go */
static void (*original_linear)(struct backend *b, const struct linear_args *args);
static int32_t num_rows_of_linear; /* of the last one in a layer */
static int32_t head_rows_step = 1, num_padding;
static enum kv_type cpu_kv_type = KV_F32;

static void watch_sample(struct backend *b, const struct sample_args *args) {
    size_t vocab = (size_t)args->vocab_size, stride = vocab + (size_t)args->padding;
    assert_int_equal(args->padding, num_padding);
    for (int32_t r = 0; r < args->num_sample_rows; r++) {
        b->ops->download(b, next_logits, args->logits + (size_t)r * stride, vocab * sizeof(float));
        next_logits += vocab;
    }
}

static void watch_linear(struct backend *b, const struct linear_args *args) {
    if (!args->float_out) /* as the head's and a router's */
        num_rows_of_linear = args->num_rows;
    original_linear(b, args);
}

static struct weights_options options_of(const struct run *run) {
    return (struct weights_options){.max_model_len = NUM_TOKENS,
                                    .quantization = DTYPE_NONE,
                                    .cuts_key_bias = kv_type_has_scales(run->cache.layout.type)};
}

/* False if the machine lacks the instruction set. */
static bool open_run(struct run *run, const struct model_image *image, const char *name,
                     const char *isa) {
    const struct model_config *config = &image->model.config;
    bool is_gpu = strcmp(name, "cuda-sim") == 0;
    const struct backend_config backend_config = {.num_threads = 2,
                                                  .limits = {.max_num_batched_tokens = NUM_TOKENS,
                                                             .max_num_seqs = 1,
                                                             .max_logit_rows = LOGIT_ROWS,
                                                             .max_model_len = NUM_TOKENS,
                                                             .block_size = BLOCK_SIZE,
                                                             .vocab_size = VOCAB + MAX_PADDING},
                                                  .head_dim = config->head_dim,
                                                  .num_q_heads = config->num_heads,
                                                  .num_kv_heads = config->num_kv_heads,
                                                  .activation_dtype =
                                                      is_gpu ? DTYPE_BF16 : DTYPE_F32,
                                                  .batch_invariant = is_gpu,
                                                  .isa = isa};
    struct error err = {0};
    *run = (struct run){.backend = backend_open(name, &backend_config, &err)};
    if (run->backend == NULL)
        return false;
    run->backend->head_rows_step = head_rows_step;
    run->original = run->backend->ops;
    run->ops = *run->original;
    run->ops.sample = watch_sample;
    original_linear = run->ops.linear;
    run->ops.linear = watch_linear;
    run->backend->ops = &run->ops;
    run->cache.layout = (struct kv_layout){.num_layers = config->num_layers,
                                           .num_kv_heads = config->num_kv_heads,
                                           .head_dim = config->head_dim,
                                           .latent_dim = config->latent.kv_rank,
                                           .block_size = BLOCK_SIZE,
                                           .type = is_gpu ? KV_BF16 : cpu_kv_type};
    run->cache.num_blocks = NUM_BLOCKS;
    size_t cache_bytes = NUM_BLOCKS * kv_block_bytes(&run->cache.layout);
    const struct weights_options options = options_of(run);
    if (model_shard_init(&image->model, DTYPE_NONE, 0, 1, &run->shard, &err) != 0 ||
        weights_load_alone(run->backend, &image->model, &run->shard, &options, &run->weights,
                           &err) != 0 ||
        llama_create(run->backend, config, &run->shard, run->weights, NULL, &limits, &run->llama,
                     &err) != 0 ||
        run->ops.buffer_alloc(run->backend, cache_bytes, &run->cache.buffer, &err) != 0)
        fail_msg("%s", err.message);
    return true;
}

static void close_run(struct run *run) {
    run->ops.buffer_free(run->backend, &run->cache.buffer);
    llama_destroy(run->llama);
    weights_free(run->backend, run->weights);
    run->backend->ops = run->original;
    backend_close(run->backend);
}

/* Samples these rows of the step. With sums, two hidden sums are read and left there: of all tokens
 * so far, and of the step's last. The forward pass sees nothing of how rows are sampled. */
static void run_rows(struct run *run, int32_t first, int32_t count, const int32_t *rows,
                     int32_t num_rows, float *sums) {
    int32_t positions[NUM_TOKENS], slots[NUM_TOKENS];
    struct sample_row sample_rows[NUM_TOKENS];
    struct sample_output outputs[NUM_TOKENS];
    const struct row_span spans[2] = {{0, count}, {count - 1, 1}};
    float before[2 * HIDDEN] = {0};
    if (sums != NULL)
        memcpy(before, sums, HIDDEN * sizeof(float));
    const int32_t query_start[2] = {0, count}, context_len = first + count;
    for (int32_t i = 0; i < count; i++) {
        int32_t position = first + i;
        positions[i] = position;
        slots[i] = block_table[position / BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE;
        sample_rows[i] = (struct sample_row){.mask = SAMPLE_NO_MASK};
    }
    struct batch batch = {.inputs = {.num_tokens = count,
                                     .num_seqs = 1,
                                     .max_blocks_per_seq = NUM_BLOCKS,
                                     .token_ids = tokens + first,
                                     .positions = positions,
                                     .slot_mapping = slots,
                                     .query_start = query_start,
                                     .context_lens = &context_len,
                                     .block_tables = block_table},
                          .has_late_inputs = true,
                          .num_sample_rows = num_rows,
                          .logit_rows = rows,
                          .num_hidden_sums = sums != NULL ? 2 : 0,
                          .hidden_spans = spans,
                          .hidden_sums = before};
    struct step_result result = {.rows = outputs, .hidden_sums = sums};
    llama_forward(run->llama, &run->cache, &batch);
    batch.sample_rows = sample_rows;
    llama_sample(run->llama, &batch, &result);
    assert_int_equal(run->ops.synchronize(run->backend, NULL), 0);
    assert_int_equal(result.num_sample_rows, num_rows);
}

static void run_step(struct run *run, int32_t first, int32_t count, float sums[2 * HIDDEN]) {
    int32_t rows[NUM_TOKENS];
    for (int32_t i = 0; i < count; i++)
        rows[i] = i;
    run_rows(run, first, count, rows, count, sums);
}

/* What is said to be needed is what was taken. */
static void assert_memory(const struct model_image *image, const struct run *run) {
    const struct weights_options options = options_of(run);
    assert_int_equal(llama_workspace_bytes(run->llama),
                     llama_workspace_needed(&image->model.config, &run->shard, NULL,
                                            run->backend->activation_dtype, head_rows_step,
                                            &limits));
    assert_int_equal(run->weights->bytes,
                     weights_needed(&image->model, &run->shard, &options, run->backend));
}

/* --- Comparing ---------------------------------------------------------------------------------
 */

struct expected {
    double logits[NUM_TOKENS * VOCAB];
    double states[NUM_TOKENS * HIDDEN];
};

/* The hidden sums after the last token; steps of another size leave the same bits in the first. */
static void check_hidden_sums(struct run *run, const double *states, const float sums[2 * HIDDEN]) {
    float again[2 * HIDDEN] = {0}, logits[NUM_TOKENS * VOCAB];
    for (int i = 0; i < HIDDEN; i++) {
        double sum = 0.0, last = states[(NUM_TOKENS - 1) * HIDDEN + i];
        for (int t = 0; t < NUM_TOKENS; t++)
            sum += states[t * HIDDEN + i];
        assert_true(fabs((double)sums[i] - sum) <= 1e-3 * fmax(1.0, fabs(sum)));
        assert_true(fabs((double)sums[HIDDEN + i] - last) <= 1e-4 * fmax(1.0, fabs(last)));
    }
    next_logits = logits;
    run_step(run, 0, 1, again);
    run_step(run, 1, NUM_TOKENS - 1, again);
    assert_memory_equal(again, sums, sizeof(again));
}

/* Where few rows are sampled, or none, the last layer does not compute the others'. */
static void check_few_rows(struct run *run, const float *logits, bool is_parallel) {
    static const int32_t rows[2] = {4, NUM_TOKENS - 1}, last = NUM_TOKENS - PREFILL - 1;
    float some[2 * VOCAB], alone[VOCAB];
    next_logits = some;
    run_rows(run, 0, NUM_TOKENS, rows, 2, NULL);
    assert_int_equal(num_rows_of_linear, is_parallel ? NUM_TOKENS : 2);
    for (int r = 0; r < 2; r++)
        assert_memory_equal(some + r * VOCAB, logits + rows[r] * VOCAB, VOCAB * sizeof(float));
    next_logits = alone;
    run_rows(run, 0, PREFILL, NULL, 0, NULL);
    run_rows(run, PREFILL, NUM_TOKENS - PREFILL, &last, 1, NULL);
    assert_memory_equal(alone, some + VOCAB, sizeof(alone));
}

/* A prompt in one step, then a token at a time. */
static void check_path(const struct model_image *image, const struct expected *expected,
                       const char *label, const char *name, const char *isa) {
    struct run run;
    const double *reference = expected->logits;
    float logits[NUM_TOKENS * VOCAB], sums[2 * HIDDEN] = {0};
    if (!open_run(&run, image, name, isa))
        return;
    next_logits = logits;
    run_step(&run, 0, PREFILL, sums);
    for (int32_t position = PREFILL; position < NUM_TOKENS; position++)
        run_step(&run, position, 1, sums);
    check_hidden_sums(&run, expected->states, sums);
    check_few_rows(&run, logits, image->model.config.parallel_residual);
    for (int t = 0; t < NUM_TOKENS; t++) {
        double largest = 0.0, error = 0.0;
        for (int i = t * VOCAB; i < (t + 1) * VOCAB; i++) {
            largest = fmax(largest, fabs(reference[i]));
            error = fmax(error, fabs((double)logits[i] - reference[i]));
        }
        if (!(error <= 1e-4 * largest))
            fail_msg("%s on %s %s: token %d: logits of up to %g differ by %g", label, name,
                     isa != NULL ? isa : "", t, largest, error);
    }
    assert_memory(image, &run);
    close_run(&run);
}

/* More rows than tokens, several at some of them: each has the bits it has alone. */
static void check_repeated_rows(const struct model_image *image, const char *name,
                                const char *isa) {
    enum { NUM_ROWS = 8 };
    static const int32_t rows[NUM_ROWS] = {0, 1, 1, 1, 1, 2, 2, 2}, positions[] = {0, 1, 2},
                         slots[] = {16, 17, 18}, query_start[] = {0, 3}, context_len = 3;
    struct run run;
    float logits[NUM_ROWS * VOCAB], alone[3 * VOCAB], sums[2 * HIDDEN] = {0};
    struct sample_row sample_rows[NUM_ROWS];
    struct sample_output outputs[NUM_ROWS];
    if (!open_run(&run, image, name, isa))
        return;
    next_logits = alone;
    run_step(&run, 0, 3, sums);
    for (int r = 0; r < NUM_ROWS; r++)
        sample_rows[r] = (struct sample_row){.mask = SAMPLE_NO_MASK};
    const struct batch batch = {
        .inputs = {.num_tokens = 3,
                   .num_seqs = 1,
                   .max_blocks_per_seq = NUM_BLOCKS,
                   .token_ids = tokens,
                   .positions = positions,
                   .slot_mapping = slots,
                   .query_start = query_start,
                   .context_lens = &context_len,
                   .block_tables = block_table},
        .num_sample_rows = NUM_ROWS,
        .logit_rows = rows,
        .sample_rows = sample_rows,
    };
    struct step_result result = {.rows = outputs};
    next_logits = logits;
    assert_int_equal(llama_step(run.llama, &run.cache, &batch, &result, NULL), 0);
    assert_int_equal(result.num_sample_rows, NUM_ROWS);
    for (int r = 0; r < NUM_ROWS; r++)
        assert_memory_equal(logits + r * VOCAB, alone + rows[r] * VOCAB, VOCAB * sizeof(float));
    close_run(&run);
}

/* Two steps, whose logits are left in out [5][VOCAB]. */
static bool run_two_steps(const struct model_image *image, const char *name, const char *isa,
                          float *out) {
    struct run run;
    float sums[2 * HIDDEN] = {0};
    if (!open_run(&run, image, name, isa))
        return false;
    next_logits = out;
    run_step(&run, 0, 4, sums);
    run_step(&run, 4, 1, sums);
    assert_memory(image, &run);
    close_run(&run);
    return true;
}

/* Returns false if the machine lacks the instruction set. */
static bool check_padded_head(const struct model_image *image, const char *name, const char *isa) {
    float plain[5 * VOCAB], padded[5 * VOCAB];
    if (!run_two_steps(image, name, isa, plain))
        return false;
    head_rows_step = 7, num_padding = 2;
    assert_true(run_two_steps(image, name, isa, padded));
    head_rows_step = 1, num_padding = 0;
    assert_memory_equal(padded, plain, sizeof(plain));
    return true;
}

/* A backend that wants more rows of the head than there are tokens gets the same logits. */
static void test_padded_head(void **state) {
    bool is_gpu = *(const bool *)*state;
    for (int tied = 0; tied < 2; tied++) {
        struct model_config config = model_image_config();
        struct model_image image;
        config.tied_embeddings = tied;
        config.final_soft_cap = 2.0F;
        model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
        model_image_open(&image);
        assert_true(check_padded_head(&image, is_gpu ? "cuda-sim" : "cpu-ref", NULL));
        for (size_t i = 0; !is_gpu && i < NUM_ISAS; i++)
            check_padded_head(&image, "cpu", isas[i]);
        model_image_finish(&image);
    }
}

static void test_repeated_rows(void **state) {
    struct model_config config = model_image_config();
    struct model_image image;
    model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
    model_image_open(&image);
    check_repeated_rows(&image, "cpu-ref", NULL);
    for (size_t i = 0; i < NUM_ISAS; i++)
        check_repeated_rows(&image, "cpu", isas[i]);
    model_image_finish(&image);
}

/* Leaves the logits of the reference in out [NUM_TOKENS][VOCAB]. */
static void check(const char *label, const struct model_config *config, bool biased, double *out) {
    struct model_image image;
    struct expected expected;
    model_image_init(&image, config, (struct image_form){.biased = biased, .dtype = DTYPE_F32});
    model_image_open(&image);
    assert_int_equal(config->hidden_size, HIDDEN);
    reference_forward(&image, tokens, NUM_TOKENS, expected.logits, expected.states);
    memcpy(out, expected.logits, sizeof(expected.logits));
    check_path(&image, &expected, label, "cpu-ref", NULL);
    for (size_t i = 0; i < NUM_ISAS; i++)
        check_path(&image, &expected, label, "cpu", isas[i]);
    model_image_finish(&image);
}

/* --- Switches ----------------------------------------------------------------------------------
 */

static void set_post_norm_only(struct model_config *c) {
    c->pre_norm = false;
    c->post_norm = true;
}

static void set_both_norms(struct model_config *c) {
    c->post_norm = true;
}

static void set_norm_plus_one(struct model_config *c) {
    c->norm_plus_one = true;
}

static void set_layer_norm(struct model_config *c) {
    c->norm = NORM_LAYER;
}

static void set_parallel(struct model_config *c) {
    c->parallel_residual = true;
}

static void set_qk_norm_of_heads(struct model_config *c) {
    c->qk_norm = QK_NORM_HEAD;
}

static void set_qk_norm_of_all(struct model_config *c) {
    c->qk_norm = QK_NORM_FULL;
}

static void set_gelu(struct model_config *c) {
    c->activation = ACTIVATION_GELU_TANH;
}

static void set_partial_rotation(struct model_config *c) {
    c->rotary_dim = 8;
}

static void set_interleaved(struct model_config *c) {
    c->rope_interleaved = true;
}

static void set_two_ropes(struct model_config *c) {
    c->num_ropes = 2;
    c->ropes[1] = (struct rope_config){.theta = 20.0F, .attention_factor = 1.0F};
    c->layers[1].rope = 1;
}

static void set_a_layer_without_rope(struct model_config *c) {
    c->layers[0].rope = -1;
}

static void set_window(struct model_config *c) {
    c->layers[1].window = 3;
}

static void set_attention_scale(struct model_config *c) {
    c->attention_scale = 0.125F;
}

static void set_attention_soft_cap(struct model_config *c) {
    c->attention_soft_cap = 0.5F;
}

static void set_final_soft_cap(struct model_config *c) {
    c->final_soft_cap = 1.0F;
}

static void set_embedding_scale(struct model_config *c) {
    c->embedding_scale = 8.0F;
}

static void set_residual_scale(struct model_config *c) {
    c->residual_scale = 0.25F;
}

static void set_logit_scale(struct model_config *c) {
    c->logit_scale = 0.0625F;
}

static void set_tied(struct model_config *c) {
    c->tied_embeddings = true;
}

static void set_folder_names(struct model_config *c) {
    c->naming = TENSOR_NAMING_HF;
}

static void set_norms_with_biases(struct model_config *c) {
    c->norm = NORM_LAYER;
    c->norm_bias = true;
}

static void set_head_bias(struct model_config *c) {
    c->head_bias = true;
}

static void set_sinks(struct model_config *c) {
    c->attention_sinks = true;
}

static void set_clamped_swiglu(struct model_config *c) {
    c->activation = ACTIVATION_CLAMPED_SWIGLU;
}

static void set_experts(struct model_config *c) {
    model_image_set_sparse(c);
}

static void set_latent(struct model_config *c) {
    model_image_set_latent(c, 0);
}

static void set_latent_queries(struct model_config *c) {
    model_image_set_latent(c, 32);
    c->rope_interleaved = true;
    c->attention_scale = 0.5F;
}

static void set_latent_in_one(struct model_config *c) {
    model_image_set_latent(c, 24);
    c->naming = TENSOR_NAMING_HF;
}

static void set_shared_expert(struct model_config *c) {
    model_image_set_sparse(c);
    c->moe.shared_size = 48;
}

/* Both layers, and what goes with DeepSeek's way to choose. */
static void set_sigmoid_experts(struct model_config *c) {
    set_shared_expert(c);
    c->layers[0].is_sparse = true;
    c->moe.scoring = ROUTE_SIGMOID;
    c->moe.selection_bias = true;
    c->moe.renormalise = true;
    c->moe.scale = 2.5F;
}

static void set_weighted_shared_expert(struct model_config *c) {
    set_shared_expert(c);
    c->moe.scoring = ROUTE_SOFTMAX_OF_CHOSEN;
    c->moe.shared_gate = true;
}

static const struct {
    const char *label;
    void (*set)(struct model_config *config);
} switches[] = {
    {"post-norm alone", set_post_norm_only},
    {"norms on both sides", set_both_norms},
    {"norm weights plus one", set_norm_plus_one},
    {"LayerNorm", set_layer_norm},
    {"parallel residual", set_parallel},
    {"norm of each head", set_qk_norm_of_heads},
    {"norm of all heads", set_qk_norm_of_all},
    {"GELU", set_gelu},
    {"partial rotation", set_partial_rotation},
    {"interleaved rotation", set_interleaved},
    {"two ropes", set_two_ropes},
    {"a layer without rope", set_a_layer_without_rope},
    {"window", set_window},
    {"attention scale", set_attention_scale},
    {"attention soft cap", set_attention_soft_cap},
    {"final soft cap", set_final_soft_cap},
    {"embedding scale", set_embedding_scale},
    {"residual scale", set_residual_scale},
    {"logit scale", set_logit_scale},
    {"tied embeddings", set_tied},
    {"names of folders", set_folder_names},
    {"norms with biases", set_norms_with_biases},
    {"a bias of the head", set_head_bias},
    {"sinks", set_sinks},
    {"clamped SwiGLU", set_clamped_swiglu},
    {"latent attention", set_latent},
    {"latent attention, queries in two steps", set_latent_queries},
    {"latent attention, keys and values in one", set_latent_in_one},
    {"experts", set_experts},
    {"experts with a shared one", set_shared_expert},
    {"experts by sigmoid", set_sigmoid_experts},
    {"a weighted shared expert", set_weighted_shared_expert},
};

enum { NUM_SWITCHES = sizeof(switches) / sizeof(switches[0]) };

/* A switch that changed nothing would be tested by nothing. */
static void test_each_switch(void **state) {
    double plain[NUM_TOKENS * VOCAB], logits[NUM_TOKENS * VOCAB];
    struct model_config config = model_image_config();
    check("plain", &config, false, plain);
    check("biases", &config, true, logits);
    assert_memory_not_equal(plain, logits, sizeof(plain));
    for (int i = 0; i < NUM_SWITCHES; i++) {
        config = model_image_config();
        switches[i].set(&config);
        check(switches[i].label, &config, false, logits);
        assert_memory_not_equal(plain, logits, sizeof(plain));
    }
}

/* Of all logits, relative to theirs. */
static double quantised_error(const struct model_image *image, const double *expected,
                              const char *name, const char *isa) {
    struct run run;
    float logits[NUM_TOKENS * VOCAB], sums[2 * HIDDEN] = {0};
    double error = 0.0, norm = 0.0;
    if (!open_run(&run, image, name, isa))
        return 0.0;
    next_logits = logits;
    run_step(&run, 0, PREFILL, sums);
    for (int32_t position = PREFILL; position < NUM_TOKENS; position++)
        run_step(&run, position, 1, sums);
    for (int i = 0; i < NUM_TOKENS * VOCAB; i++) {
        error += ((double)logits[i] - expected[i]) * ((double)logits[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    assert_memory(image, &run);
    close_run(&run);
    return sqrt(error / norm);
}

static void set_nothing(struct model_config *c) {
    (void)c;
}

/* Biases a hundred times what else is in a key leave no trace in a quantised cache, however the
 * keys turn, and whatever they are in. */
static void test_quantised_keys_with_large_biases(void **state) {
    static void (*const changes[])(struct model_config *) = {
        set_nothing,   set_partial_rotation,     set_interleaved,
        set_two_ropes, set_a_layer_without_rope, set_window};
    for (size_t i = 0; i < 2 * sizeof(changes) / sizeof(changes[0]); i++) {
        struct model_config config = model_image_config();
        struct model_image image;
        double expected[NUM_TOKENS * VOCAB], states[NUM_TOKENS * HIDDEN];
        changes[i / 2](&config);
        model_image_init(&image, &config, (struct image_form){.biased = true, .dtype = DTYPE_F32});
        for (int32_t layer = 0; layer < IMAGE_LAYERS; layer++)
            model_image_scale(&image, TENSOR_K, layer, "bias", 300.0F);
        model_image_open(&image);
        reference_forward(&image, tokens, NUM_TOKENS, expected, states);
        cpu_kv_type = i % 2 == 0 ? KV_INT8 : KV_E4M3;
        double allowed = i % 2 == 0 ? 0.02 : 0.06;
        assert_true(quantised_error(&image, expected, "cpu-ref", NULL) < allowed);
        for (size_t k = 0; k < NUM_ISAS; k++)
            assert_true(quantised_error(&image, expected, "cpu", isas[k]) < allowed);
        cpu_kv_type = KV_F32;
        model_image_finish(&image);
    }
}

/* Blocks of quantised keys lie across the rows that are made of them, which are F16. */
static void test_latent_attention_of_other_types(void **state) {
    static const enum dtype dtypes[] = {DTYPE_Q8_0, DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; i < 2 * sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        struct model_config config = model_image_config();
        struct model_image image;
        struct expected expected;
        model_image_set_latent(&config, 32);
        config.latent.nope_dim = 32; /* whole blocks */
        config.naming = i % 2 == 0 ? TENSOR_NAMING_HF : TENSOR_NAMING_GGUF;
        model_image_init(&image, &config, (struct image_form){.dtype = dtypes[i / 2]});
        model_image_open(&image);
        reference_forward(&image, tokens, NUM_TOKENS, expected.logits, expected.states);
        assert_true(quantised_error(&image, expected.logits, "cpu-ref", NULL) < 3e-4);
        model_image_finish(&image);
    }
}

static void test_switches_together(void **state) {
    double logits[NUM_TOKENS * VOCAB];
    uint32_t seed = 1;
    for (int repeat = 0; repeat < 60; repeat++) {
        struct model_config config = model_image_config();
        char label[64];
        uint32_t chosen = 0;
        for (int i = 0; i < NUM_SWITCHES; i++) {
            seed = seed * 1664525U + 1013904223U;
            if (seed >> 31 == 0)
                continue;
            switches[i].set(&config);
            chosen |= 1U << i;
        }
        if (config.parallel_residual) {
            config.pre_norm = true;
            config.post_norm = false;
        }
        if (config.moe.num_experts > 0)
            config.pre_norm = true;
        if (config.latent.kv_rank > 0 ||
            (config.qk_norm == QK_NORM_HEAD && config.norm == NORM_LAYER))
            config.qk_norm = QK_NORM_NONE;
        snprintf(label, sizeof(label), "switches %#x, biased %d", chosen, repeat % 2);
        check(label, &config, repeat % 2 == 1, logits);
    }
}

/* On a GPU, where the gathered rows are sent with the step. */
static void test_few_rows_on_gpu(void **state) {
    static void (*const changes[])(struct model_config *) = {set_nothing, set_both_norms,
                                                             set_post_norm_only, set_experts};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct model_config config = model_image_config();
        struct model_image image;
        struct run run;
        float logits[NUM_TOKENS * VOCAB], sums[2 * HIDDEN] = {0};
        changes[i](&config);
        model_image_init(&image, &config, (struct image_form){.dtype = DTYPE_F32});
        model_image_open(&image);
        assert_true(open_run(&run, &image, "cuda-sim", NULL));
        next_logits = logits;
        run_step(&run, 0, NUM_TOKENS, sums);
        check_few_rows(&run, logits, false);
        close_run(&run);
        model_image_finish(&image);
    }
}

/* "cuda-sim": what a GPU does otherwise. */
int main(int argc, char **argv) {
    static bool on_gpu = true, on_cpu = false;
    const struct CMUnitTest gpu_tests[] = {cmocka_unit_test_prestate(test_padded_head, &on_gpu),
                                           cmocka_unit_test(test_few_rows_on_gpu)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_padded_head, &on_cpu),
        cmocka_unit_test(test_each_switch),
        cmocka_unit_test(test_quantised_keys_with_large_biases),
        cmocka_unit_test(test_latent_attention_of_other_types),
        cmocka_unit_test(test_switches_together),
        cmocka_unit_test(test_repeated_rows),
    };
    return argc == 2 ? cmocka_run_group_tests(gpu_tests, NULL, NULL)
                     : cmocka_run_group_tests(tests, NULL, NULL);
}
