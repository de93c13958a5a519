/* The ops of a mixture of experts: one kernel each, or two. */
#include "config/base/check.h"
#include "kernels/cuda/experts/expert_launch.h"
#include "kernels/cuda/matrix/cuda_packed_weights.h"
#include "kernels/cuda/state/cuda_check.h"

void cuda_route(struct backend *base, const struct route_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(args->num_experts <= EXPERTS_MAX && args->num_chosen <= EXPERTS_MAX_CHOSEN);
    CHECK(args->num_chosen <= args->num_experts / args->num_groups * args->num_chosen_groups);
    if (args->num_tokens > 0)
        CUDA_TRY(b, launch_route(b->stream, args));
}

/* An op for a step without adapters finds nothing in the array: there is none to choose. */
void cuda_choose_adapters(struct backend *base, const struct choose_adapters_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const bool has_slots = b->step.host.adapter_slots != NULL || b->step.host.num_tokens == 0;
    if (args->num_tokens > 0)
        CUDA_TRY(b,
                 launch_choose_adapters(b->stream, has_slots ? b->step.adapter_slots : NULL, args));
}

/* Packed weights of experts are one segment (cuda_matrix.c). */
static void multiply(struct cuda_backend *b, const struct matrix *weight,
                     const struct expert_product_launch *launch) {
    const struct matrix_segment *packed = &weight->segments[0];
    if (weight->values == NULL)
        CUDA_TRY(b, launch_packed_experts(b->stream, packed->form, &packed->planes, launch));
    else
        CUDA_TRY(b, launch_expert_product(b->stream, launch));
}

void cuda_linear_experts(struct backend *base, const struct expert_linear_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct matrix *weight = args->weight;
    CHECK(weight->rows % args->num_own == 0);
    const struct expert_product_launch launch = {
        .x = args->x,
        .weight = weight->values,
        .bias = weight->float_bias,
        .out = args->out,
        .choices = *args->choices,
        .num_choices = args->num_tokens * args->num_chosen,
        .row_choices = args->per_choice ? 1 : args->num_chosen,
        .num_own = args->num_own,
        .rows = weight->rows / args->num_own,
        .cols = weight->cols,
        .x_stride = args->x_stride > 0 ? args->x_stride : weight->cols,
        .out_stride = args->out_stride > 0 ? args->out_stride : weight->rows / args->num_own,
        .accumulate = args->accumulate,
        .bf16 = cuda_is_bf16(b),
    };
    if (args->num_tokens > 0)
        multiply(b, weight, &launch);
}

void cuda_linear_heads(struct backend *base, const struct head_linear_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct matrix *weight = args->weight;
    const struct expert_product_launch launch = {
        .x = args->x,
        .weight = weight->values,
        .bias = weight->float_bias,
        .out = args->out,
        .num_choices = args->num_tokens * args->num_heads,
        .row_choices = 1,
        .num_own = args->num_heads,
        .num_tokens = args->num_tokens,
        .rows = weight->rows / args->num_heads,
        .cols = weight->cols,
        .x_stride = args->x_stride,
        .out_stride = args->out_stride,
        .bf16 = cuda_is_bf16(b),
    };
    if (args->num_tokens > 0)
        multiply(b, weight, &launch);
}

void cuda_combine_experts(struct backend *base, const struct combine_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct expert_combine_launch launch = {
        .x = args->x,
        .out = args->out,
        .choices = *args->choices,
        .num_tokens = args->num_tokens,
        .num_chosen = args->num_chosen,
        .own_first = args->own_first,
        .num_own = args->num_own,
        .width = args->width,
        .scale = args->scale,
        .accumulate = args->accumulate,
        .bf16 = cuda_is_bf16(b),
    };
    if (args->num_tokens > 0)
        CUDA_TRY(b, launch_expert_combine(b->stream, &launch));
}
