#include "scripts/bench/cluster_sim/synthetic_tokenizer.h"

struct tokenizer {
    int32_t vocab_size;
};

const struct tokenizer *synthetic_tokenizer(void) {
    static const struct tokenizer tokenizer = {SYNTHETIC_VOCAB_SIZE};
    return &tokenizer;
}

struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token) {
    return (struct text){"a", 1};
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer) {
    return tokenizer->vocab_size;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token) {
    return false;
}

bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token) {
    return false;
}

const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = 0;
    return NULL;
}

/* No request has a grammar, whose texts alone are encoded. */
int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity) {
    return 0;
}
