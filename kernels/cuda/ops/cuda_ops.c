/* The ops that are one kernel or copy each. An empty one enqueues nothing: a grid of no blocks is
 * an error to CUDA. */
#include "config/base/numbers.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ops/cuda_collectives.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/cuda/ops/elementwise_launch.h"
#include "kernels/cuda/ops/rope_store_launch.h"

void cuda_norm(struct backend *base, const struct norm_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    struct norm_launch launch = {
        .x = args->x,
        .weight = args->weight,
        .bias = args->bias,
        .out = args->out,
        .num_rows = args->num_rows,
        .row_stride = args->row_stride,
        .width = args->width,
        .epsilon = args->epsilon,
        .center = args->center,
        .accumulate = args->accumulate,
        .bf16 = cuda_is_bf16(b),
        .begins_early = b->level->begins_early,
    };
    if (args->total_width > 0 && b->comm != NULL)
        cuda_norm_over_ranks(b, args);
    else if (launch.num_rows > 0)
        CUDA_TRY(b, launch_norm(b->stream, &launch));
}

void cuda_act_mul(struct backend *base, const struct act_mul_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    if (args->num_rows > 0)
        CUDA_TRY(b, launch_act_mul(b->stream, cuda_is_bf16(b), args));
}

void cuda_soft_cap(struct backend *base, const struct soft_cap_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    if (args->num_rows > 0)
        CUDA_TRY(b, launch_soft_cap(b->stream, args->x, (int64_t)args->num_rows * args->width,
                                    args->cap));
}

void cuda_gather_rows(struct backend *base, const struct gather_rows_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const int32_t *sent = cuda_step_logit_rows(b, args->rows);
    if (sent != NULL) {
        if (args->num_rows > 0)
            CUDA_TRY(b, launch_gather_rows(b->stream, args->x, sent, args->out, args->num_rows,
                                           args->width));
        return;
    }
    size_t row_bytes = dtype_row_bytes(base->activation_dtype, (size_t)args->width);
    for (int32_t first = 0, count; first < args->num_rows && CUDA_OK(b); first += count) {
        count = min_int32(args->num_rows - first, CUDA_LIST_LENGTH);
        cuda_staging_upload(b, b->step.list, args->rows + first, (size_t)count * sizeof(int32_t));
        CUDA_TRY(b, launch_gather_rows(b->stream, args->x, b->step.list,
                                       (char *)args->out + (size_t)first * row_bytes, count,
                                       args->width));
    }
}

void cuda_scatter_rows(struct backend *base, const struct scatter_rows_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    size_t row_bytes = dtype_row_bytes(base->activation_dtype, (size_t)args->width);
    for (int32_t first = 0, count; first < args->num_rows && CUDA_OK(b); first += count) {
        count = min_int32(args->num_rows - first, CUDA_LIST_LENGTH);
        cuda_staging_upload(b, b->step.list, args->rows + first, (size_t)count * sizeof(int32_t));
        CUDA_TRY(b,
                 launch_scatter_rows(b->stream, (const char *)args->x + (size_t)first * row_bytes,
                                     b->step.list, args->out, count, args->width));
    }
}

_Static_assert(sizeof(struct row_span) == 2 * sizeof(int32_t), "a span is a pair in the list");

void cuda_add_rows(struct backend *base, const struct add_rows_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    for (int32_t first = 0, count; first < args->num_spans && CUDA_OK(b); first += count) {
        count = min_int32(args->num_spans - first, CUDA_LIST_LENGTH / 2);
        cuda_staging_upload(b, b->step.list, args->spans + first,
                            (size_t)count * sizeof(*args->spans));
        CUDA_TRY(b, launch_add_rows(b->stream, cuda_is_bf16(b), args->x, b->step.list,
                                    args->sums + (size_t)first * (size_t)args->width, count,
                                    args->width));
    }
}

void cuda_rope_store_kv(struct backend *base, const struct rope_store_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    if (b->step.num_tokens == 0)
        return;
    struct rope_store_launch launch = {
        .qkv = args->qkv,
        .rope_table = args->rope_table,
        .q_norm = args->q_norm,
        .k_norm = args->k_norm,
        .norm_epsilon = args->norm_epsilon,
        .positions = b->step.positions,
        .slots = cuda_step_slots(b, args->group),
        .cache = args->cache->buffer.data,
        .layout = args->cache->layout,
        .layer = args->layer,
        .num_tokens = b->step.num_tokens,
        .num_q_heads = args->num_q_heads,
        .rotary_dim = args->rope_table != NULL ? args->rotary_dim : 0,
        .interleaved = args->interleaved,
        .bf16 = cuda_is_bf16(b),
        .begins_early = b->level->begins_early,
    };
    CUDA_TRY(b, launch_rope_store(b->stream, &launch));
}

void cuda_store_latent(struct backend *base, const struct latent_store_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct latent_store_launch launch = {
        .q = args->q,
        .kv = args->kv,
        .queries = args->queries,
        .rope_table = args->rope_table,
        .positions = b->step.positions,
        .slots = cuda_step_slots(b, args->group),
        .cache = args->cache->buffer.data,
        .layout = args->cache->layout,
        .layer = args->layer,
        .num_tokens = b->step.num_tokens,
        .num_q_heads = args->num_q_heads,
        .q_dim = args->q_dim,
        .rotary_dim = args->rotary_dim,
        .interleaved = args->interleaved,
        .bf16 = cuda_is_bf16(b),
    };
    if (b->step.num_tokens > 0)
        CUDA_TRY(b, launch_latent_store(b->stream, &launch));
}
