/* The oracle's rotary embedding, KV store and attention. One head of a block is kept as
 * [token][head_dim] for K and V alike. */
#include "config/base/check.h"
#include "kernels/cpu/ref/cpu_ref_private.h"
#include "kernels/kv_type.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One cached token of a head. */
struct cached_row {
    char *elements; /* [head_dim] */
    float *scale;   /* NULL: the type has none */
};

static struct cached_row cached_row(const struct kv_cache *cache, int32_t layer, enum kv_part part,
                                    int32_t head, int32_t slot) {
    const struct kv_layout *l = &cache->layout;
    int32_t token = slot % l->block_size;
    char *plane =
        (char *)cache->buffer.data + kv_plane_offset(l, slot / l->block_size, layer, part, head);
    float *scale = NULL;
    if (kv_type_has_scales(l->type))
        scale = (float *)(void *)(plane + kv_scale_offset(l, token));
    return (struct cached_row){plane + kv_row_offset(l, token), scale};
}

static void write_row(const struct kv_cache *cache, int32_t layer, enum kv_part part, int32_t head,
                      int32_t slot, const float *values) {
    struct cached_row row = cached_row(cache, layer, part, head, slot);
    kv_row_from_f32(cache->layout.type, values, row.elements, row.scale,
                    (size_t)cache->layout.head_dim);
}

/* Of V, kv_value_dim elements count. */
static void read_row(const struct kv_cache *cache, int32_t layer, enum kv_part part, int32_t head,
                     int32_t slot, float *values) {
    struct cached_row row = cached_row(cache, layer, part, head, slot);
    kv_row_to_f32(cache->layout.type, row.elements, row.scale, values,
                  (size_t)cache->layout.head_dim);
}

static void rotate(float *head, const float *table_row, int32_t rotary_dim, bool interleaved) {
    int32_t half = rotary_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        float *a = interleaved ? &head[2 * i] : &head[i];
        float *b = interleaved ? &head[2 * i + 1] : &head[i + half];
        double c = table_row[i], s = table_row[half + i];
        double rotated_a = *a * c - *b * s;
        double rotated_b = *a * s + *b * c;
        *a = (float)rotated_a;
        *b = (float)rotated_b;
    }
}

/* Each head for itself; weight NULL: nothing is done. */
static void normalise_heads(struct backend *b, const struct rope_store_args *args,
                            const float *weight, float *heads, int32_t num_heads) {
    const int32_t dim = args->cache->layout.head_dim;
    if (weight != NULL)
        b->ops->norm(b, &(struct norm_args){.x = heads,
                                            .weight = weight,
                                            .out = heads,
                                            .num_rows = num_heads,
                                            .row_stride = dim,
                                            .width = dim,
                                            .epsilon = args->norm_epsilon});
}

void cpu_ref_rope_store_kv(struct backend *b, const struct rope_store_args *args) {
    const struct step_inputs *step = &((struct cpu_ref *)b)->step;
    const struct kv_layout *l = &args->cache->layout;
    int32_t num_heads = args->num_q_heads + 2 * l->num_kv_heads;
    size_t dim = (size_t)l->head_dim;
    for (int32_t t = 0; t < step->num_tokens; t++) {
        float *q = (float *)args->qkv + (size_t)t * (size_t)num_heads * dim;
        float *k = q + (size_t)args->num_q_heads * dim;
        float *v = k + (size_t)l->num_kv_heads * dim;
        int32_t slot = step_slots(step, args->group)[t];
        normalise_heads(b, args, args->q_norm, q, args->num_q_heads);
        normalise_heads(b, args, args->k_norm, k, l->num_kv_heads);
        for (int32_t h = 0; args->rope_table && h < args->num_q_heads + l->num_kv_heads; h++)
            rotate(q + (size_t)h * dim,
                   args->rope_table + (size_t)step->positions[t] * (size_t)args->rotary_dim,
                   args->rotary_dim, args->interleaved);
        for (int32_t h = 0; h < l->num_kv_heads; h++) {
            write_row(args->cache, args->layer, KV_PART_K, h, slot, k + (size_t)h * dim);
            write_row(args->cache, args->layer, KV_PART_V, h, slot, v + (size_t)h * dim);
        }
    }
}

void cpu_ref_store_latent(struct backend *b, const struct latent_store_args *args) {
    const struct step_inputs *step = &((struct cpu_ref *)b)->step;
    size_t dim = (size_t)args->cache->layout.head_dim, turned = (size_t)args->rotary_dim;
    size_t num_heads = (size_t)args->num_q_heads, q_dim = (size_t)args->q_dim;
    for (size_t t = 0; t < (size_t)step->num_tokens; t++) {
        float *row = (float *)args->kv + t * dim;
        const float *table = args->rope_table;
        if (table != NULL) {
            table += (size_t)step->positions[t] * turned;
            rotate(row + dim - turned, table, args->rotary_dim, args->interleaved);
        }
        write_row(args->cache, args->layer, KV_PART_K, 0, step_slots(step, args->group)[t], row);
        for (size_t h = t * num_heads; h < (t + 1) * num_heads; h++) {
            float *out = (float *)args->queries + h * dim + dim - turned;
            memcpy(out, (const float *)args->q + h * q_dim + q_dim - turned, turned * sizeof(*out));
            if (table != NULL)
                rotate(out, table, args->rotary_dim, args->interleaved);
        }
    }
}

/* The product of a rotated query with the rotated bias of the position. */
static double bias_score(const struct key_biases *biases, int32_t kv_head, const float *q,
                         int32_t position) {
    const struct key_bias *bias = &biases->heads[kv_head];
    int32_t half = biases->rotary_dim / 2;
    double sum = 0;
    for (int32_t i = 0; i < bias->num_pairs; i++) {
        int32_t pair = bias->pairs[i];
        const float *q_pair = biases->interleaved ? q + (size_t)pair * 2 : q + pair;
        double q0 = q_pair[0], q1 = q_pair[biases->interleaved ? 1 : half];
        double b0 = bias->values[i][0], b1 = bias->values[i][1];
        const float *column = biases->rope_columns + (size_t)pair * (size_t)biases->stride;
        double c = column[position], s = column[(size_t)half * (size_t)biases->stride + position];
        sum += q0 * (b0 * c - b1 * s) + q1 * (b0 * s + b1 * c);
    }
    return sum;
}

/* Query head `head` over those of the first `length` cached tokens of its sequence that the window
 * leaves. `scores` [length], `row` [head_dim], `sums` [head_dim] are scratch. */
static void attend(const struct attention_args *args, const int32_t *block_table, int32_t head,
                   int32_t length, const float *q, double *scores, float *row, double *sums,
                   float *out) {
    const struct kv_layout *l = &args->cache->layout;
    int32_t kv_head = head / (args->num_q_heads / l->num_kv_heads);
    int32_t first = args->window > 0 && length > args->window ? length - args->window : 0;
    double sink = args->sinks != NULL ? args->sinks[head] : -INFINITY, max = sink;
    for (int32_t t = first; t < length; t++) {
        int32_t slot = block_table[t / l->block_size] * l->block_size + t % l->block_size;
        read_row(args->cache, args->layer, KV_PART_K, kv_head, slot, row);
        double dot = 0;
        for (int32_t d = 0; d < l->head_dim; d++)
            dot += (double)q[d] * row[d];
        if (args->key_biases != NULL)
            dot += bias_score(args->key_biases, kv_head, q, t);
        scores[t] = dot * args->scale;
        if (args->soft_cap > 0)
            scores[t] = args->soft_cap * tanh(scores[t] / args->soft_cap);
        max = fmax(max, scores[t]);
    }
    double total = exp(sink - max);
    const int32_t value_dim = kv_value_dim(l);
    memset(sums, 0, (size_t)value_dim * sizeof(*sums));
    for (int32_t t = first; t < length; t++) {
        int32_t slot = block_table[t / l->block_size] * l->block_size + t % l->block_size;
        read_row(args->cache, args->layer, KV_PART_V, kv_head, slot, row);
        double p = exp(scores[t] - max);
        total += p;
        for (int32_t d = 0; d < value_dim; d++)
            sums[d] += p * row[d];
    }
    for (int32_t d = 0; d < value_dim; d++)
        out[d] = (float)(sums[d] / total);
}

void cpu_ref_paged_attention(struct backend *b, const struct attention_args *args) {
    const struct step_inputs *step = &((struct cpu_ref *)b)->step;
    const struct kv_layout *l = &args->cache->layout;
    size_t dim = (size_t)l->head_dim;
    size_t row_floats = (size_t)kv_query_row(l, args->num_q_heads);
    int32_t longest = 0;
    for (int32_t s = 0; s < step->num_seqs; s++)
        longest = step->context_lens[s] > longest ? step->context_lens[s] : longest;
    double *scores = malloc((size_t)longest * sizeof(*scores));
    double *sums = malloc(dim * sizeof(*sums));
    float *row = malloc(dim * sizeof(*row));
    CHECK((scores || longest == 0) && sums && row);
    for (int32_t s = 0; s < step->num_seqs; s++) {
        const int32_t *table = step_table(step, args->group, s);
        int32_t end = step->query_start[s + 1];
        for (int32_t t = step->query_start[s]; t < end; t++) {
            int32_t length = step->context_lens[s] - (end - 1 - t);
            for (int32_t h = 0; h < args->num_q_heads; h++)
                attend(args, table, h, length,
                       (const float *)args->qkv + (size_t)t * row_floats + (size_t)h * dim, scores,
                       row, sums,
                       (float *)args->out + ((size_t)t * (size_t)args->num_q_heads + (size_t)h) *
                                                (size_t)kv_value_dim(l));
        }
    }
    free(row);
    free(sums);
    free(scores);
}
