/* The ops on rows of activations, all bound by memory. */
#include "tests/kernels/bench_device.h"

#include <stdio.h>

struct context {
    struct device_bench *bench;
    int32_t num_rows, width;
    bool center, accumulate; /* of a norm */
    enum activation activation;
    struct buffer weight; /* float [hidden] */
    struct device_bench_ring in, out;
};

static void call_norm(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->norm(b, &(struct norm_args){.x = device_bench_ring_at(&c->in, i),
                                        .weight = c->weight.data,
                                        .out = device_bench_ring_at(&c->out, i),
                                        .num_rows = c->num_rows,
                                        .row_stride = c->width,
                                        .width = c->width,
                                        .epsilon = 1e-5F,
                                        .center = c->center,
                                        .accumulate = c->accumulate});
}

static void call_act_mul(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = device_bench_ring_at(&c->in, i),
                                              .out = device_bench_ring_at(&c->out, i),
                                              .num_rows = c->num_rows,
                                              .width = c->width,
                                              .activation = c->activation});
}

static void call_soft_cap(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->soft_cap(b, &(struct soft_cap_args){.x = device_bench_ring_at(&c->in, i),
                                                .num_rows = c->num_rows,
                                                .width = c->width,
                                                .cap = 30.0F});
}

static struct device_bench_result result_of(void *context, int64_t i) {
    const struct context *c = context;
    return (struct device_bench_result){device_bench_ring_at(&c->out, i), c->out.piece_bytes,
                                        false};
}

static struct device_bench_result result_in_place(void *context, int64_t i) {
    const struct context *c = context;
    return (struct device_bench_result){device_bench_ring_at(&c->in, i), c->in.piece_bytes, false};
}

/* `in_width` elements of a row are read for `width` written. */
static void measure(struct device_bench *bench, const char *op, const char *variant,
                    struct context *c, int32_t in_width, void (*call)(void *context, int64_t i)) {
    enum dtype dtype = bench->backend->activation_dtype;
    size_t rows = (size_t)c->num_rows;
    device_bench_ring_init(bench, dtype, 1.0F, rows * (size_t)in_width, &c->in);
    device_bench_ring_init(bench, dtype, 1.0F, rows * (size_t)c->width, &c->out);
    const struct device_bench_job job = {.context = c, .call = call, .result = result_of};
    struct device_bench_time time = device_bench_run(bench, &job);
    char shape[64];
    snprintf(shape, sizeof(shape), "%s%d x %d", variant, c->num_rows, c->width);
    size_t moved = dtype_row_bytes(dtype, rows * (size_t)(in_width + c->width));
    device_bench_print(op, shape, time, (struct device_bench_work){.bytes = (double)moved}, "");
    device_bench_ring_finish(bench, &c->in);
    device_bench_ring_finish(bench, &c->out);
}

static void measure_norms(struct device_bench *bench, const struct bench_shape *shape,
                          struct context *c) {
    c->width = shape->hidden;
    measure(bench, "norm", "", c, c->width, call_norm);
    c->center = true;
    measure(bench, "norm", "centered ", c, c->width, call_norm);
    c->center = false, c->accumulate = true;
    measure(bench, "norm", "added ", c, 2 * c->width, call_norm);
    c->accumulate = false;
}

static void measure_activations(struct device_bench *bench, const struct bench_shape *shape,
                                struct context *c) {
    c->width = shape->ffn, c->activation = ACTIVATION_SILU;
    measure(bench, "act_mul", "", c, 2 * c->width, call_act_mul);
    c->activation = ACTIVATION_GELU_TANH;
    measure(bench, "act_mul", "gelu ", c, 2 * c->width, call_act_mul);
}

/* Floats, in place. */
static void measure_soft_cap(struct device_bench *bench, const struct bench_shape *shape,
                             struct context *c) {
    size_t n = (size_t)c->num_rows * (size_t)shape->ffn;
    c->width = shape->ffn;
    device_bench_ring_init(bench, DTYPE_F32, 1.0F, n, &c->in);
    const struct device_bench_job job = {
        .context = c, .call = call_soft_cap, .result = result_in_place};
    struct device_bench_time time = device_bench_run(bench, &job);
    char text[64];
    snprintf(text, sizeof(text), "%d x %d", c->num_rows, c->width);
    device_bench_print("soft_cap", text, time,
                       (struct device_bench_work){.bytes = 2.0 * (double)(n * sizeof(float))}, "");
    device_bench_ring_finish(bench, &c->in);
}

void bench_device_rows(struct device_bench *bench, const struct bench_shape *shape) {
    static const int32_t row_counts[] = {1, 64, 2048, 8192};
    struct context c = {.bench = bench};
    c.weight = device_bench_buffer(bench, DTYPE_F32, 1.0F, (size_t)shape->hidden);
    for (size_t i = 0; i < sizeof(row_counts) / sizeof(row_counts[0]); i++) {
        if (row_counts[i] > shape->max_tokens)
            break;
        c.num_rows = row_counts[i];
        measure_norms(bench, shape, &c);
        measure_activations(bench, shape, &c);
        measure_soft_cap(bench, shape, &c);
    }
    bench->backend->ops->buffer_free(bench->backend, &c.weight);
}
