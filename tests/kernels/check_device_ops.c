/* The small ops of a device against the oracle: ragged widths, odd numbers of rows, guarded arrays.
 */
#include "tests/kernels/device_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct device_fixture fixture;

static const int32_t widths[] = {1, 7, 8, 24, 33, 64, 100, 257, 576, 2056, 8200};
#define NUM_WIDTHS (sizeof(widths) / sizeof(widths[0]))

/* Random numbers that the device can hold. */
static float *rounded_floats(uint64_t *seed, size_t n) {
    float *values = kernel_fixture_random_floats(seed, n);
    device_fixture_round(&fixture, values, n);
    return values;
}

static void synchronize(struct device_fixture *f) {
    struct error err = {0};
    if (f->device->ops->synchronize(f->device, &err) != 0)
        fail_msg("%s", err.message);
}

struct norm_case {
    int32_t rows, groups, width;
    int32_t gap; /* between the groups of a row and the next row */
    bool center, accumulate;
};

/* The op with `out` put back to what it was, for device_fixture_run. */
struct norm_run {
    struct norm_args args;
    const void *before;
    size_t bytes;
};

static void run_norm(struct device_fixture *f, const void *context) {
    const struct norm_run *run = context;
    f->device->ops->upload(f->device, run->args.out, run->before, run->bytes);
    f->device->ops->norm(f->device, &run->args);
}

static void *to_device_type(const struct device_fixture *f, const float *values, size_t n) {
    void *bytes = malloc(dtype_row_bytes(f->dtype, n));
    assert_non_null(bytes);
    dtype_from_f32(f->dtype, values, bytes, n);
    return bytes;
}

/* The groups are close to the oracle's; what is between them is as it was. */
static void assert_groups(const struct device_fixture *f, const struct norm_args *args,
                          const float *actual, const float *expected, const float *before) {
    size_t used = (size_t)args->num_groups * (size_t)args->width;
    for (size_t r = 0; r < (size_t)args->num_rows; r++) {
        size_t first = r * (size_t)args->row_stride, end = first + (size_t)args->row_stride;
        device_fixture_assert_close(actual + first, expected + first, used, f->tolerance, "norm");
        for (size_t i = first + used; i < end; i++)
            assert_true(actual[i] == before[i]);
    }
}

/* In place, the groups have the same bits. */
static void check_norm_in_place(struct device_fixture *f, struct norm_args args, void *x,
                                const float *expected, size_t n) {
    float *actual = kernel_fixture_guarded(n);
    args.x = args.out = x;
    f->device->ops->norm(f->device, &args);
    device_fixture_get(f, f->dtype, x, actual, n);
    for (size_t r = 0; r < (size_t)args.num_rows; r++)
        assert_memory_equal(actual + r * (size_t)args.row_stride,
                            expected + r * (size_t)args.row_stride,
                            (size_t)args.num_groups * (size_t)args.width * sizeof(float));
    kernel_fixture_guarded_free(actual);
}

static void check_norm(struct device_fixture *f, const struct norm_case *c) {
    uint64_t seed = (uint64_t)c->width;
    struct norm_args args = {.num_rows = c->rows,
                             .row_stride = c->groups * c->width + c->gap,
                             .num_groups = c->groups,
                             .width = c->width,
                             .epsilon = 1e-5f,
                             .center = c->center,
                             .accumulate = c->accumulate};
    size_t n = (size_t)c->rows * (size_t)args.row_stride;
    float *x = kernel_fixture_random_floats(&seed, n), *before = rounded_floats(&seed, n);
    for (size_t i = 0; i < n; i++) /* a mean that counts */
        x[i] += 1;
    device_fixture_round(f, x, n);
    float *weight = kernel_fixture_random_floats(&seed, (size_t)c->width);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    memcpy(expected, before, n * sizeof(float));
    args.x = x, args.weight = weight, args.out = expected;
    f->oracle->ops->norm(f->oracle, &args);
    void *device_x = device_fixture_put(f, f->dtype, x, n), *bytes = to_device_type(f, before, n);
    void *device_weight = device_fixture_put(f, DTYPE_F32, weight, (size_t)c->width);
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    args.x = device_x, args.weight = device_weight, args.out = out;
    struct norm_run run = {args, bytes, dtype_row_bytes(f->dtype, n)};
    device_fixture_run(f, run_norm, &run, out, run.bytes);
    device_fixture_get(f, f->dtype, out, actual, n);
    assert_groups(f, &args, actual, expected, before);
    if (!c->accumulate)
        check_norm_in_place(f, args, device_x, actual, n);
    device_fixture_free(f, device_x);
    device_fixture_free(f, device_weight);
    device_fixture_free(f, out);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(bytes);
    free(weight);
    free(before);
    free(x);
}

static void test_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(&fixture, &(struct norm_case){1, 1, widths[w], 0, false, false});
        check_norm(&fixture, &(struct norm_case){5, 1, widths[w], 0, false, false});
    }
}

/* Groups of a warp each and of a block each; rows, groups and gaps that let 16-byte accesses be and
 * that do not; a mean of nothing and a mean to take away; added and not. */
static void test_norm_of_groups(void **state) {
    static const struct norm_case shapes[] = {
        {1, 1, 576, 0, false, false},  {3, 9, 64, 384, false, false}, {2, 3, 128, 8, false, false},
        {5, 2, 256, 0, false, false},  {2, 3, 257, 1, false, false},  {4, 2, 264, 3, false, false},
        {3, 5, 24, 9, false, false},   {2, 7, 33, 0, false, false},   {3, 4, 8, 40, false, false},
        {2, 1, 2056, 8, false, false},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int variant = 0; variant < 4; variant++) {
            struct norm_case c = shapes[i];
            c.center = variant & 1, c.accumulate = variant & 2;
            check_norm(&fixture, &c);
        }
}

static void run_act_mul(struct device_fixture *f, const void *args) {
    f->device->ops->act_mul(f->device, args);
}

static void check_act_mul(struct device_fixture *f, enum activation activation, int32_t num_rows,
                          int32_t width) {
    static const float ends[] = {-200, 90, -3e4f, 3e4f, -10.5f, -5, 1e-4f, 0};
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, 2 * n);
    for (size_t i = 0; i < 8 && i < (size_t)width; i++)
        x[i] = ends[i], x[(size_t)width + i] = 1e-3f;
    device_fixture_round(f, x, 2 * n);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct act_mul_args args = {.gate_up = x,
                                .out = expected,
                                .num_rows = num_rows,
                                .width = width,
                                .activation = activation};
    f->oracle->ops->act_mul(f->oracle, &args);
    void *gate_up = device_fixture_put(f, f->dtype, x, 2 * n);
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    args.gate_up = gate_up, args.out = out;
    device_fixture_run(f, run_act_mul, &args, out, dtype_row_bytes(f->dtype, n));
    device_fixture_get(f, f->dtype, out, actual, n);
    for (size_t i = 0; i < n; i++) /* each by itself: the largest shall not hide the small */
        if (!(fabs((double)actual[i] - expected[i]) <= 2 * f->tolerance * fabs(expected[i]) + 1e-7))
            fail_msg("element %zu of act_mul is %.9g, expected %.9g", i, actual[i], expected[i]);
    device_fixture_free(f, gate_up);
    device_fixture_free(f, out);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_act_mul(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        for (int activation = ACTIVATION_SILU; activation <= ACTIVATION_GELU_TANH; activation++) {
            check_act_mul(&fixture, (enum activation)activation, 1, widths[w]);
            check_act_mul(&fixture, (enum activation)activation, 5, widths[w]);
        }
}

/* Where the powers in it overflow, and NaN. */
static void test_gelu_at_its_ends(void **state) {
    struct device_fixture *f = &fixture;
    float largest = f->dtype == DTYPE_BF16 ? 0x1.fep127f : 65504, out[8] = {0};
    const float gate_up[16] = {
        -largest, largest, -largest / 64, largest / 64, -1e-4f, -20, NAN, 0, 1, 1, 1, 1, 1, 1,
        1,        1};
    void *device_in = device_fixture_put(f, f->dtype, gate_up, 16);
    void *device_out = device_fixture_put(f, f->dtype, NULL, 8);
    f->device->ops->act_mul(f->device, &(struct act_mul_args){.gate_up = device_in,
                                                              .out = device_out,
                                                              .num_rows = 1,
                                                              .width = 8,
                                                              .activation = ACTIVATION_GELU_TANH});
    device_fixture_get(f, f->dtype, device_out, out, 8);
    assert_true(out[0] == 0 && out[1] == largest && out[2] == 0 && out[3] == largest / 64);
    assert_true(fabsf(out[4] + 5e-5f) <= 1e-6f && fabsf(out[5]) < 1e-20f);
    assert_true(isnan(out[6]) && out[7] == 0);
    device_fixture_free(f, device_in);
    device_fixture_free(f, device_out);
}

struct cap_run {
    struct soft_cap_args args;
    const float *before;
    size_t bytes;
};

static void run_soft_cap(struct device_fixture *f, const void *context) {
    const struct cap_run *run = context;
    f->device->ops->upload(f->device, run->args.x, run->before, run->bytes);
    f->device->ops->soft_cap(f->device, &run->args);
}

static void check_soft_cap(struct device_fixture *f, int32_t num_rows, int32_t width, float cap) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= i % 5 == 0 ? 1e4f : i % 5 == 1 ? 1e-4f : cap;
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    memcpy(expected, x, n * sizeof(float));
    struct soft_cap_args args = {.x = expected, .num_rows = num_rows, .width = width, .cap = cap};
    f->oracle->ops->soft_cap(f->oracle, &args);
    args.x = device_fixture_put(f, DTYPE_F32, x, n);
    struct cap_run run = {args, x, n * sizeof(float)};
    device_fixture_run(f, run_soft_cap, &run, args.x, run.bytes);
    device_fixture_get(f, DTYPE_F32, args.x, actual, n);
    kernel_fixture_assert_near(actual, expected, n, 1e-6);
    device_fixture_free(f, args.x);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_soft_cap(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_soft_cap(&fixture, 1, widths[w], 30);
        check_soft_cap(&fixture, 3, widths[w], 2.5f);
    }
}

static void run_gather_rows(struct device_fixture *f, const void *args) {
    f->device->ops->gather_rows(f->device, args);
}

static void check_gather_rows(struct device_fixture *f, int32_t num_out, int32_t width) {
    enum { ROWS = 13 };
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_out * (size_t)width;
    float *x = rounded_floats(&seed, (size_t)ROWS * (size_t)width);
    float *actual = kernel_fixture_guarded(n);
    int32_t *rows = malloc((size_t)num_out * sizeof(*rows));
    assert_non_null(rows);
    for (int32_t r = 0; r < num_out; r++)
        rows[r] = kernel_fixture_random_in(&seed, 0, ROWS - 1);
    void *device_x = device_fixture_put(f, f->dtype, x, (size_t)ROWS * (size_t)width);
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    struct gather_rows_args args = {
        .x = device_x, .rows = rows, .out = out, .num_rows = num_out, .width = width};
    device_fixture_run(f, run_gather_rows, &args, out, dtype_row_bytes(f->dtype, n));
    device_fixture_get(f, f->dtype, out, actual, n);
    for (int32_t r = 0; r < num_out; r++)
        assert_memory_equal(actual + (size_t)r * (size_t)width, x + (size_t)rows[r] * (size_t)width,
                            (size_t)width * sizeof(float));
    device_fixture_free(f, device_x);
    device_fixture_free(f, out);
    kernel_fixture_guarded_free(actual);
    free(rows);
    free(x);
}

static void test_gather_rows(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        check_gather_rows(&fixture, 7, widths[w]);
    check_gather_rows(&fixture, 4099, 3); /* more than one list to the device holds */
}

/* The op with the sums put back to what they were, for device_fixture_run. */
struct add_rows_run {
    struct add_rows_args args;
    const float *before;
    size_t bytes;
};

static void run_add_rows(struct device_fixture *f, const void *context) {
    const struct add_rows_run *run = context;
    f->device->ops->upload(f->device, run->args.sums, run->before, run->bytes);
    f->device->ops->add_rows(f->device, &run->args);
}

/* Sums are in float, and every addition has its place: the oracle's bits. Spans of 0 to 12 rows. */
static void check_add_rows(struct device_fixture *f, int32_t num_spans, int32_t width) {
    enum { ROWS = 40, LONGEST = 12 };
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_spans * (size_t)width;
    float *x = rounded_floats(&seed, (size_t)ROWS * (size_t)width);
    float *before = kernel_fixture_random_floats(&seed, n);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct row_span *spans = malloc((size_t)num_spans * sizeof(*spans));
    assert_non_null(spans);
    for (int32_t s = 0; s < num_spans; s++)
        spans[s] = (struct row_span){kernel_fixture_random_in(&seed, 0, ROWS - LONGEST),
                                     kernel_fixture_random_in(&seed, 0, LONGEST)};
    struct add_rows_run run = {
        .args = {.x = x, .spans = spans, .sums = expected, .num_spans = num_spans, .width = width},
        .before = before,
        .bytes = n * sizeof(float)};
    memcpy(expected, before, run.bytes);
    f->oracle->ops->add_rows(f->oracle, &run.args);
    void *device_x = device_fixture_put(f, f->dtype, x, (size_t)ROWS * (size_t)width);
    run.args.x = device_x;
    run.args.sums = device_fixture_put(f, DTYPE_F32, NULL, n);
    device_fixture_run(f, run_add_rows, &run, run.args.sums, run.bytes);
    device_fixture_get(f, DTYPE_F32, run.args.sums, actual, n);
    assert_memory_equal(actual, expected, run.bytes);
    device_fixture_free(f, run.args.sums);
    device_fixture_free(f, device_x);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(spans);
    free(before);
    free(x);
}

static void test_add_rows(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_add_rows(&fixture, 1, widths[w]);
        check_add_rows(&fixture, 7, widths[w]);
    }
    check_add_rows(&fixture, 2051, 3); /* more than one list to the device holds */
}

/* A step without a token: the ops that take their number of rows from it. */
static void check_step_of_nothing(struct backend *b) {
    static const float values[64];
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = 8, .data = values};
    struct matrix *matrix = NULL;
    assert_int_equal(b->ops->matrix_create(b, &part, 1, 8, &matrix, NULL), 0);
    struct kv_cache cache = {.layout = {.num_layers = 1,
                                        .num_kv_heads = 1,
                                        .head_dim = 64,
                                        .block_size = 16,
                                        .dtype = fixture.dtype},
                             .num_blocks = 1};
    static const int32_t query_start[1];
    b->ops->step_begin(b, &(struct step_inputs){.query_start = query_start});
    b->ops->embed(b, &(struct embed_args){.table = matrix, .scale = 1});
    b->ops->linear(b, &(struct linear_args){.weight = matrix, .scale = 1});
    b->ops->rope_store_kv(b, &(struct rope_store_args){.cache = &cache, .num_q_heads = 1});
    b->ops->paged_attention(b, &(struct attention_args){.cache = &cache, .num_q_heads = 1});
    b->ops->matrix_destroy(b, matrix);
}

static void test_nothing_to_do(void **state) {
    struct backend *b = fixture.device;
    b->ops->norm(b, &(struct norm_args){.width = 8, .row_stride = 8, .num_groups = 1});
    b->ops->act_mul(b, &(struct act_mul_args){.width = 8});
    b->ops->soft_cap(b, &(struct soft_cap_args){.width = 8, .cap = 1});
    b->ops->gather_rows(b, &(struct gather_rows_args){.width = 8});
    b->ops->add_rows(b, &(struct add_rows_args){.width = 8});
    b->ops->sample(b, &(struct sample_args){.vocab_size = 8});
    check_step_of_nothing(b);
    synchronize(&fixture);
}

/* One layer among several of a pool, tokens in shuffled slots of several blocks. */
enum { TOKENS = 21, POSITIONS = 50, BLOCKS = 4, LAYERS = 3, LAYER = 1 };

struct rope_case {
    int32_t num_q_heads, num_kv_heads, head_dim, rotary_dim, block_size;
    bool interleaved;
    bool no_table; /* nothing rotates, whatever rotary_dim says */
};

struct rope_run {
    struct rope_store_args args;
    const void *qkv_before; /* bytes of the device's type */
    size_t qkv_bytes;
};

static void run_rope(struct device_fixture *f, const void *context) {
    const struct rope_run *run = context;
    f->device->ops->upload(f->device, run->args.qkv, run->qkv_before, run->qkv_bytes);
    f->device->ops->rope_store_kv(f->device, &run->args);
}

static float *rope_table(int32_t rotary_dim) {
    float *table = malloc((size_t)POSITIONS * (size_t)rotary_dim * sizeof(float));
    assert_non_null(table);
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < rotary_dim / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / rotary_dim);
            table[p * rotary_dim + i] = (float)cos(angle);
            table[p * rotary_dim + rotary_dim / 2 + i] = (float)sin(angle);
        }
    return table;
}

/* Rotated by its definition, in double. */
static void rotate_head(const struct rope_case *c, const float *table, const float *head,
                        double *out) {
    for (int32_t i = 0; i < c->head_dim; i++)
        out[i] = head[i];
    for (int32_t p = 0; !c->no_table && p < c->rotary_dim / 2; p++) {
        int32_t i = c->interleaved ? 2 * p : p;
        int32_t j = c->interleaved ? 2 * p + 1 : p + c->rotary_dim / 2;
        double cosine = table[p], sine = table[p + c->rotary_dim / 2];
        out[i] = head[i] * cosine - head[j] * sine;
        out[j] = head[i] * sine + head[j] * cosine;
    }
}

/* What rows and pool should hold after the op; the pool starts as it is given. */
static void expect_rope(const struct rope_case *c, const struct step_inputs *step,
                        const float *table, const float *qkv, float *rows, float *pool) {
    int32_t heads = c->num_q_heads + 2 * c->num_kv_heads;
    double rotated[KV_MAX_HEAD_DIM];
    for (int32_t t = 0; t < TOKENS; t++)
        for (int32_t h = 0; h < heads; h++) {
            size_t at = ((size_t)t * (size_t)heads + (size_t)h) * (size_t)c->head_dim;
            rotate_head(c, table + step->positions[t] * c->rotary_dim, qkv + at, rotated);
            int32_t kv_head = h - c->num_q_heads; /* K heads, then V heads */
            int32_t block = step->slot_mapping[t] / c->block_size;
            int32_t offset = step->slot_mapping[t] % c->block_size;
            float *slot = pool +
                          (((size_t)block * LAYERS + LAYER) * 2 * (size_t)c->num_kv_heads +
                           (size_t)(kv_head < 0 ? 0 : kv_head)) *
                              (size_t)c->block_size * (size_t)c->head_dim +
                          (size_t)offset * (size_t)c->head_dim;
            for (int32_t i = 0; i < c->head_dim; i++) {
                bool is_q = kv_head < 0, is_k = kv_head >= 0 && kv_head < c->num_kv_heads;
                rows[at + (size_t)i] = is_q ? (float)rotated[i] : qkv[at + (size_t)i];
                if (!is_q)
                    slot[i] = is_k ? (float)rotated[i] : qkv[at + (size_t)i];
            }
        }
}

static void check_rope(struct device_fixture *f, const struct rope_case *c) {
    uint64_t seed = (uint64_t)c->head_dim * 1000 + (uint64_t)c->rotary_dim;
    size_t n =
        (size_t)TOKENS * (size_t)(c->num_q_heads + 2 * c->num_kv_heads) * (size_t)c->head_dim;
    struct kv_cache cache = {.layout = {.num_layers = LAYERS,
                                        .num_kv_heads = c->num_kv_heads,
                                        .head_dim = c->head_dim,
                                        .block_size = c->block_size,
                                        .dtype = f->dtype},
                             .num_blocks = BLOCKS};
    size_t pool_bytes = BLOCKS * kv_block_bytes(&cache.layout), pool_n = pool_bytes / 2;
    int32_t positions[TOKENS], slots[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        positions[t] = kernel_fixture_random_in(&seed, 0, POSITIONS - 1);
        slots[t] = (t * 5 + 3) % (BLOCKS * c->block_size); /* each slot once */
    }
    int32_t query_start[2] = {0, TOKENS}, context_len = TOKENS, table_row[BLOCKS] = {0, 1, 2, 3};
    struct step_inputs step = {.num_tokens = TOKENS,
                               .num_seqs = 1,
                               .max_blocks_per_seq = BLOCKS,
                               .token_ids = positions,
                               .positions = positions,
                               .slot_mapping = slots,
                               .query_start = query_start,
                               .context_lens = &context_len,
                               .block_tables = table_row};
    float *qkv = rounded_floats(&seed, n), *pool_before = rounded_floats(&seed, pool_n);
    float *table = rope_table(c->rotary_dim);
    float *rows = kernel_fixture_guarded(n), *pool = kernel_fixture_guarded(pool_n);
    memcpy(pool, pool_before, pool_n * sizeof(float));
    expect_rope(c, &step, table, qkv, rows, pool);

    uint16_t *bytes = malloc(n * sizeof(*bytes));
    assert_non_null(bytes);
    dtype_from_f32(f->dtype, qkv, bytes, n);
    void *device_qkv = device_fixture_put(f, f->dtype, NULL, n);
    void *device_pool = device_fixture_put(f, f->dtype, pool_before, pool_n);
    void *device_table =
        device_fixture_put(f, DTYPE_F32, table, (size_t)POSITIONS * (size_t)c->rotary_dim);
    cache.buffer = (struct buffer){.data = device_pool, .bytes = pool_bytes};
    struct rope_run run = {.args = {.qkv = device_qkv,
                                    .rope_table = c->no_table ? NULL : device_table,
                                    .cache = &cache,
                                    .layer = LAYER,
                                    .num_q_heads = c->num_q_heads,
                                    .rotary_dim = c->rotary_dim,
                                    .interleaved = c->interleaved},
                           .qkv_before = bytes,
                           .qkv_bytes = n * sizeof(*bytes)};
    f->device->ops->step_begin(f->device, &step);
    device_fixture_run(f, run_rope, &run, device_pool, pool_bytes);
    device_fixture_run(f, run_rope, &run, device_qkv, run.qkv_bytes);
    float *actual = kernel_fixture_guarded(n), *actual_pool = kernel_fixture_guarded(pool_n);
    device_fixture_get(f, f->dtype, device_qkv, actual, n);
    device_fixture_get(f, f->dtype, device_pool, actual_pool, pool_n);
    device_fixture_assert_close(actual, rows, n, f->tolerance, "rope: rows");
    device_fixture_assert_close(actual_pool, pool, pool_n, f->tolerance, "rope: cache");
    for (size_t i = 0; i < pool_n; i++) /* what was not a slot of the step is as it was */
        if (pool[i] == pool_before[i] && actual_pool[i] != pool_before[i])
            fail_msg("element %zu of the pool was changed", i);
    device_fixture_free(f, device_table);
    device_fixture_free(f, device_pool);
    device_fixture_free(f, device_qkv);
    kernel_fixture_guarded_free(actual_pool);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(pool);
    kernel_fixture_guarded_free(rows);
    free(bytes);
    free(table);
    free(pool_before);
    free(qkv);
}

static void test_rope_store_kv(void **state) {
    static const struct rope_case cases[] = {
        {3, 1, 64, 64, 16, false, false},   {4, 2, 64, 64, 32, true, false},
        {2, 2, 80, 80, 64, false, false},   {3, 1, 96, 48, 16, false, false},
        {2, 1, 96, 40, 32, true, false},    {7, 1, 128, 128, 64, false, false},
        {1, 1, 256, 64, 16, true, false},   {2, 1, 8, 8, 32, false, false},
        {2, 2, 8, 6, 64, true, false},      {3, 2, 24, 10, 16, false, false},
        {2, 1, 16, 2, 32, false, false},    {3, 2, 64, 64, 64, false, true},
        {2, 1, 24, 10, 16, true, true},     {1, 1, 8, 2, 32, false, true},
        {8, 1, 64, 64, 32, false, false},   {8, 1, 64, 64, 64, false, false},
        {1, 1, 80, 80, 64, false, false},   {1, 1, 80, 80, 16, false, false},
        {4, 2, 96, 96, 16, false, false},   {4, 2, 96, 96, 32, false, false},
        {4, 1, 128, 128, 32, true, false},  {4, 1, 128, 128, 64, true, false},
        {2, 1, 256, 256, 64, false, false}, {2, 1, 256, 256, 16, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_rope(&fixture, &cases[i]);
}

int main(int argc, char **argv) {
    struct backend_config config = {.max_step_tokens = 64,
                                    .max_step_seqs = 8,
                                    .max_blocks_per_seq = BLOCKS,
                                    .max_logit_rows = 8,
                                    .vocab_size = 100,
                                    .head_dim = 64,
                                    .num_q_heads = 1,
                                    .num_kv_heads = 1};
    device_fixture_open(&fixture, argc, argv, &config);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),          cmocka_unit_test(test_norm_of_groups),
        cmocka_unit_test(test_act_mul),       cmocka_unit_test(test_gelu_at_its_ends),
        cmocka_unit_test(test_soft_cap),      cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_add_rows),      cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_rope_store_kv),
    };
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&fixture);
    return status;
}
