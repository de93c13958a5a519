/* A vocabulary, merges and a text made of any bytes. The input is a byte of choices and three parts
 * that end with NUL: tokens, one a line, the first byte giving the type; merges, one a line; text.
 * Whatever opens must encode, and the tokens' pieces must add up to the text. */
#include "models/tokenizer/tokenizer.h"

#include "tests/unit/models/tokenizer/tokenizer_fixture.h"

#include <stdio.h>

#define MAX_LINES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Ends the lines of `part` in place and returns their number. */
static size_t split_lines(char *part, char *lines[MAX_LINES]) {
    size_t count = 0;
    for (char *line = strtok(part, "\n"); line != NULL && count < MAX_LINES;
         line = strtok(NULL, "\n"))
        lines[count++] = line;
    return count;
}

static void check_text(const struct tokenizer *tokenizer, const char *text, size_t length,
                       unsigned flags) {
    size_t capacity = length + 1, position = 0;
    int32_t *ids = malloc(capacity * sizeof(*ids));
    if (ids == NULL)
        abort();
    int64_t count = tokenizer_encode(tokenizer, text, length, flags, ids, capacity);
    if (count < 0 || (size_t)count > length)
        abort();
    if (tokenizer_encode(tokenizer, text, length, flags, NULL, 0) != count)
        abort();
    bool whole = strstr(tokenizer_description(tokenizer), "without a token") == NULL;
    for (int64_t i = 0; i < count; i++) {
        struct text piece = tokenizer_piece(tokenizer, ids[i]);
        if (tokenizer_is_special(tokenizer, ids[i]) && flags == 0)
            abort();
        if (whole && (piece.length > length - position ||
                      memcmp(piece.data, text + position, piece.length) != 0))
            abort();
        position += piece.length;
    }
    if (whole && position != length)
        abort();
    free(ids);
}

/* A client's part of the text, between two quarters: no control token has a byte of it. */
static void check_span(const struct tokenizer *tokenizer, const char *text, size_t length,
                       uint8_t choices) {
    struct text_span span = {length * (choices >> 3 & 3) / 4, 0};
    span.end = span.begin + (length - span.begin) * (choices >> 5 & 3) / 3;
    size_t num_spans = span.begin < span.end;
    size_t capacity = length + 1, position = 0;
    int32_t *ids = malloc(capacity * sizeof(*ids));
    if (ids == NULL)
        abort();
    int64_t count = tokenizer_encode_spans(tokenizer, text, length, &span, num_spans,
                                           TOKENIZER_PARSE_SPECIAL, ids, capacity);
    if (count < 0 || (size_t)count > length)
        abort();
    bool whole = strstr(tokenizer_description(tokenizer), "without a token") == NULL;
    for (int64_t i = 0; i < count && whole && num_spans > 0; i++) {
        size_t end = position + tokenizer_piece(tokenizer, ids[i]).length;
        if (tokenizer_is_special(tokenizer, ids[i]) && position < span.end && end > span.begin)
            abort();
        position = end;
    }
    free(ids);
}

static void touch_vocabulary(const struct tokenizer *tokenizer) {
    for (int32_t i = 0; i < tokenizer_vocab_size(tokenizer); i++) {
        struct text raw = tokenizer_raw_piece(tokenizer, i);
        if (raw.length > 0 && raw.data[raw.length - 1] == '\n')
            abort();
    }
}

/* `parts` is cut up. */
static void check(char *parts[3], size_t text_bytes, uint8_t choices) {
    static const char *const names[] = {"gpt-2", "smollm", "deepseek-v3", "llama-bpe"};
    struct fixture_token tokens[MAX_LINES];
    char *lines[MAX_LINES], *merges[MAX_LINES];
    struct fixture fixture;
    struct error err = {0};
    size_t num_tokens = split_lines(parts[0], lines);
    for (size_t i = 0; i < num_tokens; i++)
        tokens[i] = (struct fixture_token){lines[i] + 1, (uint8_t)lines[i][0] % 7};
    const struct fixture_spec spec = {
        .pre = names[choices & 3],
        .bos = 1,
        .num_tokens = num_tokens,
        .tokens = tokens,
        .num_merges = split_lines(parts[1], merges),
        .merges = (const char *const *)merges,
    };
    int status = fixture_open(&spec, &fixture, &err);
    if (status == -1 && (strchr(err.message, '\n') != NULL || err.code != ERROR_MODEL))
        abort();
    if (status == 0) {
        touch_vocabulary(fixture.tokenizer);
        check_text(fixture.tokenizer, parts[2], text_bytes,
                   choices & 4 ? TOKENIZER_PARSE_SPECIAL : 0);
        check_span(fixture.tokenizer, parts[2], text_bytes, choices);
    }
    fixture_close(&fixture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0)
        return 0;
    char *copy = malloc(bytes + 2);
    char *parts[3];
    if (copy == NULL)
        return 0;
    memcpy(copy, data, bytes);
    copy[bytes] = copy[bytes + 1] = '\0';
    size_t position = 1;
    for (int i = 0; i < 3; i++) {
        parts[i] = copy + (position < bytes ? position : bytes);
        position += i < 2 ? strlen(parts[i]) + 1 : 0;
    }
    check(parts, position < bytes ? bytes - position : 0, data[0]);
    free(copy);
    return 0;
}
