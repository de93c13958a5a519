/* The oracle's mixture of experts. */
#include "config/base/check.h"
#include "kernels/cpu/ref/cpu_ref_private.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Index of the largest value among those not taken; the first of equal ones. */
static int32_t largest(const double *values, const bool *taken, int32_t count) {
    int32_t best = -1;
    for (int32_t i = 0; i < count; i++)
        if (!taken[i] && (best < 0 || values[i] > values[best]))
            best = i;
    return best;
}

/* The largest of a group, or the sum of its two largest. */
static double group_score(const struct route_args *args, const double *values, int32_t count) {
    bool taken[EXPERTS_MAX] = {false};
    int32_t first = largest(values, taken, count);
    if (args->group_score == ROUTE_GROUP_MAX || count == 1)
        return values[first];
    taken[first] = true;
    return values[first] + values[largest(values, taken, count)];
}

/* Takes every expert outside of the groups that can be chosen from. */
static void take_other_groups(const struct route_args *args, const double *values, bool *taken) {
    int32_t size = args->num_experts / args->num_groups;
    double scores[EXPERTS_MAX];
    bool chosen[EXPERTS_MAX] = {false};
    for (int32_t g = 0; g < args->num_groups; g++)
        scores[g] = group_score(args, values + (size_t)g * (size_t)size, size);
    for (int32_t i = 0; i < args->num_chosen_groups; i++)
        chosen[largest(scores, chosen, args->num_groups)] = true;
    for (int32_t e = 0; e < args->num_experts; e++)
        taken[e] = !chosen[e / size];
}

/* Softmax of one of the values that are not taken. */
static double softmax(const double *values, const bool *taken, int32_t count, int32_t which) {
    double sum = 0;
    for (int32_t i = 0; i < count; i++)
        if (!taken[i])
            sum += exp(values[i] - values[which]);
    return 1 / sum;
}

static double sparsemixer_weight(const struct route_args *args, const double *logits,
                                 const bool *taken, int32_t chosen) {
    bool left_out[EXPERTS_MAX];
    double max = logits[chosen];
    for (int32_t e = 0; e < args->num_experts; e++)
        left_out[e] =
            taken[e] || (max - logits[e]) / fmax(fabs(logits[e]), max) > 2 * (double)args->jitter;
    return softmax(logits, left_out, args->num_experts, chosen);
}

static void route_token(const struct route_args *args, const float *row, int32_t *experts,
                        float *weights) {
    int32_t num = args->num_experts;
    double logits[EXPERTS_MAX], scores[EXPERTS_MAX], values[EXPERTS_MAX], sum = 0;
    bool none[EXPERTS_MAX] = {false}, taken[EXPERTS_MAX] = {false}, unchosen[EXPERTS_MAX];
    for (int32_t e = 0; e < num; e++) {
        logits[e] = isnan(row[e]) ? -FLT_MAX : fmin(fmax(row[e], -FLT_MAX), FLT_MAX);
        unchosen[e] = true;
    }
    for (int32_t e = 0; e < num; e++) {
        scores[e] = args->scoring == ROUTE_SOFTMAX   ? softmax(logits, none, num, e)
                    : args->scoring == ROUTE_SIGMOID ? 1 / (1 + exp(-logits[e]))
                                                     : logits[e];
        values[e] = scores[e] + (args->bias != NULL ? args->bias[e] : 0);
    }
    if (args->num_groups > 1)
        take_other_groups(args, values, taken);
    for (int32_t j = 0; j < args->num_chosen; j++) {
        int32_t e = experts[j] = largest(values, taken, num);
        if (args->scoring == ROUTE_SPARSEMIXER)
            scores[e] = sparsemixer_weight(args, logits, taken, e);
        taken[e] = true;
        unchosen[e] = false;
    }
    for (int32_t j = 0; j < args->num_chosen; j++) {
        int32_t e = experts[j];
        weights[j] =
            (float)(args->scoring == ROUTE_SOFTMAX_OF_CHOSEN ? softmax(logits, unchosen, num, e)
                                                             : scores[e]);
        sum += weights[j];
    }
    for (int32_t j = 0; j < args->num_chosen; j++)
        weights[j] = (float)(weights[j] / (args->renormalise ? sum + 1e-20 : 1) * args->scale);
}

static void order_choices(const struct expert_choices *choices, int32_t num_choices,
                          int32_t own_first, int32_t num_own) {
    int32_t count = 0;
    for (int32_t e = 0; e < num_own; e++) {
        choices->first[e] = count;
        for (int32_t i = 0; i < num_choices; i++)
            if (choices->experts[i] == own_first + e)
                choices->order[count++] = i;
    }
    choices->first[num_own] = count;
}

void cpu_ref_route(struct backend *b, const struct route_args *args) {
    const struct expert_choices *choices = &args->choices;
    size_t k = (size_t)args->num_chosen;
    CHECK(args->num_experts <= EXPERTS_MAX && args->num_chosen <= EXPERTS_MAX_CHOSEN);
    for (int32_t t = 0; t < args->num_tokens; t++)
        route_token(args, args->logits + (size_t)t * (size_t)args->num_experts,
                    choices->experts + (size_t)t * k, choices->weights + (size_t)t * k);
    order_choices(choices, args->num_tokens * args->num_chosen, args->own_first, args->num_own);
}

void cpu_ref_choose_adapters(struct backend *b, const struct choose_adapters_args *args) {
    const struct step_inputs *step = &((const struct cpu_ref *)b)->step;
    for (int32_t t = 0, seq = 0; t < args->num_tokens; t++) {
        while (seq < step->num_seqs && t >= step->query_start[seq + 1])
            seq++;
        bool has_none = step->adapter_slots == NULL || seq == step->num_seqs;
        args->choices.experts[t] = has_none ? -1 : step->adapter_slots[seq];
    }
    order_choices(&args->choices, args->num_tokens, 0, args->num_slots);
}

/* out = or += one vector by rows first_row .. first_row + num_rows - 1. */
static void multiply(const struct matrix *weight, const float *x, size_t first_row, size_t num_rows,
                     bool accumulate, float *out) {
    size_t cols = (size_t)weight->cols;
    for (size_t r = first_row; r < first_row + num_rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < cols; c++)
            sum += (double)x[c] * weight->data[r * cols + c];
        *out = (float)(sum + weight->bias[r]) + (accumulate ? *out : 0);
        out++;
    }
}

void cpu_ref_linear_experts(struct backend *b, const struct expert_linear_args *args) {
    const struct matrix *weight = args->weight;
    size_t rows = (size_t)(weight->rows / args->num_own), cols = (size_t)weight->cols;
    size_t x_stride = args->x_stride > 0 ? (size_t)args->x_stride : cols;
    size_t out_stride = args->out_stride > 0 ? (size_t)args->out_stride : rows;
    for (int32_t e = 0; e < args->num_own; e++)
        for (int32_t i = args->choices->first[e]; i < args->choices->first[e + 1]; i++) {
            size_t choice = (size_t)args->choices->order[i];
            size_t from = args->per_choice ? choice : choice / (size_t)args->num_chosen;
            multiply(weight, (const float *)args->x + from * x_stride, (size_t)e * rows, rows,
                     args->accumulate, (float *)args->out + choice * out_stride);
        }
}

void cpu_ref_linear_heads(struct backend *b, const struct head_linear_args *args) {
    size_t num_heads = (size_t)args->num_heads, rows = (size_t)args->weight->rows / num_heads;
    for (size_t i = 0; i < (size_t)args->num_tokens * num_heads; i++)
        multiply(args->weight, (const float *)args->x + i * (size_t)args->x_stride,
                 i % num_heads * rows, rows, false,
                 (float *)args->out + i * (size_t)args->out_stride);
}

/* In float: the definition says so. */
void cpu_ref_combine_experts(struct backend *b, const struct combine_args *args) {
    size_t width = (size_t)args->width, k = (size_t)args->num_chosen;
    for (size_t t = 0; t < (size_t)args->num_tokens; t++)
        for (size_t i = 0; i < width; i++) {
            float *out = (float *)args->out + t * width + i, sum = 0;
            for (size_t j = 0; j < k; j++) {
                int32_t own = args->choices->experts[t * k + j] - args->own_first;
                if (own >= 0 && own < args->num_own)
                    sum += args->choices->weights[t * k + j] *
                           ((const float *)args->x)[(t * k + j) * width + i];
            }
            *out = args->scale * sum + (args->accumulate ? *out : 0);
        }
}
