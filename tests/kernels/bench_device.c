/* Speed of a device's ops at the shapes of a model, one line of JSON for each (device_bench.h):
 *
 *   bench_device DEVICE bf16|f16 [OPTION VALUE]...
 *
 *   hidden heads kv-heads head-dim ffn vocab layers   the model; default: a tiny one
 *   experts chosen expert-ffn   its mixture of experts; 0 experts: none
 *   max-tokens max-seqs max-context max-logits     what is larger is left out
 *   pool-mib          of the KV cache; what needs more is left out
 *   kv-type           of the KV cache: f32, f16, bf16, int8 or fp8; default: the second argument,
 * or what the device takes instead rotate-mib        memory that calls go through before they come
 * back to the same; default: 256, more than a cache holds batch-us          length of a timed batch
 *   batch-invariant   1: the device is opened so
 *   isa               of the CPU or the GPU; default: auto
 *   threads           of the CPU; default: one per core. With one thread its own processor
 *                     time is measured, which other work on the machine disturbs less
 *   only              linear, experts, rows, kv or sample: this group alone
 *
 * On "cuda-sim" it shows only that every op runs at these shapes. */
#include "kernels/kv_type.h"
#include "tests/kernels/bench_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    struct bench_shape shape;
    int64_t pool_mib, rotate_mib, batch_us, batch_invariant, threads;
    const char *only, *isa, *kv_type;
};

static const struct settings defaults = {
    .shape = {.hidden = 64,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 64,
              .ffn = 96,
              .vocab = 320,
              .layers = 2,
              .experts = 6,
              .chosen = 2,
              .expert_ffn = 40,
              .max_tokens = 32,
              .max_seqs = 4,
              .max_context = 128,
              .max_logits = 4},
    .pool_mib = 1,
    .rotate_mib = 256,
    .batch_us = 10000,
};

static int64_t read_number(const char *name, const char *text, int64_t most) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 0 || value > most)
        device_bench_fail("%s: %s (allowed: 0 to %lld)", name, text, (long long)most);
    return value;
}

static void read_setting(struct settings *s, const char *name, const char *text) {
    const struct {
        const char *name;
        int32_t *value;
    } sizes[] = {{"hidden", &s->shape.hidden},
                 {"heads", &s->shape.heads},
                 {"kv-heads", &s->shape.kv_heads},
                 {"head-dim", &s->shape.head_dim},
                 {"ffn", &s->shape.ffn},
                 {"vocab", &s->shape.vocab},
                 {"layers", &s->shape.layers},
                 {"experts", &s->shape.experts},
                 {"chosen", &s->shape.chosen},
                 {"expert-ffn", &s->shape.expert_ffn},
                 {"max-tokens", &s->shape.max_tokens},
                 {"max-seqs", &s->shape.max_seqs},
                 {"max-context", &s->shape.max_context},
                 {"max-logits", &s->shape.max_logits}};
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"pool-mib", &s->pool_mib},
                   {"rotate-mib", &s->rotate_mib},
                   {"batch-us", &s->batch_us},
                   {"batch-invariant", &s->batch_invariant},
                   {"threads", &s->threads}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(name, sizes[i].name) == 0) {
            *sizes[i].value = (int32_t)read_number(name, text, 1 << 20);
            return;
        }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = read_number(name, text, 1 << 24);
            return;
        }
    if (strcmp(name, "only") == 0)
        s->only = text;
    else if (strcmp(name, "isa") == 0)
        s->isa = text;
    else if (strcmp(name, "kv-type") == 0)
        s->kv_type = text;
    else
        device_bench_fail("unknown option %s", name);
}

static void read_settings(struct settings *s, int argc, char **argv) {
    *s = defaults;
    if (argc > 3 && argc % 2 == 0)
        device_bench_fail("option %s has no value", argv[argc - 1]);
    for (int i = 3; i + 1 < argc; i += 2)
        read_setting(s, argv[i], argv[i + 1]);
    const struct bench_shape *shape = &s->shape;
    if (shape->hidden < 1 || shape->kv_heads < 1 || shape->heads < 1 ||
        shape->heads % shape->kv_heads != 0 || shape->head_dim < 1 ||
        shape->head_dim % KV_HEAD_DIM_STEP != 0 || shape->head_dim > KV_MAX_HEAD_DIM ||
        shape->ffn < 1 || shape->vocab < 1 || shape->layers < 1 || shape->max_tokens < 1 ||
        shape->max_seqs < 1 || shape->max_context < 1 || shape->max_logits < 1)
        device_bench_fail("a size is zero, kv-heads does not divide heads, or head-dim %d is not a "
                          "multiple of %d up to %d",
                          shape->head_dim, KV_HEAD_DIM_STEP, KV_MAX_HEAD_DIM);
    if (shape->experts > EXPERTS_MAX || shape->chosen < 1 || shape->chosen > EXPERTS_MAX_CHOSEN ||
        (shape->experts > 0 && shape->chosen > shape->experts) || shape->expert_ffn < 1)
        device_bench_fail("%d experts, %d of them chosen: at most %d, and %d", shape->experts,
                          shape->chosen, EXPERTS_MAX, EXPERTS_MAX_CHOSEN);
    s->shape.pool_bytes = (size_t)s->pool_mib << 20;
}

static enum kv_type choose_kv_type(const struct device_bench *bench, const char *name) {
    const struct backend *b = bench->backend;
    if (name == NULL)
        return backend_kv_type(b, kv_type_of_dtype(bench->dtype));
    enum kv_type type = kv_type_of(name);
    if (type >= NUM_KV_TYPES || (b->kv_types & KV_TYPE_BIT(type)) == 0)
        device_bench_fail("kv-type: %s has no KV cache of %s", b->name, name);
    return type;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(struct device_bench *bench, const struct bench_shape *shape);
    } groups[] = {{"linear", bench_device_linear},
                  {"experts", bench_device_experts},
                  {"rows", bench_device_rows},
                  {"kv", bench_device_kv},
                  {"sample", bench_device_sample}};
    struct settings s;
    struct device_bench bench;
    read_settings(&s, argc, argv);
    struct bench_shape *shape = &s.shape;
    int32_t blocks = (shape->max_context + BENCH_BLOCK_SIZE - 1) / BENCH_BLOCK_SIZE;
    const struct backend_config config = {.limits.max_num_batched_tokens = shape->max_tokens,
                                          .limits.max_num_seqs = shape->max_seqs,
                                          .limits.max_model_len = blocks,
                                          .limits.block_size = 1,
                                          .limits.max_logit_rows = shape->max_logits,
                                          .limits.vocab_size = shape->vocab,
                                          .head_dim = shape->head_dim,
                                          .num_q_heads = shape->heads,
                                          .num_kv_heads = shape->kv_heads,
                                          .batch_invariant = s.batch_invariant != 0,
                                          .isa = s.isa,
                                          .num_threads = (int)s.threads};
    device_bench_open(&bench, argc, argv, &config);
    bench.rotate_bytes = (size_t)s.rotate_mib << 20;
    bench.batch_seconds = 1e-6 * (double)s.batch_us;
    shape->kv_type = choose_kv_type(&bench, s.kv_type);
    fprintf(stderr, "%s: %s\n", bench.backend->name, bench.backend->description);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (s.only == NULL || strcmp(s.only, groups[i].name) == 0)
            groups[i].run(&bench, shape);
    device_bench_close(&bench);
    return 0;
}
