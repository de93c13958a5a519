/* Knuth, Morris and Pratt's search on the history read backwards: the suffix becomes a prefix, the
 * pattern, and each token of the history is examined once or twice in every case. */
#include "engine/draft/ngram_drafter.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <stdbool.h>
#include <stdlib.h>

#define BLOCK 16

struct ngram_drafter {
    struct drafter drafter;
    int32_t lookup_max, lookup_min;
};

struct ngram_search {
    int32_t pattern[NGRAM_MAX_LOOKUP]; /* the history's last tokens, the last one first */
    int32_t borders[NGRAM_MAX_LOOKUP]; /* [i]: of pattern[0..i], the longest prefix that ends it */
    int32_t length;
    int32_t matched;     /* of the pattern, where the search is */
    int32_t best;        /* the longest match so far */
    int32_t best_follow; /* position in the history of the token after it */
};

static int32_t token_at(const struct token_view *history, int32_t position) {
    return position < history->num_prompt ? history->prompt[position]
                                          : history->output[position - history->num_prompt];
}

static void set_pattern(struct ngram_search *search, const struct token_view *history,
                        int32_t length) {
    int32_t last = history->num_prompt + history->num_output - 1;
    search->length = length;
    search->borders[0] = 0;
    for (int32_t i = 0; i < length; i++)
        search->pattern[i] = token_at(history, last - i);
    for (int32_t i = 1, border = 0; i < length; i++) {
        while (border > 0 && search->pattern[i] != search->pattern[border])
            border = search->borders[border - 1];
        border += search->pattern[i] == search->pattern[border];
        search->borders[i] = border;
    }
}

/* Without a branch inside, for the compiler to compare many at a time. */
static bool block_has(const int32_t tokens[BLOCK], int32_t token) {
    int32_t found = 0;
    for (int i = 0; i < BLOCK; i++)
        found |= tokens[i] == token;
    return found != 0;
}

/* Returns the last index below `end` of a token that begins a match, or -1. Most of a history is
 * passed here. */
static int32_t find_start(const struct ngram_search *search, const int32_t *tokens, int32_t end) {
    while (end >= BLOCK && !block_has(tokens + end - BLOCK, search->pattern[0]))
        end -= BLOCK;
    while (end > 0 && tokens[end - 1] != search->pattern[0])
        end--;
    return end - 1;
}

/* Goes on through tokens[0..count) backwards; position: of tokens[0] in the history. True: the
 * whole pattern was found. */
static bool search_back(struct ngram_search *search, const int32_t *tokens, int32_t count,
                        int32_t position) {
    for (int32_t i = count - 1; i >= 0; i--) {
        if (search->matched == 0)
            i = find_start(search, tokens, i + 1);
        if (i < 0)
            break;
        while (search->matched > 0 && tokens[i] != search->pattern[search->matched])
            search->matched = search->borders[search->matched - 1];
        search->matched += tokens[i] == search->pattern[search->matched];
        if (search->matched > search->best) {
            search->best = search->matched;
            search->best_follow = position + i + search->matched;
        }
        if (search->matched == search->length)
            return true;
    }
    return false;
}

static int32_t ngram_propose(struct drafter *drafter, const struct token_view *history,
                             int32_t max_tokens, int32_t *out_tokens) {
    const struct ngram_drafter *ngram = (const struct ngram_drafter *)drafter;
    int32_t num_prompt = history->num_prompt, num_tokens = num_prompt + history->num_output;
    if (num_tokens <= ngram->lookup_min || max_tokens <= 0)
        return 0;
    struct ngram_search search = {0};
    set_pattern(&search, history, min_int32(ngram->lookup_max, num_tokens - 1));
    /* An earlier occurrence ends before the last token. */
    int32_t in_output = max_int32(history->num_output - 1, 0);
    if (!search_back(&search, history->output, in_output, num_prompt))
        search_back(&search, history->prompt, min_int32(num_prompt, num_tokens - 1), 0);
    if (search.best < ngram->lookup_min)
        return 0;
    for (int32_t i = 0; i < max_tokens; i++) {
        int32_t follow = search.best_follow + i;
        out_tokens[i] =
            follow < num_tokens ? token_at(history, follow) : out_tokens[follow - num_tokens];
    }
    return max_tokens;
}

static void ngram_destroy(struct drafter *drafter) {
    free(drafter);
}

int ngram_drafter_create(int32_t lookup_max, int32_t lookup_min, struct drafter **out,
                         struct error *err) {
    static const struct drafter_ops ops = {.propose = ngram_propose, .destroy = ngram_destroy};
    CHECK(lookup_min >= 1 && lookup_min <= lookup_max && lookup_max <= NGRAM_MAX_LOOKUP);
    struct ngram_drafter *ngram = malloc(sizeof(*ngram));
    if (ngram == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the n-gram drafter");
    *ngram = (struct ngram_drafter){
        .drafter = {.ops = &ops}, .lookup_max = lookup_max, .lookup_min = lookup_min};
    *out = &ngram->drafter;
    return 0;
}
