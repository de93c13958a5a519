/* The matrix products of a layer and the head. As many copies of a matrix as fill rotate_bytes take
 * turns, so that a small model's weights come from memory as they do when 30 layers are gone
 * through. */
#include "tests/kernels/bench_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COPIES = 512 };

struct product {
    const char *name;
    int32_t rows, cols;
    bool accumulate; /* the residual */
    bool float_out;  /* the head */
};

struct context {
    struct device_bench *bench;
    const struct product *product;
    int32_t num_rows;
    int64_t num_copies;
    struct matrix *copies[MAX_COPIES];
    struct device_bench_ring x, out;
};

static void call_linear(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->linear(b, &(struct linear_args){.x = device_bench_ring_at(&c->x, i),
                                            .weight = c->copies[i % c->num_copies],
                                            .out = device_bench_ring_at(&c->out, i),
                                            .num_rows = c->num_rows,
                                            .scale = 1.0F,
                                            .accumulate = c->product->accumulate,
                                            .float_out = c->product->float_out});
}

static struct device_bench_result linear_result(void *context, int64_t i) {
    const struct context *c = context;
    return (struct device_bench_result){device_bench_ring_at(&c->out, i), c->out.piece_bytes,
                                        false};
}

static void create_copies(struct context *c) {
    const struct product *p = c->product;
    struct device_bench *bench = c->bench;
    size_t elements = (size_t)p->rows * (size_t)p->cols;
    size_t bytes = dtype_row_bytes(bench->dtype, elements);
    void *data = device_bench_host(1, bytes);
    device_bench_random(bench->dtype, 1.0F / sqrtf((float)p->cols), data, elements);
    const struct matrix_part part = {.dtype = bench->dtype, .rows = p->rows, .data = data};
    int64_t wanted = 1 + (int64_t)(bench->rotate_bytes / bytes);
    struct error err = {0};
    for (c->num_copies = 0; c->num_copies < wanted && c->num_copies < MAX_COPIES; c->num_copies++)
        if (bench->backend->ops->matrix_create(bench->backend, &part, 1, p->cols, MATRIX_LINEAR,
                                               &c->copies[c->num_copies], &err) != 0)
            device_bench_fail("%s: %s", p->name, err.message);
    free(data);
}

static void measure(struct context *c) {
    const struct product *p = c->product;
    struct device_bench *bench = c->bench;
    enum dtype activation = bench->backend->activation_dtype;
    enum dtype out = p->float_out ? DTYPE_F32 : activation;
    size_t m = (size_t)c->num_rows, n = (size_t)p->rows, k = (size_t)p->cols;
    device_bench_ring_init(bench, activation, 1.0F, m * k, &c->x);
    device_bench_ring_init(bench, out, 1.0F, m * n, &c->out);
    const struct device_bench_job job = {
        .context = c, .call = call_linear, .result = linear_result};
    struct device_bench_time time = device_bench_run(bench, &job);
    size_t moved = dtype_row_bytes(bench->dtype, n * k) + dtype_row_bytes(activation, m * k) +
                   dtype_row_bytes(out, m * n) * (p->accumulate ? 2 : 1);
    char shape[96];
    snprintf(shape, sizeof(shape), "%s %zu x %zu x %zu", p->name, m, n, k);
    const struct device_bench_work work = {.bytes = (double)moved,
                                           .flops = 2.0 * (double)m * (double)n * (double)k};
    device_bench_print("linear", shape, time, work, "");
    device_bench_ring_finish(bench, &c->x);
    device_bench_ring_finish(bench, &c->out);
}

static void bench_product(struct device_bench *bench, const struct bench_shape *shape,
                          const struct product *product) {
    static const int32_t row_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192};
    static struct context c;
    int32_t most = product->float_out ? shape->max_logits : shape->max_tokens;
    c = (struct context){.bench = bench, .product = product};
    create_copies(&c);
    for (size_t i = 0; i < sizeof(row_counts) / sizeof(row_counts[0]); i++) {
        c.num_rows = row_counts[i];
        if (c.num_rows <= most)
            measure(&c);
    }
    for (int64_t i = 0; i < c.num_copies; i++)
        bench->backend->ops->matrix_destroy(bench->backend, c.copies[i]);
}

void bench_device_linear(struct device_bench *bench, const struct bench_shape *shape) {
    int32_t q_width = shape->heads * shape->head_dim;
    int32_t qkv_width = q_width + 2 * shape->kv_heads * shape->head_dim;
    const struct product products[] = {
        {"qkv", qkv_width, shape->hidden, false, false},
        {"attention_out", shape->hidden, q_width, true, false},
        {"gate_up", 2 * shape->ffn, shape->hidden, false, false},
        {"down", shape->hidden, shape->ffn, true, false},
        {"head", shape->vocab, shape->hidden, false, true},
    };
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++)
        bench_product(bench, shape, &products[i]);
}
