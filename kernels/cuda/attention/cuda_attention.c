/* The attention op. Layers that differ in their window or heads have a plan each; which a model
 * needs is known from the step before, so that the step's arrays take them along. The first time
 * one is made when the layer asks. Each has its place on the device, NUM_PLANS of them, where what
 * was recorded for one step finds that of another: such a place keeps its shape. Models that share
 * a backend take turns, so a replay also makes the plans that the step before did not need. */
#include "config/base/check.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/latent_launch.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/step/cuda_packed.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/kv_type.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUM_PLANS 4
#define ITEM_WORDS (sizeof(struct attention_item) / sizeof(int32_t))
#define RUN_WORDS (sizeof(struct attention_run) / sizeof(int32_t))

/* A plan on the device. */
struct sent_plan {
    uint64_t step;          /* it was made for; 0: none */
    bool is_used;           /* by a layer of it */
    int32_t num_recordings; /* that read it here */
    struct attention_shape shape;
    bool has[NUM_ATTENTION_TILES]; /* items with such a tile */
    int32_t num_shared_prefixes, num_split_ranges;
    struct attention_item *items; /* [plan.max_items] */
    struct attention_run *runs;   /* [plan.max_runs] */
    int32_t *block_items;         /* [attention_plan_num_starts] */
};

struct cuda_attention {
    struct attention_plan plan; /* for grids of as many blocks as the GPU holds at once */
    struct sent_plan sent[NUM_PLANS];
    uint32_t recorded; /* bits of those that what is being recorded reads */
    struct buffer plans;
    struct buffer part_out, part_state, part_counts;
};

struct kernel {
    int32_t head_dim;
    cudaError_t (*prepare)(enum attention_tile tile, bool bf16, enum kv_type type, int *out_blocks);
    cudaError_t (*launch)(cudaStream_t stream, enum attention_tile tile, bool bf16,
                          enum kv_type type, const struct attention_launch *args);
    /* Of wide tiles where b->level->has_wgmma. */
    cudaError_t (*prepare_wgmma)(bool bf16, enum kv_type type, int *out_blocks);
    cudaError_t (*launch_wgmma)(cudaStream_t stream, bool bf16, enum kv_type type,
                                const struct attention_launch *args);
};

/* Modules without sm_90a lack wgmma's kernels, and the level that launches them. */
#if QUIRE_CUDA_SM_90A
#define KERNEL(dim)                                                                                \
    {                                                                                              \
        dim, launch_attention_##dim##_prepare, launch_attention_##dim,                             \
            launch_wgmma_attention_##dim##_prepare, launch_wgmma_attention_##dim                   \
    }
#else
#define KERNEL(dim)                                                                                \
    { dim, launch_attention_##dim##_prepare, launch_attention_##dim, NULL, NULL }
#endif

static const struct kernel kernels[] = {KERNEL(64), KERNEL(96), KERNEL(128), KERNEL(256)};

static const struct kernel *find_kernel(int32_t head_dim) {
    const struct kernel *kernel = kernels;
    while (kernel->head_dim < head_dim)
        kernel++;
    return kernel;
}

static bool is_by_wgmma(const struct cuda_backend *b, enum attention_tile tile) {
    return b->level->has_wgmma && tile == ATTENTION_WIDE;
}

static cudaError_t prepare_kernel(const struct cuda_backend *b, const struct kernel *kernel,
                                  enum attention_tile tile, enum kv_type type, int *out_blocks) {
    return is_by_wgmma(b, tile) ? kernel->prepare_wgmma(cuda_is_bf16(b), type, out_blocks)
                                : kernel->prepare(tile, cuda_is_bf16(b), type, out_blocks);
}

static cudaError_t launch_kernel(const struct cuda_backend *b, const struct kernel *kernel,
                                 enum attention_tile tile, enum kv_type type,
                                 const struct attention_launch *args) {
    return is_by_wgmma(b, tile) ? kernel->launch_wgmma(b->stream, cuda_is_bf16(b), type, args)
                                : kernel->launch(b->stream, tile, cuda_is_bf16(b), type, args);
}

/* Those of all types of the cache, also for smaller heads. A grid is made for the config's, and for
 * the type of which fewest blocks fit. */
static int prepare_kernels(struct cuda_backend *b, enum attention_tile tile, int32_t *out_blocks,
                           struct error *err) {
    const struct kernel *last = find_kernel(b->config.head_dim);
    int num_blocks = INT_MAX;
    for (const struct kernel *kernel = kernels; kernel <= last; kernel++)
        for (enum kv_type type = 0; type < NUM_KV_TYPES; type++) {
            int fitting = INT_MAX;
            if ((b->base.kv_types & KV_TYPE_BIT(type)) != 0 &&
                CUDA_START(prepare_kernel(b, kernel, tile, type, &fitting), err) != 0)
                return -1;
            if (kernel == last && fitting < num_blocks)
                num_blocks = fitting;
        }
    if (num_blocks <= 0)
        return error_set(err, ERROR_DEVICE,
                         "the GPU's %zu bytes of shared memory are too few for attention of "
                         "head_dim %d",
                         b->max_shared_bytes, b->config.head_dim);
    *out_blocks = num_blocks * b->num_multiprocessors;
    return 0;
}

static int init_plan(struct cuda_backend *b, struct error *err) {
    int32_t num_blocks[NUM_ATTENTION_TILES];
    for (enum attention_tile tile = 0; tile < NUM_ATTENTION_TILES; tile++)
        if (prepare_kernels(b, tile, &num_blocks[tile], err) != 0)
            return -1;
    return attention_plan_init(&b->attention->plan, &b->config, num_blocks, err);
}

/* All plans' items, then all runs, then all lists of blocks. */
static int alloc_plans(struct cuda_backend *b, struct error *err) {
    struct cuda_attention *attention = b->attention;
    size_t max_items = (size_t)attention->plan.max_items;
    size_t max_runs = (size_t)attention->plan.max_runs;
    size_t num_starts = (size_t)attention_plan_num_starts(&attention->plan);
    size_t bytes = max_items * sizeof(struct attention_item) +
                   max_runs * sizeof(struct attention_run) + num_starts * sizeof(int32_t);
    if (cuda_buffer_alloc(&b->base, NUM_PLANS * bytes, &attention->plans, err) != 0)
        return -1;
    struct attention_item *items = attention->plans.data;
    struct attention_run *runs = (struct attention_run *)(items + NUM_PLANS * max_items);
    int32_t *starts = (int32_t *)(runs + NUM_PLANS * max_runs);
    for (size_t i = 0; i < NUM_PLANS; i++) {
        attention->sent[i].items = items + i * max_items;
        attention->sent[i].runs = runs + i * max_runs;
        attention->sent[i].block_items = starts + i * num_starts;
    }
    return 0;
}

/* Counts start at 0, as buffers do. */
static int alloc_parts(struct cuda_backend *b, struct error *err) {
    struct cuda_attention *attention = b->attention;
    size_t num_rows = (size_t)attention->plan.max_part_rows;
    size_t row_bytes = (size_t)find_kernel(b->config.head_dim)->head_dim * sizeof(float);
    if (cuda_buffer_alloc(&b->base, num_rows * row_bytes, &attention->part_out, err) != 0 ||
        cuda_buffer_alloc(&b->base, num_rows * 2 * sizeof(float), &attention->part_state, err) != 0)
        return -1;
    return cuda_buffer_alloc(&b->base, (size_t)attention->plan.max_runs * sizeof(int32_t),
                             &attention->part_counts, err);
}

int cuda_attention_create(struct cuda_backend *b, struct error *err) {
    int32_t head_dim = b->config.head_dim;
    if (b->config.latent_dim > 0 && head_dim <= KV_MAX_LATENT_ROW)
        return 0; /* without plans */
    if (head_dim == 0)
        return 0;
    if (head_dim < 0 || head_dim > KV_MAX_HEAD_DIM || head_dim % KV_HEAD_DIM_STEP != 0)
        return error_set(err, ERROR_CONFIG,
                         "cuda device: head_dim %d; it must be a multiple of %d up to %d", head_dim,
                         KV_HEAD_DIM_STEP, KV_MAX_HEAD_DIM);
    if ((int64_t)b->config.limits.max_num_seqs * b->step.table_stride > INT32_MAX)
        return error_set(err, ERROR_CONFIG,
                         "cuda device: block tables of %d sequences with %d blocks each; 2^31 "
                         "entries are the most",
                         b->config.limits.max_num_seqs, b->step.table_stride);
    b->attention = calloc(1, sizeof(*b->attention));
    if (b->attention == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    if (init_plan(b, err) != 0 || alloc_plans(b, err) != 0)
        return -1;
    return alloc_parts(b, err);
}

void cuda_attention_destroy(struct cuda_backend *b) {
    struct cuda_attention *attention = b->attention;
    if (attention == NULL)
        return;
    cuda_buffer_free(&b->base, &attention->part_counts);
    cuda_buffer_free(&b->base, &attention->part_state);
    cuda_buffer_free(&b->base, &attention->part_out);
    cuda_buffer_free(&b->base, &attention->plans);
    attention_plan_finish(&attention->plan);
    free(attention);
    b->attention = NULL;
}

static bool is_same_shape(const struct attention_shape *a, const struct attention_shape *b) {
    return a->num_kv_heads == b->num_kv_heads && a->group == b->group && a->window == b->window &&
           a->block_size == b->block_size;
}

void cuda_attention_plan_size(const struct cuda_backend *b, int32_t num_tokens, int32_t num_seqs,
                              size_t *out_arrays, size_t *out_words) {
    const struct cuda_attention *attention = b->attention;
    *out_arrays = *out_words = 0;
    if (attention == NULL)
        return;
    size_t num_items = (size_t)attention_plan_max_items(&attention->plan, num_tokens, num_seqs);
    size_t num_runs = (size_t)attention_plan_max_runs(&attention->plan, num_tokens, num_seqs);
    *out_arrays = 3 * NUM_PLANS;
    *out_words = NUM_PLANS * (num_items * ITEM_WORDS + num_runs * RUN_WORDS +
                              (size_t)attention_plan_num_starts(&attention->plan));
}

/* Those that no layer asked for are not made again, unless no layer asked for any. */
static void forget_unused(struct cuda_attention *attention) {
    bool any_used = false;
    for (int32_t i = 0; i < NUM_PLANS; i++)
        any_used |= attention->sent[i].is_used;
    for (int32_t i = 0; i < NUM_PLANS; i++) {
        struct sent_plan *sent = &attention->sent[i];
        if (any_used && !sent->is_used)
            sent->step = 0;
        sent->is_used = false;
    }
}

/* Makes the plan of the step for sent->shape. */
static void make_plan(struct cuda_backend *b, struct sent_plan *sent) {
    struct attention_plan *plan = &b->attention->plan;
    attention_plan_make(plan, &b->step.host, &sent->shape);
    sent->step = b->step.number;
    const int32_t num_narrow = plan->block_items[attention_plan_first_start(plan, ATTENTION_WIDE)];
    sent->has[ATTENTION_NARROW] = num_narrow > 0;
    sent->has[ATTENTION_WIDE] = num_narrow < plan->num_items;
    b->step.has_wide_tiles |= sent->has[ATTENTION_WIDE];
    sent->num_shared_prefixes = plan->num_shared_prefixes;
    sent->num_split_ranges = plan->num_split_ranges;
}

static void pack_array(struct cuda_packed *packed, void *device_dst, const void *array,
                       size_t num_words) {
    void *to = cuda_packed_add(packed, device_dst, num_words);
    if (to != NULL)
        memcpy(to, array, num_words * sizeof(int32_t));
}

void cuda_attention_pack_plans(struct cuda_backend *b, struct cuda_packed *packed) {
    struct cuda_attention *attention = b->attention;
    if (attention == NULL || packed->segments == NULL)
        return;
    const struct attention_plan *plan = &attention->plan;
    forget_unused(attention);
    b->step.has_wide_tiles = false;
    for (int32_t i = 0; i < NUM_PLANS; i++) {
        struct sent_plan *sent = &attention->sent[i];
        if (sent->step == 0)
            continue;
        make_plan(b, sent);
        pack_array(packed, sent->items, plan->items, (size_t)plan->num_items * ITEM_WORDS);
        pack_array(packed, sent->runs, plan->runs, (size_t)plan->num_runs * RUN_WORDS);
        pack_array(packed, sent->block_items, plan->block_items,
                   (size_t)attention_plan_num_starts(plan));
    }
}

/* A free one, or else the first; NULL: recordings read them all. */
static struct sent_plan *replaced_plan(struct cuda_attention *attention, uint64_t step) {
    struct sent_plan *first = NULL;
    for (int32_t i = NUM_PLANS - 1; i >= 0; i--) {
        struct sent_plan *sent = &attention->sent[i];
        if (sent->num_recordings == 0 &&
            (first == NULL || first->step == step || sent->step != step))
            first = sent;
    }
    return first;
}

/* The one for such layers that was made for this step, or keeps its place. */
static struct sent_plan *find_plan(struct cuda_attention *attention, uint64_t step,
                                   const struct attention_shape *shape) {
    for (int32_t i = 0; i < NUM_PLANS; i++) {
        struct sent_plan *sent = &attention->sent[i];
        if ((sent->step == step || sent->num_recordings > 0) && is_same_shape(&sent->shape, shape))
            return sent;
    }
    return NULL;
}

static void send_plan(struct cuda_backend *b, struct sent_plan *sent) {
    const struct attention_plan *plan = &b->attention->plan;
    make_plan(b, sent);
    cuda_staging_upload(b, sent->items, plan->items,
                        (size_t)plan->num_items * sizeof(*plan->items));
    cuda_staging_upload(b, sent->runs, plan->runs, (size_t)plan->num_runs * sizeof(*plan->runs));
    cuda_staging_upload(b, sent->block_items, plan->block_items,
                        (size_t)attention_plan_num_starts(plan) * sizeof(int32_t));
}

static const struct sent_plan *record_plan(struct cuda_attention *attention,
                                           struct sent_plan *sent) {
    uint32_t bit = UINT32_C(1) << (sent - attention->sent);
    sent->num_recordings += (attention->recorded & bit) == 0;
    sent->is_used = true;
    attention->recorded |= bit;
    return sent;
}

/* The plan of this step for such layers, on the device. */
static const struct sent_plan *plan_for(struct cuda_backend *b,
                                        const struct attention_shape *shape) {
    struct cuda_attention *attention = b->attention;
    struct sent_plan *sent = find_plan(attention, b->step.number, shape);
    bool records = b->recording != NULL && !b->step.is_recorded;
    if (records && sent != NULL)
        return record_plan(attention, sent);
    if (sent == NULL && !records)
        sent = replaced_plan(attention, b->step.number);
    if (sent == NULL) {
        error_set(&b->failure, ERROR_DEVICE,
                  records ? "a step whose attention has no plan yet cannot be recorded"
                          : "recorded steps take the place of all plans of attention");
        return NULL;
    }
    if (sent->step != b->step.number || !is_same_shape(&sent->shape, shape)) {
        sent->shape = *shape;
        send_plan(b, sent);
    }
    sent->is_used = true;
    return sent;
}

uint32_t cuda_attention_take_recorded(struct cuda_backend *b) {
    if (b->attention == NULL)
        return 0;
    uint32_t recorded = b->attention->recorded;
    b->attention->recorded = 0;
    return recorded;
}

void cuda_attention_before_replay(struct cuda_backend *b, uint32_t recorded) {
    for (int32_t i = 0; i < NUM_PLANS; i++) {
        if ((recorded >> i & 1) == 0)
            continue;
        struct sent_plan *sent = &b->attention->sent[i];
        if (sent->step != b->step.number)
            send_plan(b, sent);
        sent->is_used = true;
    }
}

void cuda_attention_forget_recorded(struct cuda_backend *b, uint32_t recorded) {
    for (int32_t i = 0; i < NUM_PLANS; i++)
        if ((recorded >> i & 1) != 0)
            b->attention->sent[i].num_recordings--;
}

/* Of the launches that are enqueued: the step that they are for. */
static bool is_known(const struct cuda_backend *b) {
    return b->recording == NULL || b->step.is_recorded;
}

/* Whether a step needs a launch for such tiles: this one, or, for what is recorded without a step,
 * any of as many tokens. */
static bool may_have(const struct cuda_backend *b, const struct sent_plan *plan,
                     enum attention_tile tile) {
    if (is_known(b))
        return plan->has[tile];
    bool all_wide = plan->shape.batch_invariant;
    if (tile == ATTENTION_NARROW)
        return !all_wide;
    return all_wide || b->step.num_tokens > 1 || plan->shape.group > ATTENTION_NARROW_ROWS;
}

static int32_t log2_of(int32_t x) {
    return __builtin_ctz((unsigned)x);
}

static void attend_latent(struct cuda_backend *b, const struct attention_args *args) {
    const struct kv_layout *layout = &args->cache->layout;
    CHECK(kv_layout_is_supported(layout) && b->config.latent_dim > 0);
    CHECK(layout->type == kv_type_of_dtype(b->base.activation_dtype));
    const struct latent_attention_launch launch = {
        .queries = args->qkv,
        .out = args->out,
        .cache = args->cache->buffer.data,
        .strides = kv_strides_of(layout, args->layer),
        .block_tables = cuda_step_tables(b, args->group),
        .positions = b->step.positions,
        .slots = cuda_step_slots(b, args->group),
        .sequences = b->step.sequences,
        .sinks = args->sinks,
        .table_stride = b->step.table_stride,
        .num_tokens = b->step.num_tokens,
        .num_q_heads = args->num_q_heads,
        .head_dim = layout->head_dim,
        .latent_dim = layout->latent_dim,
        .block_size = layout->block_size,
        .window = args->window,
        .scale = args->scale,
        .soft_cap = args->soft_cap,
        .bf16 = cuda_is_bf16(b),
    };
    if (b->step.num_tokens > 0)
        CUDA_TRY(b, launch_latent_attention(b->stream, &launch));
}

void cuda_paged_attention(struct backend *base, const struct attention_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    struct cuda_attention *attention = b->attention;
    const struct kv_layout *layout = &args->cache->layout;
    if (layout->latent_dim > 0) {
        attend_latent(b, args);
        return;
    }
    CHECK(attention != NULL && layout->head_dim <= find_kernel(b->config.head_dim)->head_dim);
    CHECK(layout->head_dim % KV_HEAD_DIM_STEP == 0 && layout->block_size % KV_TOKEN_STEP == 0);
    CHECK((layout->block_size & (layout->block_size - 1)) == 0);
    CHECK(kv_block_bytes(layout) <= UINT32_MAX);
    if (!CUDA_OK(b) || b->step.num_tokens == 0)
        return;
    const struct attention_shape shape = {.num_kv_heads = layout->num_kv_heads,
                                          .group = args->num_q_heads / layout->num_kv_heads,
                                          .window = args->window,
                                          .block_size = layout->block_size,
                                          .batch_invariant = b->config.batch_invariant};
    const struct sent_plan *plan = plan_for(b, &shape);
    if (plan == NULL)
        return;
    base->paths.shared_prefixes += (uint64_t)plan->num_shared_prefixes;
    base->paths.split_ranges += (uint64_t)plan->num_split_ranges;
    struct attention_launch launch = {
        .qkv = args->qkv,
        .out = args->out,
        .cache = args->cache->buffer.data,
        .strides = kv_strides_of(layout, args->layer),
        .block_tables = cuda_step_tables(b, args->group),
        .items = plan->items,
        .runs = plan->runs,
        .part_out = attention->part_out.data,
        .part_state = attention->part_state.data,
        .part_counts = attention->part_counts.data,
        .max_blocks_per_seq = b->step.table_stride,
        .num_q_heads = args->num_q_heads,
        .num_kv_heads = layout->num_kv_heads,
        .group = shape.group,
        .head_dim = layout->head_dim,
        .block_shift = log2_of(layout->block_size),
        .window = args->window,
        .scale = args->scale,
        .soft_cap = args->soft_cap,
        .sinks = args->sinks,
        .factor = (args->soft_cap > 0 ? args->soft_cap : args->scale) * (float)M_LOG2E,
    };
    if (args->key_biases != NULL)
        launch.key_biases = *args->key_biases;
    /* The wide ones first: a recording may leave them out, and what comes next may begin early. */
    for (int i = NUM_ATTENTION_TILES - 1; i >= 0; i--) {
        const enum attention_tile tile = (enum attention_tile)i;
        launch.block_items = plan->block_items + attention_plan_first_start(&attention->plan, tile);
        launch.num_blocks = attention->plan.num_blocks[tile];
        if (!may_have(b, plan, tile))
            continue;
        CUDA_TRY(b, launch_kernel(b, find_kernel(layout->head_dim), tile, layout->type, &launch));
        if (tile == ATTENTION_WIDE && !is_known(b) && may_have(b, plan, ATTENTION_NARROW))
            cuda_graph_add_wide_tiles(b);
    }
}
