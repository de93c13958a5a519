/* Which part of a layer's key biases is kept out of a quantised cache, where a key has one scale
 * for all its elements (backend.h, struct key_bias). Some models have biases of a hundred times
 * what the rest of a key is, in a few pairs that turn slowly: Qwen2.5 up to 211 and more. */
#ifndef QUIRE_MODELS_WEIGHTS_KEY_BIAS_H
#define QUIRE_MODELS_WEIGHTS_KEY_BIAS_H

#include "kernels/backend.h"
#include "models/config/model_config.h"

#include <stdbool.h>

/* Whether keys are their products and biases alone: a norm in between would be of both. */
bool key_bias_can_be_cut(const struct model_config *config);

/* Takes from a layer's bias [num_kv_heads][head_dim] what `out` [num_kv_heads] then has: of each
 * head the pairs of the largest bias. Elements that do not rotate are taken as well, and kept
 * nowhere: they add the same to all scores of a row, and a softmax takes that off. */
void key_bias_cut(const struct model_config *config, int32_t layer, int32_t num_kv_heads,
                  float *bias, struct key_bias *out);

/* Where keys are normalised head by head, makes elements of k about as large as those of q by
 * powers of 2 that move between the norms' weights [head_dim], the same for both elements of a
 * pair: products of q with k keep their bits, and what shares a scale is of more equal size. */
void key_bias_balance_norms(const struct model_config *config, int32_t layer, float *q, float *k);

#endif
