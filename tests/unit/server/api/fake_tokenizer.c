/* A tokenizer for tests, in place of models/tokenizer/tokenizer.c: ids 0..255 are single bytes,
 * then come the few tokens that fake_tokenizer.h names. Encoding is byte by byte, but for the
 * control tokens where they are parsed. */
#include "tests/unit/server/api/fake_tokenizer.h"

#include <string.h>

struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token) {
    static char bytes[256];
    static const char *const extra[] = {"<s>", "</s>", "hello", " world", "a"};
    if (token < 256) {
        bytes[token] = (char)token;
        return (struct text){.data = &bytes[token], .length = 1};
    }
    if (token < FAKE_NUM_NAMED)
        return (struct text){.data = extra[token - 256], .length = strlen(extra[token - 256])};
    return (struct text){.data = ""};
}

struct text tokenizer_raw_piece(const struct tokenizer *tokenizer, int32_t token) {
    return token == ' ' ? (struct text){.data = "\xC4\xA0", .length = 2}
                        : tokenizer_piece(tokenizer, token);
}

/* The token written at the start of text[0..length), or the byte there. */
static int32_t first_token(const char *text, size_t length, bool parse_special) {
    for (int32_t token = FAKE_BOS; parse_special && token <= FAKE_EOS; token++) {
        struct text piece = tokenizer_piece(NULL, token);
        if (length >= piece.length && memcmp(text, piece.data, piece.length) == 0)
            return token;
    }
    return (unsigned char)text[0];
}

/* Control tokens are distinguished from a client's text by their first byte only. */
int64_t tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, size_t length,
                               const struct text_span *client_spans, size_t num_client_spans,
                               unsigned flags, int32_t *out, size_t capacity) {
    size_t count = 0;
    bool parse_special = (flags & TOKENIZER_PARSE_SPECIAL) != 0;
    if (flags & TOKENIZER_ADD_SPECIAL) {
        if (count < capacity)
            out[count] = FAKE_BOS;
        count++;
    }
    for (size_t i = 0; i < length; count++) {
        while (num_client_spans > 0 && client_spans[0].end <= i) {
            client_spans++;
            num_client_spans--;
        }
        bool is_client = num_client_spans > 0 && client_spans[0].begin <= i;
        int32_t token = first_token(text + i, length - i, parse_special && !is_client);
        if (count < capacity)
            out[count] = token;
        i += tokenizer_piece(tokenizer, token).length;
    }
    return (int64_t)count;
}

int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity) {
    return tokenizer_encode_spans(tokenizer, text, length, NULL, 0, flags, out, capacity);
}

void tokenizer_num_added(const struct tokenizer *tokenizer, int *out_before, int *out_behind) {
    *out_before = 1;
    *out_behind = 0;
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer) {
    return FAKE_VOCAB_SIZE;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token) {
    return token == FAKE_BOS || token == FAKE_EOS;
}

size_t tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count,
                        bool skip_special, char *out, size_t capacity) {
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        struct text piece = tokenizer_piece(tokenizer, tokens[i]);
        if (skip_special && (tokens[i] == FAKE_BOS || tokens[i] == FAKE_EOS))
            continue;
        for (size_t k = 0; k < piece.length; k++, length++)
            if (length < capacity)
                out[length] = piece.data[k];
    }
    return length;
}

const int32_t *tokenizer_fim(const struct tokenizer *tokenizer) {
    static const int32_t fim[NUM_FIM_PARTS] = {FAKE_FIM_PREFIX, FAKE_FIM_SUFFIX, FAKE_FIM_MIDDLE};
    return tokenizer == FAKE_WITHOUT_FIM ? NULL : fim;
}

const int32_t *tokenizer_fim_marks(const struct tokenizer *tokenizer) {
    static const int32_t marks[NUM_FIM_MARKS] = {-1, FAKE_FIM_REPO, FAKE_FIM_FILE};
    static const int32_t none[NUM_FIM_MARKS] = {-1, -1, -1};
    return tokenizer == FAKE_WITHOUT_FIM ? none : marks;
}

const int32_t *tokenizer_fim_ends(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = tokenizer == FAKE_WITHOUT_FIM ? 0 : 2;
    return tokenizer_fim_marks(NULL) + FIM_REPO;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) {
    return FAKE_BOS;
}

const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count) {
    static const int32_t eos[] = {FAKE_EOS};
    *out_count = 1;
    return eos;
}

const struct named_token *tokenizer_named_tokens(const struct tokenizer *tokenizer,
                                                 size_t *out_count) {
    static const struct named_token named[] = {
        {"unk_token", '?'},
        {"additional_special_tokens", '['},
        {"additional_special_tokens", ']'},
        {"additional_special_tokens", '{'},
        {"additional_special_tokens", '}'},
    };
    *out_count = sizeof(named) / sizeof(named[0]);
    return named;
}

bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token) {
    return token == FAKE_EOS;
}
