#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/machine/grammar_vocabulary.h"
#include "engine/grammar/machine/open_runs.h"
#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

static void link_state(struct grammar_state *state) {
    struct grammar_machine *machine = state->grammar->machine;
    state->previous = NULL;
    state->next = machine->users;
    if (state->next != NULL)
        state->next->previous = state;
    machine->users = state;
}

struct grammar_state *grammar_state_create(struct grammar *grammar,
                                           const struct grammar_vocabulary *vocabulary) {
    if (grammar->machine == NULL)
        grammar->machine = grammar_machine_create(grammar, vocabulary);
    if (grammar->machine == NULL)
        return NULL;
    CHECK(grammar->machine->vocabulary == vocabulary && !grammar->machine->is_lent);
    int32_t set = grammar_machine_start(grammar->machine);
    struct grammar_state *state = set >= 0 ? malloc(sizeof(*state)) : NULL;
    if (state == NULL)
        return NULL;
    *state = (struct grammar_state){grammar_ref(grammar), vocabulary, .set = set};
    link_state(state);
    grammar_machine_report(grammar);
    return state;
}

static void forget_want(struct grammar_state *state) {
    state->grammar->machine->num_wanted -= state->wants_mask;
    state->wants_mask = false;
}

void grammar_state_destroy(struct grammar_state *state) {
    if (state == NULL)
        return;
    struct grammar_machine *machine = state->grammar->machine;
    if (machine->is_lent) {
        atomic_store(&state->is_dead, true);
        return;
    }
    if (machine->walk.state == state)
        mask_walk_drop(machine);
    forget_want(state);
    *(state->previous != NULL ? &state->previous->next : &machine->users) = state->next;
    if (state->next != NULL)
        state->next->previous = state->previous;
    grammar_machine_report(state->grammar);
    grammar_unref(state->grammar);
    object_names_finish(&state->names);
    free(state->mask);
    free(state);
}

struct grammar_state *grammar_state_clone(const struct grammar_state *state) {
    CHECK(!state->grammar->machine->is_lent);
    struct grammar_state *clone = malloc(sizeof(*clone));
    if (clone == NULL)
        return NULL;
    *clone = (struct grammar_state){grammar_ref(state->grammar), state->vocabulary,
                                    .set = state->set, .may_end = state->may_end};
    if (object_names_copy(&state->names, &clone->names) != 0) {
        grammar_unref(clone->grammar);
        free(clone);
        return NULL;
    }
    link_state(clone);
    return clone;
}

/* --- The mask --- */

/* Returns the state's mask, if it is known; NULL otherwise. */
static const uint32_t *known_mask(struct grammar_state *state) {
    const struct parse_set *set = state->grammar->machine->store.sets[state->set];
    if (state->mask == NULL && set->mask != NULL)
        state->may_end = set->has_ends;
    return state->mask != NULL ? state->mask : set->mask;
}

static int want_mask(struct grammar_state *state) {
    state->grammar->machine->num_wanted += !state->wants_mask;
    state->wants_mask = true;
    return 1;
}

static int hand_out(struct grammar_state *state, const uint32_t *found, uint32_t *mask) {
    size_t words = ((size_t)state->vocabulary->vocab_size + 31) / 32;
    if (state->names.place.is_within)
        return object_names_forbid(state, found, mask);
    memcpy(mask, found, words * sizeof(*mask));
    return 0;
}

/* Another state's walk that is under way comes first. */
int grammar_state_try_mask(struct grammar_state *state, int64_t *budget, uint32_t *mask) {
    struct grammar_machine *machine = state->grammar->machine;
    CHECK(!machine->is_lent);
    const uint32_t *found;
    while ((found = known_mask(state)) == NULL) {
        bool has_failed = state->has_failed;
        state->has_failed = false;
        if (has_failed || (machine->walk.state == NULL && mask_walk_begin(state) != 0))
            return -1;
        if (machine->last_cost > *budget)
            return want_mask(state);
        int status = mask_walk_run(machine, budget);
        if (status != 0)
            return status > 0 ? want_mask(state) : -1;
    }
    forget_want(state);
    return hand_out(state, found, mask);
}

int grammar_state_mask(struct grammar_state *state, uint32_t *mask) {
    int64_t budget = INT64_MAX;
    return grammar_state_try_mask(state, &budget, mask);
}

/* --- Moving on --- */

/* Returns whether the '{' that is next begins an object: it does where it may be part of prose only
 * if the prose has no other character there. */
static bool begins_object(const struct grammar_machine *machine, int32_t set) {
    const struct parse_set *at = machine->store.sets[set];
    bool begins = false;
    for (int32_t i = 0; i < at->num_states; i++) {
        const struct grammar_op *op = &machine->grammar->ops[at->states[i].op];
        if (op->kind != OP_BYTE || op->first > '{' || op->last < '{')
            continue;
        if (op->first != op->last)
            return false;
        begins = begins || op->opens_object;
    }
    return begins;
}

/* Sets the bits of bytes that begin objects. */
static int32_t step_text(struct grammar_machine *machine, int32_t set, struct text piece,
                         uint32_t *begins) {
    for (size_t i = 0; i < piece.length && set > PARSE_SET_EMPTY; i++) {
        if (i % 32 == 0)
            begins[i / 32] = 0;
        if (piece.data[i] == '{' && begins_object(machine, set))
            begins[i / 32] |= UINT32_C(1) << (i % 32);
        uint32_t num_sweeps = machine->num_sweeps;
        int32_t to = grammar_machine_step(machine, set, (uint8_t)piece.data[i]);
        if (to > PARSE_SET_EMPTY && machine->num_sweeps == num_sweeps)
            open_runs_pass(machine, set, to, (uint8_t)piece.data[i]);
        set = to;
    }
    return set;
}

static bool has_any(const uint32_t *begins, size_t length) {
    uint32_t any = 0;
    for (size_t i = 0; i < (length + 31) / 32; i++)
        any |= begins[i];
    return any != 0;
}

static int follow_names(struct object_names *names, struct text piece, const uint32_t *begins) {
    if (!names->place.is_within && !has_any(begins, piece.length))
        return 0;
    if (object_names_reserve(names, piece.length) != 0)
        return -1;
    for (size_t i = 0; i < piece.length; i++)
        if (names->place.is_within)
            object_names_step(names, (uint8_t)piece.data[i]);
        else if ((begins[i / 32] >> (i % 32) & 1) != 0)
            object_names_open(names);
    return 0;
}

/* The mask may have been requested of a clone. */
static bool may_end(const struct grammar_state *state) {
    const struct parse_set *set = state->grammar->machine->store.sets[state->set];
    return state->may_end || set->is_complete || (set->mask != NULL && set->has_ends);
}

static void move_to(struct grammar_state *state, int32_t set) {
    if (state->grammar->machine->walk.state == state)
        mask_walk_drop(state->grammar->machine);
    forget_want(state);
    free(state->mask);
    state->mask = NULL;
    state->may_end = false;
    state->set = set;
}

int grammar_state_accept(struct grammar_state *state, int32_t token) {
    const struct tokenizer *tokenizer = state->vocabulary->tokenizer;
    struct grammar_machine *machine = state->grammar->machine;
    CHECK(!machine->is_lent);
    if (token < 0 || token >= state->vocabulary->vocab_size)
        return -1;
    int32_t set = grammar_machine_step_token(machine, state->set, token);
    if (set == PARSE_SET_EMPTY && tokenizer_is_eos(tokenizer, token))
        return may_end(state) ? 0 : -1;
    if (set == PARSE_SET_EMPTY && grammar_vocabulary_has_text(tokenizer, token)) {
        struct text piece = tokenizer_piece(tokenizer, token);
        uint32_t begins[GRAMMAR_MAX_TOKEN_BYTES / 32];
        set = step_text(machine, state->set, piece, begins);
        if (set > PARSE_SET_EMPTY && follow_names(&state->names, piece, begins) != 0)
            return -1;
    }
    if (set <= PARSE_SET_EMPTY)
        return -1;
    move_to(state, set);
    return 0;
}

bool grammar_state_is_final(const struct grammar_state *state) {
    const struct parse_set *set = state->grammar->machine->store.sets[state->set];
    return set->is_complete && set->num_states == 0;
}

/* --- Forced tokens --- */

/* Finds tokens that a grammar leaves no choice about (jump-forward decoding: Zheng et al. 2024,
 * arXiv:2312.07104, section 4). */

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

/* Returns how many of the tokens spell the text from its start, each with at least one byte. */
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

/* Encodes the text as within a longer one: after a line break, whose tokens are removed again.
 * Returns the same as tokenizer_encode; 0 if the line break is not separate from the text. */
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
