/* Private to bench_device: the shape of a model, and one function per group of ops, each of which
 * prints its lines. */
#ifndef QUIRE_TESTS_KERNELS_BENCH_DEVICE_H
#define QUIRE_TESTS_KERNELS_BENCH_DEVICE_H

#include "tests/kernels/device_bench.h"

enum { BENCH_BLOCK_SIZE = 16 };

struct bench_shape {
    int32_t hidden, heads, kv_heads, head_dim, ffn, vocab, layers;
    int32_t experts, chosen, expert_ffn; /* of a layer, and of a token; experts 0: none */
    int32_t max_tokens;                  /* of a step */
    int32_t max_seqs;                    /* of a step */
    int32_t max_context;                 /* of a sequence */
    int32_t max_logits;                  /* rows of logits */
    size_t pool_bytes;                   /* of the KV cache */
    enum kv_type kv_type;
};

void bench_device_linear(struct device_bench *bench, const struct bench_shape *shape);
void bench_device_experts(struct device_bench *bench, const struct bench_shape *shape);
void bench_device_rows(struct device_bench *bench, const struct bench_shape *shape);
void bench_device_kv(struct device_bench *bench, const struct bench_shape *shape);
void bench_device_sample(struct device_bench *bench, const struct bench_shape *shape);

#endif
