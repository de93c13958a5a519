#include "tests/fuzz/grammar_walk.h"

#include "engine/grammar/machine/grammar_machine.h"
#include "engine/sequence/sequence.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdlib.h>

#define NUM_TEXTS 256 /* tokens of one byte */
#define NUM_CHECKED 8

void fuzz_require(bool condition) {
    if (!condition)
        abort();
}

static const struct grammar_vocabulary *the_vocabulary(void) {
    static struct tokenizer tokenizer;
    static struct grammar_vocabulary *vocabulary;
    struct error err = {0};
    if (vocabulary == NULL) {
        fixture_init_bytes(&tokenizer);
        fixture_add(&tokenizer, "ab", 2);
        fixture_add(&tokenizer, "\xC3\xA9", 2);
        fuzz_require(grammar_vocabulary_create(&tokenizer, &vocabulary, &err) == 0);
    }
    return vocabulary;
}

/* Returns the allowed token that the choice falls on. */
static int32_t choose(const uint32_t *mask, unsigned choice) {
    int32_t count = 0, token = -1;
    for (int i = 0; i < FIXTURE_WORDS; i++)
        count += __builtin_popcount(mask[i]);
    fuzz_require(count > 0);
    for (int32_t left = (int32_t)(choice % (unsigned)count); left >= 0;) {
        token++;
        left -= (int32_t)(mask[token / 32] >> (token % 32) & 1);
    }
    return token;
}

/* A token is accepted exactly where it is allowed, or repeats a name. */
static void check_token(const struct grammar_state *state, const uint32_t *mask, int32_t token) {
    struct grammar_state *clone = grammar_state_clone(state);
    fuzz_require(clone != NULL);
    bool may_repeat = state->names.place.is_within && !fixture_allows(mask, token);
    bool is_accepted = grammar_state_accept(clone, token) == 0;
    fuzz_require(may_repeat || is_accepted == fixture_allows(mask, token));
    grammar_state_destroy(clone);
}

/* Forced tokens are accepted one after the other, the first by the mask. */
static void check_forced(struct grammar_state *state, const uint32_t *mask) {
    struct grammar_state *clone = grammar_state_clone(state);
    int32_t forced[MAX_FORCED_TOKENS];
    fuzz_require(clone != NULL);
    int32_t count = grammar_state_forced(clone, forced, MAX_FORCED_TOKENS);
    fuzz_require(count == 0 || fixture_allows(mask, forced[0]));
    for (int32_t i = 0; i < count; i++)
        fuzz_require(grammar_state_accept(clone, forced[i]) == 0);
    grammar_state_destroy(clone);
}

void grammar_walk(struct grammar *grammar, unsigned choice, int num_tokens) {
    struct grammar_state *state = grammar_state_create(grammar, the_vocabulary());
    fuzz_require(state != NULL);
    for (int i = 0; i < num_tokens && !grammar_state_is_final(state); i++) {
        uint32_t mask[FIXTURE_WORDS] = {0};
        fuzz_require(grammar_state_mask(state, mask) == 0);
        bool is_exact = !atomic_load(&grammar->has_given_up);
        for (unsigned j = 0; is_exact && j < NUM_CHECKED; j++)
            check_token(state, mask, (int32_t)((choice * 31 + j * 37 + (unsigned)i) % NUM_TEXTS));
        check_forced(state, mask);
        fuzz_require(grammar_state_accept(state, choose(mask, choice + (unsigned)i)) == 0);
    }
    grammar_state_destroy(state);
}
