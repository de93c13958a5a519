#include "tests/sim/dry_oracle.h"

#include "config/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct window {
    int32_t *tokens; /* the oldest first */
    int32_t count;
};

static struct window make_window(const struct request *request, const int32_t *output,
                                 int32_t num_output) {
    int32_t last_n = request->params.settings.dry_penalty_last_n;
    int32_t total = request->num_prompt_tokens + num_output;
    int32_t count = last_n >= 0 && last_n < total ? last_n : total;
    struct window window = {malloc(((size_t)total + 1) * sizeof(int32_t)), count};
    CHECK(window.tokens != NULL);
    for (int32_t i = 0; i < count; i++) {
        int32_t at = total - count + i;
        window.tokens[i] = at < request->num_prompt_tokens
                               ? request->prompt[at]
                               : output[at - request->num_prompt_tokens];
    }
    return window;
}

/* Returns how many of the last tokens have no end of a breaker in their text. */
static int32_t count_unbroken(const struct sampling_params *params, const struct window *window) {
    char *text = malloc((size_t)window->count * 8 + 1);
    CHECK(text != NULL);
    size_t length = 0;
    int32_t unbroken = 0;
    for (int32_t i = 0; i < window->count; i++) {
        struct text piece = tokenizer_piece(fake_tokenizer(), window->tokens[i]);
        size_t begin = length;
        memcpy(text + length, piece.data, piece.length);
        length += piece.length;
        unbroken++;
        for (int32_t b = 0; b < params->num_dry_breakers; b++) {
            const struct stop_string *breaker = &params->dry_breakers[b];
            for (size_t end = begin + 1; end <= length; end++)
                if (end >= breaker->length &&
                    memcmp(text + end - breaker->length, breaker->data, breaker->length) == 0)
                    unbroken = 0;
        }
    }
    free(text);
    return unbroken;
}

void dry_oracle_find(const struct request *request, const int32_t *output, int32_t num_output,
                     float penalties[FAKE_VOCAB_SIZE]) {
    const struct sampling_settings *by = &request->params.settings;
    memset(penalties, 0, FAKE_VOCAB_SIZE * sizeof(*penalties));
    if (by->dry_multiplier == 0)
        return;
    struct window w = make_window(request, output, num_output);
    int32_t most = count_unbroken(&request->params, &w);
    for (int32_t at = 1; at < w.count; at++) {
        int32_t length = 0;
        while (length < at && length < most &&
               w.tokens[at - 1 - length] == w.tokens[w.count - 1 - length])
            length++;
        double penalty = by->dry_multiplier * pow(by->dry_base, length - by->dry_allowed_length);
        if (length >= by->dry_allowed_length)
            penalties[w.tokens[at]] = fmaxf(penalties[w.tokens[at]], (float)penalty);
    }
    free(w.tokens);
}
