/* Low-rank adapters in a batch: `choose_adapters`, and `linear_experts` with strides, as a slot's A
 * and B are multiplied, against the oracle. What a token without an adapter has stays as it was,
 * and a token has the same bits alone. `linear_adapters` has the bits of those products. */
#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TOKENS 512
#define MAX_SEQS 64

static struct kernel_fixture fixture;

/* Sequences of random lengths, each with a random slot or none. */
struct sequences {
    int32_t num_tokens, num_seqs, num_slots;
    int32_t query_start[MAX_SEQS + 1], slots[MAX_SEQS], lengths[MAX_SEQS];
    int32_t zeros[MAX_TOKENS];
    bool has_slots;
};

static void sequences_init(struct sequences *s, int32_t num_seqs, int32_t longest,
                           int32_t num_slots, bool has_slots, uint64_t *seed) {
    *s = (struct sequences){.num_seqs = num_seqs, .num_slots = num_slots, .has_slots = has_slots};
    for (int32_t i = 0; i < num_seqs; i++) {
        s->lengths[i] = kernel_fixture_random_in(seed, 1, longest);
        s->slots[i] = kernel_fixture_random_in(seed, -1, num_slots - 1);
        s->num_tokens += s->lengths[i];
        s->query_start[i + 1] = s->num_tokens;
    }
    assert_in_range(s->num_tokens, 1, MAX_TOKENS);
}

static void begin_step(struct backend *b, const struct sequences *s) {
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = s->num_tokens,
                                                .num_seqs = s->num_seqs,
                                                .max_blocks_per_seq = 1,
                                                .token_ids = s->zeros,
                                                .positions = s->zeros,
                                                .slot_mapping = s->zeros,
                                                .query_start = s->query_start,
                                                .context_lens = s->lengths,
                                                .block_tables = s->zeros,
                                                .adapter_slots = s->has_slots ? s->slots : NULL});
}

static void call_choose(struct backend *b, const void *args) {
    b->ops->choose_adapters(b, args);
}

/* Device memory with the step's choices. */
static void *choose(struct backend *b, const struct sequences *s, struct expert_choices *out) {
    const size_t bytes = expert_choices_bytes(s->num_tokens, 1, s->num_slots);
    void *memory = kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float));
    *out = expert_choices_at(memory, s->num_tokens, 1, s->num_slots);
    const struct choose_adapters_args args = {
        .choices = *out, .num_tokens = s->num_tokens, .num_slots = s->num_slots};
    begin_step(b, s);
    kernel_fixture_run(b, call_choose, &args, memory, bytes);
    return memory;
}

static int32_t slot_of(const struct sequences *s, int32_t token) {
    int32_t seq = 0;
    while (token >= s->query_start[seq + 1])
        seq++;
    return s->has_slots ? s->slots[seq] : -1;
}

static void assert_choices(struct backend *b, const struct sequences *s) {
    const size_t bytes = expert_choices_bytes(s->num_tokens, 1, s->num_slots);
    struct expert_choices on_device;
    void *memory = choose(b, s, &on_device), *image = kernel_fixture_memory(bytes);
    kernel_fixture_download(b, image, memory, bytes);
    const struct expert_choices c = expert_choices_at(image, s->num_tokens, 1, s->num_slots);
    int32_t count = 0;
    for (int32_t t = 0; t < s->num_tokens; t++)
        assert_int_equal(c.experts[t], slot_of(s, t));
    for (int32_t slot = 0; slot < s->num_slots; slot++) {
        assert_int_equal(c.first[slot], count);
        for (int32_t t = 0; t < s->num_tokens; t++)
            if (slot_of(s, t) == slot)
                assert_int_equal(c.order[count++], t);
    }
    assert_int_equal(c.first[s->num_slots], count);
    kernel_fixture_free(b, memory);
    free(image);
}

static void test_choices(void **state) {
    uint64_t seed = 1;
    for (int variant = 0; variant < 24; variant++) {
        struct sequences s;
        sequences_init(&s, 1 + variant % 9 * 7, 1 + variant % 5, 1 + variant * variant / 3,
                       variant % 6 != 5, &seed);
        assert_choices(fixture.oracle, &s);
        for (int i = 0; i < fixture.num_backends; i++)
            assert_choices(fixture.backends[i], &s);
    }
}

/* One matrix of all slots, [slots * rows, cols] of f16. */
struct small_matrix {
    int32_t rows, cols;
    float *values;
    uint16_t *halves;
};

static void small_matrix_init(struct small_matrix *m, int32_t num_slots, int32_t rows, int32_t cols,
                              uint64_t *seed) {
    const size_t n = (size_t)num_slots * (size_t)rows * (size_t)cols;
    *m = (struct small_matrix){.rows = rows, .cols = cols};
    m->values = kernel_fixture_rounded_floats(&fixture, seed, n);
    m->halves = kernel_fixture_memory(n * sizeof(uint16_t));
    dtype_from_f32(DTYPE_F16, m->values, m->halves, n);
    dtype_to_f32(DTYPE_F16, m->halves, m->values, n);
}

static void small_matrix_finish(struct small_matrix *m) {
    free(m->values);
    free(m->halves);
}

/* Created without data and filled twice, as a slot that another adapter had before. */
static struct matrix *create(struct backend *b, const struct small_matrix *m, int32_t num_slots) {
    struct matrix_part parts[MAX_SEQS];
    const size_t slot = (size_t)m->rows * (size_t)m->cols;
    uint16_t *before = kernel_fixture_memory(slot * sizeof(uint16_t));
    memset(before, 0x3c, slot * sizeof(uint16_t));
    for (int32_t i = 0; i < num_slots; i++)
        parts[i] = (struct matrix_part){.dtype = DTYPE_F16, .rows = m->rows};
    struct matrix *matrix = kernel_fixture_matrix(b, parts, num_slots, m->cols, MATRIX_GROUPED);
    for (int32_t i = 0; i < num_slots; i++)
        assert_int_equal(b->ops->matrix_fill(b, matrix, i * m->rows, m->rows, before, NULL), 0);
    for (int32_t i = 0; i < num_slots; i++)
        assert_int_equal(b->ops->matrix_fill(b, matrix, i * m->rows, m->rows,
                                             m->halves + (size_t)i * slot, NULL),
                         0);
    kernel_fixture_synchronize(b);
    free(before);
    return matrix;
}

struct product {
    const struct sequences *s;
    const struct small_matrix *m;
    const float *x, *before; /* [tokens][x_stride], [tokens][out_stride] */
    int32_t x_stride, out_stride, out_offset;
    bool accumulate;
};

struct product_call {
    struct expert_linear_args args;
    void *out; /* the array that args.out is in */
    const float *before;
    size_t n;
};

static enum dtype type_of(const struct backend *b) {
    return b == fixture.oracle ? DTYPE_F32 : fixture.dtype;
}

static void run_product(struct backend *b, const void *context) {
    const struct product_call *call = context;
    kernel_fixture_set(b, type_of(b), call->out, call->before, call->n);
    b->ops->linear_experts(b, &call->args);
}

static float *multiply(struct backend *b, const struct product *p) {
    const struct sequences *s = p->s;
    struct product_call call = {.before = p->before,
                                .n = (size_t)s->num_tokens * (size_t)p->out_stride};
    struct expert_choices choices;
    void *memory = choose(b, s, &choices);
    void *x = kernel_fixture_put(b, type_of(b), p->x, (size_t)s->num_tokens * (size_t)p->x_stride);
    struct matrix *matrix = create(b, p->m, s->num_slots);
    call.out = kernel_fixture_put(b, type_of(b), p->before, call.n);
    call.args = (struct expert_linear_args){
        .x = x,
        .weight = matrix,
        .choices = &choices,
        .out = (char *)call.out + dtype_row_bytes(type_of(b), (size_t)p->out_offset),
        .num_tokens = s->num_tokens,
        .num_chosen = 1,
        .num_own = s->num_slots,
        .x_stride = p->x_stride,
        .out_stride = p->out_stride,
        .accumulate = p->accumulate};
    kernel_fixture_run(b, run_product, &call, call.out, dtype_row_bytes(type_of(b), call.n));
    float *result = kernel_fixture_memory(call.n * sizeof(float));
    kernel_fixture_get(b, type_of(b), call.out, result, call.n);
    b->ops->matrix_destroy(b, matrix);
    kernel_fixture_free(b, memory);
    kernel_fixture_free(b, x);
    kernel_fixture_free(b, call.out);
    return result;
}

/* Elements that no product writes to are those from before. */
static void assert_others_kept(const struct product *p, const float *actual) {
    for (int32_t t = 0; t < p->s->num_tokens; t++)
        for (int32_t i = 0; i < p->out_stride; i++) {
            size_t at = (size_t)t * (size_t)p->out_stride + (size_t)i;
            bool is_written =
                slot_of(p->s, t) >= 0 && i >= p->out_offset && i < p->out_offset + p->m->rows;
            if (!is_written)
                assert_memory_equal(&actual[at], &p->before[at], sizeof(float));
        }
}

static void assert_last_alone(struct backend *b, const struct product *p, const float *together) {
    const int32_t last = p->s->num_tokens - 1;
    struct sequences one = {.num_tokens = 1, .num_seqs = 1, .num_slots = p->s->num_slots};
    struct product alone = *p;
    one.query_start[1] = one.lengths[0] = 1;
    one.slots[0] = slot_of(p->s, last);
    one.has_slots = p->s->has_slots;
    alone.s = &one;
    alone.x += (size_t)last * (size_t)p->x_stride;
    alone.before += (size_t)last * (size_t)p->out_stride;
    float *actual = multiply(b, &alone);
    assert_memory_equal(actual, together + (size_t)last * (size_t)p->out_stride,
                        (size_t)p->out_stride * sizeof(float));
    free(actual);
}

static void check_product(const struct product *p) {
    float *expected = multiply(fixture.oracle, p);
    const size_t n = (size_t)p->s->num_tokens * (size_t)p->out_stride;
    for (int i = 0; i < fixture.num_backends; i++) {
        float *actual = multiply(fixture.backends[i], p);
        kernel_fixture_assert_close(&fixture, actual, expected, n, 1e-4, "an adapter's product");
        assert_others_kept(p, actual);
        if (fixture.bits_equal)
            assert_last_alone(fixture.backends[i], p, actual);
        free(actual);
    }
    free(expected);
}

static void test_products(void **state) {
    static const struct {
        int32_t rows, cols;
    } shapes[] = {{24, 96}, {8, 64}, {96, 8}, {33, 16}, {200, 24}, {48, 200}, {64, 256}};
    uint64_t seed = 2;
    for (int variant = 0; variant < 21; variant++) {
        struct sequences s;
        struct small_matrix m;
        const int32_t num_slots = 1 + variant % 6 * 3;
        sequences_init(&s, variant % 3 == 0 ? 1 : 6 * (variant % 4) + 2, variant % 5 == 4 ? 9 : 1,
                       num_slots, variant % 10 != 9, &seed);
        small_matrix_init(&m, num_slots, shapes[variant % 7].rows, shapes[variant % 7].cols, &seed);
        struct product p = {.s = &s,
                            .m = &m,
                            .x_stride = m.cols + 16 * (variant % 2),
                            .out_stride = m.rows + variant % 4 * 11,
                            .out_offset = variant % 4 * 5,
                            .accumulate = variant % 3 != 1};
        float *x = kernel_fixture_rounded_floats(&fixture, &seed,
                                                 (size_t)s.num_tokens * (size_t)p.x_stride);
        float *before = kernel_fixture_rounded_floats(&fixture, &seed,
                                                      (size_t)s.num_tokens * (size_t)p.out_stride);
        p.x = x, p.before = before;
        check_product(&p);
        free(before);
        free(x);
        small_matrix_finish(&m);
    }
}

/* --- linear_adapters --- */

/* A projection of several parts: their B, and x, what was before and A x. */
struct projection {
    const struct sequences *s;
    struct small_matrix a, b[ADAPTER_MAX_PARTS];
    int32_t num_parts, rank, width; /* of all parts */
    float *x, *before;
};

static void projection_init(struct projection *p, const struct sequences *s, int32_t num_parts,
                            int32_t rank, int32_t inputs, uint64_t *seed) {
    *p = (struct projection){.s = s, .num_parts = num_parts, .rank = rank};
    small_matrix_init(&p->a, s->num_slots, num_parts * rank, inputs, seed);
    for (int32_t i = 0; i < num_parts; i++) {
        small_matrix_init(&p->b[i], s->num_slots, kernel_fixture_random_in(seed, 1, 90), rank,
                          seed);
        p->width += p->b[i].rows;
    }
    p->x = kernel_fixture_rounded_floats(&fixture, seed, (size_t)s->num_tokens * (size_t)inputs);
    p->before =
        kernel_fixture_rounded_floats(&fixture, seed, (size_t)s->num_tokens * (size_t)p->width);
}

static void projection_finish(struct projection *p) {
    small_matrix_finish(&p->a);
    for (int32_t i = 0; i < p->num_parts; i++)
        small_matrix_finish(&p->b[i]);
    free(p->x);
    free(p->before);
}

static void add_by_products(struct backend *b, const struct projection *p,
                            const struct adapter_linear_args *whole) {
    struct expert_linear_args args = {.x = whole->x,
                                      .weight = whole->a,
                                      .choices = whole->choices,
                                      .out = whole->inner,
                                      .num_tokens = whole->num_tokens,
                                      .num_chosen = 1,
                                      .num_own = whole->num_slots};
    b->ops->linear_experts(b, &args);
    args.x_stride = p->num_parts * p->rank, args.out_stride = p->width, args.accumulate = true;
    for (int32_t i = 0, first = 0; i < p->num_parts; first += p->b[i++].rows) {
        args.x = (const float *)whole->inner + (ptrdiff_t)i * p->rank;
        args.weight = whole->b[i];
        args.out = (float *)whole->out + first;
        b->ops->linear_experts(b, &args);
    }
}

/* Adds to `out` at once or by products; returns whether it was added. */
static bool add(struct backend *b, const struct projection *p, bool at_once, float *out) {
    const struct sequences *s = p->s;
    struct matrix *matrices[1 + ADAPTER_MAX_PARTS];
    struct expert_choices choices;
    void *memory = choose(b, s, &choices);
    const size_t inner = (size_t)s->num_tokens * (size_t)(p->num_parts * p->rank);
    float *zeros = kernel_fixture_memory(inner * sizeof(float));
    memset(zeros, 0, inner * sizeof(float));
    for (int i = 0; i <= p->num_parts; i++)
        matrices[i] = create(b, i == 0 ? &p->a : &p->b[i - 1], s->num_slots);
    const struct adapter_linear_args args = {
        .x = kernel_fixture_put(b, DTYPE_F32, p->x, (size_t)s->num_tokens * (size_t)p->a.cols),
        .a = matrices[0],
        .b = (const struct matrix *const *)&matrices[1],
        .choices = &choices,
        .inner = kernel_fixture_put(b, DTYPE_F32, zeros, inner),
        .out =
            kernel_fixture_put(b, DTYPE_F32, p->before, (size_t)s->num_tokens * (size_t)p->width),
        .num_parts = p->num_parts,
        .num_tokens = s->num_tokens,
        .num_slots = s->num_slots};
    bool is_added = true;
    begin_step(b, s);
    if (at_once)
        is_added = b->ops->linear_adapters(b, &args);
    else
        add_by_products(b, p, &args);
    b->ops->step_end(b);
    kernel_fixture_synchronize(b);
    kernel_fixture_get(b, DTYPE_F32, args.out, out, (size_t)s->num_tokens * (size_t)p->width);
    for (int i = 0; i <= p->num_parts; i++)
        b->ops->matrix_destroy(b, matrices[i]);
    kernel_fixture_free(b, memory);
    kernel_fixture_free(b, (void *)args.x);
    kernel_fixture_free(b, args.inner);
    kernel_fixture_free(b, args.out);
    free(zeros);
    return is_added;
}

static void test_at_once(void **state) {
    uint64_t seed = 3;
    int num_added = 0, num_left = 0, num_asked = 0;
    for (int variant = 0; variant < 48; variant++) {
        struct sequences s;
        struct projection p;
        sequences_init(&s, 1 + variant % 8 * 4, variant % 4 == 3 ? 16 : 1, 1 + variant % 9,
                       variant % 10 != 9, &seed);
        projection_init(&p, &s, 1 + variant % ADAPTER_MAX_PARTS, 8 << variant % 5,
                        kernel_fixture_random_in(&seed, 4, 300), &seed);
        const size_t n = (size_t)s.num_tokens * (size_t)p.width;
        float *expected = kernel_fixture_memory(n * sizeof(float));
        float *actual = kernel_fixture_memory(n * sizeof(float));
        for (int i = 0; i < fixture.num_backends; i++) {
            struct backend *b = fixture.backends[i];
            if (b->ops->linear_adapters == NULL)
                continue;
            bool is_added = add(b, &p, true, actual);
            if (is_added)
                assert_true(add(b, &p, false, expected));
            assert_memory_equal(actual, is_added ? expected : p.before, n * sizeof(float));
            num_asked++, num_added += is_added, num_left += !is_added;
        }
        free(actual);
        free(expected);
        projection_finish(&p);
    }
    assert_true(num_asked == 0 || (num_added > 0 && num_left > 0));
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = MAX_TOKENS,
                                                 .limits.max_num_seqs = MAX_SEQS,
                                                 .limits.max_model_len = 16,
                                                 .limits.block_size = 16,
                                                 .limits.max_logit_rows = 4,
                                                 .limits.vocab_size = 64,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_choices),
                                              cmocka_unit_test(test_products),
                                              cmocka_unit_test(test_at_once)};
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
