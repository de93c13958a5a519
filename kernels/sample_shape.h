/* The scalar formulas of steps 4 and 7 to 9 of sampling.h and of Mirostat, shared by the host and
 * kernels. */
#ifndef QUIRE_KERNELS_SAMPLE_SHAPE_H
#define QUIRE_KERNELS_SAMPLE_SHAPE_H

#include "kernels/sample_common.h"

#include <math.h>

/* Returns whether the row is sampled with any of llama.cpp's steps. */
SAMPLE_INLINE bool sample_is_shaped(const struct sample_row *row) {
    const struct sampling_settings *by = &row->settings;
    return row->target == SAMPLE_NO_TARGET && by->temperature > 0 &&
           ((by->typical_p > 0 && by->typical_p < 1) || by->xtc_probability > 0 ||
            by->dynatemp_range > 0 || by->top_n_sigma > 0 || by->mirostat != 0);
}

/* Returns whether step 8 drops tokens where it can. */
SAMPLE_INLINE bool sample_xtc_applies(const struct sample_row *row) {
    const struct sampling_settings *by = &row->settings;
    if (!(by->xtc_probability > 0) || by->xtc_threshold > 0.5F)
        return false;
    double coin = (double)sample_random_half(row->seed, row->position, 1) / 9007199254740992.0;
    return coin < by->xtc_probability;
}

/* Returns the temperature of the steps before 9. */
SAMPLE_INLINE float sample_first_temperature(const struct sampling_settings *by) {
    return by->dynatemp_range > 0 && by->mirostat == 0 ? 1.0F : by->temperature;
}

/* Returns the smallest logit that step 4 keeps. `sum` and `squares` are those of the distances of
 * `count` tokens below the largest logit, `max`. */
SAMPLE_INLINE double sample_sigma_bound(const struct sampling_settings *by, double max,
                                        double count, double sum, double squares) {
    double mean = sum / count, variance = squares / count - mean * mean;
    return max - by->top_n_sigma * sqrt(variance > 0 ? variance : 0);
}

/* Returns the temperature of step 9; the entropy is in nats. */
SAMPLE_INLINE float sample_dynamic_temperature(const struct sampling_settings *by, double entropy,
                                               double num_tokens) {
    double low = (double)by->temperature - by->dynatemp_range;
    double high = (double)by->temperature + by->dynatemp_range;
    if (num_tokens <= 1)
        return by->temperature;
    low = low > 0 ? low : 0;
    double part = entropy / log(num_tokens);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    double out = low + (high - low) * pow(part, (double)by->dynatemp_exponent);
    return out > (double)SAMPLE_MIN_DYNAMIC_TEMPERATURE ? (float)out
                                                        : SAMPLE_MIN_DYNAMIC_TEMPERATURE;
}

/* Returns the top_k of version 1. gaps[i]: by how much the log of the i-th most probable token's
 * probability is above the next one's; there are num_gaps. */
SAMPLE_INLINE int32_t sample_mirostat_top_k(const float *gaps, int32_t num_gaps, double mu,
                                            int32_t vocab_size) {
    double products = 0, squares = 0;
    for (int32_t i = 0; i < num_gaps; i++) {
        double step = log((double)(i + 2) / (i + 1));
        products += step * gaps[i];
        squares += step * step;
    }
    if (num_gaps == 0)
        return 1;
    double exponent = products / squares, excess = exponent - 1;
    double share = fabs(excess) > 1e-9 ? excess / (1 - pow((double)vocab_size, -excess))
                                       : 1 / log((double)vocab_size);
    double k = pow(share * pow(2.0, mu), 1 / exponent);
    if (!(k < vocab_size))
        return vocab_size;
    return k >= 1 ? (int32_t)k : 1;
}

/* Returns mu for the next token, after one that has this probability of what was kept. */
SAMPLE_INLINE float sample_mirostat_next(const struct sample_row *row, double probability) {
    const struct sampling_settings *by = &row->settings;
    double surprise = -log2(probability);
    return (float)((double)row->mirostat_mu -
                   (double)by->mirostat_eta * (surprise - (double)by->mirostat_tau));
}

#endif
