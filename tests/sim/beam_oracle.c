#include "tests/sim/beam_oracle.h"

#include "config/base/check.h"
#include "tests/sim/fake_model.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct paths {
    struct beam_oracle_path items[BEAM_MAX_CANDIDATES + 1];
    int32_t count;
};

/* One more token after a running path. */
struct continuation {
    int32_t path;
    int32_t token;
    double sum;
};

static bool is_end(const struct sampling_params *params, int32_t token) {
    if (token < FAKE_NUM_EOS && !params->ignore_eos)
        return true;
    for (int32_t i = 0; i < params->num_stop_tokens; i++)
        if (params->stop_tokens[i] == token)
            return true;
    return false;
}

/* By falling sum; ties as they come. */
static int compare(const void *first, const void *second) {
    const struct continuation *a = first, *b = second;
    if (a->sum != b->sum)
        return a->sum > b->sum ? -1 : 1;
    return a->path != b->path ? a->path - b->path : a->token - b->token;
}

static int32_t list_continuations(const struct sampling_params *params, const struct paths *running,
                                  struct continuation *out) {
    int32_t count = 0;
    for (int32_t p = 0; p < running->count; p++) {
        const struct beam_oracle_path *path = &running->items[p];
        for (int32_t token = 0; token < FAKE_VOCAB_SIZE; token++) {
            if (path->count < params->min_tokens && is_end(params, token))
                continue;
            double sum = path->sum + (double)fake_model_logprob(path->history, token);
            out[count++] = (struct continuation){p, token, sum};
        }
    }
    qsort(out, (size_t)count, sizeof(*out), compare);
    return count;
}

static struct beam_oracle_path extend(const struct beam_oracle_path *path,
                                      const struct continuation *by) {
    struct beam_oracle_path longer = *path;
    longer.tokens = malloc(((size_t)path->count + 1) * sizeof(*longer.tokens));
    CHECK(longer.tokens != NULL);
    if (path->count > 0)
        memcpy(longer.tokens, path->tokens, (size_t)path->count * sizeof(*longer.tokens));
    longer.tokens[longer.count++] = by->token;
    longer.history = fake_model_hash(path->history, by->token);
    longer.sum = by->sum;
    return longer;
}

static void free_paths(struct paths *paths) {
    for (int32_t i = 0; i < paths->count; i++)
        free(paths->items[i].tokens);
    paths->count = 0;
}

/* Keeps the best `width`; the earlier of equals. */
static void add_finished(struct paths *finished, struct beam_oracle_path path, int32_t width) {
    int32_t at = finished->count++;
    for (; at > 0 && finished->items[at - 1].score < path.score; at--)
        finished->items[at] = finished->items[at - 1];
    finished->items[at] = path;
    if (finished->count > width)
        free(finished->items[--finished->count].tokens);
}

/* Returns whether the search ends after `length` generated tokens. */
static bool is_over(const struct sampling_params *params, const struct paths *running,
                    const struct paths *finished, int32_t length, int32_t max_tokens) {
    int32_t width = params->beam_width;
    if (length == max_tokens)
        return true;
    if (finished->count < width)
        return false;
    if (params->early_stopping == EARLY_STOPPING_TRUE)
        return true;
    bool looks_ahead = params->early_stopping == EARLY_STOPPING_NEVER && params->length_penalty > 0;
    double best_length = looks_ahead ? max_tokens : length;
    double best = running->items[0].sum / pow(best_length, params->length_penalty);
    return best <= finished->items[width - 1].score;
}

static void take_step(const struct sampling_params *params, int32_t max_tokens,
                      struct paths *running, struct paths *finished) {
    static struct continuation all[BEAM_MAX_CANDIDATES * FAKE_VOCAB_SIZE];
    int32_t count = list_continuations(params, running, all);
    int32_t width = params->beam_width, length = running->items[0].count + 1;
    struct paths next = {.count = 0};
    for (int32_t i = 0; i < count && (i < width || next.count < width); i++) {
        struct beam_oracle_path path = extend(&running->items[all[i].path], &all[i]);
        bool ends = length == max_tokens || is_end(params, all[i].token);
        path.score = path.sum / pow(length, params->length_penalty);
        if (ends && i < width)
            add_finished(finished, path, width);
        else if (!ends && next.count < width)
            next.items[next.count++] = path;
        else
            free(path.tokens);
    }
    free_paths(running);
    *running = next;
}

int32_t beam_oracle_run(const struct request *request, int32_t max_tokens,
                        struct beam_oracle_path *out) {
    const struct sampling_params *params = &request->params;
    struct paths running = {.count = 1}, finished = {.count = 0};
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        running.items[0].history = fake_model_hash(running.items[0].history, request->prompt[i]);
    for (int32_t length = 1;; length++) {
        take_step(params, max_tokens, &running, &finished);
        if (is_over(params, &running, &finished, length, max_tokens))
            break;
    }
    free_paths(&running);
    memcpy(out, finished.items, (size_t)finished.count * sizeof(*out));
    return finished.count;
}
