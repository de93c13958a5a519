/* The ops on the KV cache. One pool of random numbers serves all cases, laid out anew for each, so
 * that its last element is never further than what was filled. A case gets as many layers as make
 * the pool's used part larger than a cache, and goes through them as a model does. */
#include "kernels/kv_type.h"
#include "tests/kernels/bench_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_LAYERS = 64 };

/* Sequences of a step that are alike: `query` new tokens, the last of `context`. */
struct group {
    int32_t num_seqs, query, context;
};

struct context {
    struct device_bench *bench;
    const struct bench_shape *shape;
    struct kv_cache cache; /* buffer: the pool */
    struct step_inputs step;
    struct buffer rope_table;
    struct device_bench_ring qkv, out;
    struct buffer host_pool;
    int32_t *ids; /* 0, 1, 2, ... as many as the pool has blocks */
    int32_t num_moved;
    enum swap_direction direction;
};

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t num_blocks(int32_t tokens) {
    return (tokens + BENCH_BLOCK_SIZE - 1) / BENCH_BLOCK_SIZE;
}

static int32_t qkv_width(const struct bench_shape *shape) {
    return (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

/* --- A step --- */

/* False when the step or its cache is larger than the shape allows. */
static bool lay_out(struct context *c, const struct group groups[2]) {
    const struct bench_shape *shape = c->shape;
    int64_t tokens = 0, seqs = 0, blocks = 0;
    for (int g = 0; g < 2; g++) {
        if (groups[g].num_seqs > 0 &&
            (groups[g].query < 1 || groups[g].context > shape->max_context))
            return false;
        tokens += (int64_t)groups[g].num_seqs * groups[g].query;
        seqs += groups[g].num_seqs;
        blocks += (int64_t)groups[g].num_seqs * num_blocks(groups[g].context);
    }
    if (tokens > shape->max_tokens || seqs > shape->max_seqs)
        return false;
    struct kv_layout *layout = &c->cache.layout;
    layout->num_layers = 1;
    size_t layer_bytes = (size_t)blocks * kv_block_bytes(layout);
    size_t fitting = shape->pool_bytes / layer_bytes;
    size_t wanted = 1 + c->bench->rotate_bytes / layer_bytes;
    size_t layers = fitting < wanted ? fitting : wanted;
    layout->num_layers = layers < MAX_LAYERS ? (int32_t)layers : MAX_LAYERS;
    c->cache.num_blocks = (int32_t)blocks;
    return layers > 0;
}

/* Every block once, in no order. */
static void scramble(int32_t *ids, int32_t count) {
    uint64_t seed = 1;
    for (int32_t i = 0; i < count; i++)
        ids[i] = i;
    for (int32_t i = count - 1; i > 0; i--) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        int32_t other = (int32_t)((seed >> 33) % (uint64_t)(i + 1)), kept = ids[i];
        ids[i] = ids[other];
        ids[other] = kept;
    }
}

/* The arrays of a step, writable. */
struct arrays {
    int32_t *token_ids, *positions, *slots, *starts, *lens, *tables;
};

static void append(struct step_inputs *step, const struct arrays *a, const struct group *group,
                   const int32_t *blocks) {
    int32_t seq = step->num_seqs++;
    int32_t *table = a->tables + (size_t)seq * (size_t)step->max_blocks_per_seq;
    for (int32_t i = 0; i < num_blocks(group->context); i++)
        table[i] = blocks[i];
    for (int32_t i = 0; i < group->query; i++) {
        int32_t at = step->num_tokens++, position = group->context - group->query + i;
        a->positions[at] = position;
        a->slots[at] =
            table[position / BENCH_BLOCK_SIZE] * BENCH_BLOCK_SIZE + position % BENCH_BLOCK_SIZE;
    }
    a->lens[seq] = group->context;
    a->starts[seq + 1] = step->num_tokens;
}

static void build_step(struct context *c, const struct group groups[2]) {
    size_t tokens = (size_t)c->shape->max_tokens, seqs = (size_t)c->shape->max_seqs;
    int32_t longest = groups[0].context > groups[1].context ? groups[0].context : groups[1].context;
    int32_t row = num_blocks(longest), next = 0;
    const struct arrays a = {.token_ids = device_bench_host(tokens, sizeof(int32_t)),
                             .positions = device_bench_host(tokens, sizeof(int32_t)),
                             .slots = device_bench_host(tokens, sizeof(int32_t)),
                             .starts = device_bench_host(seqs + 1, sizeof(int32_t)),
                             .lens = device_bench_host(seqs, sizeof(int32_t)),
                             .tables = device_bench_host(seqs * (size_t)row, sizeof(int32_t))};
    int32_t *blocks = device_bench_host((size_t)c->cache.num_blocks, sizeof(int32_t));
    scramble(blocks, c->cache.num_blocks);
    c->step = (struct step_inputs){.max_blocks_per_seq = row,
                                   .token_ids = a.token_ids,
                                   .positions = a.positions,
                                   .slot_mapping = a.slots,
                                   .query_start = a.starts,
                                   .context_lens = a.lens,
                                   .block_tables = a.tables};
    for (int g = 0; g < 2; g++)
        for (int32_t s = 0; s < groups[g].num_seqs; s++) {
            append(&c->step, &a, &groups[g], blocks + next);
            next += num_blocks(groups[g].context);
        }
    free(blocks);
}

static void free_step(const struct step_inputs *step) {
    free((void *)step->token_ids);
    free((void *)step->positions);
    free((void *)step->slot_mapping);
    free((void *)step->query_start);
    free((void *)step->context_lens);
    free((void *)step->block_tables);
}

/* --- Attention and rope --- */

static void call_attention(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->paged_attention(
        b, &(struct attention_args){.qkv = device_bench_ring_at(&c->qkv, i),
                                    .out = device_bench_ring_at(&c->out, i),
                                    .cache = &c->cache,
                                    .layer = (int32_t)(i % c->cache.layout.num_layers),
                                    .num_q_heads = c->shape->heads,
                                    .scale = 1.0F / sqrtf((float)c->shape->head_dim)});
}

static void call_rope(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->rope_store_kv(
        b, &(struct rope_store_args){.qkv = device_bench_ring_at(&c->qkv, i),
                                     .rope_table = c->rope_table.data,
                                     .cache = &c->cache,
                                     .layer = (int32_t)(i % c->cache.layout.num_layers),
                                     .num_q_heads = c->shape->heads,
                                     .rotary_dim = c->shape->head_dim,
                                     .interleaved = true});
}

static struct device_bench_result attention_result(void *context, int64_t i) {
    const struct context *c = context;
    return (struct device_bench_result){device_bench_ring_at(&c->out, i), c->out.piece_bytes,
                                        false};
}

static struct device_bench_result rope_result(void *context, int64_t i) {
    const struct context *c = context;
    return (struct device_bench_result){device_bench_ring_at(&c->qkv, i), c->qkv.piece_bytes,
                                        false};
}

/* The first layer's attention plans the step; the others find the plan there. */
static void begin_step(void *context) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->step_begin(b, &c->step);
    call_attention(c, 0);
}

/* K and V of one token in one layer. */
static double token_bytes(const struct context *c) {
    return (double)kv_layer_bytes(&c->cache.layout) / BENCH_BLOCK_SIZE;
}

static void print_attention(const struct context *c, const char *name, const struct group groups[2],
                            struct device_bench_time time) {
    double pairs = 0.0, cached = 0.0, width = (double)c->shape->heads * c->shape->head_dim;
    for (int g = 0; g < 2; g++) {
        double n = groups[g].num_seqs, query = groups[g].query, context = groups[g].context;
        pairs += n * (query * (context - query) + query * (query + 1.0) / 2.0);
        cached += n * context;
    }
    double element = (double)dtype_row_bytes(c->bench->backend->activation_dtype, 1);
    double bytes = cached * token_bytes(c) + 2.0 * c->step.num_tokens * width * element;
    char shape[96];
    int used = snprintf(shape, sizeof(shape), "%s %d x %d of %d", name, groups[0].num_seqs,
                        groups[0].query, groups[0].context);
    if (groups[1].num_seqs > 0)
        snprintf(shape + used, sizeof(shape) - (size_t)used, " + %d x %d of %d", groups[1].num_seqs,
                 groups[1].query, groups[1].context);
    const struct device_bench_work work = {.bytes = bytes, .flops = 4.0 * pairs * width};
    device_bench_print("paged_attention", shape, time, work, "");
}

static void print_rope(const struct context *c, const char *name, const struct group *group,
                       struct device_bench_time time) {
    double element = (double)dtype_row_bytes(c->bench->backend->activation_dtype, 1);
    double row =
        element * (qkv_width(c->shape) + c->shape->heads * c->shape->head_dim) + token_bytes(c);
    char shape[96];
    snprintf(shape, sizeof(shape), "%s %d x %d of %d", name, group->num_seqs, group->query,
             group->context);
    device_bench_print("rope_store_kv", shape, time,
                       (struct device_bench_work){.bytes = row * c->step.num_tokens}, "");
}

static void measure_step(struct context *c, const char *name, const struct group groups[2],
                         bool with_rope) {
    if (!lay_out(c, groups))
        return;
    build_step(c, groups);
    enum dtype dtype = c->bench->backend->activation_dtype;
    size_t tokens = (size_t)c->step.num_tokens;
    size_t q_width = (size_t)c->shape->heads * (size_t)c->shape->head_dim;
    device_bench_ring_init(c->bench, dtype, 1.0F, tokens * (size_t)qkv_width(c->shape), &c->qkv);
    device_bench_ring_init(c->bench, dtype, 1.0F, tokens * q_width, &c->out);
    const struct device_bench_job attention = {
        .context = c, .begin = begin_step, .call = call_attention, .result = attention_result};
    print_attention(c, name, groups, device_bench_run(c->bench, &attention));
    if (with_rope) {
        const struct device_bench_job rope = {
            .context = c, .begin = begin_step, .call = call_rope, .result = rope_result};
        print_rope(c, name, &groups[0], device_bench_run(c->bench, &rope));
    }
    device_bench_ring_finish(c->bench, &c->qkv);
    device_bench_ring_finish(c->bench, &c->out);
    free_step(&c->step);
}

static void bench_steps(struct context *c) {
    static const int32_t batches[] = {1, 4, 16, 64, 256};
    static const int32_t contexts[] = {128, 1024, 4096, 8192, 32768};
    static const int32_t prompts[] = {32, 512, 2048, 8192};
    for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
        for (size_t k = 0; k < sizeof(contexts) / sizeof(contexts[0]); k++)
            measure_step(c, "decode", (struct group[2]){{batches[b], 1, contexts[k]}}, k == 0);
    for (size_t p = 0; p < sizeof(prompts) / sizeof(prompts[0]); p++)
        measure_step(c, "prefill", (struct group[2]){{1, prompts[p], prompts[p]}}, true);
    measure_step(c, "chunk", (struct group[2]){{1, 512, 8192}}, false);
    int32_t decodes = smaller(c->shape->max_seqs - 1, 63);
    int32_t prompt = smaller(smaller(c->shape->max_tokens - decodes, 2048), c->shape->max_context);
    measure_step(
        c, "mixed",
        (struct group[2]){{decodes, 1, smaller(1024, c->shape->max_context)}, {1, prompt, prompt}},
        false);
}

/* --- Blocks --- */

/* Where call i's blocks start, each call's 2 num_moved blocks after the last's. */
static int32_t first_block(const struct context *c, int64_t i) {
    int32_t per_call = 2 * c->num_moved;
    return (int32_t)(i % (c->cache.num_blocks / per_call)) * per_call;
}

static void call_copy(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    int32_t first = first_block(c, i);
    b->ops->copy_blocks(b, &(struct copy_blocks_args){.cache = &c->cache,
                                                      .src = c->ids + first,
                                                      .dst = c->ids + first + c->num_moved,
                                                      .num_blocks = c->num_moved});
}

static void call_swap(void *context, int64_t i) {
    struct context *c = context;
    struct backend *b = c->bench->backend;
    b->ops->swap_blocks(b, &(struct swap_blocks_args){.cache = &c->cache,
                                                      .host_pool = c->host_pool.data,
                                                      .direction = c->direction,
                                                      .device_blocks = c->ids + first_block(c, i),
                                                      .host_blocks = c->ids,
                                                      .num_blocks = c->num_moved});
}

static struct device_bench_result copy_result(void *context, int64_t i) {
    const struct context *c = context;
    size_t block_bytes = kv_block_bytes(&c->cache.layout);
    size_t first = (size_t)first_block(c, i) + (size_t)c->num_moved;
    return (struct device_bench_result){(char *)c->cache.buffer.data + first * block_bytes,
                                        (size_t)c->num_moved * block_bytes, false};
}

static struct device_bench_result swap_result(void *context, int64_t i) {
    const struct context *c = context;
    size_t block_bytes = kv_block_bytes(&c->cache.layout);
    size_t bytes = (size_t)c->num_moved * block_bytes;
    if (c->direction == SWAP_OUT)
        return (struct device_bench_result){c->host_pool.data, bytes, true};
    size_t first = (size_t)first_block(c, i);
    return (struct device_bench_result){(char *)c->cache.buffer.data + first * block_bytes, bytes,
                                        false};
}

static void measure_moves(struct context *c) {
    static const char *const names[] = {[SWAP_OUT] = "swap_out", [SWAP_IN] = "swap_in"};
    struct backend *b = c->bench->backend;
    struct error err = {0};
    size_t block_bytes = kv_block_bytes(&c->cache.layout);
    double bytes = (double)c->num_moved * (double)block_bytes;
    char shape[64];
    snprintf(shape, sizeof(shape), "%d x %zu bytes", c->num_moved, block_bytes);
    struct device_bench_job job = {
        .context = c, .call = call_copy, .result = copy_result, .max_calls = 64};
    device_bench_print("copy_blocks", shape, device_bench_run(c->bench, &job),
                       (struct device_bench_work){.bytes = 2.0 * bytes}, "");
    if (b->ops->host_alloc(b, (size_t)c->num_moved * block_bytes, &c->host_pool, &err) != 0)
        device_bench_fail("%s", err.message);
    job.call = call_swap;
    job.result = swap_result;
    for (c->direction = SWAP_OUT; c->direction <= SWAP_IN; c->direction++)
        device_bench_print(names[c->direction], shape, device_bench_run(c->bench, &job),
                           (struct device_bench_work){.bytes = bytes}, "");
    b->ops->host_free(b, &c->host_pool);
}

static void bench_moves(struct context *c) {
    static const int32_t counts[] = {1, 16, 64};
    c->cache.layout.num_layers = c->shape->layers;
    c->cache.num_blocks = (int32_t)(c->shape->pool_bytes / kv_block_bytes(&c->cache.layout));
    c->ids = device_bench_host((size_t)c->cache.num_blocks, sizeof(int32_t));
    for (int32_t i = 0; i < c->cache.num_blocks; i++)
        c->ids[i] = i;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        c->num_moved = counts[i];
        if (2 * c->num_moved <= c->cache.num_blocks)
            measure_moves(c);
    }
    free(c->ids);
}

void bench_device_kv(struct device_bench *bench, const struct bench_shape *shape) {
    struct context c = {.bench = bench, .shape = shape};
    c.cache.layout = (struct kv_layout){.num_kv_heads = shape->kv_heads,
                                        .head_dim = shape->head_dim,
                                        .block_size = BENCH_BLOCK_SIZE,
                                        .type = shape->kv_type};
    /* Codes are whatever the bytes of floats are; scales lie where floats do. */
    enum dtype dtype =
        kv_type_has_scales(shape->kv_type) ? DTYPE_F32 : kv_type_dtype(shape->kv_type);
    size_t elements = shape->pool_bytes / dtype_row_bytes(dtype, 1);
    c.cache.buffer = device_bench_buffer(bench, dtype, 1.0F, elements);
    size_t angles = (size_t)shape->max_context * (size_t)shape->head_dim;
    c.rope_table = device_bench_buffer(bench, DTYPE_F32, 0.4F, angles);
    bench_steps(&c);
    bench_moves(&c);
    bench->backend->ops->buffer_free(bench->backend, &c.rope_table);
    bench->backend->ops->buffer_free(bench->backend, &c.cache.buffer);
}
