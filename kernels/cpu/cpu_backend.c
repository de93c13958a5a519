#include "kernels/cpu/cpu_backend.h"
#include "kernels/kv_type.h"
#include "kernels/matrix_part.h"

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/memory/cpu_memory.h"
#include "kernels/cpu/memory/cpu_op_scratch.h"
#include "kernels/cpu/memory/cpu_page_ahead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cpu_backend *state_of(struct backend *b) {
    return (struct cpu_backend *)b;
}

static void cpu_destroy(struct backend *base) {
    struct cpu_backend *b = state_of(base);
    cpu_memory_free(&b->sampled_tokens);
    cpu_sample_parallel_finish(&b->sample_parallel);
    cpu_rank_finish(&b->rank);
    cpu_op_scratch_destroy(b->op_scratch);
    cpu_gemm_scratch_destroy(b);
    cpu_page_ahead_destroy(b->page_ahead);
    thread_pool_destroy(b->pool);
    free(b);
}

static int cpu_buffer_alloc(struct backend *b, size_t bytes, struct buffer *out,
                            struct error *err) {
    return cpu_memory_alloc(bytes, out, err);
}

static void cpu_buffer_free(struct backend *b, struct buffer *buffer) {
    cpu_page_ahead_forget(state_of(b)->page_ahead, buffer);
    cpu_memory_free(buffer);
}

static void cpu_copy(struct backend *b, void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
}

static void cpu_memory_info_op(struct backend *b, size_t *out_free, size_t *out_total) {
    cpu_memory_info("", out_free, out_total);
}

static void cpu_step_end(struct backend *b) {
    thread_pool_step_end(state_of(b)->pool);
}

/* Every op has done its work when it returns; what can fail are messages of other ranks. */
static int cpu_step_wait(struct backend *base, struct error *err) {
    const struct cpu_backend *b = state_of(base);
    return cpu_rank_status(&b->rank, err) == 0 ? cpu_stage_status(&b->stage, err) : -1;
}

static int cpu_synchronize(struct backend *b, struct error *err) {
    cpu_step_end(b);
    return cpu_step_wait(b, err);
}

static void cpu_step_begin(struct backend *b, const struct step_inputs *inputs) {
    state_of(b)->step = *inputs;
    thread_pool_step_begin(state_of(b)->pool);
}

static void cpu_all_reduce(struct backend *b, const struct all_reduce_args *args) {
    cpu_group_all_reduce(&state_of(b)->rank, args);
}

static void cpu_gather_columns(struct backend *b, const struct gather_columns_args *args) {
    cpu_group_gather_columns(&state_of(b)->rank, args);
}

static void cpu_share_samples(struct backend *b, const struct share_samples_args *args) {
    cpu_group_share_samples(&state_of(b)->rank, args, state_of(b)->sampled_tokens.data);
}

/* Waiting is not load on the machine: the step's time ends before it, or begins after. Rows that
 * are wrong because another rank is missing go no further. */
static void cpu_send_rows(struct backend *b, const struct stage_rows_args *args) {
    cpu_step_end(b);
    if (cpu_step_wait(b, NULL) == 0)
        cpu_stage_send(&state_of(b)->stage, args);
}

static void cpu_receive_rows(struct backend *b, const struct stage_rows_args *args) {
    if (cpu_step_wait(b, NULL) == 0)
        cpu_stage_receive(&state_of(b)->stage, args);
}

static const struct backend_ops cpu_backend_ops = {
    .destroy = cpu_destroy,
    .buffer_alloc = cpu_buffer_alloc,
    .buffer_free = cpu_buffer_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .host_alloc = cpu_buffer_alloc,
    .host_free = cpu_buffer_free,
    .host_pin = backend_pins_nothing,
    .host_unpin = backend_unpins_nothing,
    .memory_info = cpu_memory_info_op,
    .synchronize = cpu_synchronize,
    .matrix_bytes = matrix_part_bytes,
    .matrix_create = cpu_matrix_create,
    .matrix_fill = cpu_matrix_fill,
    .matrix_destroy = cpu_matrix_destroy,
    .step_begin = cpu_step_begin,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .linear = cpu_linear,
    .rope_store_kv = cpu_rope_store_kv,
    .paged_attention = cpu_paged_attention,
    .act_mul = cpu_act_mul,
    .route = cpu_route,
    .choose_adapters = cpu_choose_adapters,
    .linear_experts = cpu_linear_experts,
    .linear_adapters = cpu_linear_adapters,
    .linear_heads = cpu_linear_heads,
    .store_latent = cpu_store_latent,
    .combine_experts = cpu_combine_experts,
    .soft_cap = cpu_soft_cap,
    .gather_rows = cpu_gather_rows,
    .scatter_rows = cpu_scatter_rows,
    .add_rows = cpu_add_rows,
    .sample = cpu_sample,
    .all_reduce = cpu_all_reduce,
    .gather_columns = cpu_gather_columns,
    .share_samples = cpu_share_samples,
    .sample_vocab_parallel = cpu_sample_vocab_parallel,
    .send_rows = cpu_send_rows,
    .receive_rows = cpu_receive_rows,
    .copy_blocks = cpu_copy_blocks,
    .swap_blocks = cpu_swap_blocks,
    .step_end = cpu_step_end,
    .step_wait = cpu_step_wait,
    .packing = &cpu_matrix_packing,
};

/* A level that was named is used with all it has; else what is fastest here. NULL on failure. */
static const struct cpu_level *choose_kernels(struct cpu_backend *b, struct error *err) {
    const char *isa = b->config.isa;
    const struct cpu_level *level = cpu_levels_select(isa, err);
    if (isa == NULL || strcmp(isa, "auto") == 0)
        level = cpu_levels_fill_fastest(b->config.activation_dtype == DTYPE_BF16, &b->kernels);
    else if (level != NULL)
        cpu_levels_fill(level, &b->kernels);
    b->op = &b->kernels.op;
    return level;
}

static void describe(struct cpu_backend *b, const struct cpu_level *level) {
    const char *products = b->kernels.formats[DTYPE_BF16]->numerics;
    const char *fp8_products = b->kernels.formats[DTYPE_E4M3_128]->numerics;
    snprintf(b->base.description, sizeof(b->base.description), "%s, %d thread%s", level->label,
             b->config.num_threads, b->config.num_threads == 1 ? "" : "s");
    /* The system's libm chooses its own code paths by the machine's capabilities. */
    snprintf(b->base.numerics, sizeof(b->base.numerics), "%s on %s%s%s%s%s", level->name,
             cpu_levels_select(NULL, NULL)->name, products != NULL ? "; BF16 products by " : "",
             products != NULL ? products : "", fp8_products != NULL ? "; FP8 products by " : "",
             fp8_products != NULL ? fp8_products : "");
    for (enum kv_type type = 0; type < NUM_KV_TYPES; type++) {
        const char *attention = b->kernels.op.attention[type].numerics;
        size_t used = strlen(b->base.numerics);
        if (attention != NULL)
            snprintf(b->base.numerics + used, sizeof(b->base.numerics) - used,
                     "; attention with %s by %s", kv_type_name(type), attention);
    }
}

static int open_parts(struct cpu_backend *b, struct error *err) {
    const struct cpu_level *level = choose_kernels(b, err);
    if (level == NULL)
        return -1;
    b->pool = thread_pool_create(b->config.num_threads, err);
    if (b->pool == NULL)
        return -1;
    b->config.num_threads = thread_pool_size(b->pool);
    if (cpu_rank_init(&b->rank, &b->config, b->pool, err) != 0 ||
        cpu_stage_init(&b->stage, &b->config, err) != 0 ||
        cpu_sample_parallel_init(&b->sample_parallel, &b->rank, &b->config.limits, err) != 0)
        return -1;
    b->config.isa = level->name;
    describe(b, level);
    if (cpu_gemm_scratch_create(b, err) != 0)
        return -1;
    b->op_scratch = cpu_op_scratch_create(
        b->config.num_threads, cpu_attention_plan_bytes(b->config.limits.max_num_batched_tokens),
        err);
    if (b->op_scratch == NULL)
        return -1;
    b->page_ahead = cpu_page_ahead_create(err);
    if (b->page_ahead == NULL)
        return -1;
    size_t num_rows = (size_t)serving_limits_max_sample_rows(&b->config.limits);
    return cpu_memory_alloc(num_rows * sizeof(int32_t), &b->sampled_tokens, err);
}

struct backend *cpu_backend_open(const struct backend_config *config, struct error *err) {
    struct cpu_backend *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        error_set(err, ERROR_MEMORY, "out of memory for the cpu device");
        return NULL;
    }
    b->base = (struct backend){.ops = &cpu_backend_ops,
                               .activation_dtype = DTYPE_F32,
                               .head_rows_step = 1,
                               .kv_types = CPU_KV_TYPES,
                               .name = "cpu"};
    b->config = *config;
    if (open_parts(b, err) != 0) {
        cpu_destroy(&b->base);
        return NULL;
    }
    return &b->base;
}
