/* The forward pass of llama.h once more, in plain loops over doubles and by definition: no cache,
 * no blocks, no fused matrices. What it shares with the product is the configuration and the names.
 */
#ifndef QUIRE_TESTS_UNIT_MODELS_REFERENCE_FORWARD_H
#define QUIRE_TESTS_UNIT_MODELS_REFERENCE_FORWARD_H

#include "tests/unit/models/config/model_image.h"

enum { REFERENCE_MAX_TOKENS = 20 };

/* The image has unfused tensors, and ropes that are not scaled. out: [count][vocab_size];
 * out_states: [count][hidden_size] what the head reads. */
void reference_forward(const struct model_image *image, const int32_t *tokens, int count,
                       double *out, double *out_states);

#endif
