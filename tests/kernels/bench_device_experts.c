/* A mixture of experts at the shapes of a model's layer. Random logits choose experts; as many sets
 * of choices as there are take turns, so that even one token's weights come from memory: together
 * they go through most experts. */
#include "tests/kernels/bench_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUM_SETS = 16 };

struct context {
    struct device_bench *bench;
    const struct bench_shape *shape;
    int32_t num_tokens;
    struct device_bench_ring logits, choices, tokens, gate_up, acted, out; /* of rows */
    struct matrix *to_gate_up, *to_out;
};

static struct expert_choices choices_of(const struct context *c, int64_t i) {
    return expert_choices_at(device_bench_ring_at(&c->choices, i % NUM_SETS), c->num_tokens,
                             c->shape->chosen, c->shape->experts);
}

static void call_route(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->route(b, &(struct route_args){.logits = device_bench_ring_at(&c->logits, i % NUM_SETS),
                                          .choices = choices_of(c, i),
                                          .num_tokens = c->num_tokens,
                                          .num_experts = c->shape->experts,
                                          .num_chosen = c->shape->chosen,
                                          .num_own = c->shape->experts,
                                          .renormalise = true,
                                          .scale = 1.0F,
                                          .num_groups = 1,
                                          .num_chosen_groups = 1});
}

static void call_product(struct context *c, int64_t i, bool is_out) {
    struct backend *b = c->bench->backend;
    const struct expert_choices choices = choices_of(c, i);
    b->ops->linear_experts(b, &(struct expert_linear_args){
                                  .x = device_bench_ring_at(is_out ? &c->acted : &c->tokens, i),
                                  .per_choice = is_out,
                                  .weight = is_out ? c->to_out : c->to_gate_up,
                                  .choices = &choices,
                                  .out = device_bench_ring_at(is_out ? &c->out : &c->gate_up, i),
                                  .num_tokens = c->num_tokens,
                                  .num_chosen = c->shape->chosen,
                                  .num_own = c->shape->experts});
}

static void call_gate_up(void *context, int64_t i) {
    call_product(context, i, false);
}

static void call_out(void *context, int64_t i) {
    call_product(context, i, true);
}

static void call_combine(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    const struct expert_choices choices = choices_of(c, i);
    b->ops->combine_experts(b, &(struct combine_args){.x = device_bench_ring_at(&c->out, i),
                                                      .choices = &choices,
                                                      .out = device_bench_ring_at(&c->tokens, i),
                                                      .num_tokens = c->num_tokens,
                                                      .num_chosen = c->shape->chosen,
                                                      .num_own = c->shape->experts,
                                                      .width = c->shape->hidden,
                                                      .scale = 1.0F});
}

static struct device_bench_result result_at(const struct device_bench_ring *ring, int64_t i) {
    return (struct device_bench_result){device_bench_ring_at(ring, i), ring->piece_bytes, false};
}

static struct device_bench_result route_result(void *context, int64_t i) {
    return result_at(&((struct context *)context)->choices, i % NUM_SETS);
}

static struct device_bench_result gate_up_result(void *context, int64_t i) {
    return result_at(&((struct context *)context)->gate_up, i);
}

static struct device_bench_result out_result(void *context, int64_t i) {
    return result_at(&((struct context *)context)->out, i);
}

static struct device_bench_result combine_result(void *context, int64_t i) {
    return result_at(&((struct context *)context)->tokens, i);
}

/* The experts that a set chooses, on average. */
static double mean_experts(struct context *c) {
    struct backend *b = c->bench->backend;
    int32_t num = c->shape->experts;
    int32_t *first = device_bench_host((size_t)num + 1, sizeof(*first));
    double sum = 0;
    for (int64_t i = 0; i < NUM_SETS; i++) {
        b->ops->download(b, first, choices_of(c, i).first, ((size_t)num + 1) * sizeof(*first));
        device_bench_wait(c->bench);
        for (int32_t e = 0; e < num; e++)
            sum += first[e + 1] > first[e];
    }
    free(first);
    return sum / NUM_SETS;
}

static struct matrix *expert_matrix(struct device_bench *bench, int32_t num, int32_t rows,
                                    int32_t cols) {
    struct backend *b = bench->backend;
    const size_t elements = (size_t)rows * (size_t)cols;
    void *data = device_bench_host(1, dtype_row_bytes(bench->dtype, elements));
    struct matrix_part *parts = device_bench_host((size_t)num, sizeof(*parts));
    struct matrix *matrix = NULL;
    struct error err = {0};
    device_bench_random(bench->dtype, 1.0F / sqrtf((float)cols), data, elements);
    for (int32_t e = 0; e < num; e++)
        parts[e] = (struct matrix_part){.dtype = bench->dtype, .rows = rows, .data = data};
    if (b->ops->matrix_create(b, parts, num, cols, MATRIX_GROUPED, &matrix, &err) != 0)
        device_bench_fail("experts: %s", err.message);
    free(parts);
    free(data);
    return matrix;
}

/* `x_rows` rows are read. */
static void measure_product(struct context *c, const char *name, int32_t rows, int32_t cols,
                            size_t x_rows, double num_experts, const struct device_bench_job *job) {
    enum dtype dtype = c->bench->backend->activation_dtype;
    size_t n = (size_t)rows, k = (size_t)cols;
    size_t choices = (size_t)c->num_tokens * (size_t)c->shape->chosen;
    struct device_bench_time time = device_bench_run(c->bench, job);
    char text[96];
    snprintf(text, sizeof(text), "%s %d x %zu x %zu, %d of %d", name, c->num_tokens, n, k,
             c->shape->chosen, c->shape->experts);
    const struct device_bench_work work = {
        .bytes = num_experts * (double)dtype_row_bytes(c->bench->dtype, n * k) +
                 (double)dtype_row_bytes(dtype, x_rows * k + choices * n),
        .flops = 2.0 * (double)choices * (double)n * (double)k};
    device_bench_print("linear_experts", text, time, work, "");
}

static void measure_rows(struct context *c, const char *op, size_t bytes,
                         const struct device_bench_job *job) {
    char text[64];
    struct device_bench_time time = device_bench_run(c->bench, job);
    snprintf(text, sizeof(text), "%d x %d, %d of %d", c->num_tokens, c->shape->hidden,
             c->shape->chosen, c->shape->experts);
    device_bench_print(op, text, time, (struct device_bench_work){.bytes = (double)bytes}, "");
}

static void rings_init(struct context *c) {
    struct device_bench *bench = c->bench;
    const struct bench_shape *shape = c->shape;
    enum dtype dtype = bench->backend->activation_dtype;
    size_t tokens = (size_t)c->num_tokens, choices = tokens * (size_t)shape->chosen;
    size_t bytes = expert_choices_bytes(c->num_tokens, shape->chosen, shape->experts);
    struct device_bench sets = *bench; /* a piece for each set, also where it is padded */
    sets.rotate_bytes = NUM_SETS * (tokens * (size_t)shape->experts * sizeof(float) + 256);
    device_bench_ring_init(&sets, DTYPE_F32, 1.0F, tokens * (size_t)shape->experts, &c->logits);
    sets.rotate_bytes = NUM_SETS * (bytes + 256);
    device_bench_ring_init(&sets, DTYPE_F32, 1.0F, bytes / sizeof(float), &c->choices);
    device_bench_ring_init(bench, dtype, 1.0F, tokens * (size_t)shape->hidden, &c->tokens);
    device_bench_ring_init(bench, dtype, 1.0F, choices * 2 * (size_t)shape->expert_ffn,
                           &c->gate_up);
    device_bench_ring_init(bench, dtype, 1.0F, choices * (size_t)shape->expert_ffn, &c->acted);
    device_bench_ring_init(bench, dtype, 1.0F, choices * (size_t)shape->hidden, &c->out);
}

static void rings_finish(struct context *c) {
    device_bench_ring_finish(c->bench, &c->out);
    device_bench_ring_finish(c->bench, &c->acted);
    device_bench_ring_finish(c->bench, &c->gate_up);
    device_bench_ring_finish(c->bench, &c->tokens);
    device_bench_ring_finish(c->bench, &c->choices);
    device_bench_ring_finish(c->bench, &c->logits);
}

static void measure(struct context *c) {
    const struct bench_shape *shape = c->shape;
    const struct device_bench_job route = {c, .call = call_route, .result = route_result};
    const struct device_bench_job gate_up = {c, .call = call_gate_up, .result = gate_up_result};
    const struct device_bench_job out = {c, .call = call_out, .result = out_result};
    const struct device_bench_job combine = {c, .call = call_combine, .result = combine_result};
    size_t tokens = (size_t)c->num_tokens, choices = tokens * (size_t)shape->chosen;
    rings_init(c);
    for (int64_t i = 0; i < NUM_SETS; i++)
        call_route(c, i);
    double num_experts = mean_experts(c);
    measure_rows(c, "route",
                 tokens * (size_t)shape->experts * sizeof(float) + 3 * choices * sizeof(int32_t),
                 &route);
    measure_product(c, "gate_up", 2 * shape->expert_ffn, shape->hidden, tokens, num_experts,
                    &gate_up);
    measure_product(c, "down", shape->hidden, shape->expert_ffn, choices, num_experts, &out);
    measure_rows(c, "combine_experts",
                 dtype_row_bytes(c->bench->backend->activation_dtype,
                                 (choices + tokens) * (size_t)shape->hidden),
                 &combine);
    rings_finish(c);
}

void bench_device_experts(struct device_bench *bench, const struct bench_shape *shape) {
    static const int32_t token_counts[] = {1, 8, 32, 256, 2048};
    struct context c = {.bench = bench, .shape = shape};
    if (shape->experts == 0)
        return;
    c.to_gate_up = expert_matrix(bench, shape->experts, 2 * shape->expert_ffn, shape->hidden);
    c.to_out = expert_matrix(bench, shape->experts, shape->hidden, shape->expert_ffn);
    for (size_t i = 0; i < sizeof(token_counts) / sizeof(token_counts[0]); i++) {
        c.num_tokens = token_counts[i];
        if (c.num_tokens <= shape->max_tokens)
            measure(&c);
    }
    bench->backend->ops->matrix_destroy(bench->backend, c.to_out);
    bench->backend->ops->matrix_destroy(bench->backend, c.to_gate_up);
}
