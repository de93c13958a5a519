/* The row-wise ops: rows are dealt to the threads in chunks large enough to be worth a hand-over,
 * and a chunk that is all there is runs on the caller. */
#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/cpu_op_kernels.h"
#include "kernels/cpu/memory/cpu_page_ahead.h"

#include <math.h>
#include <string.h>

/* Floats that make a chunk; a few microseconds of work each. */
#define NORM_CHUNK 16384
#define ACT_CHUNK 8192
#define CAP_CHUNK 8192
#define COPY_CHUNK 65536
#define ROPE_CHUNK 8192
#define SUM_SLICE 256 /* columns */

struct op_call {
    const struct cpu_backend *backend;
    const void *args;
};

/* The second half of a norm across ranks. */
struct scale_call {
    const struct cpu_op_kernels *op;
    const struct norm_args *args;
    const double *sums; /* [num_rows] of the squares of all ranks */
};

static void for_rows(struct backend *base, const void *args, int64_t num_rows, int64_t row_floats,
                     int64_t chunk_floats,
                     void (*body)(void *context, int64_t begin, int64_t end, int worker)) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct op_call call = {.backend = b, .args = args};
    thread_pool_for(b->pool, num_rows, chunk_floats / row_floats + 1, body, &call);
}

static void norm_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct op_call *call = context;
    const struct norm_args *args = call->args;
    for (int64_t r = begin; r < end; r++)
        call->backend->op->norm(args, (const float *)args->x + r * args->row_stride,
                                (float *)args->out + r * args->row_stride);
}

static void sum_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct op_call *call = context;
    const struct norm_args *args = call->args;
    double *sums = call->backend->rank.row_sums.data;
    for (int64_t r = begin; r < end; r++)
        sums[r] = call->backend->op->sum_squares((const float *)args->x + r * args->row_stride,
                                                 args->width);
}

static void scale_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct scale_call *call = context;
    const struct norm_args *args = call->args;
    for (int64_t r = begin; r < end; r++) {
        double mean_square = call->sums[r] / args->total_width;
        call->op->norm_scale(args, (const float *)args->x + r * args->row_stride,
                             (float *)args->out + r * args->row_stride,
                             (float)(1 / sqrt(mean_square + args->epsilon)));
    }
}

static void norm_across_ranks(struct cpu_backend *b, const struct norm_args *args) {
    for_rows(&b->base, args, args->num_rows, args->width, NORM_CHUNK, sum_rows);
    struct scale_call call = {
        .op = b->op, .args = args, .sums = cpu_group_sum_rows(&b->rank, args->num_rows)};
    thread_pool_for(b->pool, args->num_rows, NORM_CHUNK / args->width + 1, scale_rows, &call);
}

void cpu_norm(struct backend *b, const struct norm_args *args) {
    if (args->total_width > 0 && ((struct cpu_backend *)b)->rank.group != NULL) {
        norm_across_ranks((struct cpu_backend *)b, args);
        return;
    }
    for_rows(b, args, args->num_rows, args->width, NORM_CHUNK, norm_rows);
}

static void act_mul_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct op_call *call = context;
    const struct act_mul_args *args = call->args;
    for (int64_t r = begin; r < end; r++) {
        const float *gate = (const float *)args->gate_up + r * 2 * args->width;
        call->backend->op->act_mul(args->activation, gate, gate + args->width,
                                   (float *)args->out + r * args->width, args->width);
    }
}

void cpu_act_mul(struct backend *b, const struct act_mul_args *args) {
    for_rows(b, args, args->num_rows, args->width, ACT_CHUNK, act_mul_rows);
}

/* By elements: a row of logits alone is worth several threads. */
static void soft_cap_elements(void *context, int64_t begin, int64_t end, int worker) {
    const struct op_call *call = context;
    const struct soft_cap_args *args = call->args;
    call->backend->op->soft_cap(args->x + begin, end - begin, args->cap);
}

void cpu_soft_cap(struct backend *b, const struct soft_cap_args *args) {
    for_rows(b, args, (int64_t)args->num_rows * args->width, 1, CAP_CHUNK, soft_cap_elements);
}

static void gather(void *context, int64_t begin, int64_t end, int worker) {
    const struct gather_rows_args *args = ((const struct op_call *)context)->args;
    for (int64_t r = begin; r < end; r++)
        memcpy((float *)args->out + r * args->width,
               (const float *)args->x + (int64_t)args->rows[r] * args->width,
               (size_t)args->width * sizeof(float));
}

void cpu_gather_rows(struct backend *b, const struct gather_rows_args *args) {
    for_rows(b, args, args->num_rows, args->width, COPY_CHUNK, gather);
}

static void scatter(void *context, int64_t begin, int64_t end, int worker) {
    const struct scatter_rows_args *args = ((const struct op_call *)context)->args;
    for (int64_t r = begin; r < end; r++)
        memcpy((float *)args->out + (int64_t)args->rows[r] * args->width,
               (const float *)args->x + r * args->width, (size_t)args->width * sizeof(float));
}

void cpu_scatter_rows(struct backend *b, const struct scatter_rows_args *args) {
    for_rows(b, args, args->num_rows, args->width, COPY_CHUNK, scatter);
}

/* An item is a slice of a span's columns, so that one long span is work for every thread. */
static void add_slices(void *context, int64_t begin, int64_t end, int worker) {
    const struct add_rows_args *args = ((const struct op_call *)context)->args;
    int64_t num_slices = (args->width + SUM_SLICE - 1) / SUM_SLICE;
    for (int64_t item = begin; item < end; item++) {
        const struct row_span *span = &args->spans[item / num_slices];
        int64_t first = item % num_slices * SUM_SLICE;
        int64_t left = args->width - first, count = left < SUM_SLICE ? left : SUM_SLICE;
        float *sum = args->sums + item / num_slices * args->width + first;
        const float *row = (const float *)args->x + (int64_t)span->first_row * args->width + first;
        for (int32_t r = 0; r < span->num_rows; r++, row += args->width)
            for (int64_t i = 0; i < count; i++)
                sum[i] += row[i];
    }
}

void cpu_add_rows(struct backend *base, const struct add_rows_args *args) {
    struct op_call call = {.args = args};
    int64_t num_slices = (args->width + SUM_SLICE - 1) / SUM_SLICE;
    thread_pool_for(((struct cpu_backend *)base)->pool, args->num_spans * num_slices, 1, add_slices,
                    &call);
}

/* Element `i` of a token's row goes to place i / pack * stride + i % pack. */
static void scatter_bytes(const uint8_t *row, uint8_t *group, size_t pack, size_t stride, size_t n,
                          uint8_t bias) {
    for (size_t i = 0; i < n; i += pack, group += stride)
        for (size_t j = 0; j < pack; j++)
            group[j] = (uint8_t)(row[i + j] + bias);
}

static void scatter_halves(const uint16_t *row, uint16_t *group, size_t pack, size_t stride,
                           size_t n) {
    for (size_t i = 0; i < n; i += pack, group += stride)
        for (size_t j = 0; j < pack; j++)
            group[j] = row[i + j];
}

static void scatter_floats(const float *row, float *group, size_t stride, size_t n) {
    for (size_t i = 0; i < n; i++, group += stride)
        *group = row[i];
}

/* Spreads one token's K over its lane of the [head_dim / pack][16][pack] group. */
static void scatter_k(enum kv_type type, const void *row, void *group, size_t lane, size_t n) {
    if (type == KV_F32)
        scatter_floats(row, (float *)group + lane, KV_GROUP, n);
    else if (type == KV_F16)
        scatter_halves(row, (uint16_t *)group + lane, 1, KV_GROUP, n);
    else if (type == KV_BF16)
        scatter_halves(row, (uint16_t *)group + 2 * lane, 2, 2 * KV_GROUP, n);
    else if (type == KV_INT8)
        scatter_bytes(row, (uint8_t *)group + 4 * lane, 4, 4 * KV_GROUP, n, KV_CODE_BIAS);
    else
        scatter_bytes(row, (uint8_t *)group + lane, 1, KV_GROUP, n, 0);
}

/* Spreads one token's V over its place of the [16 / pack][head_dim][pack] group. */
static void scatter_v(enum kv_type type, const void *row, void *group, size_t token, size_t n) {
    const size_t pack = KV_PACK(type), at = token / pack * pack * n + token % pack;
    if (type == KV_BF16)
        scatter_halves(row, (uint16_t *)group + at, 1, 2, n);
    else if (type == KV_INT8)
        scatter_bytes(row, (uint8_t *)group + at, 1, 4, n, 0);
    else
        memcpy((char *)group + at * kv_type_bytes(type), row, n * kv_type_bytes(type));
}

/* NULL: the type has none. */
static float *scale_at(const struct kv_layout *l, char *plane, int32_t token) {
    return kv_type_has_scales(l->type) ? (float *)(void *)(plane + kv_scale_offset(l, token))
                                       : NULL;
}

/* Stores a token's K or V of a head. */
static void store_row(const struct cpu_op_kernels *op, const struct kv_cache *cache, int32_t layer,
                      enum kv_part part, int32_t head, int32_t slot, const float *values) {
    const struct kv_layout *l = &cache->layout;
    int32_t block = slot / l->block_size, token = slot % l->block_size;
    size_t lane = (size_t)(token % KV_GROUP), group = kv_row_offset(l, token - (int32_t)lane);
    char *plane = (char *)cache->buffer.data + kv_plane_offset(l, block, layer, part, head);
    float row[KV_MAX_LATENT_ROW];
    op->store(l->type, values, row, scale_at(l, plane, token), l->head_dim);
    (part == KV_PART_K ? scatter_k : scatter_v)(l->type, row, plane + group, lane,
                                                (size_t)l->head_dim);
}

/* Heads follow each other after `stride` elements, of which rotary_dim are rotated. table NULL:
 * none are. */
static void rotate_heads(const struct cpu_op_kernels *op, const float *table, int32_t rotary_dim,
                         bool interleaved, float *heads, int64_t num_heads, int64_t stride) {
    int32_t num_pairs = rotary_dim / 2;
    for (int64_t h = 0; h < num_heads && table != NULL; h++)
        (interleaved ? op->rotate_pairs : op->rotate_halves)(heads + h * stride, table,
                                                             table + num_pairs, num_pairs);
}

static void normalise_heads(const struct cpu_op_kernels *op, const float *weight, float epsilon,
                            float *heads, int64_t num_heads, int32_t head_dim) {
    const struct norm_args args = {.weight = weight, .width = head_dim, .epsilon = epsilon};
    for (int64_t h = 0; h < num_heads && weight != NULL; h++)
        op->norm(&args, heads + h * head_dim, heads + h * head_dim);
}

static void rope_store_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct op_call *call = context;
    const struct rope_store_args *args = call->args;
    const struct cpu_op_kernels *op = call->backend->op;
    const struct step_inputs *step = &call->backend->step;
    const struct kv_layout *l = &args->cache->layout;
    const int32_t *slots = step_slots(step, args->group);
    int64_t num_rotated = args->num_q_heads + l->num_kv_heads;
    int64_t row_floats = (num_rotated + l->num_kv_heads) * l->head_dim;
    for (int64_t t = begin; t < end; t++) {
        float *q = (float *)args->qkv + t * row_floats;
        float *k = q + (int64_t)args->num_q_heads * l->head_dim;
        float *v = k + (int64_t)l->num_kv_heads * l->head_dim;
        normalise_heads(op, args->q_norm, args->norm_epsilon, q, args->num_q_heads, l->head_dim);
        normalise_heads(op, args->k_norm, args->norm_epsilon, k, l->num_kv_heads, l->head_dim);
        if (args->rope_table != NULL)
            rotate_heads(op, args->rope_table + (int64_t)step->positions[t] * args->rotary_dim,
                         args->rotary_dim, args->interleaved, q, num_rotated, l->head_dim);
        for (int32_t h = 0; h < l->num_kv_heads; h++, k += l->head_dim, v += l->head_dim) {
            store_row(op, args->cache, args->layer, KV_PART_K, h, slots[t], k);
            store_row(op, args->cache, args->layer, KV_PART_V, h, slots[t], v);
        }
    }
}

static void store_latent_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct op_call *call = context;
    const struct latent_store_args *args = call->args;
    const struct cpu_op_kernels *op = call->backend->op;
    const struct step_inputs *step = &call->backend->step;
    const int32_t *slots = step_slots(step, args->group);
    const int64_t dim = args->cache->layout.head_dim, turned = args->rotary_dim;
    for (int64_t t = begin; t < end; t++) {
        const float *table =
            args->rope_table != NULL ? args->rope_table + step->positions[t] * turned : NULL;
        float *row = (float *)args->kv + t * dim;
        float *queries = (float *)args->queries + t * args->num_q_heads * dim + dim - turned;
        const float *q =
            (const float *)args->q + (t * args->num_q_heads + 1) * args->q_dim - turned;
        for (int64_t h = 0; h < args->num_q_heads; h++)
            memcpy(queries + h * dim, q + h * args->q_dim, (size_t)turned * sizeof(*q));
        rotate_heads(op, table, args->rotary_dim, args->interleaved, queries, args->num_q_heads,
                     dim);
        rotate_heads(op, table, args->rotary_dim, args->interleaved, row + dim - turned, 1, dim);
        store_row(op, args->cache, args->layer, KV_PART_K, 0, slots[t], row);
    }
}

/* Blocks that were never used are handed out lowest first. */
static void follow_blocks(const struct cpu_backend *b, const struct kv_cache *cache,
                          int32_t group) {
    const int32_t *slots = step_slots(&b->step, group);
    int32_t slot = 0;
    for (int32_t t = 0; t < b->step.num_tokens; t++)
        slot = max_int32(slot, slots[t]);
    size_t num_blocks = (size_t)(slot / cache->layout.block_size) + 1;
    cpu_page_ahead_follow(b->page_ahead, &cache->buffer,
                          num_blocks * kv_block_bytes(&cache->layout));
}

void cpu_store_latent(struct backend *b, const struct latent_store_args *args) {
    const struct kv_layout *l = &args->cache->layout;
    CHECK(kv_layout_is_supported(l) && l->latent_dim + args->rotary_dim == l->head_dim);
    int64_t row_floats = args->rotary_dim * (int64_t)(args->num_q_heads + 1) + l->head_dim;
    if (args->layer == 0)
        follow_blocks((struct cpu_backend *)b, args->cache, args->group);
    for_rows(b, args, ((struct cpu_backend *)b)->step.num_tokens, row_floats, ROPE_CHUNK,
             store_latent_tokens);
}

void cpu_rope_store_kv(struct backend *b, const struct rope_store_args *args) {
    const struct kv_layout *l = &args->cache->layout;
    CHECK(kv_layout_is_supported(l) && l->latent_dim == 0);
    int64_t row_floats = (int64_t)(args->num_q_heads + 2 * l->num_kv_heads) * l->head_dim;
    int32_t num_tokens = ((struct cpu_backend *)b)->step.num_tokens;
    if (args->layer == 0)
        follow_blocks((struct cpu_backend *)b, args->cache, args->group);
    for_rows(b, args, num_tokens, row_floats, ROPE_CHUNK, rope_store_tokens);
}
