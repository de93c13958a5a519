#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include "config/base/check.h"
#include "engine/grammar/read/grammar_regex.h"
#include "tests/longest_match.h"

#include <string.h>

#define FIXTURE_MAX_TEXT 512

int32_t fixture_add(struct tokenizer *tokenizer, const char *bytes, size_t length) {
    CHECK(tokenizer->num_tokens < FIXTURE_MAX_TOKENS);
    CHECK(length <= sizeof(tokenizer->memory) - tokenizer->used);
    char *copy = tokenizer->memory + tokenizer->used;
    if (length > 0)
        memcpy(copy, bytes, length);
    tokenizer->used += length;
    tokenizer->pieces[tokenizer->num_tokens] = (struct text){copy, length};
    return tokenizer->num_tokens++;
}

void fixture_init_bytes(struct tokenizer *tokenizer) {
    memset(tokenizer, 0, sizeof(*tokenizer));
    for (int byte = 0; byte < 256; byte++)
        fixture_add(tokenizer, &(char){(char)byte}, 1);
    tokenizer->end = fixture_add(tokenizer, "<end>", 5);
    tokenizer->control = fixture_add(tokenizer, "<control>", 9);
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer) {
    return tokenizer->num_tokens;
}

struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token) {
    return tokenizer->pieces[token];
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token) {
    return token == tokenizer->end || token == tokenizer->control;
}

bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token) {
    return token == tokenizer->end;
}

const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = tokenizer->end >= 0;
    return &tokenizer->end;
}

int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity) {
    char spaced[FIXTURE_MAX_TEXT] = " ";
    if (!tokenizer->adds_space)
        return longest_match_encode(tokenizer, text, length, out, capacity);
    CHECK(length < sizeof(spaced));
    memcpy(spaced + 1, text, length);
    return longest_match_encode(tokenizer, spaced, 1 + length, out, capacity);
}

struct grammar *fixture_regex(const char *pattern) {
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err = {0};
    grammar_node root;
    CHECK(builder != NULL && grammar_regex(builder, pattern, REGEX_TEXT, &root, &err) == 0);
    CHECK(grammar_build(builder, root, &grammar, &err) == 0);
    grammar_builder_destroy(builder);
    return grammar;
}
