/* The FFN of a sparse layer: a mixture of experts (kernels/experts.h), and of some families an
 * expert that every token takes, whose result may be weighted by a sigmoid of the token. That one
 * is then routed too: as the only expert. */
#include "models/forward_pass.h"

/* Chooses experts by the logits of a router. */
static struct expert_choices choose(const struct forward_pass *pass,
                                    const struct projection *router, const struct buffer *x,
                                    struct route_args args) {
    struct backend *b = pass->backend;
    forward_pass_apply_whole(pass, router, x, &pass->router_logits);
    args.logits = pass->router_logits.data;
    args.num_tokens = pass->num_tokens;
    args.choices =
        expert_choices_at(pass->choices.data, pass->num_tokens, args.num_chosen, args.num_own);
    b->ops->route(b, &args);
    return args.choices;
}

static struct expert_choices choose_experts(const struct forward_pass *pass,
                                            const struct layer_weights *w, const struct buffer *x) {
    const struct moe_config *moe = &pass->config->moe;
    return choose(pass, &w->router, x,
                  (struct route_args){.bias = w->selection_bias.data,
                                      .num_experts = moe->num_experts,
                                      .num_chosen = moe->num_chosen,
                                      .own_first = pass->shard->first_expert,
                                      .num_own = pass->shard->num_experts,
                                      .scoring = moe->scoring,
                                      .renormalise = moe->renormalise,
                                      .scale = moe->scale,
                                      .num_groups = moe->num_groups,
                                      .num_chosen_groups = moe->num_chosen_groups,
                                      .group_score = moe->group_score,
                                      .jitter = moe->jitter});
}

/* The products of the chosen experts. */
static void apply(const struct forward_pass *pass, const struct projection *projection,
                  const struct expert_choices *choices, const struct buffer *x, bool per_choice,
                  const struct buffer *out) {
    struct backend *b = pass->backend;
    b->ops->linear_experts(b,
                           &(struct expert_linear_args){.x = x->data,
                                                        .per_choice = per_choice,
                                                        .weight = projection->matrix,
                                                        .choices = choices,
                                                        .out = out->data,
                                                        .num_tokens = pass->num_tokens,
                                                        .num_chosen = pass->config->moe.num_chosen,
                                                        .num_own = pass->shard->num_experts});
}

/* Where the branch's sum is, if it does not go to the hidden states at once: the inner activations
 * are no longer needed. */
static void *sum_of(const struct forward_pass *pass) {
    return forward_pass_adds_at_once(pass) ? pass->hidden.data : pass->expert_inner.data;
}

/* The shared expert's result of each token, with its weight. */
static void add_weighted(const struct forward_pass *pass, const struct layer_weights *w,
                         const struct expert_choices *choices) {
    struct backend *b = pass->backend;
    b->ops->linear(b, &(struct linear_args){.x = pass->narrow.data,
                                            .weight = w->down.matrix,
                                            .out = pass->wide.data,
                                            .num_rows = pass->num_tokens,
                                            .scale = 1.0F});
    b->ops->combine_experts(b, &(struct combine_args){.x = pass->wide.data,
                                                      .choices = choices,
                                                      .out = sum_of(pass),
                                                      .num_tokens = pass->num_tokens,
                                                      .num_chosen = 1,
                                                      .num_own = 1,
                                                      .width = pass->config->hidden_size,
                                                      .scale = forward_pass_branch_scale(pass),
                                                      .accumulate = true});
}

/* Overwrites `narrow` last: x may be there. */
static void add_shared_expert(const struct forward_pass *pass, const struct layer_weights *w,
                              const struct buffer *x) {
    struct expert_choices choices = {0};
    if (pass->config->moe.shared_gate)
        choices = choose(pass, &w->shared_router, x,
                         (struct route_args){.num_experts = 1,
                                             .num_chosen = 1,
                                             .num_own = 1,
                                             .scoring = ROUTE_SIGMOID,
                                             .scale = 1.0F,
                                             .num_groups = 1,
                                             .num_chosen_groups = 1});
    forward_pass_apply(pass, &w->gate_up, x, &pass->wide);
    forward_pass_gate(pass, &pass->wide, &pass->narrow, pass->num_tokens, pass->shard->shared_size);
    if (pass->config->moe.shared_gate)
        add_weighted(pass, w, &choices);
    else
        forward_pass_add_part(pass, &w->down, &pass->narrow, &pass->expert_inner);
}

void forward_pass_moe(const struct forward_pass *pass, int32_t layer, const struct buffer *x) {
    struct backend *b = pass->backend;
    const struct model_shard *shard = pass->shard;
    const struct moe_config *moe = &pass->config->moe;
    const struct layer_weights *w = &pass->weights->layers[layer];
    const struct expert_choices choices = choose_experts(pass, w, x);
    apply(pass, &w->expert_gate_up, &choices, x, false, &pass->wide);
    forward_pass_gate(pass, &pass->wide, &pass->expert_inner, pass->num_tokens * moe->num_chosen,
                      shard->expert_size);
    apply(pass, &w->expert_down, &choices, &pass->expert_inner, true, &pass->wide);
    b->ops->combine_experts(b,
                            &(struct combine_args){.x = pass->wide.data,
                                                   .choices = &choices,
                                                   .out = sum_of(pass),
                                                   .num_tokens = pass->num_tokens,
                                                   .num_chosen = moe->num_chosen,
                                                   .own_first = shard->first_expert,
                                                   .num_own = shard->num_experts,
                                                   .width = pass->config->hidden_size,
                                                   .scale = forward_pass_branch_scale(pass),
                                                   .accumulate = forward_pass_adds_at_once(pass)});
    if (moe->shared_size > 0)
        add_shared_expert(pass, w, x);
    forward_pass_end_branch(pass, &pass->expert_inner, &w->ffn_post_norm);
}
