#include "models/projection.h"
#include "models/ffn.h"

void ffn_forward(const struct forward_pass *pass, int32_t layer, const struct buffer *x) {
    struct backend *b = pass->backend;
    const struct layer_weights *w = &pass->weights->layers[layer];
    projection_apply(pass, &w->gate_up, x, &pass->wide);
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = pass->wide.data,
                                              .out = pass->narrow.data,
                                              .num_rows = pass->num_tokens,
                                              .width = pass->shard->intermediate_size,
                                              .activation = pass->config->activation});
    projection_add_to_hidden(pass, &w->down, &pass->narrow, &w->ffn_post_norm, &pass->wide);
}
