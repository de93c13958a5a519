#include "tests/unit/models/reference_forward.h"

#include <math.h>

enum { MAX_WIDTH = 256 };

/* [tokens][width], the values of all tokens at one place of the pass. */
struct rows {
    double at[REFERENCE_MAX_TOKENS][MAX_WIDTH];
};

struct reference {
    const struct model_image *image;
    const struct model_config *config;
    int count;
};

/* y = x W^T + b; w [rows][cols], b [rows] or NULL. */
static void multiply_by(const float *w, const float *b, int32_t rows, int32_t cols, const double *x,
                        double *y) {
    for (int32_t row = 0; row < rows; row++) {
        double sum = b != NULL ? (double)b[row] : 0.0;
        for (int32_t i = 0; i < cols; i++)
            sum += x[i] * (double)w[row * cols + i];
        y[row] = sum;
    }
}

static void multiply(const struct reference *r, enum tensor_role role, int32_t layer,
                     const struct rows *x, struct rows *y) {
    const struct image_tensor *tensor = model_image_find(r->image, role, layer, "weight");
    const struct image_tensor *bias = model_image_find(r->image, role, layer, "bias");
    float *w = model_image_values(tensor), *b = bias != NULL ? model_image_values(bias) : NULL;
    for (int t = 0; t < r->count; t++)
        multiply_by(w, b, tensor->rows, tensor->cols, x->at[t], y->at[t]);
    free(w);
    free(b);
}

/* Elements [first, first + width) of every row. */
static void normalise(const struct reference *r, const float *weight, int32_t first, int32_t width,
                      struct rows *x) {
    for (int t = 0; t < r->count; t++) {
        double *values = x->at[t] + first, mean = 0.0, squares = 0.0;
        for (int32_t i = 0; i < width && r->config->norm == NORM_LAYER; i++)
            mean += values[i] / width;
        for (int32_t i = 0; i < width; i++)
            squares += (values[i] - mean) * (values[i] - mean) / width;
        for (int32_t i = 0; i < width; i++)
            values[i] = (values[i] - mean) / sqrt(squares + (double)r->config->norm_eps) *
                        ((double)weight[i] + (r->config->norm_plus_one ? 1.0 : 0.0));
    }
}

static void normalise_all(const struct reference *r, enum tensor_role role, int32_t layer,
                          struct rows *x) {
    float *weight = model_image_values(model_image_find(r->image, role, layer, "weight"));
    normalise(r, weight, 0, r->config->hidden_size, x);
    free(weight);
    if (!r->config->norm_bias)
        return;
    float *bias = model_image_values(model_image_find(r->image, role, layer, "bias"));
    for (int t = 0; t < r->count; t++)
        for (int32_t i = 0; i < r->config->hidden_size; i++)
            x->at[t][i] += (double)bias[i];
    free(bias);
}

static void normalise_heads(const struct reference *r, enum tensor_role role, int32_t layer,
                            int32_t num_heads, struct rows *x) {
    int32_t dim = r->config->head_dim;
    if (r->config->qk_norm == QK_NORM_NONE)
        return;
    float *weight = model_image_values(model_image_find(r->image, role, layer, "weight"));
    if (r->config->qk_norm == QK_NORM_FULL)
        normalise(r, weight, 0, num_heads * dim, x);
    for (int32_t head = 0; head < num_heads && r->config->qk_norm == QK_NORM_HEAD; head++)
        normalise(r, weight, head * dim, dim, x);
    free(weight);
}

/* Heads follow each other from `first` on, after `stride` elements. */
static void rotate(const struct reference *r, int32_t layer, int32_t num_heads, int32_t first,
                   int32_t stride, struct rows *x) {
    const struct model_config *config = r->config;
    int32_t rope = config->layers[layer].rope, half = config->rotary_dim / 2;
    if (rope < 0)
        return;
    for (int t = 0; t < r->count; t++)
        for (int32_t head = 0; head < num_heads; head++)
            for (int32_t i = 0; i < half; i++) {
                double *values = x->at[t] + first + head * stride;
                double angle =
                    t * pow((double)config->ropes[rope].theta, -2.0 * i / config->rotary_dim);
                double *a = values + (config->rope_interleaved ? 2 * i : i);
                double *b = config->rope_interleaved ? a + 1 : a + half;
                double turned = *a * cos(angle) - *b * sin(angle);
                *b = *a * sin(angle) + *b * cos(angle);
                *a = turned;
            }
}

static double cap(double x, float limit) {
    return limit > 0.0F ? (double)limit * tanh(x / (double)limit) : x;
}

/* One head's result for one token, of keys of `dim` elements. */
static void attend_one(const struct reference *r, int32_t layer, int32_t head, int32_t dim,
                       int token, const struct rows *q, const struct rows *k, const struct rows *v,
                       double *out) {
    const struct model_config *config = r->config;
    int32_t window = config->layers[layer].window, value_dim = model_config_value_dim(config);
    bool is_latent = config->latent.kv_rank > 0;
    int32_t kv = is_latent ? head : head / (config->num_heads / config->num_kv_heads);
    int first = window > 0 && token - window + 1 > 0 ? token - window + 1 : 0;
    double weights[REFERENCE_MAX_TOKENS], sum = 0.0;
    if (config->attention_sinks) {
        float *sinks =
            model_image_values(model_image_find(r->image, TENSOR_SINKS, layer, "weight"));
        sum = exp((double)sinks[head]);
        free(sinks);
    }
    for (int t = first; t <= token; t++) {
        double score = 0.0;
        for (int32_t i = 0; i < dim; i++)
            score += q->at[token][head * dim + i] * k->at[t][kv * dim + i];
        weights[t] = exp(cap(score * (double)config->attention_scale, config->attention_soft_cap));
        sum += weights[t];
    }
    for (int32_t i = 0; i < value_dim; i++) {
        double *element = &out[head * value_dim + i];
        *element = 0.0;
        for (int t = first; t <= token; t++)
            *element += weights[t] / sum * v->at[t][kv * value_dim + i];
    }
}

/* Every head's keys, without what is rotated, and values, of the vectors c. */
static void expand(const struct reference *r, int32_t layer, const struct rows *c, struct rows *k,
                   struct rows *v) {
    const struct latent_config *latent = &r->config->latent;
    int32_t nope = latent->nope_dim, rank = latent->kv_rank, value_dim = latent->value_dim;
    int32_t dim = nope + r->config->rotary_dim, both = nope + value_dim;
    bool in_one = r->config->naming == TENSOR_NAMING_HF;
    float *wk = model_image_values(
        model_image_find(r->image, in_one ? TENSOR_KV_B : TENSOR_K_B, layer, "weight"));
    float *wv = model_image_values(
        model_image_find(r->image, in_one ? TENSOR_KV_B : TENSOR_V_B, layer, "weight"));
    for (int t = 0; t < r->count; t++)
        for (int32_t head = 0; head < r->config->num_heads; head++) {
            for (int32_t i = 0; i < nope; i++) {
                k->at[t][head * dim + i] = 0.0;
                for (int32_t j = 0; j < rank; j++)
                    k->at[t][head * dim + i] +=
                        c->at[t][j] * (double)wk[in_one ? (head * both + i) * rank + j
                                                        : (head * rank + j) * nope + i];
            }
            for (int32_t i = 0; i < value_dim; i++) {
                v->at[t][head * value_dim + i] = 0.0;
                for (int32_t j = 0; j < rank; j++)
                    v->at[t][head * value_dim + i] +=
                        c->at[t][j] * (double)wv[in_one ? (head * both + nope + i) * rank + j
                                                        : (head * value_dim + i) * rank + j];
            }
        }
    free(wk);
    free(wv);
}

static void normalise_latent(const struct reference *r, enum tensor_role role, int32_t layer,
                             int32_t width, struct rows *x) {
    float *weight = model_image_values(model_image_find(r->image, role, layer, "weight"));
    struct model_config config = *r->config;
    const struct reference own = {r->image, &config, r->count};
    config.norm_eps = config.latent.norm_eps;
    config.norm = NORM_RMS;
    config.norm_plus_one = false;
    normalise(&own, weight, 0, width, x);
    free(weight);
}

/* Plain, as it is defined: every head has keys and values of its own. */
static void latent_attention(const struct reference *r, int32_t layer, const struct rows *x,
                             struct rows *y) {
    static struct rows q_a, q, c, k, v, mixed;
    const struct model_config *config = r->config;
    const struct latent_config *latent = &config->latent;
    int32_t dim = latent->nope_dim + config->rotary_dim, num_heads = config->num_heads;
    if (latent->q_rank > 0) {
        multiply(r, TENSOR_Q_A, layer, x, &q_a);
        normalise_latent(r, TENSOR_Q_A_NORM, layer, latent->q_rank, &q_a);
        multiply(r, TENSOR_Q_B, layer, &q_a, &q);
    } else {
        multiply(r, TENSOR_Q, layer, x, &q);
    }
    multiply(r, TENSOR_KV_A, layer, x, &c);
    normalise_latent(r, TENSOR_KV_A_NORM, layer, latent->kv_rank, &c);
    rotate(r, layer, 1, latent->kv_rank, 0, &c);
    rotate(r, layer, num_heads, latent->nope_dim, dim, &q);
    expand(r, layer, &c, &k, &v);
    for (int t = 0; t < r->count; t++) {
        for (int32_t i = 0; i < num_heads * config->rotary_dim; i++)
            k.at[t][i / config->rotary_dim * dim + latent->nope_dim + i % config->rotary_dim] =
                c.at[t][latent->kv_rank + i % config->rotary_dim];
    }
    for (int t = 0; t < r->count; t++)
        for (int32_t head = 0; head < num_heads; head++)
            attend_one(r, layer, head, dim, t, &q, &k, &v, mixed.at[t]);
    multiply(r, TENSOR_ATTENTION_OUT, layer, &mixed, y);
}

static void attention(const struct reference *r, int32_t layer, const struct rows *x,
                      struct rows *y) {
    static struct rows q, k, v, mixed;
    const int32_t dim = r->config->head_dim;
    if (r->config->latent.kv_rank > 0) {
        latent_attention(r, layer, x, y);
        return;
    }
    multiply(r, TENSOR_Q, layer, x, &q);
    multiply(r, TENSOR_K, layer, x, &k);
    multiply(r, TENSOR_V, layer, x, &v);
    normalise_heads(r, TENSOR_Q_NORM, layer, r->config->num_heads, &q);
    normalise_heads(r, TENSOR_K_NORM, layer, r->config->num_kv_heads, &k);
    rotate(r, layer, r->config->num_heads, 0, dim, &q);
    rotate(r, layer, r->config->num_kv_heads, 0, dim, &k);
    for (int t = 0; t < r->count; t++)
        for (int32_t head = 0; head < r->config->num_heads; head++)
            attend_one(r, layer, head, dim, t, &q, &k, &v, mixed.at[t]);
    multiply(r, TENSOR_ATTENTION_OUT, layer, &mixed, y);
}

static double gate_with(enum activation activation, double x, double up) {
    if (activation == ACTIVATION_CLAMPED_SWIGLU) {
        x = fmin(x, 7.0);
        return x / (1.0 + exp(-1.702 * x)) * (fmax(-7.0, fmin(up, 7.0)) + 1.0);
    }
    if (activation == ACTIVATION_SILU)
        return x / (1.0 + exp(-x)) * up;
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x))) * up;
}

/* Of a dense layer, or the shared expert of a sparse one: `gate`, and the roles after it. */
static void ffn(const struct reference *r, enum tensor_role role, int32_t layer, int32_t size,
                const struct rows *x, struct rows *y) {
    static struct rows gate, up;
    multiply(r, role, layer, x, &gate);
    multiply(r, role + 1, layer, x, &up);
    for (int t = 0; t < r->count; t++)
        for (int32_t i = 0; i < size; i++)
            up.at[t][i] = gate_with(r->config->activation, gate.at[t][i], up.at[t][i]);
    multiply(r, role + 3, layer, &up, y);
}

static void add_expert(const struct reference *r, int32_t layer, int32_t expert, double weight,
                       const double *x, double *y) {
    int32_t hidden = r->config->hidden_size, size = r->config->moe.expert_size;
    double gate[MAX_WIDTH], up[MAX_WIDTH], down[MAX_WIDTH];
    float *wg = model_image_expert(r->image, TENSOR_EXPERT_GATE, layer, expert);
    float *wu = model_image_expert(r->image, TENSOR_EXPERT_UP, layer, expert);
    float *wd = model_image_expert(r->image, TENSOR_EXPERT_DOWN, layer, expert);
    multiply_by(wg, NULL, size, hidden, x, gate);
    multiply_by(wu, NULL, size, hidden, x, up);
    for (int32_t i = 0; i < size; i++)
        up[i] = gate_with(r->config->activation, gate[i], up[i]);
    multiply_by(wd, NULL, hidden, size, up, down);
    for (int32_t i = 0; i < hidden; i++)
        y[i] += weight * down[i];
    free(wg);
    free(wu);
    free(wd);
}

/* The weight that an expert's score gives it, before renormalisation. */
static double score(const struct moe_config *moe, const double *logits, int32_t expert) {
    double sum = 0.0;
    if (moe->scoring == ROUTE_SIGMOID)
        return 1.0 / (1.0 + exp(-logits[expert]));
    for (int32_t e = 0; e < moe->num_experts; e++)
        sum += exp(logits[e] - logits[expert]);
    return 1.0 / sum;
}

/* By definition: an expert is chosen if fewer than num_chosen have a larger score. */
static void choose(const struct moe_config *moe, const double *logits, const float *bias,
                   double *weights) {
    double sum = 0.0;
    for (int32_t e = 0; e < moe->num_experts; e++) {
        int32_t larger = 0;
        for (int32_t other = 0; other < moe->num_experts; other++)
            larger += score(moe, logits, other) + (bias != NULL ? (double)bias[other] : 0.0) >
                      score(moe, logits, e) + (bias != NULL ? (double)bias[e] : 0.0);
        weights[e] = larger < moe->num_chosen ? score(moe, logits, e) : 0.0;
        sum += weights[e];
    }
    bool divides = moe->renormalise || moe->scoring == ROUTE_SOFTMAX_OF_CHOSEN;
    for (int32_t e = 0; e < moe->num_experts; e++)
        weights[e] *= (double)moe->scale / (divides ? sum : 1.0);
}

static void experts(const struct reference *r, int32_t layer, const struct rows *x,
                    struct rows *y) {
    static struct rows logits, shared, shared_logit;
    const struct moe_config *moe = &r->config->moe;
    float *bias = NULL;
    if (moe->selection_bias)
        bias =
            model_image_values(model_image_find(r->image, TENSOR_SELECTION_BIAS, layer, "weight"));
    multiply(r, TENSOR_ROUTER, layer, x, &logits);
    if (moe->shared_size > 0)
        ffn(r, TENSOR_SHARED_GATE, layer, moe->shared_size, x, &shared);
    if (moe->shared_gate)
        multiply(r, TENSOR_SHARED_ROUTER, layer, x, &shared_logit);
    for (int t = 0; t < r->count; t++) {
        double weights[MAX_WIDTH];
        choose(moe, logits.at[t], bias, weights);
        for (int32_t i = 0; i < r->config->hidden_size; i++)
            y->at[t][i] = moe->shared_size == 0 ? 0.0
                          : moe->shared_gate ? shared.at[t][i] / (1.0 + exp(-shared_logit.at[t][0]))
                                             : shared.at[t][i];
        for (int32_t e = 0; e < moe->num_experts; e++)
            if (weights[e] != 0.0)
                add_expert(r, layer, e, weights[e], x->at[t], y->at[t]);
    }
    free(bias);
}

static void add(const struct reference *r, enum tensor_role post_norm, int32_t layer,
                struct rows *branch, struct rows *hidden) {
    if (r->config->post_norm)
        normalise_all(r, post_norm, layer, branch);
    for (int t = 0; t < r->count; t++)
        for (int32_t i = 0; i < r->config->hidden_size; i++)
            hidden->at[t][i] += (double)r->config->residual_scale * branch->at[t][i];
}

static void run_layer(const struct reference *r, int32_t layer, struct rows *hidden) {
    static struct rows x, from_attention, from_ffn;
    x = *hidden;
    if (r->config->pre_norm)
        normalise_all(r, TENSOR_ATTENTION_NORM, layer, &x);
    attention(r, layer, &x, &from_attention);
    add(r, TENSOR_ATTENTION_POST_NORM, layer, &from_attention, hidden);
    if (!r->config->parallel_residual) {
        x = *hidden;
        if (r->config->pre_norm)
            normalise_all(r, TENSOR_FFN_NORM, layer, &x);
    }
    if (r->config->layers[layer].is_sparse)
        experts(r, layer, &x, &from_ffn);
    else
        ffn(r, TENSOR_GATE, layer, r->config->intermediate_size, &x, &from_ffn);
    add(r, TENSOR_FFN_POST_NORM, layer, &from_ffn, hidden);
}

static void embed(const struct reference *r, const int32_t *tokens, struct rows *hidden) {
    int32_t width = r->config->hidden_size;
    float *table = model_image_values(model_image_find(r->image, TENSOR_EMBEDDING, 0, "weight"));
    for (int t = 0; t < r->count; t++)
        for (int32_t i = 0; i < width; i++)
            hidden->at[t][i] =
                (double)r->config->embedding_scale * (double)table[tokens[t] * width + i];
    free(table);
}

void reference_forward(const struct model_image *image, const int32_t *tokens, int count,
                       double *out, double *out_states) {
    static struct rows hidden, logits;
    const struct reference r = {image, &image->model.config, count};
    embed(&r, tokens, &hidden);
    for (int32_t layer = 0; layer < r.config->num_layers; layer++)
        run_layer(&r, layer, &hidden);
    normalise_all(&r, TENSOR_OUTPUT_NORM, 0, &hidden);
    for (int t = 0; t < count; t++)
        for (int32_t i = 0; i < r.config->hidden_size; i++)
            *out_states++ = hidden.at[t][i];
    multiply(&r, r.config->tied_embeddings ? TENSOR_EMBEDDING : TENSOR_HEAD, 0, &hidden, &logits);
    for (int t = 0; t < count; t++)
        for (int32_t i = 0; i < r.config->vocab_size; i++)
            *out++ = cap((double)r.config->logit_scale * logits.at[t][i], r.config->final_soft_cap);
}
