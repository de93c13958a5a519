/* What a layer that predicts further tokens reads besides tokens (config/mtp.h). */
#include "models/forward_pass.h"

#include "config/base/check.h"

/* One of the two terms of the projection, of rows in `x`, which may be `narrow`. */
static void project(const struct forward_pass *pass, const struct buffer *norm, const void *x,
                    const struct matrix *weight, bool accumulate) {
    struct backend *b = pass->backend;
    forward_pass_norm(pass, norm, x, pass->narrow.data, pass->num_tokens, false);
    b->ops->linear(b, &(struct linear_args){.x = pass->narrow.data,
                                            .weight = weight,
                                            .out = pass->hidden.data,
                                            .num_rows = pass->num_tokens,
                                            .scale = 1.0F,
                                            .accumulate = accumulate});
}

void forward_pass_mtp_input(const struct forward_pass *pass, const struct buffer *states,
                            const int32_t *slots) {
    const struct weights *w = pass->weights;
    struct backend *b = pass->backend;
    CHECK(pass->config->is_mtp && states != NULL);
    project(pass, &w->embedding_norm, pass->hidden.data, w->from_embedding, false);
    b->ops->gather_rows(b, &(struct gather_rows_args){.x = states->data,
                                                      .rows = slots,
                                                      .out = pass->narrow.data,
                                                      .num_rows = pass->num_tokens,
                                                      .width = pass->config->hidden_size});
    project(pass, &w->hidden_norm, pass->narrow.data, w->from_hidden, true);
}

void forward_pass_keep_states(const struct forward_pass *pass, const int32_t *rows,
                              const int32_t *slots, int32_t count, const struct buffer *states) {
    struct backend *b = pass->backend;
    int32_t width = pass->config->hidden_size;
    const void *x = pass->hidden.data;
    CHECK(pass->shard->has_head && count <= pass->num_tokens);
    if (rows != NULL) {
        b->ops->gather_rows(
            b,
            &(struct gather_rows_args){
                .x = x, .rows = rows, .out = pass->narrow.data, .num_rows = count, .width = width});
        x = pass->narrow.data;
    }
    forward_pass_norm(pass, &pass->weights->output_norm, x, pass->narrow.data, count, false);
    b->ops->scatter_rows(b, &(struct scatter_rows_args){.x = pass->narrow.data,
                                                        .rows = slots,
                                                        .out = states->data,
                                                        .num_rows = count,
                                                        .width = width});
}
