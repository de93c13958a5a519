#include "models/weights/key_bias.h"

#include <math.h>

/* A pair below that costs more time than accuracy. */
#define LEAST_NORM 8.0F
/* A weight below that is as good as none. */
#define LEAST_WEIGHT 0x1p-10F

bool key_bias_can_be_cut(const struct model_config *config) {
    return config->qk_norm == QK_NORM_NONE;
}

/* Returns the pair's place of the largest norm among those of the head, or -1 for none. */
static int32_t largest_pair(const float *bias, int32_t num_pairs, int32_t step, int32_t next) {
    float largest = LEAST_NORM;
    int32_t found = -1;
    for (int32_t i = 0; i < num_pairs; i++) {
        float norm = hypotf(bias[i * step], bias[i * step + next]);
        if (norm > largest) {
            largest = norm;
            found = i;
        }
    }
    return found;
}

static void cut_head(int32_t rotary_dim, bool interleaved, float *bias, struct key_bias *out) {
    const int32_t step = interleaved ? 2 : 1, next = interleaved ? 1 : rotary_dim / 2;

    *out = (struct key_bias){0};
    while (out->num_pairs < KEY_BIAS_MAX_PAIRS) {
        int32_t pair = largest_pair(bias, rotary_dim / 2, step, next);
        if (pair < 0)
            return;
        float *x = &bias[pair * step], *y = x + next;
        out->pairs[out->num_pairs] = pair;
        out->values[out->num_pairs][0] = *x;
        out->values[out->num_pairs++][1] = *y;
        *x = *y = 0;
    }
}

void key_bias_cut(const struct model_config *config, int32_t layer, int32_t num_kv_heads,
                  float *bias, struct key_bias *out) {
    const int32_t rotary_dim = config->layers[layer].rope < 0 ? 0 : config->rotary_dim;
    for (int32_t h = 0; h < num_kv_heads; h++, bias += config->head_dim) {
        cut_head(rotary_dim, config->rope_interleaved, bias, &out[h]);
        for (int32_t i = rotary_dim; i < config->head_dim && !(config->attention_soft_cap > 0); i++)
            bias[i] = 0;
    }
}

/* Of `count` elements, next to one another by `next`. */
static void balance(float *q, float *k, int32_t count, int32_t next) {
    float q_norm = count == 1 ? fabsf(q[0]) : hypotf(q[0], q[next]);
    float k_norm = count == 1 ? fabsf(k[0]) : hypotf(k[0], k[next]);
    if (!(q_norm > LEAST_WEIGHT) || !(k_norm > LEAST_WEIGHT))
        return;
    int shift = (int)roundf(0.5F * log2f(k_norm / q_norm));
    for (int32_t i = 0; i < count; i++) {
        q[i * next] = ldexpf(q[i * next], shift);
        k[i * next] = ldexpf(k[i * next], -shift);
    }
}

void key_bias_balance_norms(const struct model_config *config, int32_t layer, float *q, float *k) {
    const int32_t rotary_dim = config->layers[layer].rope < 0 ? 0 : config->rotary_dim;
    const int32_t step = config->rope_interleaved ? 2 : 1;
    const int32_t next = config->rope_interleaved ? 1 : rotary_dim / 2;
    for (int32_t i = 0; i < rotary_dim / 2; i++)
        balance(q + i * step, k + i * step, 2, next);
    for (int32_t i = rotary_dim; i < config->head_dim; i++)
        balance(q + i, k + i, 1, 0);
}
