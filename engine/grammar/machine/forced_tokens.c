/* Finds tokens that a grammar leaves no choice about (jump-forward decoding: Zheng et al. 2024,
 * arXiv:2312.07104, section 4). */
#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/machine/grammar_vocabulary.h"

#include "config/base/check.h"

#include <string.h>

#define MAX_BYTES 256
#define MIN_BYTES 2

/* Returns the only byte that may follow the set; -1: several may, a token, or the end. */
static int only_byte(const struct grammar_machine *machine, int32_t set) {
    const struct parse_set *at = machine->store.sets[set];
    if (at->num_states == 0 || at->is_complete)
        return -1;
    int byte = machine->grammar->ops[at->states[0].op].first;
    for (int32_t i = 0; i < at->num_states; i++) {
        const struct grammar_op *op = &machine->grammar->ops[at->states[i].op];
        if (op->kind != OP_BYTE || op->first != byte || op->last != byte)
            return -1;
    }
    return byte;
}

/* Fills out[0..MAX_BYTES) with what has to follow the state; *out_ends: nothing may follow that. */
static size_t find_text(struct grammar_state *state, char *out, bool *out_ends) {
    struct grammar_machine *machine = state->grammar->machine;
    int32_t set = state->set;
    size_t length = 0;
    int byte;
    for (; length < MAX_BYTES && (byte = only_byte(machine, set)) >= 0; length++) {
        set = grammar_machine_step(machine, set, (uint8_t)byte);
        if (set < 0)
            return 0;
        out[length] = (char)byte;
    }
    const struct parse_set *at = machine->store.sets[set];
    *out_ends = at->num_states == 0 && at->is_complete;
    return length;
}

/* Returns how many of the tokens spell the text from its start, each with bytes of its own. */
static int32_t count_spelled(const struct tokenizer *tokenizer, const int32_t *tokens,
                             int32_t count, const char *text, size_t length) {
    size_t at = 0;
    for (int32_t i = 0; i < count; i++) {
        struct text piece = tokenizer_piece(tokenizer, tokens[i]);
        if (!grammar_vocabulary_has_text(tokenizer, tokens[i]) || piece.length > length - at ||
            memcmp(piece.data, text + at, piece.length) != 0)
            return i;
        at += piece.length;
    }
    return count;
}

/* Encodes the text as it stands within a longer one: behind a line break, whose tokens are left out
 * again. Returns as tokenizer_encode; 0 where the line break is not apart from the text. */
static int64_t encode_within(const struct grammar_vocabulary *v, const char *text, size_t length,
                             int32_t *out, int32_t most) {
    const int64_t num_before = v->num_line_break;
    char line[1 + MAX_BYTES] = "\n";
    int32_t tokens[VOCABULARY_MAX_LINE_BREAK + MAX_BYTES];
    memcpy(line + 1, text, length);
    int64_t count = tokenizer_encode(v->tokenizer, line, 1 + length, 0, tokens,
                                     VOCABULARY_MAX_LINE_BREAK + MAX_BYTES);
    if (count <= num_before || count > VOCABULARY_MAX_LINE_BREAK + MAX_BYTES ||
        memcmp(v->line_break, tokens, (size_t)num_before * sizeof(*tokens)) != 0)
        return 0;
    count -= num_before;
    memcpy(out, tokens + num_before, (size_t)(count < most ? count : most) * sizeof(*out));
    return count;
}

static int64_t encode(const struct grammar_vocabulary *v, const char *text, size_t length,
                      int32_t *out, int32_t most) {
    return v->num_line_break > 0
               ? encode_within(v, text, length, out, most)
               : tokenizer_encode(v->tokenizer, text, length, 0, out, (size_t)most);
}

/* The last token is left to be sampled: with what follows it may be another one. */
int32_t grammar_state_forced(struct grammar_state *state, int32_t *out, int32_t most) {
    const struct tokenizer *tokenizer = state->vocabulary->tokenizer;
    char text[MAX_BYTES];
    bool ends = false;
    CHECK(!state->grammar->machine->is_lent);
    size_t length = find_text(state, text, &ends);
    if (length < MIN_BYTES)
        return 0;
    int64_t count = encode(state->vocabulary, text, length, out, most);
    if (count <= 0)
        return 0;
    bool is_whole = count <= most && ends;
    int32_t num_found = count < most ? (int32_t)count : most;
    return count_spelled(tokenizer, out, is_whole ? num_found : num_found - 1, text, length);
}
