/* Speed of decode attention (10^9 bytes of cached K and V read per second), of the row-wise ops and
 * of sampling (microseconds per row), with the machine's read bandwidth beside it.
 *
 *   bench_ops [ISA [THREADS]]     default: auto 1
 *
 * Attention goes through the layers of a pool as a model does, so that what it reads is not in the
 * second cache. Best of several repeats, because other work on the machine only ever makes it
 * slower. */
#include "kernels/backend.h"
#include "tests/kernels/machine_limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REPEATS 7
#define Q_HEADS 9
#define KV_HEADS 3
#define HEAD_DIM 64
#define CONTEXT 1024
#define LAYERS 16
#define VOCAB 49152
#define ROWS 32 /* of the row-wise ops; what they touch stays in the second cache */
#define HIDDEN 576
#define FFN 1536
#define ROW_CALLS 50 /* per repeat */

_Noreturn static void fail(const char *message) {
    fprintf(stderr, "bench_ops: %s\n", message);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *p = calloc(1, bytes);
    if (p == NULL)
        fail("out of memory");
    return p;
}

/* With one thread its own processor time, which other work disturbs less. */
static double now(int num_threads) {
    struct timespec t;
    if (num_threads == 1)
        return machine_limits_thread_time();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Logits like a model's: a few tokens stand out of a broad bell. */
static void fill_logits(float *logits, size_t n) {
    uint32_t seed = 1;
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 6; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
        }
        logits[i] = 3 * sum + (seed % 5000 == 0 ? 8 : 0);
    }
}

static void bench_attention(struct backend *b, int num_threads, int32_t num_seqs) {
    struct kv_cache cache = {.layout = {.num_layers = LAYERS,
                                        .num_kv_heads = KV_HEADS,
                                        .head_dim = HEAD_DIM,
                                        .block_size = 16,
                                        .dtype = DTYPE_F16},
                             .num_blocks = num_seqs * CONTEXT / 16};
    size_t bytes = (size_t)cache.num_blocks * kv_block_bytes(&cache.layout);
    if (b->ops->buffer_alloc(b, bytes, &cache.buffer, NULL))
        fail("out of memory");
    for (size_t i = 0; i < bytes / 2; i++)
        ((uint16_t *)cache.buffer.data)[i] = (uint16_t)(0x3000 | (i * 40503 & 0x83ff));
    size_t row = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, n = (size_t)num_seqs;
    float *qkv = allocate(n * row * sizeof(float));
    float *out = allocate(n * Q_HEADS * HEAD_DIM * sizeof(float));
    int32_t *tables = allocate((size_t)cache.num_blocks * sizeof(int32_t));
    int32_t *starts = allocate((n + 1) * sizeof(int32_t)), *lens = allocate(n * sizeof(int32_t));
    for (int32_t s = 0; s < num_seqs; s++)
        starts[s + 1] = s + 1, lens[s] = CONTEXT;
    for (int32_t i = 0; i < cache.num_blocks; i++) /* the blocks of a sequence lie apart */
        tables[i] = i % (CONTEXT / 16) * num_seqs + i / (CONTEXT / 16);
    for (size_t i = 0; i < n * row; i++)
        qkv[i] = (float)(i % 17) - 8;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = num_seqs,
                                                .num_seqs = num_seqs,
                                                .max_blocks_per_seq = CONTEXT / 16,
                                                .query_start = starts,
                                                .context_lens = lens,
                                                .block_tables = tables});
    double best = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double begin = now(num_threads);
        for (int32_t layer = 0; layer < LAYERS; layer++)
            b->ops->paged_attention(b, &(struct attention_args){.qkv = qkv,
                                                                .out = out,
                                                                .cache = &cache,
                                                                .layer = layer,
                                                                .num_q_heads = Q_HEADS,
                                                                .scale = 0.125f});
        best = fmin(best, now(num_threads) - begin);
    }
    printf("attention, %2d x %d tokens: %7.1f us per layer, %5.1f GB/s of %zu MiB\n", num_seqs,
           CONTEXT, best / LAYERS * 1e6, (double)bytes / best * 1e-9, bytes >> 20);
    free(lens);
    free(starts);
    free(tables);
    free(out);
    free(qkv);
    b->ops->buffer_free(b, &cache.buffer);
}

struct row_op {
    const char *name;
    int32_t width;
    void (*call)(struct backend *b, const struct row_op *op, float *x, float *out);
    int32_t num_groups; /* of a norm */
    bool center, accumulate;
    enum activation activation;
};

static void call_norm(struct backend *b, const struct row_op *op, float *x, float *out) {
    b->ops->norm(b, &(struct norm_args){.x = x,
                                        .weight = x,
                                        .out = out,
                                        .num_rows = ROWS,
                                        .row_stride = op->width,
                                        .num_groups = op->num_groups,
                                        .width = op->width / op->num_groups,
                                        .epsilon = 1e-5f,
                                        .center = op->center,
                                        .accumulate = op->accumulate});
}

static void call_act_mul(struct backend *b, const struct row_op *op, float *x, float *out) {
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = x,
                                              .out = out,
                                              .num_rows = ROWS,
                                              .width = op->width,
                                              .activation = op->activation});
}

static void call_soft_cap(struct backend *b, const struct row_op *op, float *x, float *out) {
    b->ops->soft_cap(
        b, &(struct soft_cap_args){.x = x, .num_rows = ROWS, .width = op->width, .cap = 30});
}

static void bench_rows(struct backend *b, int num_threads) {
    static const struct row_op ops[] = {
        {"norm", HIDDEN, call_norm, 1},
        {"norm, added", HIDDEN, call_norm, 1, .accumulate = true},
        {"norm, centered", HIDDEN, call_norm, 1, .center = true},
        {"norm of heads", Q_HEADS * HEAD_DIM, call_norm, Q_HEADS},
        {"silu", FFN, call_act_mul, .activation = ACTIVATION_SILU},
        {"gelu", FFN, call_act_mul, .activation = ACTIVATION_GELU_TANH},
        {"soft cap", FFN, call_soft_cap},
    };
    float *x = allocate(2 * ROWS * FFN * sizeof(float)), *out = allocate(ROWS * FFN * sizeof(*out));
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        double best = 1e9;
        fill_logits(x, 2 * ROWS * FFN);
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            double begin = now(num_threads);
            for (int call = 0; call < ROW_CALLS; call++)
                ops[i].call(b, &ops[i], x, out);
            best = fmin(best, now(num_threads) - begin);
        }
        printf("%-16s %d rows of %4d: %7.3f us per row\n", ops[i].name, ROWS, ops[i].width,
               best / ROW_CALLS / ROWS * 1e6);
    }
    free(out);
    free(x);
}

static void bench_sampling(struct backend *b, int num_threads, const char *name,
                           struct sample_row row, int32_t num_rows) {
    size_t n = (size_t)num_rows;
    float *logits = allocate(n * VOCAB * sizeof(float));
    struct sample_row *rows = allocate(n * sizeof(*rows));
    struct sample_output *out = allocate(n * sizeof(*out));
    fill_logits(logits, n * VOCAB);
    double best = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (size_t r = 0; r < n; r++) {
            rows[r] = row;
            rows[r].position = (uint64_t)repeat * n + r;
        }
        double begin = now(num_threads);
        b->ops->sample(b, &(struct sample_args){.logits = logits,
                                                .num_sample_rows = num_rows,
                                                .vocab_size = VOCAB,
                                                .rows = rows,
                                                .out = out});
        best = fmin(best, now(num_threads) - begin);
    }
    printf("sampling, %2d rows of %d, %-20s %6.1f us per row\n", num_rows, VOCAB, name,
           best / num_rows * 1e6);
    free(out);
    free(rows);
    free(logits);
}

int main(int argc, char **argv) {
    struct error err = {0};
    struct backend_config config = {.isa = argc > 1 ? argv[1] : "auto",
                                    .num_threads = argc > 2 ? atoi(argv[2]) : 1,
                                    .limits.max_num_batched_tokens = 64,
                                    .limits.max_num_seqs = 64};
    struct backend *b = backend_open("cpu", &config, &err);
    if (b == NULL)
        fail(err.message);
    struct machine_limits limits;
    machine_limits_probe(&limits);
    printf("%s; one thread reads %.1f GB/s from 64 MiB, %.1f GB/s from 512 MiB\n", b->description,
           limits.read_64m_gbs, limits.read_512m_gbs);
    bench_attention(b, config.num_threads, 32);
    bench_attention(b, config.num_threads, 1);
    bench_rows(b, config.num_threads);
    struct sample_row greedy = {.target = SAMPLE_NO_TARGET,
                                .num_logprobs = -1,
                                .seed = 7,
                                .settings.top_p = 1,
                                .settings.repetition_penalty = 1,
                                .mask = SAMPLE_NO_MASK};
    struct sample_row all = greedy, top_p = greedy, top_k = greedy, logprobs = greedy;
    all.settings.temperature = top_p.settings.temperature = top_k.settings.temperature = 1;
    top_p.settings.top_p = 0.9f;
    top_k.settings.top_k = 40;
    logprobs.num_logprobs = SAMPLE_MAX_LOGPROBS;
    for (int32_t num_rows = 1; num_rows <= 32; num_rows *= 32) {
        bench_sampling(b, config.num_threads, "greedy", greedy, num_rows);
        bench_sampling(b, config.num_threads, "no filter", all, num_rows);
        bench_sampling(b, config.num_threads, "top_p 0.9", top_p, num_rows);
        bench_sampling(b, config.num_threads, "top_k 40", top_k, num_rows);
        bench_sampling(b, config.num_threads, "greedy, 20 logprobs", logprobs, num_rows);
    }
    backend_close(b);
    return 0;
}
