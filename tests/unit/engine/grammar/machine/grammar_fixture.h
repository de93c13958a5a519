/* A tokenizer made of pieces that a test sets, in place of models/tokenizer/tokenizer.c, for tests
 * of grammars. The tokens `end` and `control` are control tokens. */
#ifndef QUIRE_TESTS_UNIT_ENGINE_GRAMMAR_GRAMMAR_FIXTURE_H
#define QUIRE_TESTS_UNIT_ENGINE_GRAMMAR_GRAMMAR_FIXTURE_H

#include "engine/grammar/machine/grammar.h"

#define FIXTURE_MAX_TOKENS 1024
#define FIXTURE_WORDS (FIXTURE_MAX_TOKENS / 32)

struct tokenizer {
    int32_t num_tokens;
    struct text pieces[FIXTURE_MAX_TOKENS];
    int32_t end, control; /* -1: none */
    bool adds_space;      /* before each text */
    char memory[FIXTURE_MAX_TOKENS * 16];
    size_t used;
};

/* Adds a token and returns its id. */
int32_t fixture_add(struct tokenizer *tokenizer, const char *bytes, size_t length);
/* All 256 bytes, an end token and a control token. */
void fixture_init_bytes(struct tokenizer *tokenizer);
static inline bool fixture_allows(const uint32_t *mask, int32_t token) {
    return (mask[token / 32] >> (token % 32) & 1) != 0;
}
/* Returns the grammar of a regular expression, which has to be right. */
struct grammar *fixture_regex(const char *pattern);

#endif
