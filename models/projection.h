/* The products of a layer with its weight matrices, each at one place: what is common to all of
 * them, as their division among ranks, or an adapter to come, is a matter of this file. */
#ifndef QUIRE_MODELS_PROJECTION_H
#define QUIRE_MODELS_PROJECTION_H

#include "kernels/backend.h"

enum projection_role {
    PROJECTION_QKV,
    PROJECTION_ATTENTION_OUT,
    PROJECTION_GATE_UP,
    PROJECTION_DOWN,
    NUM_PROJECTION_ROLES
};

/* How ranks divide a matrix, as Megatron-LM calls it: COLUMN_PARALLEL by its outputs, so that each
 * rank has some elements of the result, ROW_PARALLEL by its inputs, so that each has a partial sum
 * of every element. */
enum projection_cut { COLUMN_PARALLEL, ROW_PARALLEL };

/* A weight matrix of a layer, or what a rank has of it. */
struct projection {
    enum projection_role role;
    int32_t layer;
    struct matrix *matrix; /* [outputs, inputs] */
};

enum projection_cut projection_cut_of(enum projection_role role);

struct forward_pass; /* forward_pass.h */

/* out = x W^T + bias, for the pass' tokens; of a column-parallel product. `out` has a row of the
 * rank's outputs for each. */
void projection_apply(const struct forward_pass *pass, const struct projection *projection,
                      const struct buffer *x, const struct buffer *out);

/* hidden += residual_scale (x W^T + bias), or with post_norm, which then is a norm's weights,
 * hidden += norm(x W^T + bias); of a row-parallel product. Overwrites `scratch`, which is not x,
 * where the model has norms after its branches or several ranks. Collective where there are several
 * ranks. */
void projection_add_to_hidden(const struct forward_pass *pass, const struct projection *projection,
                              const struct buffer *x, const struct buffer *post_norm,
                              const struct buffer *scratch);

#endif
