/* A mixture of experts (Shazeer et al., 2017): which experts compute a token, and products with the
 * weights of those alone.
 *
 * Each of T tokens chooses k of E experts. Choice j of token t is number t * k + j. `route` fills
 * struct expert_choices; `linear_experts` multiplies by it, `combine_experts` sums a token's
 * choices. Sizes depend on T, k and E only, never on what is chosen, so recorded steps can hold
 * these ops. A rank may have only some of the experts (own_first, num_own): it computes the choices
 * of those, and the ranks' sums are added.
 *
 * Low-rank adapters (LoRA; Hu et al., 2021) are the same products: each token takes the two small
 * matrices of its sequence's adapter, or none (choose_adapters). */
#ifndef QUIRE_KERNELS_EXPERTS_H
#define QUIRE_KERNELS_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct matrix;

#define EXPERTS_MAX 1024
#define EXPERTS_MAX_CHOSEN 32

/* How logits become scores, of which the largest are chosen. */
enum route_scoring {
    ROUTE_SOFTMAX,           /* over all experts: Mixtral, Qwen, OLMoE, DeepSeek-V2 */
    ROUTE_SOFTMAX_OF_CHOSEN, /* over the chosen ones alone: Granite, gpt-oss */
    ROUTE_SIGMOID,           /* each by itself: DeepSeek-V3, GLM-4.5; Qwen2-MoE's shared expert */
    /* Phi-3.5-MoE (Liu et al., "GRIN", 2024), one choice after the other by the largest logit m of
     * the experts not yet chosen: its weight is its softmax over those of them whose logit x has
     * (m - x) / max(|x|, m) <= 2 jitter. */
    ROUTE_SPARSEMIXER,
};

/* How the experts of a group make its score, when only some groups can be chosen from. */
enum route_group_score {
    ROUTE_GROUP_MAX,  /* DeepSeek-V2 */
    ROUTE_GROUP_TOP2, /* the sum of the two largest: DeepSeek-V3 */
};

/* Device memory, in one buffer of expert_choices_bytes. */
struct expert_choices {
    int32_t *experts; /* [T][k], by descending score; equal scores: the lower number first; -1:
                         none (choose_adapters) */
    float *weights;   /* [T][k] */
    int32_t *order;   /* [T * k] own choices by expert, those of an expert in ascending order */
    int32_t *first;   /* [num_own + 1] where each own expert's choices begin in `order` */
};

/* Returns the bytes of the choices of num_tokens tokens; SIZE_MAX on overflow. */
size_t expert_choices_bytes(int32_t num_tokens, int32_t num_chosen, int32_t num_own);
/* Divides such a buffer. */
struct expert_choices expert_choices_at(void *data, int32_t num_tokens, int32_t num_chosen,
                                        int32_t num_own);

/* Scores decide the choice, after `bias` was added to them; weights are the scores without it.
 * Logits that are NaN count as the smallest: whatever they are, k different experts are chosen. */
struct route_args {
    const float *logits; /* [num_tokens, num_experts] device memory */
    const float *bias;   /* [num_experts] device memory; NULL: none */
    struct expert_choices choices;
    int32_t num_tokens;
    int32_t num_experts, num_chosen;
    int32_t own_first, num_own; /* the rank's experts */
    enum route_scoring scoring;
    bool renormalise; /* a token's weights are divided by their sum (plus 1e-20) */
    float scale;      /* multiplies the weights */
    int32_t num_groups, num_chosen_groups; /* consecutive experts make a group; 1, 1: no groups */
    enum route_group_score group_score;
    float jitter; /* ROUTE_SPARSEMIXER */
};

/* The weight has the parts of every own expert, one expert after the other: [num_own * rows, cols].
 * Row t * k + j of `out` is the product, with the bias, of the token's or the choice's row of x
 * with the expert's [rows, cols]. Rows of other ranks' choices are left as they are. */
struct expert_linear_args {
    const void *x; /* [num_tokens, cols], or [num_tokens * num_chosen, cols] if per_choice */
    bool per_choice;
    const struct matrix *weight;
    const struct expert_choices *choices;
    void *out; /* [num_tokens * num_chosen, rows] of activation_dtype */
    int32_t num_tokens, num_chosen, num_own;
    int32_t x_stride, out_stride; /* elements from row to row; 0: cols, and rows */
    bool accumulate;              /* out += the product */
};

#define ADAPTER_MAX_PARTS 3 /* of a projection: q, k and v */

/* out += B (A x) for the tokens that have an adapter: the product of `linear_experts` with A, then
 * of each part's columns of it with the part's B, with the same bits. Rows of other tokens are left
 * as they are. */
struct adapter_linear_args {
    const void *x;                 /* [num_tokens, cols of A] */
    const struct matrix *a;        /* [num_slots * num_parts * rank, cols] */
    const struct matrix *const *b; /* [num_parts] of [num_slots * its columns of out, rank] */
    const struct expert_choices *choices; /* of choose_adapters */
    void *inner;                          /* overwritten: [num_tokens, num_parts * rank] */
    void *out;                            /* [num_tokens, columns of all parts] */
    int32_t num_parts, num_tokens, num_slots;
};

/* Fills `choices`, of one choice for each of num_tokens tokens of the step: the adapter slot of the
 * token's sequence (step_inputs.adapter_slots), -1 if it has none, as of the step's padding. Slots
 * are the experts, all of them own. */
struct choose_adapters_args {
    struct expert_choices choices; /* weights are not written */
    int32_t num_tokens, num_slots;
};

/* out[t] = or += scale * sum over own choices j of token t, in ascending order and in float, of
 * weights[t][j] * x[t * k + j]. */
struct combine_args {
    const void *x; /* [num_tokens * num_chosen, width] */
    const struct expert_choices *choices;
    void *out; /* [num_tokens, width]; not x */
    int32_t num_tokens, num_chosen;
    int32_t own_first, num_own;
    int32_t width;
    float scale;
    bool accumulate;
};

#endif
