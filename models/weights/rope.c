/* Frequencies are computed in float, in the order Transformers computes them, and so are the
 * angles: position * frequency, then cosine and sine. In double the table would be closer to the
 * formulas and further from what the models were trained and are compared with. */
#include "models/weights/rope.h"

#include "config/base/check.h"

#include <math.h>

static const double TWO_PI = 6.283185307179586;

/* theta^(-2i / rotary_dim) */
static void fill_plain(float theta, int32_t rotary_dim, float *out) {
    for (int32_t i = 0; i < rotary_dim / 2; i++)
        out[i] = 1.0F / powf(theta, (float)(2 * i) / (float)rotary_dim);
}

/* Returns the base at which the longest context turns the last pair as far as an unscaled context
 * of original_max_position does times factor. */
static float dynamic_theta(const struct rope_config *rope, int32_t rotary_dim,
                           int32_t max_model_len) {
    double factor = (double)rope->factor, dim = rotary_dim;
    if (max_model_len <= rope->original_max_position || rotary_dim <= 2)
        return rope->theta;
    double growth = factor * max_model_len / rope->original_max_position - (factor - 1.0);
    return (float)((double)rope->theta * pow(growth, dim / (dim - 2.0)));
}

/* Returns the (fractional) pair that turns num_rotations times within the original context. */
static double yarn_dimension(const struct rope_config *rope, int32_t rotary_dim,
                             float num_rotations) {
    double wave_length = rope->original_max_position / ((double)num_rotations * TWO_PI);
    return rotary_dim * log(wave_length) / (2.0 * log((double)rope->theta));
}

/* Returns 0 up to the pair of beta_fast, 1 from the pair of beta_slow on, rising between them. */
static void yarn_ramp(const struct rope_config *rope, int32_t rotary_dim, float *out) {
    double low = yarn_dimension(rope, rotary_dim, rope->beta_fast);
    double high = yarn_dimension(rope, rotary_dim, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, rotary_dim - 1);
    if (low == high)
        high += 0.001;
    for (int32_t i = 0; i < rotary_dim / 2; i++) {
        float position = ((float)i - (float)low) / (float)(high - low);
        out[i] = fminf(fmaxf(position, 0.0F), 1.0F);
    }
}

static void scale_yarn(const struct rope_config *rope, int32_t rotary_dim, float *frequencies) {
    float ramp[KV_MAX_HEAD_DIM / 2];
    yarn_ramp(rope, rotary_dim, ramp);
    for (int32_t i = 0; i < rotary_dim / 2; i++)
        frequencies[i] =
            frequencies[i] / rope->factor * ramp[i] + frequencies[i] * (1.0F - ramp[i]);
}

/* Short waves stay, long ones stretch by factor, and those between are mixed by how often they turn
 * within the original context. */
static float scale_llama3(const struct rope_config *rope, float frequency) {
    float wave_length = (float)TWO_PI / frequency, context = (float)rope->original_max_position;
    if (wave_length < context / rope->high_freq_factor)
        return frequency;
    if (wave_length > context / rope->low_freq_factor)
        return frequency / rope->factor;
    float smooth = (context / wave_length - rope->low_freq_factor) /
                   (rope->high_freq_factor - rope->low_freq_factor);
    return (1.0F - smooth) * frequency / rope->factor + smooth * frequency;
}

static void fill_frequencies(const struct rope_config *rope, int32_t rotary_dim,
                             int32_t max_model_len, float *out) {
    bool is_dynamic = rope->scaling == ROPE_SCALING_DYNAMIC;
    const float *divisors =
        max_model_len > rope->original_max_position ? rope->long_factors : rope->short_factors;
    fill_plain(is_dynamic ? dynamic_theta(rope, rotary_dim, max_model_len) : rope->theta,
               rotary_dim, out);
    if (rope->scaling == ROPE_SCALING_YARN)
        scale_yarn(rope, rotary_dim, out);
    for (int32_t i = 0; i < rotary_dim / 2; i++) {
        if (rope->scaling == ROPE_SCALING_LINEAR)
            out[i] /= rope->factor;
        else if (rope->scaling == ROPE_SCALING_LLAMA3)
            out[i] = scale_llama3(rope, out[i]);
        else if (rope->scaling == ROPE_SCALING_LONGROPE)
            out[i] /= divisors[i];
    }
}

void rope_fill_table(const struct rope_config *rope, int32_t rotary_dim, int32_t max_model_len,
                     int32_t first, int32_t count, float *out) {
    CHECK(rotary_dim <= KV_MAX_HEAD_DIM && rotary_dim % 2 == 0);
    CHECK(first >= 0 && count >= 0 && count <= max_model_len - first);
    float frequencies[KV_MAX_HEAD_DIM / 2];
    int32_t half = rotary_dim / 2;
    fill_frequencies(rope, rotary_dim, max_model_len, frequencies);
    float factor = rope->attention_factor;
    if (rope->short_attention_factor != 0.0F && max_model_len <= rope->original_max_position)
        factor = rope->short_attention_factor;
    for (int32_t r = 0; r < count; r++) {
        float *row = out + (size_t)r * (size_t)rotary_dim;
        for (int32_t i = 0; i < half; i++) {
            float angle = (float)(first + r) * frequencies[i];
            row[i] = cosf(angle) * factor;
            row[half + i] = sinf(angle) * factor;
        }
    }
}
