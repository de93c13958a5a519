#include "tests/sim/fake_tokenizer.h"

#include "config/base/check.h"
#include "tests/longest_match.h"

#include <string.h>

struct tokenizer {
    int32_t vocab_size;
};

static const char *const pieces[FAKE_VOCAB_SIZE] = {
    "<eos>",    "<eot>",    "<tool>", "a",    "b",    "ab",       "ba",    "aa",
    "c",        "END",      "EN",     "D",    " ",    "\xe2",     "\x82",  "\xac",
    "\x82\xac", "\xf0\x9f", "\x98",   "\x80", "\xff", "\xc3\xa9", "\xc3",  "\xa9x",
    "\xed\xa0", "\xf4",     "\n",     "\n\n", "abc",  "bb",       "hello", "\xc0\x80",
};
static const int32_t eos_tokens[FAKE_NUM_EOS] = {0, 1};

const struct tokenizer *fake_tokenizer(void) {
    static const struct tokenizer tokenizer = {FAKE_VOCAB_SIZE};
    return &tokenizer;
}

struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token) {
    CHECK(token >= 0 && token < FAKE_VOCAB_SIZE);
    return (struct text){pieces[token], strlen(pieces[token])};
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer) {
    return tokenizer->vocab_size;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token) {
    return token <= FAKE_SPECIAL;
}

bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token) {
    return token < FAKE_NUM_EOS;
}

const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = FAKE_NUM_EOS;
    return eos_tokens;
}

int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity) {
    return longest_match_encode(tokenizer, text, length, out, capacity);
}
