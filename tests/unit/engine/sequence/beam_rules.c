#include "tests/unit/engine/sequence/beam_rules.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_KEPT = (RULES_MAX_ENDS + 1) * RULES_MAX_WIDTH,
    MAX_FLAT = RULES_MAX_WIDTH * RULES_MAX_VOCAB,
};
static const double placeholder = -1.0e9;

struct ranked {
    double score;
    int32_t index;
};

/* State between iterations, named as there. */
struct state {
    const struct beam_params *params;
    struct rules_sequence running[RULES_MAX_WIDTH], sequences[RULES_MAX_WIDTH];
    struct rules_sequence topk[MAX_KEPT];
    bool hits[MAX_KEPT]; /* next_token_hits_stopping_criteria */
    int32_t beams_to_keep;
    int32_t cur_len; /* without the prompt */
};

static int compare(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->index - y->index;
}

static void rank(struct ranked *items, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        items[i].index = i;
    qsort(items, (size_t)count, sizeof(*items), compare);
}

static bool is_end(const struct beam_params *params, int32_t token) {
    for (int32_t i = 0; i < params->num_end_tokens; i++)
        if (params->end_tokens[i] == token)
            return true;
    return false;
}

static void init(struct state *s, const struct beam_params *params) {
    *s = (struct state){.params = params};
    for (int32_t i = 0; i < params->width; i++) {
        s->running[i].score = i == 0 ? 0.0 : placeholder;
        s->sequences[i].score = placeholder;
    }
    int32_t per_beam = 1 + params->num_end_tokens;
    s->beams_to_keep = (per_beam < 2 ? 2 : per_beam) * params->width;
}

static void get_top_k_continuations(struct state *s, int32_t vocab, rules_model *model,
                                    const void *model_data) {
    struct ranked flat[MAX_FLAT];
    for (int32_t beam = 0; beam < s->params->width; beam++) {
        float logprobs[RULES_MAX_VOCAB];
        model(model_data, s->running[beam].tokens, s->cur_len, logprobs);
        for (int32_t token = 0; token < vocab; token++) {
            bool banned = s->cur_len < s->params->min_tokens && is_end(s->params, token);
            flat[beam * vocab + token].score =
                s->running[beam].score + (banned ? -INFINITY : (double)logprobs[token]);
        }
    }
    rank(flat, s->params->width * vocab);
    for (int32_t k = 0; k < s->beams_to_keep; k++) {
        int32_t token = flat[k].index % vocab;
        s->topk[k] = s->running[flat[k].index / vocab];
        s->topk[k].tokens[s->cur_len] = token;
        s->topk[k].num_tokens = s->cur_len + 1;
        s->topk[k].score = flat[k].score;
        s->topk[k].ended = is_end(s->params, token);
        s->hits[k] = s->topk[k].ended || s->cur_len + 1 >= s->params->max_tokens;
    }
}

static void get_running_beams(struct state *s) {
    struct ranked order[MAX_KEPT];
    for (int32_t k = 0; k < s->beams_to_keep; k++)
        order[k].score = s->topk[k].score + (s->hits[k] ? placeholder : 0.0);
    rank(order, s->beams_to_keep);
    for (int32_t i = 0; i < s->params->width; i++) {
        s->running[i] = s->topk[order[i].index];
        s->running[i].score = order[i].score;
    }
}

static void update_finished_beams(struct state *s) {
    struct rules_sequence merged[RULES_MAX_WIDTH + MAX_KEPT];
    struct ranked order[RULES_MAX_WIDTH + MAX_KEPT];
    int32_t width = s->params->width, num_merged = width + s->beams_to_keep;
    for (int32_t i = 0; i < width; i++)
        merged[i] = s->sequences[i];
    for (int32_t k = 0; k < s->beams_to_keep; k++) {
        merged[width + k] = s->topk[k];
        merged[width + k].finished = s->hits[k] && k < width;
        merged[width + k].score =
            s->topk[k].score / pow(s->cur_len + 1, s->params->length_penalty) +
            (merged[width + k].finished ? 0.0 : placeholder);
    }
    for (int32_t i = 0; i < num_merged; i++)
        order[i].score = merged[i].score;
    rank(order, num_merged);
    for (int32_t i = 0; i < width; i++)
        s->sequences[i] = merged[order[i].index];
}

static bool can_improve(const struct state *s) {
    const struct beam_params *params = s->params;
    bool never = params->early_stopping == EARLY_STOPPING_NEVER;
    int32_t length = never && params->length_penalty > 0.0 ? params->max_tokens : s->cur_len;
    double best = s->running[0].score / pow(length, params->length_penalty);
    double worst = INFINITY;
    for (int32_t i = 0; i < params->width; i++)
        worst = fmin(worst, s->sequences[i].score);
    bool any = false;
    for (int32_t i = 0; i < params->width; i++)
        any |= best > (s->sequences[i].finished ? worst : placeholder);
    return any;
}

static bool has_unfinished_sequences(const struct state *s) {
    bool all_finished = true, all_hit = true;
    for (int32_t i = 0; i < s->params->width; i++)
        all_finished &= s->sequences[i].finished;
    for (int32_t k = 0; k < s->beams_to_keep; k++)
        all_hit &= s->hits[k];
    return can_improve(s) && !all_hit &&
           !(all_finished && s->params->early_stopping == EARLY_STOPPING_TRUE);
}

void beam_rules_run(const struct beam_params *params, int32_t vocab, rules_model *model,
                    const void *model_data, struct rules_sequence *out) {
    struct state s;
    init(&s, params);
    do {
        get_top_k_continuations(&s, vocab, model, model_data);
        get_running_beams(&s);
        update_finished_beams(&s);
        s.cur_len++;
    } while (has_unfinished_sequences(&s));
    for (int32_t i = 0; i < params->width; i++)
        out[i] = s.sequences[i];
}
