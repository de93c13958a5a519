#include "tests/kernels/attention_fixture.h"

#include "config/base/numbers.h"

#include "kernels/kv_type.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NUM_LAYERS 2
#define LAYER 1
#define INT8_TOLERANCE 0.01
#define PAIRS_TOLERANCE 0.01
#define FIXED_TOLERANCE 2e-4

struct kernel_fixture attention_fixture;

const struct attention_chunk attention_mixed[] = {
    {0, 1, 1},   {1, 15, 15}, {2, 16, 1},   {3, 17, 3},  {4, 63, 1},   {5, 64, 9},
    {6, 65, 65}, {7, 127, 1}, {8, 129, 33}, {9, 255, 1}, {10, 257, 5}, {11, 300, 1}};

const struct attention_chunk attention_small[] = {{0, 17, 17}, {1, 70, 1}, {2, 131, 7}};

/* The linker puts this in front of the C library's; only the backends use it. */
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

bool attention_memory_is_short;
static bool is_memory_short;
int attention_num_refused;

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    attention_num_refused += is_memory_short;
    return is_memory_short ? NULL : __real_aligned_alloc(alignment, bytes);
}

/* On a device, and for quantised types, nothing rotates: the rounding of a rotation would hide that
 * of attention. */
static float *make_rope_table(enum kv_type type, size_t num_positions, size_t half) {
    if (attention_fixture.dtype != DTYPE_F32 || kv_type_has_scales(type))
        return NULL;
    float *table = kernel_fixture_memory(num_positions * 2 * half * sizeof(float));
    for (size_t p = 0; p < num_positions; p++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)half);
            table[p * 2 * half + i] = (float)cos(angle);
            table[p * 2 * half + half + i] = (float)sin(angle);
        }
    return table;
}

/* Biases larger than what else is in a key, of pairs from the last on, fewer of them in later
 * heads, which turn by the positions; of half of each head where three query heads share it. */
static void make_key_bias(struct attention_scene *scene) {
    const struct attention_shape *shape = &scene->shape;
    uint64_t seed = (uint64_t)shape->head_dim;
    int32_t rotary_dim = shape->group == 3 ? shape->head_dim / 2 : shape->head_dim;
    int32_t half = rotary_dim / 2,
            stride = (scene->longest / ROPE_COLUMN_STEP + 1) * ROPE_COLUMN_STEP;
    float *columns = kernel_fixture_memory((size_t)(rotary_dim * stride) * sizeof(float));
    for (int32_t i = 0; i < half; i++)
        for (int32_t p = 0; p < stride; p++) {
            double angle = p * pow(10000, -(double)i / half);
            columns[i * stride + p] = (float)cos(angle);
            columns[(half + i) * stride + p] = (float)sin(angle);
        }
    scene->key_bias = calloc((size_t)shape->num_kv_heads, sizeof(*scene->key_bias));
    assert_non_null(scene->key_bias);
    for (int32_t h = 0; h < shape->num_kv_heads; h++) {
        struct key_bias *bias = &scene->key_bias[h];
        bias->num_pairs =
            min_int32(min_int32(shape->key_pairs, half), KEY_BIAS_MAX_PAIRS) / (h + 1);
        for (int32_t i = 0; i < bias->num_pairs; i++) {
            bias->pairs[i] = (half - 1) - (i * half / bias->num_pairs);
            bias->values[i][0] = 0.05f * (float)kernel_fixture_random_in(&seed, -30, 30);
            bias->values[i][1] = 0.05f * (float)kernel_fixture_random_in(&seed, -30, 30);
        }
    }
    scene->turning = (struct key_biases){.rope_columns = columns,
                                         .stride = stride,
                                         .rotary_dim = rotary_dim,
                                         .interleaved = shape->group % 2 == 0};
}

/* Some count as much as a context's tokens, one leaves nothing of them, one is nothing. */
static float *make_sinks(size_t num_heads) {
    uint64_t seed = 1;
    float *sinks = kernel_fixture_random_floats(&seed, num_heads);
    for (size_t h = 0; h < num_heads; h++)
        sinks[h] = h % 6 == 4 ? 60 : h % 6 == 5 ? -300 : 3 * sinks[h] + 2;
    return sinks;
}

void attention_scene_init(struct attention_scene *scene, struct attention_shape shape, int num_seqs,
                          const int32_t *lengths) {
    uint64_t seed = (uint64_t)(shape.head_dim * 100 + shape.group * 10 + num_seqs);
    if (attention_fixture.dtype != DTYPE_F32 && !kv_type_has_scales(shape.type))
        shape.type = kv_type_of_dtype(attention_fixture.dtype);
    *scene = (struct attention_scene){.shape = shape, .num_seqs = num_seqs};
    scene->q_floats = shape.group * shape.num_kv_heads * shape.head_dim;
    scene->out_floats = shape.latent_dim > 0 ? shape.group * shape.latent_dim : scene->q_floats;
    scene->row_floats =
        scene->q_floats + (shape.latent_dim > 0 ? 1 : 2 * shape.num_kv_heads) * shape.head_dim;
    scene->rotary_dim = shape.head_dim - shape.latent_dim;
    for (int s = 0; s < num_seqs; s++) {
        scene->lengths[s] = lengths[s];
        scene->longest = lengths[s] > scene->longest ? lengths[s] : scene->longest;
        scene->qkv[s] = kernel_fixture_rounded_floats(
            &attention_fixture, &seed, (size_t)lengths[s] * (size_t)scene->row_floats);
    }
    scene->rope_table =
        make_rope_table(shape.type, (size_t)scene->longest, (size_t)scene->rotary_dim / 2);
    if (shape.has_sinks)
        scene->sinks = make_sinks((size_t)(shape.group * shape.num_kv_heads));
    if (shape.key_pairs > 0)
        make_key_bias(scene);
}

void attention_scene_finish(struct attention_scene *scene) {
    for (int s = 0; s < scene->num_seqs; s++)
        free(scene->qkv[s]);
    free(scene->sinks);
    free(scene->rope_table);
    free(scene->key_bias);
    free((void *)(uintptr_t)scene->turning.rope_columns);
}

/* Blocks are dealt in an order that depends on the seed, all but block 0, which nobody may read. */
static void deal_blocks(struct attention_pool *pool, const struct attention_scene *scene,
                        uint64_t seed) {
    int32_t num_blocks = pool->cache.num_blocks, next = 0;
    int32_t *ids = kernel_fixture_memory((size_t)num_blocks * sizeof(*ids));
    pool->tables = calloc((size_t)(scene->num_seqs * pool->max_blocks), sizeof(*pool->tables));
    assert_non_null(pool->tables);
    for (int32_t i = 0; i < num_blocks; i++) {
        int32_t j = kernel_fixture_random_in(&seed, 0, i);
        ids[i] = ids[j];
        ids[j] = i;
    }
    for (int s = 0; s < scene->num_seqs; s++)
        for (int32_t i = 0; i * scene->shape.block_size < scene->lengths[s]; i++, next++) {
            next += ids[next] == 0;
            pool->tables[s * pool->max_blocks + i] = ids[next];
        }
    pool->nan_block = 0;
    free(ids);
}

void attention_pool_init(struct attention_pool *pool, const struct attention_scene *scene,
                         struct backend *b, uint64_t seed) {
    const struct attention_shape *shape = &scene->shape;
    bool is_exact = b == attention_fixture.oracle && attention_fixture.dtype != DTYPE_F32;
    int32_t num_blocks = 3, max_blocks = 1;
    for (int s = 0; s < scene->num_seqs; s++) {
        int32_t n = (scene->lengths[s] + shape->block_size - 1) / shape->block_size;
        num_blocks += n;
        max_blocks = n > max_blocks ? n : max_blocks;
    }
    *pool = (struct attention_pool){.backend = b,
                                    .dtype = is_exact ? DTYPE_F32 : attention_fixture.dtype,
                                    .max_blocks = max_blocks};
    pool->cache = (struct kv_cache){.layout = {.num_layers = NUM_LAYERS,
                                               .num_kv_heads = shape->num_kv_heads,
                                               .head_dim = shape->head_dim,
                                               .latent_dim = shape->latent_dim,
                                               .block_size = shape->block_size,
                                               .type = shape->type},
                                    .num_blocks = num_blocks};
    if (is_exact && !kv_type_has_scales(shape->type))
        pool->cache.layout.type = KV_F32;
    size_t bytes = (size_t)num_blocks * kv_block_bytes(&pool->cache.layout);
    void *data = kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float));
    pool->cache.buffer = (struct buffer){.data = data, .bytes = bytes};
    if (scene->rope_table != NULL)
        pool->rope_table = kernel_fixture_put(b, DTYPE_F32, scene->rope_table,
                                              (size_t)scene->longest * (size_t)scene->rotary_dim);
    if (scene->sinks != NULL)
        pool->sinks = kernel_fixture_put(b, DTYPE_F32, scene->sinks,
                                         (size_t)(shape->group * shape->num_kv_heads));
    if (scene->key_bias != NULL) {
        pool->key_biases = scene->turning;
        pool->key_biases.heads = kernel_fixture_put(
            b, DTYPE_F32, (const float *)(const void *)scene->key_bias,
            (size_t)shape->num_kv_heads * sizeof(*scene->key_bias) / sizeof(float));
        pool->key_biases.rope_columns =
            kernel_fixture_put(b, DTYPE_F32, scene->turning.rope_columns,
                               (size_t)scene->turning.rotary_dim * (size_t)scene->turning.stride);
    }
    deal_blocks(pool, scene, seed);
}

void attention_pool_finish(struct attention_pool *pool) {
    kernel_fixture_free(pool->backend, pool->cache.buffer.data);
    kernel_fixture_free(pool->backend, pool->rope_table);
    kernel_fixture_free(pool->backend, pool->sinks);
    kernel_fixture_free(pool->backend, (void *)(uintptr_t)pool->key_biases.heads);
    kernel_fixture_free(pool->backend, (void *)(uintptr_t)pool->key_biases.rope_columns);
    free(pool->tables);
}

/* Blocks that no token from `first` on sees any more may have become another sequence's. */
static void leave_window(const struct attention_shape *shape, const struct attention_pool *pool,
                         int32_t first, int32_t *table) {
    int32_t first_seen = shape->window > 0 ? first + 1 - shape->window : 0;
    for (int32_t i = 0; (i + 1) * shape->block_size <= first_seen; i++)
        table[i] = pool->nan_block;
}

void attention_step_init(struct attention_step *step, const struct attention_scene *scene,
                         const struct attention_pool *pool, int num_chunks,
                         const struct attention_chunk *chunks) {
    const struct attention_shape *shape = &scene->shape;
    size_t row = (size_t)scene->row_floats, table_bytes = (size_t)pool->max_blocks * 4;
    *step = (struct attention_step){0};
    for (int i = 0; i < num_chunks; i++)
        step->query_start[i + 1] = step->query_start[i] + chunks[i].num_tokens;
    int32_t num_tokens = step->query_start[num_chunks];
    assert_in_range(num_tokens, 1, ATTENTION_MAX_TOKENS);
    step->tables = kernel_fixture_memory((size_t)num_chunks * table_bytes);
    step->qkv = kernel_fixture_memory((size_t)num_tokens * row * sizeof(float));
    for (int i = 0; i < num_chunks; i++) {
        const struct attention_chunk *c = &chunks[i];
        const int32_t *table = pool->tables + c->sequence * pool->max_blocks;
        int32_t first = c->length - c->num_tokens, at = step->query_start[i];
        memcpy(step->tables + i * pool->max_blocks, table, table_bytes);
        leave_window(shape, pool, first, step->tables + i * pool->max_blocks);
        memcpy(step->qkv + (size_t)at * row, scene->qkv[c->sequence] + (size_t)first * row,
               (size_t)c->num_tokens * row * sizeof(float));
        step->context_lens[i] = c->length;
        for (int32_t p = first; p < c->length; p++, at++) {
            step->positions[at] = p;
            step->slots[at] =
                table[p / shape->block_size] * shape->block_size + p % shape->block_size;
        }
    }
    step->inputs = (struct step_inputs){.num_tokens = num_tokens,
                                        .num_seqs = num_chunks,
                                        .max_blocks_per_seq = pool->max_blocks,
                                        .token_ids = step->positions,
                                        .positions = step->positions,
                                        .slot_mapping = step->slots,
                                        .query_start = step->query_start,
                                        .context_lens = step->context_lens,
                                        .block_tables = step->tables};
}

void attention_step_finish(struct attention_step *step) {
    free(step->tables);
    free(step->qkv);
}

struct attention_args attention_args_of(const struct attention_scene *scene,
                                        const struct attention_pool *pool) {
    const struct attention_shape *shape = &scene->shape;
    return (struct attention_args){.cache = &pool->cache,
                                   .layer = LAYER,
                                   .num_q_heads = shape->group * shape->num_kv_heads,
                                   .scale = 1 / sqrtf((float)shape->head_dim),
                                   .window = shape->window,
                                   .soft_cap = shape->soft_cap,
                                   .sinks = pool->sinks,
                                   .key_biases =
                                       pool->key_biases.heads != NULL ? &pool->key_biases : NULL};
}

/* Columns first .. first + width - 1 of the step's rows, in the backend's memory; every `period`
 * of them are NaN but for the first `given`. */
static void *put_columns(const struct attention_scene *scene, const struct attention_pool *pool,
                         const struct attention_step *step, int32_t first, int32_t width,
                         int32_t period, int32_t given) {
    size_t n = (size_t)step->inputs.num_tokens * (size_t)width;
    float *values = kernel_fixture_memory(n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        size_t token = i / (size_t)width, column = i % (size_t)width;
        values[i] = column % (size_t)period < (size_t)given
                        ? step->qkv[token * (size_t)scene->row_floats + (size_t)first + column]
                        : NAN;
    }
    void *array = kernel_fixture_put(pool->backend, pool->dtype, values, n);
    free(values);
    return array;
}

/* The queries' elements that rotate come from elsewhere. */
static void *store_latent(const struct attention_scene *scene, struct attention_pool *pool,
                          const struct attention_step *step) {
    struct backend *b = pool->backend;
    const struct attention_shape *shape = &scene->shape;
    const int32_t dim = shape->head_dim;
    void *q = put_columns(scene, pool, step, 0, scene->q_floats, dim, dim);
    void *kv = put_columns(scene, pool, step, scene->q_floats, dim, dim, dim);
    void *queries = put_columns(scene, pool, step, 0, scene->q_floats, dim, shape->latent_dim);
    b->ops->step_begin(b, &step->inputs);
    b->ops->store_latent(b, &(struct latent_store_args){.q = q,
                                                        .kv = kv,
                                                        .queries = queries,
                                                        .rope_table = pool->rope_table,
                                                        .cache = &pool->cache,
                                                        .layer = LAYER,
                                                        .num_q_heads = shape->group,
                                                        .q_dim = dim,
                                                        .rotary_dim = scene->rotary_dim,
                                                        .interleaved = shape->group % 2 == 0});
    kernel_fixture_synchronize(b);
    kernel_fixture_free(b, q);
    kernel_fixture_free(b, kv);
    return queries;
}

void *attention_store(const struct attention_scene *scene, struct attention_pool *pool,
                      struct attention_step *step) {
    struct backend *b = pool->backend;
    const struct attention_shape *shape = &scene->shape;
    size_t row = (size_t)scene->row_floats, q_floats = (size_t)scene->q_floats;
    size_t num_tokens = (size_t)step->inputs.num_tokens;
    if (shape->latent_dim > 0)
        return store_latent(scene, pool, step);
    void *qkv = kernel_fixture_put(b, pool->dtype, step->qkv, num_tokens * row);
    is_memory_short = attention_memory_is_short;
    b->ops->step_begin(b, &step->inputs);
    b->ops->rope_store_kv(
        b, &(struct rope_store_args){.qkv = qkv,
                                     .rope_table = pool->rope_table,
                                     .cache = &pool->cache,
                                     .layer = LAYER,
                                     .num_q_heads = shape->group * shape->num_kv_heads,
                                     .rotary_dim = shape->head_dim,
                                     .interleaved = shape->group % 2 == 0});
    is_memory_short = false;
    kernel_fixture_get(b, pool->dtype, qkv, step->qkv, num_tokens * row);
    for (size_t t = 0; t < num_tokens; t++)
        memset(step->qkv + t * row + q_floats, 0xff, (row - q_floats) * sizeof(float));
    kernel_fixture_set(b, pool->dtype, qkv, step->qkv, num_tokens * row);
    return qkv;
}

static void call_attention(struct backend *b, const void *args) {
    b->ops->paged_attention(b, args);
}

/* The CPU's threads have checks of their own. */
static void attend(struct attention_pool *pool, const struct attention_args *args, size_t bytes) {
    is_memory_short = attention_memory_is_short;
    if (attention_fixture.dtype == DTYPE_F32 || pool->backend == attention_fixture.oracle)
        call_attention(pool->backend, args);
    else
        kernel_fixture_run(pool->backend, call_attention, args, args->out, bytes);
    is_memory_short = false;
}

void attention_run_step(const struct attention_scene *scene, struct attention_pool *pool,
                        int num_chunks, const struct attention_chunk *chunks, float **out) {
    struct attention_step step;
    attention_step_init(&step, scene, pool, num_chunks, chunks);
    size_t row = (size_t)scene->out_floats, n = (size_t)step.inputs.num_tokens * row;
    struct attention_args args = attention_args_of(scene, pool);
    void *qkv = attention_store(scene, pool, &step);
    args.qkv = qkv, args.out = kernel_fixture_put(pool->backend, pool->dtype, NULL, n);
    attend(pool, &args, dtype_row_bytes(pool->dtype, n));
    float *result = kernel_fixture_guarded(n);
    kernel_fixture_get(pool->backend, pool->dtype, args.out, result, n);
    for (int i = 0; i < num_chunks; i++) {
        size_t first = (size_t)(chunks[i].length - chunks[i].num_tokens);
        memcpy(out[chunks[i].sequence] + first * row, result + (size_t)step.query_start[i] * row,
               (size_t)chunks[i].num_tokens * row * sizeof(float));
    }
    kernel_fixture_guarded_free(result);
    kernel_fixture_free(pool->backend, args.out);
    kernel_fixture_free(pool->backend, qkv);
    attention_step_finish(&step);
}

void attention_store_chunk(const struct attention_scene *scene, struct attention_pool *pool,
                           struct attention_chunk chunk) {
    struct attention_step step;
    attention_step_init(&step, scene, pool, 1, &chunk);
    kernel_fixture_free(pool->backend, attention_store(scene, pool, &step));
    attention_step_finish(&step);
}

void attention_store_before(const struct attention_scene *scene, struct attention_pool *pool,
                            int num_chunks, const struct attention_chunk *chunks) {
    for (int i = 0; i < num_chunks; i++) {
        int32_t end = chunks[i].length - chunks[i].num_tokens;
        for (int32_t at = 0, n; at < end; at += n) {
            n = min_int32(end - at, ATTENTION_MAX_TOKENS);
            attention_store_chunk(scene, pool,
                                  (struct attention_chunk){chunks[i].sequence, at + n, n});
        }
    }
}

void attention_alloc_outputs(const struct attention_scene *scene, float **out) {
    for (int s = 0; s < scene->num_seqs; s++)
        out[s] = kernel_fixture_guarded((size_t)scene->lengths[s] * (size_t)scene->out_floats);
}

void attention_free_outputs(const struct attention_scene *scene, float **out) {
    for (int s = 0; s < scene->num_seqs; s++)
        kernel_fixture_guarded_free(out[s]);
}

void attention_run_chunks(const struct attention_scene *scene, struct backend *b, uint64_t seed,
                          int num_chunks, const struct attention_chunk *chunks, float **out) {
    struct attention_pool pool;
    attention_pool_init(&pool, scene, b, seed);
    attention_store_before(scene, &pool, num_chunks, chunks);
    attention_run_step(scene, &pool, num_chunks, chunks, out);
    attention_pool_finish(&pool);
}

void attention_run_whole(const struct attention_scene *scene, struct backend *b, uint64_t seed,
                         float **out) {
    struct attention_chunk chunks[ATTENTION_MAX_SEQS] = {0};
    for (int s = 0; s < scene->num_seqs; s++)
        chunks[s] = (struct attention_chunk){s, scene->lengths[s], scene->lengths[s]};
    attention_run_chunks(scene, b, seed, scene->num_seqs, chunks, out);
}

/* The sequences in random company and chunks: each step takes some of them, in any order, with a
 * random number of tokens each, often one. */
static void run_mixed(const struct attention_scene *scene, struct backend *b, uint64_t seed,
                      float **out) {
    struct attention_pool pool;
    int32_t done[ATTENTION_MAX_SEQS] = {0};
    attention_pool_init(&pool, scene, b, seed);
    for (int num_left = scene->num_seqs; num_left > 0;) {
        int n = 0;
        struct attention_chunk chunks[ATTENTION_MAX_SEQS] = {0};
        int first = kernel_fixture_random_in(&seed, 0, scene->num_seqs - 1);
        for (int i = 0; i < scene->num_seqs; i++) {
            int s = (first + i) % scene->num_seqs;
            int32_t left = scene->lengths[s] - done[s];
            if (left == 0 || kernel_fixture_random_in(&seed, 0, 2) == 0)
                continue;
            int32_t most = kernel_fixture_random_in(&seed, 0, 1) ? 5 : 150;
            int32_t take = kernel_fixture_random_in(&seed, 1, left < most ? left : most);
            if (left < 8)
                take = 1;
            done[s] += take;
            chunks[n++] = (struct attention_chunk){s, done[s], take};
            num_left -= take == left;
        }
        if (n > 0)
            attention_run_step(scene, &pool, n, chunks, out);
    }
    attention_pool_finish(&pool);
}

double attention_tolerance_of(enum kv_type type) {
    return type == KV_F16 ? 2e-4 : type == KV_BF16 ? 1e-3 : 5e-6;
}

void attention_assert_near_oracle(const struct backend *b, enum kv_type type, const float *actual,
                                  const float *expected, size_t n, const char *what) {
    if (attention_fixture.dtype == DTYPE_F32 && type == KV_INT8)
        kernel_fixture_assert_close_by(actual, expected, n, INT8_TOLERANCE, what);
    else if (strncmp(kernel_fixture_attention(b, type), "vdpbf16ps", 9) == 0)
        kernel_fixture_assert_close_by(actual, expected, n, PAIRS_TOLERANCE, what);
    else if (strncmp(kernel_fixture_attention(b, type), "vpdpwssd", 8) == 0)
        kernel_fixture_assert_close_by(actual, expected, n, FIXED_TOLERANCE, what);
    else
        kernel_fixture_assert_close(&attention_fixture, actual, expected, n,
                                    attention_tolerance_of(type), what);
}

void attention_assert_same(const struct attention_scene *scene, float **a, float **b) {
    for (int s = 0; s < scene->num_seqs; s++)
        assert_memory_equal(a[s], b[s],
                            (size_t)scene->lengths[s] * (size_t)scene->out_floats * sizeof(float));
}

void attention_check_scene(struct attention_shape shape, int num_seqs, const int32_t *lengths) {
    struct attention_scene scene;
    float *expected[ATTENTION_MAX_SEQS], *whole[ATTENTION_MAX_SEQS], *other[ATTENTION_MAX_SEQS],
        *first[ATTENTION_MAX_SEQS];
    if (attention_fixture.dtype != DTYPE_F32)
        return;
    attention_scene_init(&scene, shape, num_seqs, lengths);
    attention_alloc_outputs(&scene, expected);
    attention_run_whole(&scene, attention_fixture.oracle, 1, expected);
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        bool new_level = kernel_fixture_is_new_level(&attention_fixture, i);
        if (new_level && i > 3)
            attention_free_outputs(&scene, whole);
        if (new_level)
            attention_alloc_outputs(&scene, whole);
        if (i == 0)
            memcpy(first, whole, sizeof(first));
        attention_alloc_outputs(&scene, other);
        attention_run_whole(&scene, attention_fixture.backends[i], (uint64_t)i + 2,
                            new_level ? whole : other);
        for (int s = 0; s < num_seqs && new_level; s++)
            attention_assert_near_oracle(attention_fixture.backends[i], shape.type, whole[s],
                                         expected[s], (size_t)lengths[s] * (size_t)scene.out_floats,
                                         "a whole step");
        if (!new_level)
            attention_assert_same(&scene, whole, other);
        if (shape.type == KV_INT8)
            attention_assert_same(&scene, whole, first);
        run_mixed(&scene, attention_fixture.backends[i], (uint64_t)i + 100, other);
        attention_assert_same(&scene, whole, other);
        attention_free_outputs(&scene, other);
    }
    if (attention_fixture.num_backends > 3)
        attention_free_outputs(&scene, first);
    attention_free_outputs(&scene, whole);
    attention_free_outputs(&scene, expected);
    attention_scene_finish(&scene);
}

float *attention_gather(const struct attention_scene *scene, int num_chunks,
                        const struct attention_chunk *chunks, float **out, size_t *out_n) {
    size_t row = (size_t)scene->out_floats, n = 0;
    float *rows = kernel_fixture_memory(ATTENTION_MAX_TOKENS * row * sizeof(float));
    for (int i = 0; i < num_chunks; i++) {
        size_t first = (size_t)(chunks[i].length - chunks[i].num_tokens) * row;
        size_t count = (size_t)chunks[i].num_tokens * row;
        memcpy(rows + n, out[chunks[i].sequence] + first, count * sizeof(float));
        n += count;
    }
    *out_n = n;
    return rows;
}

void attention_check(struct attention_shape shape, int num_chunks,
                     const struct attention_chunk *chunks, const char *what) {
    struct attention_scene scene;
    int32_t lengths[ATTENTION_MAX_SEQS];
    float *expected[ATTENTION_MAX_SEQS], *actual[ATTENTION_MAX_SEQS];
    size_t n;
    for (int i = 0; i < num_chunks; i++)
        lengths[chunks[i].sequence] = chunks[i].length;
    attention_scene_init(&scene, shape, num_chunks, lengths);
    attention_alloc_outputs(&scene, expected);
    attention_run_chunks(&scene, attention_fixture.oracle, 1, num_chunks, chunks, expected);
    float *expected_rows = attention_gather(&scene, num_chunks, chunks, expected, &n);
    for (int i = 0; i < attention_fixture.num_backends; i++) {
        if (!kernel_fixture_is_new_level(&attention_fixture, i))
            continue;
        attention_alloc_outputs(&scene, actual);
        attention_run_chunks(&scene, attention_fixture.backends[i], (uint64_t)i + 2, num_chunks,
                             chunks, actual);
        float *rows = attention_gather(&scene, num_chunks, chunks, actual, &n);
        attention_assert_near_oracle(attention_fixture.backends[i], shape.type, rows, expected_rows,
                                     n, what);
        free(rows);
        attention_free_outputs(&scene, actual);
    }
    free(expected_rows);
    attention_free_outputs(&scene, expected);
    attention_scene_finish(&scene);
}

bool attention_is_taken(enum kv_type type) {
    return (attention_fixture.backends[0]->kv_types & KV_TYPE_BIT(type)) != 0;
}

void attention_fixture_open(int argc, char **argv, int32_t max_multiprocessors,
                            int32_t latent_dim) {
    const struct backend_config config = {.limits.max_num_batched_tokens = ATTENTION_MAX_TOKENS,
                                          .limits.max_num_seqs = 64,
                                          .limits.max_model_len = 64,
                                          .limits.block_size = 1,
                                          .head_dim =
                                              latent_dim > 0 ? KV_MAX_LATENT_ROW : KV_MAX_HEAD_DIM,
                                          .latent_dim = latent_dim,
                                          .num_q_heads = 30,
                                          .num_kv_heads = 2,
                                          .max_multiprocessors = max_multiprocessors};
    kernel_fixture_open(&attention_fixture, argc, argv, &config);
}

bool attention_is_cut(void) {
    return attention_fixture.dtype != DTYPE_F32 && !attention_fixture.bits_equal;
}
