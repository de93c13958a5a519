/* Paged attention: the plan of a step and its hand-out to the threads.
 *
 * A tile is up to TILE_ROWS rows (query tokens x the query heads of one KV head) of one sequence. A
 * tile goes over its context in chunks of ATTENTION_CHUNK tokens, each computed from nothing and
 * merged into the tile's total in order; chunks before every row's window are left out. With plenty
 * of tiles a thread takes a whole tile; with few (one long decode) the unit of work is a chunk,
 * whose result waits in `partials` for the merge. Both ways do the same operations in the same
 * order, so the plan never shows in the result, and a lack of memory for `partials` only costs
 * time.
 *
 * Sequences next to each other that decode one token each and begin with the same blocks (a cached
 * prefix, parallel choices, beams) share the whole chunks of these: their rows form one tile, which
 * reads K and V once, and whose total each sequence's own tile continues from.
 *
 * Of a latent layout a thread makes V from K, for each chunk that it is at. */
#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/cpu_attention_tile.h"
#include "kernels/cpu/memory/cpu_op_scratch.h"

#include <math.h>
#include <string.h>

#define TILE_ROWS 96
#define FEWEST_TILE_ROWS 24
#define ROW_TILE 6          /* a multiple of every level's VF_ROW_TILE */
#define LATENT_TILE_ROWS 64 /* V is made once for all of them */
#define LATENT_COLUMNS 16   /* of V that are made at a time, from as many rows of K */
#define UNITS_PER_THREAD 6  /* with fewer tiles than that, chunks are dealt out */
/* Row-tokens below which a hand-over costs more than it saves. */
#define SMALL_WORK 512

struct tile {
    int32_t seq;
    int32_t first_token; /* index in the step */
    int32_t num_tokens;
    int32_t first_length; /* tokens the first one sees */
    int32_t first_chunk;  /* the first that any of them sees */
    int32_t num_chunks;   /* from there on */
    int64_t first_unit;   /* of its first KV head; head h starts at + h * num_chunks */
    int32_t prefix;       /* the tile of `prefixes` to continue from; -1: none */
    int32_t prefix_token; /* its token there */
};

/* A tile's rows of one KV head. */
struct head {
    const struct tile *tile;
    int32_t kv_head;
};

struct plan {
    const struct cpu_backend *backend;
    const struct attention_args *args;
    int32_t window;   /* INT32_MAX: no limit */
    int32_t group;    /* query heads per KV head */
    int32_t stride;   /* V's elements rounded up to 16 */
    int32_t max_rows; /* of any tile, rounded up to ATTENTION_ROW_STEP */
    int32_t num_tiles;
    int64_t num_units;
    int64_t num_row_tokens; /* a measure of the work */
    struct tile *tiles;
    int32_t num_prefixes;
    struct tile *prefixes; /* after the tiles: at most as many as tokens */
    float *partials;       /* of units, or of prefixes: a state for each KV head */
};

size_t cpu_attention_plan_bytes(int32_t num_tokens) {
    return 2 * (size_t)num_tokens * sizeof(struct tile);
}

static size_t state_floats(const struct plan *plan) {
    return (size_t)plan->max_rows * ((size_t)plan->stride + 2) + ATTENTION_ROW_STEP;
}

static struct attention_state state_at(const struct plan *plan, float *memory) {
    float *sum = memory + (size_t)plan->max_rows * (size_t)plan->stride;
    return (struct attention_state){.out = memory, .sum = sum, .max = sum + plan->max_rows};
}

static void add_tile(struct plan *plan, int32_t seq, int32_t token, int32_t num_tokens,
                     int32_t first_length) {
    const int32_t num_kv_heads = plan->args->cache->layout.num_kv_heads;
    int32_t length = first_length + num_tokens - 1;
    int32_t first_seen = first_length > plan->window ? first_length - plan->window : 0;
    int32_t first_chunk = first_seen / ATTENTION_CHUNK;
    struct tile *tile = &plan->tiles[plan->num_tiles++];
    *tile =
        (struct tile){.seq = seq,
                      .first_token = token,
                      .num_tokens = num_tokens,
                      .first_length = first_length,
                      .first_chunk = first_chunk,
                      .num_chunks = (length + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK - first_chunk,
                      .first_unit = plan->num_units,
                      .prefix = -1};
    plan->num_units += (int64_t)tile->num_chunks * num_kv_heads;
    plan->num_row_tokens +=
        (int64_t)(length - first_seen) * num_tokens * plan->group * num_kv_heads;
}

static int32_t tile_rows(const struct plan *plan) {
    return plan->args->cache->layout.latent_dim > 0 ? LATENT_TILE_ROWS : TILE_ROWS;
}

/* The more rows the better, as long as all threads have enough tiles, and in whole tiles of
 * registers. */
static int32_t tile_tokens(const struct plan *plan) {
    const struct step_inputs *step = &plan->backend->step;
    int64_t rows = (int64_t)step->num_tokens * plan->args->num_q_heads /
                   (UNITS_PER_THREAD * thread_pool_size(plan->backend->pool));
    int64_t fewest = min_int32(FEWEST_TILE_ROWS, tile_rows(plan)), most = tile_rows(plan);
    int32_t tokens = (int32_t)((rows < fewest ? fewest : rows > most ? most : rows) / plan->group);
    int32_t whole = tokens;
    while (whole > 0 && whole * plan->group % ROW_TILE != 0)
        whole--;
    return max_int32(whole > 0 ? whole : tokens, 1);
}

static void plan_tiles(struct plan *plan) {
    const struct step_inputs *step = &plan->backend->step;
    const int32_t most = max_int32(tile_rows(plan), plan->group), tokens = tile_tokens(plan);
    plan->max_rows = (most + ATTENTION_ROW_STEP - 1) / ATTENTION_ROW_STEP * ATTENTION_ROW_STEP;
    for (int32_t s = 0; s < step->num_seqs; s++) {
        int32_t end = step->query_start[s + 1];
        for (int32_t t = step->query_start[s]; t < end; t += tokens)
            add_tile(plan, s, t, min_int32(end - t, tokens), step->context_lens[s] - (end - 1 - t));
    }
}

static bool decodes_one_token(const struct step_inputs *step, int32_t seq) {
    return step->query_start[seq + 1] - step->query_start[seq] == 1;
}

/* Whole chunks that both sequences see and have in the same blocks. */
static int32_t common_chunks(const struct plan *plan, int32_t a, int32_t b) {
    const struct step_inputs *step = &plan->backend->step;
    const int32_t block_size = plan->args->cache->layout.block_size;
    const int32_t *blocks = step_table(step, plan->args->group, a);
    const int32_t *others = step_table(step, plan->args->group, b);
    int32_t length = step->context_lens[a] < step->context_lens[b] ? step->context_lens[a]
                                                                   : step->context_lens[b];
    int32_t common = 0;
    while (common < length / block_size && blocks[common] == others[common])
        common++;
    return common * block_size / ATTENTION_CHUNK;
}

/* Takes the first `num_chunks` chunks from num_seqs tiles that begin at `first`. */
static void add_prefix(struct plan *plan, int32_t first, int32_t num_seqs, int32_t num_chunks) {
    const int32_t length = num_chunks * ATTENTION_CHUNK;
    for (int32_t i = 0; i < num_seqs; i++) {
        struct tile *tile = &plan->tiles[first + i];
        tile->first_chunk = num_chunks;
        tile->num_chunks -= num_chunks;
        tile->prefix = plan->num_prefixes;
        tile->prefix_token = i;
    }
    plan->prefixes[plan->num_prefixes++] =
        (struct tile){.seq = plan->tiles[first].seq,
                      .first_token = plan->tiles[first].first_token,
                      .num_tokens = num_seqs,
                      .first_length = length,
                      .num_chunks = num_chunks,
                      .prefix = -1};
}

/* A prefix takes in the next sequence unless that would make it less than half as long. */
static void plan_prefixes(struct plan *plan) {
    const struct step_inputs *step = &plan->backend->step;
    const int32_t most = tile_rows(plan) / plan->group;
    for (int32_t t = 0; t < plan->num_tiles;) {
        int32_t n = 1, shared = 0;
        for (; n < most && t + n < plan->num_tiles; n++) {
            int32_t a = plan->tiles[t].seq, b = plan->tiles[t + n].seq;
            if (!decodes_one_token(step, a) || !decodes_one_token(step, b))
                break;
            int32_t common = common_chunks(plan, a, b);
            if (common == 0 || 2 * common < shared)
                break;
            shared = n == 1 || common < shared ? common : shared;
        }
        if (n > 1)
            add_prefix(plan, t, n, shared);
        t += n;
    }
}

/* Scratch of one worker: queries, what `attend` works in, one chunk's state, the total's state. */
struct workspace {
    struct attention_queries queries;
    float *scores, *sums, *peaks, *decays;
    struct attention_fixed fixed;
    struct attention_state chunk, total;
    char *values; /* of a latent layout: V of a chunk */
};

/* A row of each of the workspace's arrays but the states. */
static size_t workspace_row_floats(const struct plan *plan) {
    return ATTENTION_QUERY_STRIDE + ATTENTION_QUERY_STRIDE / 2 + ATTENTION_STEP + 16 +
           ATTENTION_MAX_TERMS + 5;
}

/* Of a step in fixed point. */
static size_t fixed_floats(const struct plan *plan) {
    const size_t dim = (size_t)plan->args->cache->layout.head_dim, stride = (size_t)plan->stride;
    return (dim + stride) / 2 * ATTENTION_STEP + ATTENTION_STEP + stride;
}

/* Of a group of V, as cpu_op_kernels.h has it. */
static size_t value_group_bytes(const struct plan *plan) {
    const struct kv_layout *l = &plan->args->cache->layout;
    return (size_t)l->latent_dim * KV_GROUP * kv_type_bytes(l->type);
}

static size_t workspace_bytes(const struct plan *plan) {
    return ((size_t)plan->max_rows * workspace_row_floats(plan) + fixed_floats(plan) +
            2 * state_floats(plan)) *
               sizeof(float) +
           ATTENTION_CHUNK_GROUPS * value_group_bytes(plan);
}

static struct attention_fixed fixed_at(const struct plan *plan, float *memory, float *factors) {
    const size_t dim = (size_t)plan->args->cache->layout.head_dim, stride = (size_t)plan->stride;
    float *values = memory + dim / 2 * ATTENTION_STEP;
    float *key_scales = values + stride / 2 * ATTENTION_STEP;
    return (struct attention_fixed){.keys = (int32_t *)(void *)memory,
                                    .values = (int32_t *)(void *)values,
                                    .key_scales = key_scales,
                                    .value_scales = key_scales + ATTENTION_STEP,
                                    .factors = factors};
}

static struct workspace workspace_of(const struct plan *plan, int worker) {
    float *memory = plan->backend->op_scratch->workers[worker].data;
    const size_t rows = (size_t)plan->max_rows;
    float *queries = memory + fixed_floats(plan), *codes = queries + rows * ATTENTION_QUERY_STRIDE;
    float *scores = codes + rows * ATTENTION_QUERY_STRIDE / 2,
          *sums = scores + rows * ATTENTION_STEP;
    float *terms = sums + rows * 16, *of_rows = terms + rows * ATTENTION_MAX_TERMS;
    float *chunk = of_rows + 5 * rows;
    return (struct workspace){.queries = {.rows = queries,
                                          .scales = of_rows,
                                          .starts = (int32_t *)(void *)(of_rows + rows),
                                          .terms = terms,
                                          .codes = (int16_t *)(void *)codes},
                              .scores = scores,
                              .sums = sums,
                              .peaks = of_rows + 2 * rows,
                              .decays = of_rows + 3 * rows,
                              .fixed = fixed_at(plan, memory, of_rows + 4 * rows),
                              .chunk = state_at(plan, chunk),
                              .total = state_at(plan, chunk + state_floats(plan)),
                              .values = (char *)(chunk + 2 * state_floats(plan))};
}

/* A rotated query (x, y) of a pair and the bias (a, b) of its keys, which position p has turned by
 * (cos, sin): x (a cos - b sin) + y (a sin + b cos) = u cos + v sin. */
static void load_terms(const struct plan *plan, const float *q, float factor, int32_t kv_head,
                       float *terms) {
    const struct key_biases *biases = plan->args->key_biases;
    const struct key_bias *bias = &biases->heads[kv_head];
    const int32_t step = biases->interleaved ? 2 : 1;
    const int32_t next = biases->interleaved ? 1 : biases->rotary_dim / 2;
    for (int32_t i = 0; i < bias->num_pairs; i++) {
        const float *pair = q + (ptrdiff_t)bias->pairs[i] * step;
        float x = pair[0] * factor, y = pair[next] * factor;
        float a = bias->values[i][0], b = bias->values[i][1];
        terms[2 * i] = x * a + y * b;
        terms[2 * i + 1] = y * a - x * b;
    }
}

static void load_queries(const struct plan *plan, const struct tile *tile, int32_t kv_head,
                         const struct attention_queries *queries) {
    const struct attention_args *args = plan->args;
    const struct kv_layout *l = &args->cache->layout;
    int64_t row_floats = kv_query_row(l, args->num_q_heads);
    float factor = args->soft_cap > 0 ? args->scale : args->scale * ATTENTION_LOG2E;
    for (int32_t t = 0; t < tile->num_tokens; t++) {
        const float *src = (const float *)args->qkv + (tile->first_token + t) * row_floats +
                           (int64_t)kv_head * plan->group * l->head_dim;
        for (int32_t h = 0; h < plan->group; h++) {
            const float *q = src + (int64_t)h * l->head_dim;
            int32_t row = t * plan->group + h;
            plan->backend->op->attention[l->type].load_query(q, factor, l->head_dim, queries, row);
            if (args->key_biases != NULL)
                load_terms(plan, q, factor, kv_head,
                           queries->terms + (ptrdiff_t)row * ATTENTION_MAX_TERMS);
        }
    }
}

/* Points group g to the tokens of a sequence from `token` on. Without scales, their places are
 * after the planes and not read. */
static void point_group(const struct plan *plan, const struct head *head, int32_t token,
                        struct attention_tile *chunk, int32_t g) {
    const struct kv_layout *l = &plan->args->cache->layout;
    const struct kv_layer_strides strides = kv_strides_of(l, plan->args->layer);
    const int32_t *table = step_table(&plan->backend->step, plan->args->group, head->tile->seq);
    const char *pool = plan->args->cache->buffer.data;
    int32_t block = table[token / l->block_size], offset = token % l->block_size;
    const char *k = pool + kv_strides_plane(&strides, block, KV_PART_K, head->kv_head);
    const char *v = pool + kv_strides_plane(&strides, block, KV_PART_V, head->kv_head);
    const size_t scale = strides.scales + (size_t)offset * sizeof(float);
    chunk->k[g] = k + (size_t)offset * strides.token;
    chunk->v[g] = v + (size_t)offset * strides.token;
    chunk->k_scales[g] = (const float *)(const void *)(k + scale);
    chunk->v_scales[g] = (const float *)(const void *)(v + scale);
}

/* The end of what a tile sees of its own chunks. */
static int32_t end_of(const struct tile *tile) {
    return min_int32(tile->first_length + tile->num_tokens - 1,
                     (tile->first_chunk + tile->num_chunks) * ATTENTION_CHUNK);
}

/* The step with the first token that it sees. */
static int32_t first_step_of(const struct plan *plan, const struct tile *tile) {
    int32_t first_seen = max_int32(tile->first_length - plan->window, 0);
    return max_int32(tile->first_chunk * ATTENTION_CHUNK,
                     first_seen / ATTENTION_STEP * ATTENTION_STEP);
}

/* The last step of `head` prefetches the first one of `next`, if there is one. */
static void find_groups(const struct plan *plan, const struct head *head, const struct head *next,
                        struct attention_tile *chunk) {
    const int32_t end = end_of(head->tile);
    for (int32_t g = 0; g < ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS; g++) {
        int32_t token = chunk->chunk_begin + g * KV_GROUP, of_next = -1;
        if (token >= end && next != NULL)
            of_next = first_step_of(plan, next->tile) + token -
                      (end + ATTENTION_STEP - 1) / ATTENTION_STEP * ATTENTION_STEP;
        if (token < end) {
            point_group(plan, head, token, chunk, g);
        } else if (of_next >= 0 && of_next < end_of(next->tile)) {
            point_group(plan, next, of_next, chunk, g);
        } else {
            chunk->k[g] = chunk->k[0];
            chunk->v[g] = chunk->v[0];
            chunk->k_scales[g] = chunk->v_scales[g] = chunk->k_scales[0];
        }
    }
}

/* Makes a group of V from one of K: elements of `item` bytes, of which `pack` are adjacent; both
 * are constants. `bias` is added to bytes. */
static inline void turn_group(const char *k, char *v, size_t width, size_t pack, size_t item,
                              int bias) {
    for (size_t first = 0; first < width; first += LATENT_COLUMNS) {
        size_t end = first + LATENT_COLUMNS < width ? first + LATENT_COLUMNS : width;
        for (size_t t = 0; t < KV_GROUP; t++)
            for (size_t d = first; d < end; d++) {
                const char *from = k + (d / pack * KV_GROUP * pack + t * pack + d % pack) * item;
                char *to = v + (t / pack * width * pack + d * pack + t % pack) * item;
                memcpy(to, from, item);
                if (bias != 0)
                    *to = (char)(*to + bias);
            }
    }
}

/* Points the chunk's V, which is in K's planes, to memory of the worker. */
static void make_values(const struct plan *plan, int32_t num_groups, char *values,
                        struct attention_tile *chunk) {
    const struct kv_layout *l = &plan->args->cache->layout;
    const size_t width = (size_t)l->latent_dim, group_bytes = value_group_bytes(plan);
    for (int32_t g = 0; g < ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS; g++)
        chunk->v[g] = values + (g < num_groups ? (size_t)g * group_bytes : 0);
    for (int32_t g = 0; g < num_groups; g++) {
        const char *k = chunk->k[g];
        char *v = values + (size_t)g * group_bytes;
        if (l->type == KV_F32)
            turn_group(k, v, width, 1, 4, 0);
        else if (l->type == KV_F16)
            turn_group(k, v, width, 1, 2, 0);
        else if (l->type == KV_BF16)
            turn_group(k, v, width, 2, 2, 0);
        else if (l->type == KV_INT8)
            turn_group(k, v, width, 4, 1, -KV_CODE_BIAS);
        else
            turn_group(k, v, width, 1, 1, 0);
    }
}

static void attend_chunk(const struct plan *plan, const struct head *head, const struct head *next,
                         int32_t chunk_index, const struct workspace *work,
                         struct attention_state state) {
    const struct tile *tile = head->tile;
    const struct kv_layout *l = &plan->args->cache->layout;
    struct attention_tile chunk = {.head_dim = l->head_dim,
                                   .value_dim = kv_value_dim(l),
                                   .stride = plan->stride,
                                   .num_heads = plan->group,
                                   .num_tokens = tile->num_tokens,
                                   .first_length = tile->first_length,
                                   .window = plan->window,
                                   .chunk_begin =
                                       (tile->first_chunk + chunk_index) * ATTENTION_CHUNK,
                                   .soft_cap = plan->args->soft_cap,
                                   .queries = work->queries,
                                   .scores = work->scores,
                                   .sums = work->sums,
                                   .peaks = work->peaks,
                                   .decays = work->decays,
                                   .fixed = work->fixed,
                                   .state = state};
    find_groups(plan, head, next, &chunk);
    if (l->latent_dim > 0) {
        int32_t length = tile->first_length + tile->num_tokens - 1 - chunk.chunk_begin;
        make_values(plan, (min_int32(length, ATTENTION_CHUNK) + KV_GROUP - 1) / KV_GROUP,
                    work->values, &chunk);
    }
    if (plan->args->key_biases != NULL) {
        chunk.turning = plan->args->key_biases;
        chunk.key_bias = &plan->args->key_biases->heads[head->kv_head];
    }
    plan->backend->op->attention[l->type].attend(&chunk);
}

static void total_begin(const struct plan *plan, int32_t num_rows, struct attention_state *total) {
    for (int32_t r = 0; r < num_rows; r++) {
        total->max[r] = -INFINITY;
        total->sum[r] = 0;
    }
    memset(total->out, 0, (size_t)num_rows * (size_t)plan->stride * sizeof(float));
}

/* By which a row's sums are multiplied in the end: 1 / total, the head's sink included. */
static float final_factor(const struct attention_args *args, int64_t head, float max, float sum) {
    if (args->sinks == NULL)
        return 1 / sum;
    float sink = args->sinks[head] * ATTENTION_LOG2E, peak = fmaxf(max, sink);
    float scale = exp2f(max - peak);
    return scale / (sum * scale + exp2f(sink - peak));
}

static void write_out(const struct plan *plan, const struct tile *tile, int32_t kv_head,
                      const struct attention_state *total) {
    int32_t dim = kv_value_dim(&plan->args->cache->layout);
    for (int32_t r = 0; r < tile->num_tokens * plan->group; r++) {
        int64_t token = tile->first_token + r / plan->group;
        int64_t head = (int64_t)kv_head * plan->group + r % plan->group;
        float *out = (float *)plan->args->out + (token * plan->args->num_q_heads + head) * dim;
        const float *sums = total->out + (int64_t)r * plan->stride;
        float factor = final_factor(plan->args, head, total->max[r], total->sum[r]);
        for (int32_t d = 0; d < dim; d++)
            out[d] = sums[d] * factor;
    }
}

static struct attention_state prefix_state(const struct plan *plan, int32_t prefix,
                                           int32_t kv_head) {
    int64_t index = (int64_t)prefix * plan->args->cache->layout.num_kv_heads + kv_head;
    return state_at(plan, plan->partials + (size_t)index * state_floats(plan));
}

static void attend_tile(const struct plan *plan, const struct head *head, const struct head *next,
                        const struct workspace *work, struct attention_state *total) {
    const struct tile *tile = head->tile;
    load_queries(plan, tile, head->kv_head, &work->queries);
    for (int32_t c = 0; c < tile->num_chunks; c++) {
        attend_chunk(plan, head, next, c, work, work->chunk);
        plan->backend->op->attention_merge(tile->num_tokens * plan->group, plan->stride,
                                           &work->chunk, total);
    }
}

/* Items are (prefix, KV head). */
static void attend_prefixes(void *context, int64_t begin, int64_t end, int worker) {
    const struct plan *plan = context;
    struct workspace work = workspace_of(plan, worker);
    int32_t num_kv_heads = plan->args->cache->layout.num_kv_heads;
    for (int64_t item = begin; item < end; item++) {
        int32_t prefix = (int32_t)(item / num_kv_heads), kv_head = (int32_t)(item % num_kv_heads);
        const struct tile *tile = &plan->prefixes[prefix];
        struct attention_state total = prefix_state(plan, prefix, kv_head);
        total_begin(plan, tile->num_tokens * plan->group, &total);
        attend_tile(plan, &(struct head){tile, kv_head}, NULL, &work, &total);
    }
}

/* The total of the tile's rows, as its prefix left it. */
static void total_from_prefix(const struct plan *plan, const struct tile *tile, int32_t kv_head,
                              struct attention_state *total) {
    const struct attention_state state = prefix_state(plan, tile->prefix, kv_head);
    const size_t first = (size_t)(tile->prefix_token * plan->group), rows = (size_t)plan->group;
    const size_t stride = (size_t)plan->stride;
    memcpy(total->max, state.max + first, rows * sizeof(float));
    memcpy(total->sum, state.sum + first, rows * sizeof(float));
    memcpy(total->out, state.out + first * stride, rows * stride * sizeof(float));
}

static struct head head_of(const struct plan *plan, int64_t item) {
    const int32_t num_kv_heads = plan->args->cache->layout.num_kv_heads;
    return (struct head){&plan->tiles[item / num_kv_heads], (int32_t)(item % num_kv_heads)};
}

/* Items are (tile, KV head): whole contexts. */
static void attend_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct plan *plan = context;
    struct workspace work = workspace_of(plan, worker);
    int32_t num_kv_heads = plan->args->cache->layout.num_kv_heads;
    for (int64_t item = begin; item < end; item++) {
        const struct head head = head_of(plan, item), next = head_of(plan, item + 1);
        const bool is_last = item + 1 == (int64_t)plan->num_tiles * num_kv_heads;
        if (head.tile->prefix >= 0)
            total_from_prefix(plan, head.tile, head.kv_head, &work.total);
        else
            total_begin(plan, head.tile->num_tokens * plan->group, &work.total);
        attend_tile(plan, &head, is_last ? NULL : &next, &work, &work.total);
        write_out(plan, head.tile, head.kv_head, &work.total);
    }
}

/* Items are (tile, KV head, chunk). */
static void attend_units(void *context, int64_t begin, int64_t end, int worker) {
    const struct plan *plan = context;
    struct workspace work = workspace_of(plan, worker);
    const struct tile *tile = plan->tiles;
    for (int64_t unit = begin; unit < end; unit++) {
        while (tile + 1 < plan->tiles + plan->num_tiles && tile[1].first_unit <= unit)
            tile++;
        int64_t index = unit - tile->first_unit;
        int32_t kv_head = (int32_t)(index / tile->num_chunks);
        float *memory = plan->partials + (size_t)unit * state_floats(plan);
        load_queries(plan, tile, kv_head, &work.queries);
        attend_chunk(plan, &(struct head){tile, kv_head}, NULL, (int32_t)(index % tile->num_chunks),
                     &work, state_at(plan, memory));
    }
}

static void merge_tiles(void *context, int64_t begin, int64_t end, int worker) {
    const struct plan *plan = context;
    struct workspace work = workspace_of(plan, worker);
    int32_t num_kv_heads = plan->args->cache->layout.num_kv_heads;
    for (int64_t item = begin; item < end; item++) {
        const struct tile *tile = &plan->tiles[item / num_kv_heads];
        int32_t kv_head = (int32_t)(item % num_kv_heads);
        int32_t num_rows = tile->num_tokens * plan->group;
        int64_t unit = tile->first_unit + (int64_t)kv_head * tile->num_chunks;
        total_begin(plan, num_rows, &work.total);
        for (int32_t c = 0; c < tile->num_chunks; c++) {
            struct attention_state part =
                state_at(plan, plan->partials + (size_t)(unit + c) * state_floats(plan));
            plan->backend->op->attention_merge(num_rows, plan->stride, &part, &work.total);
        }
        write_out(plan, tile, kv_head, &work.total);
    }
}

/* Without memory for their totals, nothing is shared. */
static void share_prefixes(struct plan *plan) {
    struct cpu_op_scratch *scratch = plan->backend->op_scratch;
    const size_t num_kv_heads = (size_t)plan->args->cache->layout.num_kv_heads;
    if (plan->window != INT32_MAX)
        return;
    plan_prefixes(plan);
    if (plan->num_prefixes == 0)
        return;
    plan->partials =
        cpu_op_scratch_reserve(&scratch->partials, (size_t)plan->num_prefixes * num_kv_heads *
                                                       state_floats(plan) * sizeof(float));
    if (plan->partials != NULL)
        return;
    plan->num_tiles = plan->num_prefixes = 0;
    plan->num_units = plan->num_row_tokens = 0;
    plan_tiles(plan);
}

void cpu_paged_attention(struct backend *base, const struct attention_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    const struct kv_layout *l = &args->cache->layout;
    CHECK(kv_layout_is_supported(l));
    struct plan plan = {.backend = b,
                        .args = args,
                        .window = args->window > 0 ? args->window : INT32_MAX,
                        .group = args->num_q_heads / l->num_kv_heads,
                        .stride = (kv_value_dim(l) + 15) / 16 * 16};
    struct cpu_op_scratch *scratch = b->op_scratch;
    plan.tiles =
        cpu_op_scratch_reserve(&scratch->plan, cpu_attention_plan_bytes(b->step.num_tokens));
    CHECK(plan.tiles != NULL);
    plan.prefixes = plan.tiles + b->step.num_tokens;
    plan_tiles(&plan);
    CHECK(cpu_op_scratch_reserve_workers(scratch, workspace_bytes(&plan)) == 0);
    int num_threads = thread_pool_size(b->pool);
    int64_t num_items = (int64_t)plan.num_tiles * l->num_kv_heads;
    if (plan.num_row_tokens < SMALL_WORK) {
        attend_tiles(&plan, 0, num_items, 0);
        return;
    }
    if (num_threads > 1 && num_items < (int64_t)UNITS_PER_THREAD * num_threads &&
        plan.num_units > num_items)
        plan.partials = cpu_op_scratch_reserve(
            &scratch->partials, (size_t)plan.num_units * state_floats(&plan) * sizeof(float));
    if (plan.partials != NULL) {
        thread_pool_for(b->pool, plan.num_units, 1, attend_units, &plan);
        merge_tiles(&plan, 0, num_items, 0);
        return;
    }
    share_prefixes(&plan);
    base->paths.shared_prefixes += (uint64_t)plan.num_prefixes;
    thread_pool_for(b->pool, (int64_t)plan.num_prefixes * l->num_kv_heads, 1, attend_prefixes,
                    &plan);
    thread_pool_for(b->pool, num_items, 1, attend_tiles, &plan);
}
