/* Private to kernels/cpu: state of the CPU backend, and its ops by file.
 *
 * The inner loops are in files compiled once per instruction set. They are called through two
 * tables: the formats of the matrix product (cpu_gemm_format.h) and the other ops' functions
 * (cpu_op_kernels.h). Both are filled once, in backend_open (cpu_levels.h). */
#ifndef QUIRE_KERNELS_CPU_CPU_BACKEND_H
#define QUIRE_KERNELS_CPU_CPU_BACKEND_H

#include "kernels/backend.h"
#include "kernels/cpu/memory/cpu_arena.h"
#include "kernels/cpu/ranks/cpu_group.h"
#include "kernels/cpu/levels/cpu_levels.h"
#include "kernels/cpu/ranks/cpu_pipeline.h"
#include "kernels/thread_pool.h"

#define CPU_KV_TYPES (KV_TYPE_BIT(NUM_KV_TYPES) - 1) /* all of them */

struct cpu_row_packing;  /* cpu_gemm_format.h */
struct cpu_gemm_scratch; /* packed activations of one linear call */
struct cpu_page_ahead;   /* cpu_page_ahead.h */
struct cpu_op_scratch;   /* partial attention results, sampling buffers */
struct cpu_sample_request;
struct cpu_sample_answer;

/* What the ranks exchange in one call of sample_vocab_parallel. Rows are those of the call. */
struct cpu_sample_parallel {
    struct cpu_sample_request *requests; /* [rows] of rank 0 */
    struct cpu_sample_answer *own;       /* [rows] of this rank */
    /* On rank 0: */
    struct cpu_sample_answer *answers; /* [ranks][rows] */
    double *totals;                    /* [rows] the weight of all tokens, if needed */
    int32_t *lengths; /* [ranks][rows] floats that are gathered; on other ranks [rows] */
    int32_t *tokens;  /* [rows] the likeliest, or the target */
    struct buffer memory;
};

struct cpu_backend {
    struct backend base;
    struct backend_config config;
    struct thread_pool *pool;
    struct cpu_rank rank;
    struct cpu_stage stage;
    struct cpu_sample_parallel sample_parallel;
    struct cpu_arena weights;
    struct cpu_kernels kernels;
    const struct cpu_op_kernels *op; /* those of `kernels` */
    struct cpu_gemm_scratch *gemm_scratch;
    struct cpu_op_scratch *op_scratch;
    struct cpu_page_ahead *page_ahead; /* of the KV pool */
    struct step_inputs step;
    struct buffer sampled_tokens; /* int32_t [serving_limits_max_sample_rows] */
};

/* Returns the id of token t of a step; `sampled` are the tokens that the previous step sampled. */
static inline int32_t cpu_token_id(const struct step_inputs *step,
                                   const struct buffer *sampled_tokens, int64_t t) {
    int32_t row = step->token_rows != NULL ? step->token_rows[t] : -1;
    return row >= 0 ? ((const int32_t *)sampled_tokens->data)[row] : step->token_ids[t];
}

/* cpu_gemm.c: its workspace grows as matrices are created, so that `linear` never allocates. The
 * destructor accepts one that was never created. `reserve` makes room for the rows of a matrix with
 * `cols` columns in that packing, `number_matrix` for what is learned about the matrix. */
int cpu_gemm_scratch_create(struct cpu_backend *b, struct error *err);
void cpu_gemm_scratch_destroy(struct cpu_backend *b);
int cpu_gemm_scratch_reserve(struct cpu_backend *b, const struct cpu_row_packing *packing,
                             int32_t cols, struct error *err);
int cpu_gemm_number_matrix(struct cpu_backend *b, struct matrix *matrix, struct error *err);
void cpu_linear(struct backend *b, const struct linear_args *args);

/* cpu_matrix.c */
extern const struct packing_ops cpu_matrix_packing;
int cpu_matrix_create(struct backend *b, const struct matrix_part *parts, int num_parts,
                      int32_t cols, enum matrix_use use, struct matrix **out, struct error *err);
int cpu_matrix_fill(struct backend *b, struct matrix *matrix, int32_t first_row, int32_t num_rows,
                    const void *data, struct error *err);
void cpu_matrix_destroy(struct backend *b, struct matrix *matrix);
void cpu_embed(struct backend *b, const struct embed_args *args);

/* cpu_ops.c, cpu_attention.c, cpu_sample.c */
void cpu_norm(struct backend *b, const struct norm_args *args);
void cpu_rope_store_kv(struct backend *b, const struct rope_store_args *args);
void cpu_store_latent(struct backend *b, const struct latent_store_args *args);
void cpu_paged_attention(struct backend *b, const struct attention_args *args);
void cpu_act_mul(struct backend *b, const struct act_mul_args *args);
void cpu_soft_cap(struct backend *b, const struct soft_cap_args *args);
void cpu_gather_rows(struct backend *b, const struct gather_rows_args *args);
void cpu_scatter_rows(struct backend *b, const struct scatter_rows_args *args);
void cpu_add_rows(struct backend *b, const struct add_rows_args *args);
void cpu_sample(struct backend *b, const struct sample_args *args);
/* Returns the bytes of the plan of a step of num_tokens tokens. */
size_t cpu_attention_plan_bytes(int32_t num_tokens);

/* cpu_experts.c */
void cpu_route(struct backend *b, const struct route_args *args);
void cpu_choose_adapters(struct backend *b, const struct choose_adapters_args *args);
void cpu_linear_experts(struct backend *b, const struct expert_linear_args *args);
bool cpu_linear_adapters(struct backend *b, const struct adapter_linear_args *args);
void cpu_linear_heads(struct backend *b, const struct head_linear_args *args);
void cpu_combine_experts(struct backend *b, const struct combine_args *args);

/* cpu_sample_parallel.c */
/* Allocates for max_logit_rows; nothing without a group. Fails with ERROR_MEMORY. */
int cpu_sample_parallel_init(struct cpu_sample_parallel *out, const struct cpu_rank *rank,
                             const struct serving_limits *limits, struct error *err);
void cpu_sample_parallel_finish(struct cpu_sample_parallel *p); /* accepts a zeroed one */
void cpu_sample_vocab_parallel(struct backend *b, const struct vocab_parallel_sample_args *args);

/* cpu_blocks.c: for both CPU backends */
void cpu_copy_blocks(struct backend *b, const struct copy_blocks_args *args);
void cpu_swap_blocks(struct backend *b, const struct swap_blocks_args *args);

/* cpu_ref.c: the oracle; plain scalar loops that sum in double. Matrices are stored as float.
 * Returns NULL on failure. */
struct backend *cpu_ref_open(const struct backend_config *config, struct error *err);
/* cpu_backend.c */
struct backend *cpu_backend_open(const struct backend_config *config, struct error *err);

#endif
