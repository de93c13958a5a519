/* Sampling of rows of logits shaped like a model's. The temperature is 1 and there are no
 * penalties, so that an op that changes the logits in place leaves them what they were. */
#include "tests/kernels/bench_device.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_CALLS = 8 }; /* of a batch: a step samples once */

struct context {
    struct device_bench *bench;
    int32_t num_rows, vocab;
    struct device_bench_ring logits;
    struct sample_row *rows; /* [MAX_CALLS][num_rows] */
    struct sample_output *out;
};

static void call_sample(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    struct sample_row *rows = c->rows + (i % MAX_CALLS) * c->num_rows;
    for (int32_t r = 0; r < c->num_rows; r++)
        rows[r].position = (uint64_t)i;
    b->ops->sample(b, &(struct sample_args){.logits = device_bench_ring_at(&c->logits, i),
                                            .num_sample_rows = c->num_rows,
                                            .vocab_size = c->vocab,
                                            .rows = rows,
                                            .out = c->out + (i % MAX_CALLS) * c->num_rows});
}

static struct device_bench_result result_of(void *context, int64_t i) {
    const struct context *c = context;
    return (struct device_bench_result){c->out + (i % MAX_CALLS) * c->num_rows,
                                        (size_t)c->num_rows * sizeof(*c->out), true};
}

static void measure(struct context *c, const char *name, const struct sample_row *kind) {
    size_t n = (size_t)c->num_rows;
    c->rows = device_bench_host(n * MAX_CALLS, sizeof(*c->rows));
    c->out = device_bench_host(n * MAX_CALLS, sizeof(*c->out));
    for (size_t i = 0; i < n * MAX_CALLS; i++) {
        c->rows[i] = *kind;
        c->rows[i].seed = i % n;
    }
    const struct device_bench_job job = {
        .context = c, .call = call_sample, .result = result_of, .max_calls = MAX_CALLS};
    char shape[64];
    snprintf(shape, sizeof(shape), "%s %d x %d", name, c->num_rows, c->vocab);
    const struct device_bench_work work = {.bytes = (double)n * (double)c->vocab * sizeof(float)};
    device_bench_print("sample", shape, device_bench_run(c->bench, &job), work, "");
    free(c->rows);
    free(c->out);
}

void bench_device_sample(struct device_bench *bench, const struct bench_shape *shape) {
    static const int32_t row_counts[] = {1, 4, 16, 64, 256};
    const struct sample_row greedy = {.target = SAMPLE_NO_TARGET,
                                      .num_logprobs = -1,
                                      .settings.top_p = 1.0F,
                                      .settings.repetition_penalty = 1.0F,
                                      .mask = SAMPLE_NO_MASK};
    struct sample_row all = greedy, top_p = greedy, top_k = greedy, logprobs = greedy;
    all.settings.temperature = top_p.settings.temperature = top_k.settings.temperature = 1.0F;
    top_p.settings.top_p = 0.9F;
    top_k.settings.top_k = 40;
    top_k.settings.top_p = 0.95F;
    logprobs.num_logprobs = SAMPLE_MAX_LOGPROBS;
    for (size_t i = 0; i < sizeof(row_counts) / sizeof(row_counts[0]); i++) {
        if (row_counts[i] > shape->max_logits)
            break;
        struct context c = {.bench = bench, .num_rows = row_counts[i], .vocab = shape->vocab};
        size_t elements = (size_t)c.num_rows * (size_t)c.vocab;
        device_bench_ring_init(bench, DTYPE_F32, 3.0F, elements, &c.logits);
        measure(&c, "greedy", &greedy);
        measure(&c, "temperature", &all);
        measure(&c, "top_p", &top_p);
        measure(&c, "top_k+top_p", &top_k);
        measure(&c, "20 logprobs", &logprobs);
        device_bench_ring_finish(bench, &c.logits);
    }
}
