#include "engine/batch/dry_penalty.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/sequence/sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUM_SLOTS (2 * DRY_MAX_TOKENS)

static int32_t capacity_for(int32_t max_model_len) {
    return max_int32(min_int32(max_model_len, DRY_MAX_WINDOW), 1);
}

size_t dry_scratch_bytes(int32_t max_model_len) {
    return 2 * (size_t)capacity_for(max_model_len) * sizeof(int32_t);
}

int dry_scratch_init(struct dry_scratch *scratch, int32_t max_model_len) {
    int32_t capacity = capacity_for(max_model_len);
    int32_t *memory = malloc(dry_scratch_bytes(max_model_len));
    *scratch = (struct dry_scratch){0};
    if (memory == NULL)
        return -1;
    *scratch = (struct dry_scratch){memory, memory + capacity, capacity};
    return 0;
}

void dry_scratch_finish(struct dry_scratch *scratch) {
    free(scratch->tokens);
    *scratch = (struct dry_scratch){0};
}

bool dry_penalty_is_used(const struct sampling_params *params) {
    const struct sampling_settings *by = &params->settings;
    return by->dry_multiplier > 0 && by->dry_penalty_last_n != 0;
}

/* Fills `tokens`; returns how many there are. */
static int32_t fill_window(const struct sequence *sequence, const int32_t *drafts,
                           int32_t num_drafts, struct dry_scratch *scratch) {
    int32_t last_n = sequence_params(sequence)->settings.dry_penalty_last_n;
    int32_t num_tokens = sequence->num_tokens + num_drafts;
    int32_t n = min_int32(num_tokens, scratch->capacity);
    n = last_n > 0 ? min_int32(n, last_n) : n;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = num_tokens - 1 - i, draft = at - sequence->num_tokens;
        scratch->tokens[i] = draft >= 0 ? drafts[draft] : sequence_token(sequence, at);
    }
    return n;
}

/* Fills `matches` by the Z algorithm (Gusfield, "Algorithms on Strings, Trees, and Sequences",
 * section 1.4); returns the longest. [left, right) is the match found before that reaches farthest:
 * what lies in it is known from the beginning of the text. */
static int32_t find_matches(const int32_t *tokens, int32_t n, int32_t *matches) {
    int32_t left = 0, right = 0, longest = 0;
    for (int32_t i = 1; i < n; i++) {
        int32_t length = i < right ? min_int32(right - i, matches[i - left]) : 0;
        while (i + length < n && tokens[length] == tokens[i + length])
            length++;
        if (i + length > right) {
            left = i;
            right = i + length;
        }
        matches[i] = length;
        longest = max_int32(longest, length);
    }
    return longest;
}

/* --- Breakers --- */

static bool ends_in(const struct stop_string *breaker, const char *text, size_t length,
                    size_t from) {
    size_t first = from + 1 > breaker->length ? from + 1 - breaker->length : 0;
    return length > first &&
           memmem(text + first, length - first, breaker->data, breaker->length) != NULL;
}

/* Returns whether a breaker ends in the text of the token at `index`. */
static bool is_broken_at(const struct sampling_params *params, const struct tokenizer *tokenizer,
                         const int32_t *tokens, int32_t n, int32_t index) {
    enum { BEFORE = MAX_DRY_BREAKER_BYTES };
    char text[BEFORE + 1024];
    char *begin = text + BEFORE;
    struct text own = tokenizer_piece(tokenizer, tokens[index]);
    size_t length = own.length < sizeof(text) - BEFORE ? own.length : sizeof(text) - BEFORE;
    memcpy(begin, own.data, length);
    for (int32_t i = index + 1; i < n && begin > text; i++) {
        struct text piece = tokenizer_piece(tokenizer, tokens[i]);
        size_t room = (size_t)(begin - text);
        size_t count = piece.length < room ? piece.length : room;
        begin -= count;
        memcpy(begin, piece.data + piece.length - count, count);
    }
    size_t from = (size_t)(text + BEFORE - begin);
    for (int32_t i = 0; i < params->num_dry_breakers; i++)
        if (ends_in(&params->dry_breakers[i], begin, from + length, from))
            return true;
    return false;
}

/* Returns how many of the newest tokens come after the last breaker, no more than `most`. */
static int32_t count_unbroken(const struct sampling_params *params,
                              const struct tokenizer *tokenizer, const int32_t *tokens, int32_t n,
                              int32_t most) {
    int32_t count = 0;
    while (count < most && !is_broken_at(params, tokenizer, tokens, n, count))
        count++;
    return count;
}

/* --- Penalties --- */

/* The longest repetition that each token would continue. */
struct repeats {
    struct {
        int32_t token, length;
    } items[DRY_MAX_TOKENS];
    int32_t count;
    int32_t slots[NUM_SLOTS]; /* index of an item and one, 0: empty */
};

static void add_repeat(struct repeats *repeats, int32_t token, int32_t length) {
    uint32_t slot = (uint32_t)token * UINT32_C(2654435769) % NUM_SLOTS;
    for (; repeats->slots[slot] != 0; slot = (slot + 1) % NUM_SLOTS) {
        int32_t known = repeats->slots[slot] - 1;
        if (repeats->items[known].token != token)
            continue;
        repeats->items[known].length = max_int32(repeats->items[known].length, length);
        return;
    }
    if (repeats->count == DRY_MAX_TOKENS)
        return;
    repeats->items[repeats->count].token = token;
    repeats->items[repeats->count].length = length;
    repeats->slots[slot] = ++repeats->count;
}

static float penalty_of(const struct sampling_settings *by, int32_t length) {
    double penalty =
        by->dry_multiplier * pow((double)by->dry_base, length - by->dry_allowed_length);
    return (float)fmin(penalty, DRY_MAX_PENALTY);
}

int32_t dry_penalty_find(const struct sequence *sequence, const int32_t *drafts, int32_t num_drafts,
                         const struct tokenizer *tokenizer, struct dry_scratch *scratch,
                         struct token_bias *out) {
    const struct sampling_params *params = sequence_params(sequence);
    const struct sampling_settings *by = &params->settings;
    struct repeats repeats = {.count = 0};
    CHECK(scratch != NULL);
    int32_t n = fill_window(sequence, drafts, num_drafts, scratch);
    int32_t most = find_matches(scratch->tokens, n, scratch->matches);
    if (most >= by->dry_allowed_length)
        most = count_unbroken(params, tokenizer, scratch->tokens, n, most);
    for (int32_t i = 1; most >= by->dry_allowed_length && i < n; i++) {
        int32_t length = min_int32(scratch->matches[i], most);
        if (length >= by->dry_allowed_length)
            add_repeat(&repeats, scratch->tokens[i - 1], length);
    }
    for (int32_t i = 0; i < repeats.count; i++)
        out[i] = (struct token_bias){.token = repeats.items[i].token,
                                     .bias = -penalty_of(by, repeats.items[i].length)};
    return repeats.count;
}
