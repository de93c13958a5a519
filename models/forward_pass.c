#include "models/forward_pass.h"

void forward_pass_norm(const struct forward_pass *pass, const struct buffer *weight, const void *x,
                       void *out, int32_t num_rows, bool accumulate) {
    struct backend *b = pass->backend;
    const struct model_config *config = pass->config;
    b->ops->norm(b, &(struct norm_args){.x = x,
                                        .weight = weight->data,
                                        .out = out,
                                        .num_rows = num_rows,
                                        .row_stride = config->hidden_size,
                                        .num_groups = 1,
                                        .width = config->hidden_size,
                                        .epsilon = config->norm_eps,
                                        .center = config->norm == NORM_LAYER,
                                        .accumulate = accumulate});
}
