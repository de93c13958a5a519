#include "tests/kernels/product_fixture.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    OUT = PRODUCT_FIXTURE_OUT,
    COLS = PRODUCT_FIXTURE_COLS,
    MOST_ROWS = PRODUCT_FIXTURE_MOST_ROWS
};

typedef int (*set_products_function)(const char *spelling);
typedef struct cudasim_product_calls (*count_products_function)(void);
static set_products_function set_products;
static count_products_function count_products;

static float value_of(size_t i) {
    return bf16_to_f32(bf16_from_f32(sinf((float)i * 1.7f)));
}

static void upload_x(struct product_fixture *f) {
    static uint16_t halves[MOST_ROWS * COLS];
    for (size_t i = 0; i < MOST_ROWS * COLS; i++) {
        f->values[i] = value_of(3 * i + 1);
        halves[i] = bf16_from_f32(f->values[i]);
    }
    f->b->ops->upload(f->b, f->x.data, halves, sizeof(halves));
}

struct product_fixture *product_fixture_open(bool batch_invariant) {
    struct product_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    struct backend_config config = {.limits.max_num_batched_tokens = MOST_ROWS,
                                    .limits.max_num_seqs = 2,
                                    .limits.max_model_len = 2,
                                    .limits.block_size = 1,
                                    .limits.max_logit_rows = 2,
                                    .limits.vocab_size = 100,
                                    .batch_invariant = batch_invariant,
                                    .activation_dtype = DTYPE_BF16};
    struct error err = {0};
    f->b = backend_open("cuda-sim", &config, &err);
    if (f->b == NULL)
        fail_msg("%s", err.message);
    void *module = dlopen("libquire-cuda-sim.so", RTLD_LAZY | RTLD_NOLOAD);
    assert_non_null(module);
    set_products = (set_products_function)dlsym(module, "cudasim_set_products");
    count_products = (count_products_function)dlsym(module, "cudasim_count_products");
    assert_true(set_products != NULL && count_products != NULL);
    for (size_t i = 0; i < OUT * COLS; i++)
        f->weights[i] = value_of(i);
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = OUT, .data = f->weights};
    if (f->b->ops->matrix_create(f->b, &part, 1, COLS, MATRIX_LINEAR, &f->matrix, &err) != 0 ||
        f->b->ops->buffer_alloc(f->b, sizeof(uint16_t) * MOST_ROWS * COLS, &f->x, &err) != 0 ||
        f->b->ops->buffer_alloc(f->b, sizeof(float) * MOST_ROWS * OUT, &f->out, &err) != 0)
        fail_msg("%s", err.message);
    upload_x(f);
    return f;
}

void product_fixture_close(struct product_fixture *f) {
    f->b->ops->buffer_free(f->b, &f->out);
    f->b->ops->buffer_free(f->b, &f->x);
    f->b->ops->matrix_destroy(f->b, f->matrix);
    backend_close(f->b);
    free(f);
    product_fixture_set("");
}

void product_fixture_set(const char *spelling) {
    assert_int_equal(set_products(spelling), 0);
}

struct cudasim_product_calls product_fixture_count(void) {
    return count_products();
}

void product_fixture_enqueue(struct product_fixture *f, int32_t num_rows) {
    f->b->ops->linear(f->b, &(struct linear_args){.x = f->x.data,
                                                  .weight = f->matrix,
                                                  .out = f->out.data,
                                                  .num_rows = num_rows,
                                                  .scale = 1,
                                                  .float_out = true});
}

bool product_fixture_is_right(struct product_fixture *f, int32_t num_rows, float first_row[OUT]) {
    static float out[MOST_ROWS * OUT];
    struct error err = {0};
    bool is_right = true;
    product_fixture_enqueue(f, num_rows);
    f->b->ops->download(f->b, out, f->out.data, sizeof(float) * (size_t)num_rows * OUT);
    if (f->b->ops->synchronize(f->b, &err) != 0)
        fail_msg("%d rows: %s", num_rows, err.message);
    for (int32_t m = 0; m < num_rows; m++)
        for (int32_t n = 0; n < OUT; n++) {
            double sum = 0;
            for (int32_t k = 0; k < COLS; k++)
                sum += (double)f->values[m * COLS + k] *
                       bf16_to_f32(bf16_from_f32(f->weights[n * COLS + k]));
            is_right = is_right && fabs(out[m * OUT + n] - sum) < 1e-4;
        }
    memcpy(first_row, out, sizeof(float) * OUT);
    return is_right;
}

void product_fixture_multiply(struct product_fixture *f, int32_t num_rows, float first_row[OUT]) {
    assert_true(product_fixture_is_right(f, num_rows, first_row));
}
