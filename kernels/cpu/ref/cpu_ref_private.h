/* Private to the oracle: its state, and the ops that have their own files. */
#ifndef QUIRE_KERNELS_CPU_REF_CPU_REF_PRIVATE_H
#define QUIRE_KERNELS_CPU_REF_CPU_REF_PRIVATE_H

#include "kernels/backend.h"
#include "kernels/cpu/ranks/cpu_group.h"
#include "kernels/cpu/ranks/cpu_pipeline.h"

struct cpu_ref {
    struct backend base;
    struct cpu_rank rank;
    struct cpu_stage stage;
    struct step_inputs step;
    int32_t max_sample_rows;
    struct buffer sampled_tokens; /* int32_t [max_sample_rows] */
};

/* Weights as float, whatever the file's types. */
struct matrix {
    int32_t rows;
    int32_t cols;
    int num_parts;
    struct matrix_part *parts; /* without data and bias */
    const float *bias;         /* [rows], after data */
    float data[];              /* [rows, cols] */
};

/* cpu_ref_attention.c */
void cpu_ref_rope_store_kv(struct backend *b, const struct rope_store_args *args);
void cpu_ref_store_latent(struct backend *b, const struct latent_store_args *args);
void cpu_ref_paged_attention(struct backend *b, const struct attention_args *args);

/* cpu_ref_experts.c */
void cpu_ref_route(struct backend *b, const struct route_args *args);
void cpu_ref_choose_adapters(struct backend *b, const struct choose_adapters_args *args);
void cpu_ref_linear_experts(struct backend *b, const struct expert_linear_args *args);
void cpu_ref_linear_heads(struct backend *b, const struct head_linear_args *args);
void cpu_ref_combine_experts(struct backend *b, const struct combine_args *args);

/* cpu_ref_sample.c */
void cpu_ref_sample(struct backend *b, const struct sample_args *args);

#endif
