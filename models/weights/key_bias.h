/* Chooses which part of a layer's key biases is kept out of a quantised cache, where a key has one
 * scale for all its elements (backend.h, struct key_bias). Some models have biases a hundred times
 * as large as the rest of a key, in a few slowly rotating pairs: Qwen2.5 up to 211 and more. */
#ifndef QUIRE_MODELS_WEIGHTS_KEY_BIAS_H
#define QUIRE_MODELS_WEIGHTS_KEY_BIAS_H

#include "kernels/backend.h"
#include "models/config/model_config.h"

#include <stdbool.h>

/* Returns whether keys are just products plus biases: a norm after them would apply to both. */
bool key_bias_can_be_cut(const struct model_config *config);

/* Moves part of a layer's bias [num_kv_heads][head_dim] to `out` [num_kv_heads]: the pairs with the
 * largest bias of each head. Elements that do not rotate are removed too, and kept nowhere: they
 * add the same value to all scores of a row, which softmax cancels. */
void key_bias_cut(const struct model_config *config, int32_t layer, int32_t num_kv_heads,
                  float *bias, struct key_bias *out);

/* If keys are normalised per head, makes the elements of k about as large as those of q by moving
 * powers of 2 between the norms' weights [head_dim], the same for both elements of a pair. Products
 * of q with k keep their bits, and the elements that share a scale become more equal in size. */
void key_bias_balance_norms(const struct model_config *config, int32_t layer, float *q, float *k);

#endif
