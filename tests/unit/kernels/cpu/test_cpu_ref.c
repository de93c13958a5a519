/* The oracle against values worked out by hand. */
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/sample_common.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int open_ref(void **state) {
    struct error err = {0};
    const struct backend_config config = {.limits.max_num_batched_tokens = 8};
    *state = backend_open("cpu-ref", &config, &err);
    return *state ? 0 : -1;
}

static int close_ref(void **state) {
    backend_close(*state);
    return 0;
}

static void assert_floats(const float *actual, const float *expected, int n) {
    for (int i = 0; i < n; i++)
        assert_float_equal(actual[i], expected[i], 1e-5f);
}

static void test_buffers_are_aligned_and_zeroed(void **state) {
    struct backend *b = *state;
    struct buffer buffer = {0};
    struct error err;
    assert_int_equal(b->ops->buffer_alloc(b, 100, &buffer, &err), 0);
    assert_int_equal((uintptr_t)buffer.data % 64, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((char *)buffer.data)[i], 0);
    b->ops->buffer_free(b, &buffer);
    assert_null(buffer.data);
    b->ops->buffer_free(b, &buffer);
    assert_int_equal(b->ops->buffer_alloc(b, SIZE_MAX - 8, &buffer, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
}

static void test_matrix_parts_stack_and_multiply(void **state) {
    struct backend *b = *state;
    const float first[2][2] = {{1, 2}, {3, 4}};
    const uint16_t second[1][2] = {{0x3c00, 0xc000}}; /* f16: 1, -2 */
    const struct matrix_part parts[] = {{DTYPE_F32, 2, first}, {DTYPE_F16, 1, second}};
    struct matrix *matrix = NULL;
    assert_int_equal(b->ops->matrix_create(b, parts, 2, 2, MATRIX_LINEAR, &matrix, NULL), 0);
    const float x[2][2] = {{1, 10}, {-1, 0.5f}};
    float out[2][3];
    b->ops->linear(
        b, &(struct linear_args){.x = x, .weight = matrix, .out = out, .num_rows = 2, .scale = 1});
    assert_floats(out[0], (const float[]){21, 43, -19, 0, -1, -2}, 6);
    b->ops->linear(
        b,
        &(struct linear_args){
            .x = x, .weight = matrix, .out = out, .num_rows = 2, .scale = 1, .accumulate = true});
    assert_floats(out[0], (const float[]){42, 86, -38, 0, -2, -4}, 6);

    const int32_t ids[] = {2, 0};
    float embedded[2][2];
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = 2, .token_ids = ids});
    b->ops->embed(b, &(struct embed_args){.table = matrix, .out = embedded, .scale = 1});
    assert_floats(embedded[0], (const float[]){1, -2, 1, 2}, 4);
    b->ops->matrix_destroy(b, matrix);
    b->ops->matrix_destroy(b, NULL);
}

static void test_matrix_create_refuses(void **state) {
    struct backend *b = *state;
    const char data[64] = {0};
    struct matrix *matrix = NULL;
    struct error err;
    const struct matrix_part ragged = {DTYPE_Q8_0, 1, data};
    assert_int_equal(b->ops->matrix_create(b, &ragged, 1, 33, MATRIX_LINEAR, &matrix, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    const struct matrix_part unknown = {DTYPE_NONE, 1, data};
    assert_int_equal(b->ops->matrix_create(b, &unknown, 1, 32, MATRIX_LINEAR, &matrix, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    const struct matrix_part empty = {DTYPE_F32, 0, data};
    assert_int_equal(b->ops->matrix_create(b, &empty, 1, 32, MATRIX_LINEAR, &matrix, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_null(matrix);
}

static void test_norm(void **state) {
    struct backend *b = *state;
    float x[2][4] = {{1, 1, 1, 1}, {0, 0, 6, 8}}; /* root mean squares 1 and 5 */
    const float weight[4] = {1, 2, 3, 4};
    b->ops->norm(
        b, &(struct norm_args){
               .x = x, .weight = weight, .out = x, .num_rows = 2, .row_stride = 4, .width = 4});
    assert_floats(x[0], (const float[]){1, 2, 3, 4, 0, 0, 3.6f, 6.4f}, 8);
    float zero[2] = {0, 0};
    b->ops->norm(b, &(struct norm_args){.x = zero,
                                        .weight = weight,
                                        .out = zero,
                                        .num_rows = 1,
                                        .row_stride = 2,
                                        .width = 2,
                                        .epsilon = 1e-5f});
    assert_floats(zero, (const float[]){0, 0}, 2);
}

static void test_act_mul_and_gather(void **state) {
    struct backend *b = *state;
    const float gate_up[2][4] = {{0, 1, 5, 2}, {-1, 100, 3, 0.5f}};
    float out[2][2];
    b->ops->act_mul(
        b, &(struct act_mul_args){.gate_up = gate_up, .out = out, .num_rows = 2, .width = 2});
    assert_floats(out[0], (const float[]){0, 1.4621172f, -0.8068243f, 50}, 4);
    const int32_t rows[] = {1, 1, 0};
    float gathered[3][2];
    b->ops->gather_rows(b, &(struct gather_rows_args){
                               .x = out, .rows = rows, .out = gathered, .num_rows = 3, .width = 2});
    assert_memory_equal(gathered[0], out[1], sizeof(out[1]));
    assert_memory_equal(gathered[2], out[0], sizeof(out[0]));
}

/* Position 1 turns the first pair by 90 degrees and the second by 180; elements beyond rotary_dim
 * stay. */
static const float quarter_turns[2][4] = {{1, 1, 0, 0}, {0, -1, 1, 0}};

static void check_rope(struct backend *b, bool interleaved, const float expected[6]) {
    struct kv_cache cache = {
        .layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 6, .block_size = 16},
        .num_blocks = 2};
    assert_int_equal(
        b->ops->buffer_alloc(b, 2 * kv_block_bytes(&cache.layout), &cache.buffer, NULL), 0);
    float qkv[18] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const int32_t position = 1, slot = 16 + 3, start[] = {0, 1}, length = 1, table[] = {1};
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = 1,
                                                .num_seqs = 1,
                                                .max_blocks_per_seq = 1,
                                                .positions = &position,
                                                .slot_mapping = &slot,
                                                .query_start = start,
                                                .context_lens = &length,
                                                .block_tables = table});
    b->ops->rope_store_kv(b, &(struct rope_store_args){.qkv = qkv,
                                                       .rope_table = quarter_turns[0],
                                                       .cache = &cache,
                                                       .num_q_heads = 1,
                                                       .rotary_dim = 4,
                                                       .interleaved = interleaved});
    assert_floats(qkv, expected, 6);
    const float *block = (const float *)cache.buffer.data + 2 * 16 * 6;
    assert_floats(block + 3 * 6, expected, 6);                                      /* K */
    assert_floats(block + 16 * 6 + 3 * 6, (const float[]){7, 8, 9, 10, 11, 12}, 6); /* V */
    b->ops->buffer_free(b, &cache.buffer);
}

static void test_rope_interleaved(void **state) {
    check_rope(*state, true, (const float[]){-2, 1, -3, -4, 5, 6});
}

static void test_rope_halves(void **state) {
    check_rope(*state, false, (const float[]){-3, -2, 1, -4, 5, 6});
}

/* Two sequences: A with 17 cached tokens over blocks 3 and 1, B with 2 over block 0, decoding and
 * prefilling in one step. K of token t is (t, 0), V is (t, 1): with q = 0 the result is the mean of
 * the visible tokens; with a large q it is the last token alone. 4 query heads on 2 KV heads. */
static void test_attention_through_scrambled_blocks(void **state) {
    enum { DIM = 2, Q_HEADS = 4, KV_HEADS = 2, ROW = (Q_HEADS + 2 * KV_HEADS) * DIM };
    static const float identity[32] = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0,
                                       1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    struct backend *b = *state;
    for (int d = 0; d < 3; d++) {
        const enum kv_type type = (enum kv_type[]){KV_F32, KV_F16, KV_BF16}[d];
        struct kv_cache cache = {.layout = {.num_layers = 2,
                                            .num_kv_heads = KV_HEADS,
                                            .head_dim = DIM,
                                            .block_size = 16,
                                            .type = type},
                                 .num_blocks = 4};
        assert_int_equal(
            b->ops->buffer_alloc(b, 4 * kv_block_bytes(&cache.layout), &cache.buffer, NULL), 0);
        const int32_t tables[2][2] = {{3, 1}, {0, 0}};
        float qkv[19][ROW] = {0};
        int32_t positions[19] = {0}, slots[19];
        for (int t = 0; t < 19; t++) {
            int in_seq = t < 17 ? t : t - 17;
            slots[t] = tables[t >= 17][in_seq / 16] * 16 + in_seq % 16;
            for (int h = 0; h < KV_HEADS; h++) {
                qkv[t][(Q_HEADS + h) * DIM] = (float)in_seq;
                qkv[t][(Q_HEADS + KV_HEADS + h) * DIM] = (float)in_seq * (h ? -1 : 1);
                qkv[t][(Q_HEADS + KV_HEADS + h) * DIM + 1] = 1;
            }
        }
        struct rope_store_args rope = {.qkv = qkv,
                                       .rope_table = identity,
                                       .cache = &cache,
                                       .layer = 1,
                                       .num_q_heads = Q_HEADS,
                                       .rotary_dim = 2};
        b->ops->step_begin(b, &(struct step_inputs){
                                  .num_tokens = 19, .positions = positions, .slot_mapping = slots});
        b->ops->rope_store_kv(b, &rope);

        float step_qkv[3][ROW] = {0}, out[3][Q_HEADS * DIM];
        step_qkv[0][1 * DIM] = 100; /* A, head 1 */
        const int32_t start[] = {0, 1, 3}, lengths[] = {17, 2};
        b->ops->step_begin(b, &(struct step_inputs){.num_tokens = 3,
                                                    .num_seqs = 2,
                                                    .max_blocks_per_seq = 2,
                                                    .query_start = start,
                                                    .context_lens = lengths,
                                                    .block_tables = tables[0]});
        b->ops->paged_attention(b, &(struct attention_args){.qkv = step_qkv,
                                                            .out = out,
                                                            .cache = &cache,
                                                            .layer = 1,
                                                            .num_q_heads = Q_HEADS,
                                                            .scale = 0.5f});
        assert_floats(out[0], (const float[]){8, 1, 16, 1, -8, 1, -8, 1}, 8);
        assert_floats(out[1], (const float[]){0, 1, 0, 1, 0, 1, 0, 1}, 8);
        assert_floats(out[2], (const float[]){0.5f, 1, 0.5f, 1, -0.5f, 1, -0.5f, 1}, 8);
        b->ops->buffer_free(b, &cache.buffer);
    }
}

/* One head of one element: the result of a decode step over three tokens with K = 5, 0, 1 and
 * V = 100, 4, 8. */
static float attend_three(struct backend *b, struct attention_args args, float q) {
    struct kv_cache cache = {
        .layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .block_size = 16},
        .num_blocks = 1};
    assert_int_equal(b->ops->buffer_alloc(b, kv_block_bytes(&cache.layout), &cache.buffer, NULL),
                     0);
    float *kv = cache.buffer.data;
    kv[0] = 5, kv[2] = 1;
    kv[16] = 100, kv[16 + 1] = 4, kv[16 + 2] = 8;
    const int32_t start[] = {0, 1}, length = 3, table = 0;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = 1,
                                                .num_seqs = 1,
                                                .max_blocks_per_seq = 1,
                                                .query_start = start,
                                                .context_lens = &length,
                                                .block_tables = &table});
    const float qkv[3] = {q, 0, 0};
    float out;
    args.qkv = qkv, args.out = &out, args.cache = &cache, args.num_q_heads = 1;
    b->ops->paged_attention(b, &args);
    b->ops->buffer_free(b, &cache.buffer);
    return out;
}

/* Scores 0 and ln 3 share the weight 1 : 3; the token before them is outside the window. */
static void test_attention_weights_and_window(void **state) {
    const float ln3 = logf(3);
    struct attention_args args = {.scale = 0.5f, .window = 2};
    assert_float_equal(attend_three(*state, args, 2 * ln3), 7, 1e-5);
    args.window = 1;
    assert_float_equal(attend_three(*state, args, 2 * ln3), 8, 1e-5);
    args.window = 3;
    assert_float_equal(attend_three(*state, args, 2 * ln3), (243 * 100 + 4 + 24) / 247.0, 1e-3);
    args.window = 0;
    assert_float_equal(attend_three(*state, args, 2 * ln3), (243 * 100 + 4 + 24) / 247.0, 1e-3);
}

/* The scaled score 2 atanh(ln 3 / 2) is capped to ln 3; one far beyond, to the cap. */
static void test_attention_soft_cap(void **state) {
    const float ln3 = logf(3);
    struct attention_args args = {.scale = 0.5f, .window = 2, .soft_cap = 2};
    assert_float_equal(attend_three(*state, args, 4 * atanhf(ln3 / 2)), 7, 1e-5);
    args.soft_cap = ln3;
    assert_float_equal(attend_three(*state, args, 1000), 7, 1e-5);
}

/* A prompt of three tokens of one head of 6 elements, of which 4 turn, whose keys have a bias: in
 * the cache, or as key_biases. out [3][6]. */
static void attend_biased(struct backend *b, bool interleaved, bool is_cached, float *out) {
    enum { DIM = 6, TOKENS = 3 };
    static const float table[TOKENS][4] = {
        {1, 1, 0, 0}, {0.6f, -0.8f, 0.8f, 0.6f}, {0, 0.28f, 1, -0.96f}};
    struct kv_cache cache = {
        .layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = DIM, .block_size = 16},
        .num_blocks = 1};
    assert_int_equal(b->ops->buffer_alloc(b, kv_block_bytes(&cache.layout), &cache.buffer, NULL),
                     0);
    const int32_t positions[] = {0, 1, 2}, start[] = {0, TOKENS}, length = TOKENS, blocks = 0;
    const struct key_bias bias = {.num_pairs = 2, .pairs = {1, 0}, .values = {{5, -7}, {2, 3}}};
    float columns[4][ROPE_COLUMN_STEP] = {{0}}, qkv[TOKENS][3 * DIM];
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < 3 * DIM; i++)
            qkv[t][i] = (float)((7 * t + 5 * i) % 11) / 8 - 0.5f;
        for (int i = 0; i < 4; i++)
            columns[i][t] = table[t][i];
        for (int i = 0; i < 2 && is_cached; i++) {
            int32_t pair = bias.pairs[i];
            qkv[t][DIM + (interleaved ? 2 * pair : pair)] += bias.values[i][0];
            qkv[t][DIM + (interleaved ? 2 * pair + 1 : pair + 2)] += bias.values[i][1];
        }
    }
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = TOKENS,
                                                .num_seqs = 1,
                                                .max_blocks_per_seq = 1,
                                                .positions = positions,
                                                .slot_mapping = positions,
                                                .query_start = start,
                                                .context_lens = &length,
                                                .block_tables = &blocks});
    b->ops->rope_store_kv(b, &(struct rope_store_args){.qkv = qkv,
                                                       .rope_table = table[0],
                                                       .cache = &cache,
                                                       .num_q_heads = 1,
                                                       .rotary_dim = 4,
                                                       .interleaved = interleaved});
    const struct key_biases biases = {.heads = &bias,
                                      .rope_columns = columns[0],
                                      .stride = ROPE_COLUMN_STEP,
                                      .rotary_dim = 4,
                                      .interleaved = interleaved};
    b->ops->paged_attention(b, &(struct attention_args){.qkv = qkv,
                                                        .out = out,
                                                        .cache = &cache,
                                                        .num_q_heads = 1,
                                                        .scale = 0.3f,
                                                        .key_biases = is_cached ? NULL : &biases});
    b->ops->buffer_free(b, &cache.buffer);
}

static void test_attention_adds_key_bias(void **state) {
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        float with[18], without[18];
        attend_biased(*state, interleaved, true, with);
        attend_biased(*state, interleaved, false, without);
        for (int i = 0; i < 18; i++)
            assert_float_equal(without[i], with[i], 1e-5);
    }
}

/* Known answers of the Random123 distribution (tests/kat_vectors, philox4x32 10). */
static void test_philox_known_answers(void **state) {
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t out[4];
        philox_4x32_10(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].expected, sizeof(out));
    }
    assert_float_equal(sample_uniform(0, 0), 0xe169c58d / 4294967296.0, 1e-9);
}

static const struct sample_row greedy = {.target = SAMPLE_NO_TARGET,
                                         .num_logprobs = -1,
                                         .settings.top_p = 1,
                                         .settings.repetition_penalty = 1,
                                         .mask = SAMPLE_NO_MASK};

/* Samples one row of logits given as their probabilities' logarithms. */
static struct sample_output sample(struct backend *b, struct sample_row row, int n,
                                   const float *logits, const struct token_count *counts,
                                   const struct token_bias *biases) {
    float copy[16];
    struct sample_output out;
    memcpy(copy, logits, (size_t)n * sizeof(float));
    b->ops->sample(b, &(struct sample_args){.logits = copy,
                                            .num_sample_rows = 1,
                                            .vocab_size = n,
                                            .rows = &row,
                                            .counts = counts,
                                            .biases = biases,
                                            .out = &out});
    return out;
}

static void test_sample_greedy_and_edits(void **state) {
    struct backend *b = *state;
    const float logits[5] = {1, 4, -3, 4, 2};
    assert_int_equal(sample(b, greedy, 5, logits, NULL, NULL).token, 1);

    struct sample_row row = greedy;
    const struct token_bias ban[] = {{1, -INFINITY}, {2, 6.5f}};
    row.num_biases = 1;
    assert_int_equal(sample(b, row, 5, logits, NULL, ban).token, 3);
    row.first_bias = 1;
    assert_int_equal(sample(b, row, 5, logits, NULL, ban).token, 1);
    row.first_bias = 0, row.num_biases = 2;
    assert_int_equal(sample(b, row, 5, logits, NULL, ban).token, 3);

    const struct token_count counts[] = {{1, 2}, {3, 0}};
    row = greedy;
    row.num_counts = 2;
    row.settings.repetition_penalty = 1.9f; /* 4 -> 2.1 for both */
    assert_int_equal(sample(b, row, 5, logits, counts, NULL).token, 1);
    row.settings.repetition_penalty = 2.1f; /* 4 -> 1.9 */
    assert_int_equal(sample(b, row, 5, logits, counts, NULL).token, 4);
    row.settings.repetition_penalty = 1;
    row.settings.presence_penalty = 0.5f; /* generated tokens only */
    assert_int_equal(sample(b, row, 5, logits, counts, NULL).token, 3);
    row.settings.presence_penalty = -0.5f;
    row.settings.frequency_penalty = 0.2f; /* 4 + 0.5 - 0.4 > 4 */
    assert_int_equal(sample(b, row, 5, logits, counts, NULL).token, 1);
    row.settings.frequency_penalty = 0.3f;
    assert_int_equal(sample(b, row, 5, logits, counts, NULL).token, 3);
    const float negative[3] = {-1, -1.5f, -4};
    row = greedy;
    row.num_counts = 1;
    row.settings.repetition_penalty = 2; /* of a negative logit: times 2 */
    assert_int_equal(sample(b, row, 3, negative, (const struct token_count[]){{0, 0}}, NULL).token,
                     1);
}

static void test_sample_filters(void **state) {
    struct backend *b = *state;
    float logits[5]; /* ids by falling probability: 3, 1, 4, 0 and 2 tied */
    const float p[5] = {0.05f, 0.25f, 0.05f, 0.5f, 0.15f};
    for (int i = 0; i < 5; i++)
        logits[i] = logf(p[i]) + 3;
    static const struct {
        int32_t top_k;
        float top_p, min_p;
        unsigned allowed; /* bit set of tokens */
    } cases[] = {
        {0, 1, 0, 037},        {1, 1, 0, 010},         {4, 1, 0, 033}, /* tie: the lower id */
        {0, 0.49f, 0, 010},    {0, 0.6f, 0, 012},      {0, 0.76f, 0, 032},
        {0, 1, 0.29f, 032},    {0, 1, 1, 010},         {2, 0.6f, 0, 010},
        {2, 0.7f, 0, 012},     {0, 0.82f, 0.29f, 012}, /* top_p of what min_p left: 0.75 / 0.9 */
        {3, 0.9f, 0.09f, 032},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        unsigned seen = 0;
        for (uint64_t position = 0; position < 400; position++) {
            struct sample_row row = greedy;
            row.settings.temperature = 1;
            row.position = position;
            row.settings.top_k = cases[c].top_k, row.settings.top_p = cases[c].top_p,
            row.settings.min_p = cases[c].min_p;
            seen |= 1u << sample(b, row, 5, logits, NULL, NULL).token;
        }
        assert_int_equal(seen, cases[c].allowed);
    }
}

/* Sampling walks the kept tokens in id order. */
static void test_sample_random_bits(void **state) {
    struct backend *b = *state;
    const float logits[4] = {0, 0, -INFINITY, 0};
    for (uint64_t i = 0; i < 100; i++) {
        struct sample_row row = greedy;
        row.settings.temperature = 0.7f;
        row.seed = 1234, row.position = i;
        double third = sample_uniform(1234, i) * 3;
        int expected = third < 1 ? 0 : third < 2 ? 1 : 3;
        assert_int_equal(sample(b, row, 4, logits, NULL, NULL).token, expected);
    }
}

static void test_sample_logprobs(void **state) {
    struct backend *b = *state;
    const float logits[4] = {logf(0.2f), logf(0.2f), logf(0.5f), logf(0.1f)};
    struct sample_row row = greedy;
    row.num_logprobs = 3;
    const struct token_bias ban[] = {{2, -INFINITY}}; /* logprobs are those before the ban */
    row.num_biases = 1;
    struct sample_output out = sample(b, row, 4, logits, NULL, ban);
    assert_int_equal(out.token, 0);
    assert_float_equal(out.logprob, logf(0.2f), 1e-6);
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.num_top, 3);
    assert_memory_equal(out.top_tokens, ((const int32_t[]){2, 0, 1}), 3 * sizeof(int32_t));
    assert_floats(out.top_logprobs, (const float[]){logf(0.5f), logf(0.2f), logf(0.2f)}, 3);

    row = greedy;
    row.target = 3;
    row.num_logprobs = 20;
    out = sample(b, row, 4, logits, NULL, NULL);
    assert_int_equal(out.token, 3);
    assert_float_equal(out.logprob, logf(0.1f), 1e-6);
    assert_int_equal(out.rank, 4);
    assert_int_equal(out.num_top, 4);
}

static void test_sample_survives_odd_logits(void **state) {
    struct backend *b = *state;
    struct sample_row row = greedy;
    row.num_logprobs = 2;
    const float nans[3] = {NAN, NAN, NAN};
    const float mixed[4] = {NAN, 1, -INFINITY, INFINITY};
    for (int i = 0; i < 2; i++) {
        row.settings.temperature = (float)i;
        assert_int_equal(sample(b, row, 3, nans, NULL, NULL).token, 0);
        struct sample_output out = sample(b, row, 4, mixed, NULL, NULL);
        assert_int_equal(out.token, 3);
        assert_float_equal(out.logprob, 0, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_are_aligned_and_zeroed),
        cmocka_unit_test(test_matrix_parts_stack_and_multiply),
        cmocka_unit_test(test_matrix_create_refuses),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_act_mul_and_gather),
        cmocka_unit_test(test_rope_interleaved),
        cmocka_unit_test(test_rope_halves),
        cmocka_unit_test(test_attention_through_scrambled_blocks),
        cmocka_unit_test(test_attention_weights_and_window),
        cmocka_unit_test(test_attention_soft_cap),
        cmocka_unit_test(test_attention_adds_key_bias),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_sample_greedy_and_edits),
        cmocka_unit_test(test_sample_filters),
        cmocka_unit_test(test_sample_random_bits),
        cmocka_unit_test(test_sample_logprobs),
        cmocka_unit_test(test_sample_survives_odd_logits),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
