/* Tables of rotary embeddings: the cosines and sines of every position, computed once at load.
 *
 * Pair i of rotary_dim / 2 turns by position * f_i, f_i = theta^(-2i / rotary_dim) when nothing is
 * scaled. Scalings, as Hugging Face Transformers computes them (modeling_rope_utils.py):
 *   linear    f_i / factor
 *   dynamic   theta grows with the length of the context once that is beyond original_max_position
 *             (NTK-aware)
 *   yarn      a ramp between f_i / factor and f_i over the dimensions from beta_slow to beta_fast
 *             (Peng et al., "YaRN", 2023); all multiplied by attention_factor
 *   llama3    f_i, f_i / factor, and a smooth transition between them, by wave length
 *   longrope  f_i / factors[i] (Ding et al., "LongRoPE", 2024), all multiplied by attention_factor,
 *             or by the factor of the short list
 *
 * Transformers chooses dynamic's theta and longrope's list for the longest sequence of each call,
 * which would make a cached key depend on when it was computed. Here max_model_len decides, once
 * for all sequences: beyond original_max_position all contexts use the long form. */
#ifndef QUIRE_MODELS_WEIGHTS_ROPE_H
#define QUIRE_MODELS_WEIGHTS_ROPE_H

#include "models/config/model_config.h"

/* Fills rows [first, first + count) of a table of max_model_len rows. out [count][rotary_dim]:
 * cosines of the rotary_dim / 2 pairs, then sines. */
void rope_fill_table(const struct rope_config *rope, int32_t rotary_dim, int32_t max_model_len,
                     int32_t first, int32_t count, float *out);

#endif
