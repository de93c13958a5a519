/* A mixture of experts: `route`, `linear_experts` and `combine_experts` against the oracle.
 *
 * Products are compared with those of `linear` with each expert's own matrix: on the CPU and on the
 * oracle by their bits, on a device with the oracle's within the tolerance of its type. Rows of
 * choices that are not the rank's own are as they were. */
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/weights_fixture.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_OWN 16

static struct kernel_fixture fixture;

/* --- Choices --- */

/* Their arrays in the memory of a backend. */
struct device_choices {
    void *memory;
    size_t bytes;
    struct expert_choices at;
};

static struct device_choices choices_create(struct backend *b, const struct route_args *args) {
    struct device_choices c;
    c.bytes = expert_choices_bytes(args->num_tokens, args->num_chosen, args->num_own);
    c.memory = kernel_fixture_put(b, DTYPE_F32, NULL, c.bytes / sizeof(float));
    c.at = expert_choices_at(c.memory, args->num_tokens, args->num_chosen, args->num_own);
    return c;
}

static void call_route(struct backend *b, const void *args) {
    b->ops->route(b, args);
}

/* Host memory of expert_choices_bytes, to be freed: what `route` of logits and bias, in host
 * memory, leaves in its buffer. */
static void *run_route(struct backend *b, struct route_args args) {
    const size_t num_experts = (size_t)args.num_experts;
    void *logits =
        kernel_fixture_put(b, DTYPE_F32, args.logits, (size_t)args.num_tokens * num_experts);
    void *bias =
        args.bias != NULL ? kernel_fixture_put(b, DTYPE_F32, args.bias, num_experts) : NULL;
    struct device_choices c = choices_create(b, &args);
    args.logits = logits, args.bias = bias, args.choices = c.at;
    kernel_fixture_run(b, call_route, &args, c.memory, c.bytes);
    void *image = kernel_fixture_memory(c.bytes);
    kernel_fixture_download(b, image, c.memory, c.bytes);
    kernel_fixture_free(b, logits);
    kernel_fixture_free(b, bias);
    kernel_fixture_free(b, c.memory);
    return image;
}

static struct expert_choices choices_in(void *image, const struct route_args *args) {
    return expert_choices_at(image, args->num_tokens, args->num_chosen, args->num_own);
}

static int32_t own_of(const struct route_args *args, int32_t expert) {
    int32_t own = expert - args->own_first;
    return own >= 0 && own < args->num_own ? own : -1;
}

/* Each own choice is once in the range of its expert, in ascending order. */
static void assert_order(const struct route_args *args, const struct expert_choices *c) {
    int32_t count = 0;
    for (int32_t e = 0; e < args->num_own; e++) {
        assert_int_equal(c->first[e], count);
        for (int32_t i = 0; i < args->num_tokens * args->num_chosen; i++)
            if (own_of(args, c->experts[i]) == e)
                assert_int_equal(c->order[count++], i);
    }
    assert_int_equal(c->first[args->num_own], count);
}

/* --- route --- */

static void assert_row_alone(struct backend *b, struct route_args args,
                             const struct expert_choices *together) {
    const int32_t t = args.num_tokens - 1;
    const size_t k = (size_t)args.num_chosen, first = (size_t)t * k;
    args.logits += (size_t)t * (size_t)args.num_experts;
    args.num_tokens = 1;
    void *image = run_route(b, args);
    struct expert_choices alone = choices_in(image, &args);
    assert_memory_equal(alone.experts, together->experts + first, k * sizeof(int32_t));
    assert_memory_equal(alone.weights, together->weights + first, k * sizeof(float));
    free(image);
}

/* `logits` and `bias` are host memory. The choices are those of the oracle: no two scores that
 * differ may be so near that rounding decides. */
static void check_route(struct route_args args) {
    const size_t n = (size_t)args.num_tokens * (size_t)args.num_chosen;
    void *oracle = run_route(fixture.oracle, args);
    struct expert_choices expected = choices_in(oracle, &args);
    assert_order(&args, &expected);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *image = run_route(b, args);
        struct expert_choices actual = choices_in(image, &args);
        for (size_t at = 0; at < n; at++)
            if (actual.experts[at] != expected.experts[at])
                fail_msg("choice %zu of %zu is expert %d, expected %d (scoring %d)", at, n,
                         actual.experts[at], expected.experts[at], (int)args.scoring);
        kernel_fixture_assert_near(actual.weights, expected.weights, n,
                                   fixture.dtype == DTYPE_F32 ? 1e-6 : 1e-5);
        assert_order(&args, &actual);
        if (fixture.bits_equal)
            assert_row_alone(b, args, &actual);
        free(image);
    }
    free(oracle);
}

static struct route_args route_of(int32_t num_tokens, int32_t num_experts, int32_t num_chosen) {
    return (struct route_args){.num_tokens = num_tokens,
                               .num_experts = num_experts,
                               .num_chosen = num_chosen,
                               .num_own = num_experts,
                               .scale = 1,
                               .num_groups = 1,
                               .num_chosen_groups = 1,
                               .jitter = 0.01f};
}

static void check_random_route(struct route_args args, bool biased, uint64_t *seed) {
    const size_t num_experts = (size_t)args.num_experts;
    float *logits =
        kernel_fixture_random_floats(seed, (size_t)args.num_tokens * (size_t)args.num_experts);
    float *bias = kernel_fixture_random_floats(seed, num_experts);
    args.logits = logits;
    args.bias = biased ? bias : NULL;
    check_route(args);
    free(logits);
    free(bias);
}

static void test_route_shapes(void **state) {
    static const struct {
        int32_t tokens, experts, chosen;
    } shapes[] = {{1, 1, 1},   {7, 1, 1},   {1, 8, 2},    {33, 8, 2},   {5, 8, 8},
                  {1, 60, 4},  {9, 64, 8},  {300, 64, 8}, {3, 128, 8},  {17, 16, 2},
                  {2, 100, 7}, {6, 256, 8}, {3, 512, 10}, {2, 1024, 32}};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int scoring = ROUTE_SOFTMAX; scoring <= ROUTE_SPARSEMIXER; scoring++) {
            struct route_args args =
                route_of(shapes[i].tokens, shapes[i].experts, shapes[i].chosen);
            args.scoring = (enum route_scoring)scoring;
            args.renormalise = i % 2 == 0;
            args.scale = i % 3 == 0 ? 2.5f : 1;
            check_random_route(args, false, &seed);
        }
}

/* The bias decides, but is not in the weights. */
static void test_route_with_bias(void **state) {
    uint64_t seed = 2;
    for (int scoring = ROUTE_SOFTMAX; scoring <= ROUTE_SIGMOID; scoring++)
        for (int renormalise = 0; renormalise < 2; renormalise++) {
            struct route_args args = route_of(40, 48, 6);
            args.scoring = (enum route_scoring)scoring;
            args.renormalise = renormalise;
            args.scale = 1.8f;
            check_random_route(args, true, &seed);
        }
}

static void test_route_by_groups(void **state) {
    static const struct {
        int32_t experts, groups, chosen_groups, chosen;
    } shapes[] = {{64, 8, 3, 6}, {256, 8, 4, 8}, {160, 8, 3, 6}, {12, 4, 1, 3},
                  {8, 8, 5, 4},  {6, 2, 2, 4},   {16, 1, 1, 3}};
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int variant = 0; variant < 8; variant++) {
            struct route_args args = route_of(19, shapes[i].experts, shapes[i].chosen);
            args.num_groups = shapes[i].groups;
            args.num_chosen_groups = shapes[i].chosen_groups;
            args.scoring = variant & 1 ? ROUTE_SIGMOID : ROUTE_SOFTMAX;
            args.group_score = variant & 2 ? ROUTE_GROUP_TOP2 : ROUTE_GROUP_MAX;
            args.renormalise = variant & 1;
            check_random_route(args, variant & 4, &seed);
        }
}

/* Of equal scores the lower numbers first; NaN and infinite logits. */
static void test_route_special_logits(void **state) {
    enum { TOKENS = 9, EXPERTS = 20 };
    float logits[TOKENS * EXPERTS];
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        int t = i / EXPERTS, e = i % EXPERTS;
        logits[i] = t == 0   ? 0
                    : t == 1 ? (float)(e / 2 % 4)
                    : t == 2 ? NAN
                    : t == 3 ? (e % 3 == 0 ? NAN : (float)e / 8)
                    : t == 4 ? (e == 7 ? INFINITY : (float)e / 8)
                    : t == 5 ? (e > 2 ? -INFINITY : (float)e / 8)
                    : t == 6 ? (e == 11 ? 1.0f : NAN)
                    : t == 7 ? -INFINITY /* all weights of a sigmoid are 0 */
                             : (float)(e % 5 == 1 ? FLT_MAX : -FLT_MAX);
    }
    for (int scoring = ROUTE_SOFTMAX; scoring <= ROUTE_SPARSEMIXER; scoring++)
        for (int renormalise = 0; renormalise < 2; renormalise++) {
            struct route_args args = route_of(TOKENS, EXPERTS, 5);
            args.logits = logits;
            args.scoring = (enum route_scoring)scoring;
            args.renormalise = renormalise;
            check_route(args);
            args.num_groups = 4, args.num_chosen_groups = 2;
            args.group_score = ROUTE_GROUP_TOP2;
            if (scoring <= ROUTE_SIGMOID)
                check_route(args);
        }
}

/* As many choices as are ordered in one step, and more. */
static void test_route_many(void **state) {
    static const int32_t tokens[] = {10, 11, 85, 86, 500};
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        check_random_route(route_of(tokens[i], 10, i < 4 ? 3 : 9), false, &seed);
}

static void test_route_of_a_share(void **state) {
    uint64_t seed = 4;
    for (int variant = 0; variant < 6; variant++) {
        struct route_args args = route_of(1 + 30 * (variant % 2), 12, 3);
        args.own_first = 4 * (variant / 2);
        args.num_own = 4;
        check_random_route(args, false, &seed);
    }
}

/* --- linear_experts --- */

struct mixture {
    int32_t num_tokens, num_chosen, num_experts, own_first, num_own;
    int num_parts;
    enum dtype dtypes[WEIGHTS_MAX_PARTS];
    int32_t part_rows[WEIGHTS_MAX_PARTS], cols;
    bool biased, per_choice;
    bool crowded; /* all tokens choose the same experts */
};

/* A case: the experts' weights, x and what was chosen. */
struct experts {
    const struct mixture *m;
    struct weights own[MAX_OWN];
    float *x;
    void *choices_image;
    struct expert_choices choices; /* in it */
};

static size_t num_choices(const struct mixture *m) {
    return (size_t)m->num_tokens * (size_t)m->num_chosen;
}

static void choose(struct experts *e, uint64_t *seed) {
    const struct mixture *m = e->m;
    const size_t n = (size_t)m->num_experts;
    float *logits = kernel_fixture_random_floats(seed, (size_t)m->num_tokens * n);
    for (int32_t t = 1; m->crowded && t < m->num_tokens; t++)
        memcpy(logits + (size_t)t * n, logits, n * sizeof(float));
    struct route_args args = route_of(m->num_tokens, m->num_experts, m->num_chosen);
    args.logits = logits;
    args.own_first = m->own_first;
    args.num_own = m->num_own;
    e->choices_image = run_route(fixture.oracle, args);
    e->choices = choices_in(e->choices_image, &args);
    free(logits);
}

static void experts_init(struct experts *e, const struct mixture *m, uint64_t *seed) {
    *e = (struct experts){.m = m};
    assert_in_range(m->num_own, 1, MAX_OWN);
    for (int32_t i = 0; i < m->num_own; i++) {
        e->own[i].cols = m->cols;
        for (int p = 0; p < m->num_parts; p++)
            weights_add_part(&fixture, &e->own[i], m->dtypes[p], m->part_rows[p], m->biased, seed);
    }
    size_t rows = m->per_choice ? num_choices(m) : (size_t)m->num_tokens;
    e->x = kernel_fixture_rounded_floats(&fixture, seed, rows * (size_t)m->cols);
    choose(e, seed);
}

static void experts_finish(struct experts *e) {
    for (int32_t i = 0; i < e->m->num_own; i++)
        weights_finish(&e->own[i]);
    free(e->x);
    free(e->choices_image);
}

/* One matrix of all own experts. */
static struct matrix *create_matrix(struct backend *b, const struct experts *e) {
    struct matrix_part parts[MAX_OWN * WEIGHTS_MAX_PARTS];
    int n = 0;
    for (int32_t i = 0; i < e->m->num_own; i++)
        for (int p = 0; p < e->m->num_parts; p++, n++) {
            parts[n] = e->own[i].parts[p];
            if (b == fixture.oracle && fixture.dtype != DTYPE_F32)
                parts[n].dtype = DTYPE_F32, parts[n].data = e->own[i].values[p];
        }
    return kernel_fixture_matrix(b, parts, n, e->m->cols, MATRIX_GROUPED);
}

static const float *row_of_choice(const struct experts *e, int32_t choice) {
    int32_t row = e->m->per_choice ? choice : choice / e->m->num_chosen;
    return e->x + (size_t)row * (size_t)e->m->cols;
}

/* [choices][rows] in host memory: the products of `linear`, NaN for choices of others. */
static float *multiply_each(struct backend *b, const struct experts *e) {
    const size_t rows = (size_t)e->own[0].rows, cols = (size_t)e->m->cols;
    float *out = kernel_fixture_guarded(num_choices(e->m) * rows);
    for (int32_t i = 0; i < e->m->num_own; i++) {
        int32_t first = e->choices.first[i], n = e->choices.first[i + 1] - first;
        if (n == 0)
            continue;
        const struct linear_args args = {.num_rows = n, .scale = 1};
        float *x = kernel_fixture_memory((size_t)n * cols * sizeof(float));
        for (int32_t j = 0; j < n; j++)
            memcpy(x + (size_t)j * cols, row_of_choice(e, e->choices.order[first + j]),
                   cols * sizeof(float));
        struct matrix *matrix = weights_create(&fixture, b, &e->own[i]);
        float *product = weights_multiply(&fixture, b, matrix, &e->own[i], x, &args, NULL);
        for (int32_t j = 0; j < n; j++)
            memcpy(out + (size_t)e->choices.order[first + j] * rows, product + (size_t)j * rows,
                   rows * sizeof(float));
        b->ops->matrix_destroy(b, matrix);
        kernel_fixture_guarded_free(product);
        free(x);
    }
    return out;
}

static void call_linear_experts(struct backend *b, const void *args) {
    b->ops->linear_experts(b, args);
}

static enum dtype type_of(const struct backend *b) {
    return b == fixture.oracle ? DTYPE_F32 : fixture.dtype;
}

/* [choices][rows] in host memory: the op's result in an array of NaN. */
static float *multiply(struct backend *b, const struct experts *e, const struct matrix *matrix) {
    const struct mixture *m = e->m;
    const size_t num_x = m->per_choice ? num_choices(m) : (size_t)m->num_tokens;
    const size_t n = num_choices(m) * (size_t)e->own[0].rows;
    struct route_args sizes = route_of(m->num_tokens, m->num_experts, m->num_chosen);
    sizes.num_own = m->num_own;
    struct device_choices c = choices_create(b, &sizes);
    b->ops->upload(b, c.memory, e->choices_image, c.bytes);
    void *x = kernel_fixture_put(b, type_of(b), e->x, num_x * (size_t)m->cols);
    void *out = kernel_fixture_put(b, type_of(b), NULL, n);
    const struct expert_linear_args args = {.x = x,
                                            .per_choice = m->per_choice,
                                            .weight = matrix,
                                            .choices = &c.at,
                                            .out = out,
                                            .num_tokens = m->num_tokens,
                                            .num_chosen = m->num_chosen,
                                            .num_own = m->num_own};
    kernel_fixture_run(b, call_linear_experts, &args, out, dtype_row_bytes(type_of(b), n));
    float *result = kernel_fixture_guarded(n);
    kernel_fixture_get(b, type_of(b), out, result, n);
    kernel_fixture_free(b, c.memory);
    kernel_fixture_free(b, x);
    kernel_fixture_free(b, out);
    return result;
}

/* Of own choices the bits, or on a device what its type holds of `expected`; NaN else. */
static void assert_products(const struct backend *b, const struct experts *e, const float *actual,
                            const float *expected) {
    const size_t rows = (size_t)e->own[0].rows;
    size_t num_own = 0;
    float *own = kernel_fixture_memory(num_choices(e->m) * rows * sizeof(float));
    float *own_expected = kernel_fixture_memory(num_choices(e->m) * rows * sizeof(float));
    for (size_t c = 0; c < num_choices(e->m); c++) {
        int32_t expert = e->choices.experts[c] - e->m->own_first;
        if (expert < 0 || expert >= e->m->num_own) {
            for (size_t r = 0; r < rows; r++)
                assert_true(isnan(actual[c * rows + r]));
            continue;
        }
        memcpy(own + num_own * rows, actual + c * rows, rows * sizeof(float));
        memcpy(own_expected + num_own * rows, expected + c * rows, rows * sizeof(float));
        num_own++;
    }
    if (type_of(b) == DTYPE_F32)
        assert_memory_equal(own, own_expected, num_own * rows * sizeof(float));
    else
        kernel_fixture_assert_close_by(own, own_expected, num_own * rows, fixture.tolerance,
                                       "linear_experts");
    free(own_expected);
    free(own);
}

/* The last token's rows have the same bits alone. */
static void assert_token_alone(struct backend *b, const struct experts *e,
                               const struct matrix *matrix, const float *together) {
    struct mixture one = *e->m;
    struct experts alone = *e;
    const int32_t t = one.num_tokens - 1, k = one.num_chosen;
    const size_t rows = (size_t)e->own[0].rows, first = (size_t)(t * k);
    one.num_tokens = 1;
    alone.m = &one;
    alone.x += (one.per_choice ? first : (size_t)t) * (size_t)one.cols;
    struct route_args sizes = route_of(1, one.num_experts, k);
    sizes.num_own = one.num_own;
    alone.choices_image = kernel_fixture_memory(expert_choices_bytes(1, k, one.num_own));
    alone.choices = choices_in(alone.choices_image, &sizes);
    memcpy(alone.choices.experts, e->choices.experts + first, (size_t)k * sizeof(int32_t));
    int32_t count = 0;
    for (int32_t i = 0; i < one.num_own; i++) {
        alone.choices.first[i] = count;
        for (int32_t j = 0; j < k; j++)
            if (alone.choices.experts[j] == one.own_first + i)
                alone.choices.order[count++] = j;
    }
    alone.choices.first[one.num_own] = count;
    float *product = multiply(b, &alone, matrix);
    assert_memory_equal(product, together + first * rows, (size_t)k * rows * sizeof(float));
    kernel_fixture_guarded_free(product);
    free(alone.choices_image);
}

static void check_mixture(const struct mixture *m, uint64_t *seed) {
    struct experts e;
    experts_init(&e, m, seed);
    float *oracle = multiply_each(fixture.oracle, &e);
    for (int i = -1; i < fixture.num_backends; i++) {
        struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
        struct matrix *matrix = create_matrix(b, &e);
        float *expected = type_of(b) == DTYPE_F32 ? multiply_each(b, &e) : NULL;
        float *actual = multiply(b, &e, matrix);
        assert_products(b, &e, actual, expected != NULL ? expected : oracle);
        if (fixture.bits_equal)
            assert_token_alone(b, &e, matrix, actual);
        kernel_fixture_guarded_free(actual);
        if (expected != NULL)
            kernel_fixture_guarded_free(expected);
        b->ops->matrix_destroy(b, matrix);
    }
    kernel_fixture_guarded_free(oracle);
    experts_finish(&e);
}

/* --- linear_heads --- */

/* Every token takes all experts, in order. */
static void choose_all(struct experts *e) {
    const int32_t k = e->m->num_own, num_tokens = e->m->num_tokens;
    for (int32_t i = 0; i < num_tokens * k; i++) {
        e->choices.experts[i] = i % k;
        e->choices.order[i] = i % num_tokens * k + i / num_tokens;
    }
    for (int32_t i = 0; i <= k; i++)
        e->choices.first[i] = i * num_tokens;
}

static void call_linear_heads(struct backend *b, const void *args) {
    b->ops->linear_heads(b, args);
}

/* Vectors that follow each other after `stride` elements, with NaN between them. */
static float *spread(const float *x, size_t num_vectors, size_t width, size_t stride) {
    float *out = kernel_fixture_memory(num_vectors * stride * sizeof(float));
    for (size_t i = 0; i < num_vectors * stride; i++)
        out[i] = i % stride < width ? x[i / stride * width + i % stride] : NAN;
    return out;
}

/* [tokens * heads][rows] in host memory. */
static float *multiply_heads(struct backend *b, const struct experts *e,
                             const struct matrix *matrix) {
    const size_t num_vectors = num_choices(e->m), rows = (size_t)e->own[0].rows;
    const size_t cols = (size_t)e->m->cols, x_stride = cols + 24, out_stride = rows + 8;
    float *values = spread(e->x, num_vectors, cols, x_stride);
    void *x = kernel_fixture_put(b, type_of(b), values, num_vectors * x_stride);
    void *out = kernel_fixture_put(b, type_of(b), NULL, num_vectors * out_stride);
    const struct head_linear_args args = {.x = x,
                                          .weight = matrix,
                                          .out = out,
                                          .num_tokens = e->m->num_tokens,
                                          .num_heads = e->m->num_own,
                                          .x_stride = (int32_t)x_stride,
                                          .out_stride = (int32_t)out_stride};
    kernel_fixture_run(b, call_linear_heads, &args, out,
                       dtype_row_bytes(type_of(b), num_vectors * out_stride));
    float *all = kernel_fixture_guarded(num_vectors * out_stride);
    float *result = kernel_fixture_guarded(num_vectors * rows);
    kernel_fixture_get(b, type_of(b), out, all, num_vectors * out_stride);
    for (size_t i = 0; i < num_vectors * out_stride; i++)
        if (i % out_stride < rows)
            result[i / out_stride * rows + i % out_stride] = all[i];
        else
            assert_true(isnan(all[i]));
    kernel_fixture_guarded_free(all);
    kernel_fixture_free(b, x);
    kernel_fixture_free(b, out);
    free(values);
    return result;
}

static void check_heads(const struct mixture *m, uint64_t *seed) {
    struct experts e;
    experts_init(&e, m, seed);
    choose_all(&e);
    float *oracle = multiply_each(fixture.oracle, &e);
    for (int i = -1; i < fixture.num_backends; i++) {
        struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
        struct matrix *matrix = create_matrix(b, &e);
        float *expected = type_of(b) == DTYPE_F32 ? multiply_each(b, &e) : NULL;
        float *actual = multiply_heads(b, &e, matrix);
        assert_products(b, &e, actual, expected != NULL ? expected : oracle);
        kernel_fixture_guarded_free(actual);
        if (expected != NULL)
            kernel_fixture_guarded_free(expected);
        b->ops->matrix_destroy(b, matrix);
    }
    kernel_fixture_guarded_free(oracle);
    experts_finish(&e);
}

static void test_products_of_heads(void **state) {
    static const int32_t num_tokens[] = {1, 7, 200};
    uint64_t seed = 8;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (int i = 0; i < 3; i++) {
            struct mixture m = {.num_tokens = num_tokens[i],
                                .num_chosen = 1 + 3 * i,
                                .num_experts = 1 + 3 * i,
                                .num_own = 1 + 3 * i,
                                .num_parts = 1,
                                .dtypes = {(enum dtype)dtype},
                                .part_rows = {kernel_fixture_random_in(&seed, 1, 90)},
                                .cols = weights_random_cols((enum dtype)dtype, 5, &seed),
                                .per_choice = true};
            check_heads(&m, &seed);
        }
}

/* Ragged sizes; biases; a row of x for a token and for a choice. */
static void test_products_of_every_dtype(void **state) {
    uint64_t seed = 5;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (int variant = 0; variant < 3; variant++) {
            struct mixture m = {.num_tokens =
                                    variant == 0 ? 1 : kernel_fixture_random_in(&seed, 2, 20),
                                .num_chosen = 1 + variant,
                                .num_experts = 5,
                                .num_own = 5,
                                .num_parts = 1 + variant % 2,
                                .dtypes = {(enum dtype)dtype, (enum dtype)dtype},
                                .part_rows = {kernel_fixture_random_in(&seed, 1, 90)},
                                .cols = weights_random_cols((enum dtype)dtype, 5, &seed),
                                .biased = variant != 1,
                                .per_choice = (variant + dtype) % 2};
            m.part_rows[1] = m.part_rows[0];
            check_mixture(&m, &seed);
        }
}

/* Parts of different types and sizes, as where gate and up are quantised differently. */
static void test_products_of_mixed_parts(void **state) {
    uint64_t seed = 6;
    for (int variant = 0; variant < 12; variant++) {
        struct mixture m = {.num_tokens = kernel_fixture_random_in(&seed, 1, 30),
                            .num_chosen = 2,
                            .num_experts = 6,
                            .num_own = 6,
                            .num_parts = WEIGHTS_MAX_PARTS,
                            .cols = variant % 2 ? 256 : 96,
                            .biased = variant % 3 == 0,
                            .per_choice = variant % 4 == 1};
        for (int p = 0; p < m.num_parts; p++) {
            m.dtypes[p] = random_weights_dtype(&seed, m.cols);
            m.part_rows[p] = kernel_fixture_random_in(&seed, 1, 70);
        }
        check_mixture(&m, &seed);
    }
}

/* Most experts are chosen by nobody, or all tokens choose the same; more rows of one expert than
 * are taken in one pass, and a pass that ends within an expert's rows. */
static void test_products_of_uneven_choices(void **state) {
    uint64_t seed = 7;
    const int32_t many = fixture.is_simulated ? 40 : 401;
    for (int variant = 0; variant < 8; variant++) {
        struct mixture m = {.num_tokens = variant < 4 ? 1 + variant : many,
                            .num_chosen = variant < 4 ? 2 : 1 + variant % 4,
                            .num_experts = MAX_OWN,
                            .num_own = MAX_OWN,
                            .num_parts = 1,
                            .dtypes = {variant % 2 ? DTYPE_Q8_0 : DTYPE_BF16},
                            .part_rows = {33},
                            .cols = 64,
                            .per_choice = variant % 3 == 2,
                            .crowded = variant % 4 >= 2};
        check_mixture(&m, &seed);
    }
}

/* Columns and choices of one expert that take several tiles of a device, small ones and, where an
 * expert has more than eight choices, large ones; the last of them in part. */
static void test_products_of_several_tiles(void **state) {
    static const int32_t tokens[] = {17, 24, 70}, rows[] = {34, 130, 257};
    uint64_t seed = 10;
    for (int variant = 0; variant < 9; variant++) {
        struct mixture m = {.num_tokens = tokens[variant % 3],
                            .num_chosen = 1 + variant % 2,
                            .num_experts = 3,
                            .num_own = 3,
                            .num_parts = 1,
                            .dtypes = {DTYPE_F16},
                            .part_rows = {rows[variant / 3]},
                            .cols = 40 + 96 * (variant % 4),
                            .biased = variant % 3 == 0,
                            .per_choice = variant % 4 == 0,
                            .crowded = variant >= 6};
        check_mixture(&m, &seed);
    }
}

/* The experts of one rank; it may be that none of them was chosen. */
static void test_products_of_a_share(void **state) {
    uint64_t seed = 8;
    for (int variant = 0; variant < 9; variant++) {
        struct mixture m = {.num_tokens = variant < 3 ? 1 : 25,
                            .num_chosen = 2,
                            .num_experts = 12,
                            .own_first = variant % 3 * 4,
                            .num_own = 4,
                            .num_parts = 2,
                            .dtypes = {DTYPE_Q4_K, DTYPE_Q6_K},
                            .part_rows = {40, 17},
                            .cols = 256,
                            .biased = true,
                            .per_choice = variant >= 6,
                            .crowded = variant % 2};
        check_mixture(&m, &seed);
    }
}

/* --- combine_experts --- */

static void call_combine(struct backend *b, const void *args) {
    b->ops->combine_experts(b, args);
}

struct combined {
    const struct combine_args *args; /* without memory */
    const float *x, *before;
    void *choices_image;
};

/* `before` is what `out` holds. */
struct combine_call {
    struct combine_args args;
    const float *before;
    size_t n;
};

static void run_combine(struct backend *b, const void *context) {
    const struct combine_call *call = context;
    kernel_fixture_set(b, type_of(b), call->args.out, call->before, call->n);
    call_combine(b, &call->args);
}

static float *combine(struct backend *b, const struct combined *c) {
    struct combine_call call = {.args = *c->args, .before = c->before};
    struct route_args sizes = route_of(c->args->num_tokens, EXPERTS_MAX, c->args->num_chosen);
    sizes.num_own = c->args->num_own;
    struct device_choices choices = choices_create(b, &sizes);
    b->ops->upload(b, choices.memory, c->choices_image, choices.bytes);
    call.n = (size_t)c->args->num_tokens * (size_t)c->args->width;
    void *x = kernel_fixture_put(b, type_of(b), c->x, call.n * (size_t)c->args->num_chosen);
    call.args.choices = &choices.at;
    call.args.x = x;
    call.args.out = kernel_fixture_put(b, type_of(b), NULL, call.n);
    kernel_fixture_run(b, run_combine, &call, call.args.out, dtype_row_bytes(type_of(b), call.n));
    float *out = kernel_fixture_guarded(call.n);
    kernel_fixture_get(b, type_of(b), call.args.out, out, call.n);
    kernel_fixture_free(b, choices.memory);
    kernel_fixture_free(b, x);
    kernel_fixture_free(b, call.args.out);
    return out;
}

/* Rows of others' choices hold NaN. */
static void check_combine(const struct combine_args *args, int32_t num_experts, uint64_t *seed) {
    const size_t tokens = (size_t)args->num_tokens, k = (size_t)args->num_chosen;
    const size_t width = (size_t)args->width;
    float *logits = kernel_fixture_random_floats(seed, tokens * (size_t)num_experts);
    struct route_args route = route_of(args->num_tokens, num_experts, args->num_chosen);
    route.logits = logits;
    route.own_first = args->own_first;
    route.num_own = args->num_own;
    void *image = run_route(fixture.oracle, route);
    struct expert_choices choices = choices_in(image, &route);
    float *x = kernel_fixture_rounded_floats(&fixture, seed, tokens * k * width);
    float *before = kernel_fixture_rounded_floats(&fixture, seed, tokens * width);
    for (size_t c = 0; c < tokens * k; c++)
        for (size_t i = 0; own_of(&route, choices.experts[c]) < 0 && i < width; i++)
            x[c * width + i] = NAN;
    const struct combined c = {args, x, before, image};
    float *expected = combine(fixture.oracle, &c);
    for (int i = 0; i < fixture.num_backends; i++) {
        float *actual = combine(fixture.backends[i], &c);
        if (fixture.dtype == DTYPE_F32)
            assert_memory_equal(actual, expected, tokens * width * sizeof(float));
        else
            kernel_fixture_assert_close_by(actual, expected, tokens * width, fixture.tolerance,
                                           "combine_experts");
        kernel_fixture_guarded_free(actual);
    }
    kernel_fixture_guarded_free(expected);
    free(before);
    free(x);
    free(image);
    free(logits);
}

static void test_combine(void **state) {
    static const int32_t widths[] = {8, 64, 77, 200, 576, 2056};
    uint64_t seed = 9;
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
        for (int variant = 0; variant < 8; variant++) {
            struct combine_args args = {.num_tokens = variant < 4 ? 1 : 37,
                                        .num_chosen = 1 + variant,
                                        .own_first = variant % 3 ? 0 : 4,
                                        .num_own = variant % 3 ? 10 : 4,
                                        .width = widths[w],
                                        .scale = variant % 2 ? 1 : 0.4f,
                                        .accumulate = variant & 2};
            check_combine(&args, 10, &seed);
        }
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 512,
                                                 .limits.max_num_seqs = 64,
                                                 .limits.max_model_len = 4,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = 4,
                                                 .limits.vocab_size = 64,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route_shapes),
        cmocka_unit_test(test_route_with_bias),
        cmocka_unit_test(test_route_by_groups),
        cmocka_unit_test(test_route_special_logits),
        cmocka_unit_test(test_route_many),
        cmocka_unit_test(test_route_of_a_share),
        cmocka_unit_test(test_products_of_heads),
        cmocka_unit_test(test_products_of_every_dtype),
        cmocka_unit_test(test_products_of_mixed_parts),
        cmocka_unit_test(test_products_of_uneven_choices),
        cmocka_unit_test(test_products_of_several_tiles),
        cmocka_unit_test(test_products_of_a_share),
        cmocka_unit_test(test_combine),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
