#include "models/projection.h"

#include "config/base/check.h"
#include "models/forward_pass.h"

static void multiply(const struct forward_pass *pass, const struct projection *projection,
                     const void *x, void *out, float scale, bool accumulate) {
    struct backend *b = pass->backend;
    b->ops->linear(b, &(struct linear_args){.x = x,
                                            .weight = projection->matrix,
                                            .out = out,
                                            .num_rows = pass->num_tokens,
                                            .scale = scale,
                                            .accumulate = accumulate});
}

void projection_apply(const struct forward_pass *pass, const struct projection *projection,
                      const struct buffer *x, const struct buffer *out) {
    CHECK(model_shard_cut_of(projection->role) == COLUMN_PARALLEL);
    multiply(pass, projection, x->data, out->data, 1.0F, false);
}

/* The ranks' partial sums in `x` become one, which is added to `out`, or put there. */
static void reduce(const struct forward_pass *pass, const void *x, void *out, bool accumulate) {
    struct backend *b = pass->backend;
    b->ops->all_reduce(b, &(struct all_reduce_args){.x = x,
                                                    .out = out,
                                                    .num_rows = pass->num_tokens,
                                                    .width = pass->config->hidden_size,
                                                    .accumulate = accumulate});
}

/* A product that nothing else touches goes to the hidden states at once. */
void projection_add_to_hidden(const struct forward_pass *pass, const struct projection *projection,
                              const struct buffer *x, const struct buffer *post_norm,
                              const struct buffer *scratch) {
    const struct model_config *config = pass->config;
    bool is_divided = pass->shard->num_ranks > 1, post = config->post_norm;
    bool at_once = !is_divided && !post;
    CHECK(model_shard_cut_of(projection->role) == ROW_PARALLEL);
    multiply(pass, projection, x->data, at_once ? pass->hidden.data : scratch->data,
             post ? 1.0F : config->residual_scale, at_once);
    if (is_divided)
        reduce(pass, scratch->data, post ? scratch->data : pass->hidden.data, !post);
    if (post)
        forward_pass_norm(pass, post_norm, scratch->data, pass->hidden.data, pass->num_tokens,
                          true);
}
