/* Opening reads the metadata into a vocabulary (vocabulary.c), merges (tokenizer_bpe.c), the tokens
 * matched in text (special_tokens.c) and a pre-tokenizer (pretokenizer.c). Encoding runs a text
 * through them:
 *
 *     text -> special tokens and spans between -> in a span, runs of valid UTF-8 and single bytes
 *          -> in a run, pieces -> in a piece, merges
 */
#include "models/tokenizer.h"

#include "config/check.h"
#include "models/pretokenizer.h"
#include "models/special_tokens.h"
#include "models/tokenizer_bpe.h"
#include "config/utf8.h"
#include "models/vocabulary.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EOS_TOKENS 16

struct tokenizer {
    struct vocabulary vocabulary;
    struct bpe bpe;
    struct pretokenizer *pretokenizer;
    struct special_tokens added;    /* matched in every text */
    struct special_tokens specials; /* these and control tokens, for TOKENIZER_PARSE_SPECIAL */
    int32_t bos;                    /* -1: none */
    bool add_bos;
    int num_eos;
    int32_t eos[MAX_EOS_TOKENS];
    char description[160];
};

/* Ends of turn or text in the vocabularies of known chat models; see tokenizer.h. */
static const char *const eos_names[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>",      "<|eom_id|>", "<|end_of_text|>",
    "<|end|>",    "<|eot|>",       "<|end_of_turn|>", "<EOT>",      "<end_of_turn>",
};

/* --- Metadata --------------------------------------------------------------------------------- */

static int read_string(const struct tensor_file *file, const char *key, struct text *out,
                       struct error *err) {
    const struct metadata *value = tensor_file_find_metadata(file, key);
    if (value == NULL)
        return 0;
    if (value->type != METADATA_STRING)
        return error_set(err, ERROR_MODEL, "%s is not a string", key);
    *out = value->as_string;
    return 0;
}

/* An integer 0..max; *out is left as it is when the key is missing. */
static int read_number(const struct tensor_file *file, const char *key, int32_t max, int32_t *out,
                       struct error *err) {
    const struct metadata *value = tensor_file_find_metadata(file, key);
    if (value == NULL)
        return 0;
    if (value->type == METADATA_INT && value->as_int < 0)
        return error_set(err, ERROR_MODEL, "%s is %lld, allowed 0 to %d", key,
                         (long long)value->as_int, max);
    if (value->type != METADATA_UINT && value->type != METADATA_INT)
        return error_set(err, ERROR_MODEL, "%s is not an integer", key);
    uint64_t number = value->type == METADATA_INT ? (uint64_t)value->as_int : value->as_uint;
    if (number > (uint64_t)max)
        return error_set(err, ERROR_MODEL, "%s is %llu, allowed 0 to %d", key,
                         (unsigned long long)number, max);
    *out = (int32_t)number;
    return 0;
}

static int check_kind(const struct tensor_file *file, struct error *err) {
    struct text kind = {0};
    char shown[UTF8_PRINTABLE_BYTES];
    if (read_string(file, "tokenizer.ggml.model", &kind, err) != 0)
        return -1;
    if (kind.data == NULL)
        return error_set(err, ERROR_MODEL, "tokenizer.ggml.model is missing");
    if (kind.length == 4 && memcmp(kind.data, "gpt2", 4) == 0)
        return 0;
    utf8_printable(kind, shown);
    return error_set(err, ERROR_MODEL, "tokenizer.ggml.model is \"%s\", known is gpt2", shown);
}

/* --- Opening ---------------------------------------------------------------------------------- */

static int open_bos(struct tokenizer *t, const struct tensor_file *file, struct error *err) {
    int32_t add_bos = pretokenizer_adds_bos(t->pretokenizer);
    int32_t max = t->vocabulary.size - 1;
    t->bos = -1;
    if (read_number(file, "tokenizer.ggml.bos_token_id", max, &t->bos, err) != 0 ||
        read_number(file, "tokenizer.ggml.add_bos_token", 1, &add_bos, err) != 0)
        return -1;
    if (add_bos && t->bos < 0)
        return error_set(err, ERROR_MODEL,
                         "tokenizer.ggml.bos_token_id is missing, but prompts start with it");
    t->add_bos = add_bos;
    return 0;
}

static void add_eos(struct tokenizer *t, int32_t token) {
    if (token < 0 || tokenizer_is_eos(t, token))
        return;
    CHECK(t->num_eos < MAX_EOS_TOKENS);
    t->eos[t->num_eos++] = token;
}

static int open_eos(struct tokenizer *t, const struct tensor_file *file, struct error *err) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        int32_t token = -1;
        if (read_number(file, keys[i], t->vocabulary.size - 1, &token, err) != 0)
            return -1;
        add_eos(t, token);
    }
    for (size_t i = 0; i < sizeof(eos_names) / sizeof(eos_names[0]); i++) {
        int32_t token = vocabulary_find_any(&t->vocabulary, eos_names[i], strlen(eos_names[i]));
        if (token >= 0 && t->vocabulary.types[token] == TOKEN_CONTROL)
            add_eos(t, token);
    }
    return 0;
}

static void describe(struct tokenizer *t) {
    int missing = 0;
    for (int byte = 0; byte < 256; byte++)
        missing += t->vocabulary.byte_tokens[byte] < 0;
    int used = snprintf(t->description, sizeof(t->description), "byte-level BPE, pre-tokenizer %s",
                        pretokenizer_name(t->pretokenizer));
    if (missing > 0)
        snprintf(t->description + used, sizeof(t->description) - (size_t)used,
                 ", %d of 256 bytes without a token", missing);
}

static int open_parts(struct tokenizer *t, const struct tensor_file *file, struct error *err) {
    struct text pre = {"default", strlen("default")};
    if (check_kind(file, err) != 0 || read_string(file, "tokenizer.ggml.pre", &pre, err) != 0 ||
        pretokenizer_create(pre, &t->pretokenizer, err) != 0 ||
        vocabulary_init(file, &t->vocabulary, err) != 0 ||
        bpe_init(file, &t->vocabulary, pretokenizer_ignores_merges(t->pretokenizer), &t->bpe,
                 err) != 0 ||
        special_tokens_init(&t->vocabulary, false, &t->added, err) != 0 ||
        special_tokens_init(&t->vocabulary, true, &t->specials, err) != 0 ||
        open_bos(t, file, err) != 0 || open_eos(t, file, err) != 0)
        return -1;
    describe(t);
    return 0;
}

int tokenizer_open(const struct tensor_file *file, struct tokenizer **out, struct error *err) {
    struct error reason = {0};
    struct tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a tokenizer");
    if (open_parts(t, file, &reason) != 0) {
        tokenizer_close(t);
        return error_set(err, reason.code, "%s: %s", tensor_file_path(file), reason.message);
    }
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (tokenizer == NULL)
        return;
    special_tokens_finish(&tokenizer->specials);
    special_tokens_finish(&tokenizer->added);
    bpe_finish(&tokenizer->bpe);
    vocabulary_finish(&tokenizer->vocabulary);
    pretokenizer_destroy(tokenizer->pretokenizer);
    free(tokenizer);
}

/* --- Encoding --------------------------------------------------------------------------------- */

struct encoding {
    const struct tokenizer *tokenizer;
    struct pretokenizer_scratch *scratch;
    struct bpe_scratch bpe_scratch;
    struct token_sink sink;
};

static int encode_piece(void *context, const char *piece, size_t length) {
    struct encoding *e = context;
    return bpe_encode(&e->tokenizer->bpe, piece, length, &e->bpe_scratch, &e->sink);
}

/* A span without special tokens. */
static int encode_span(struct encoding *e, const char *span, size_t length) {
    while (length > 0) {
        size_t valid = utf8_valid_prefix(span, length);
        if (valid > 0 && pretokenizer_run(e->tokenizer->pretokenizer, e->scratch, span, valid,
                                          encode_piece, e) != 0)
            return -1;
        span += valid;
        length -= valid;
        if (length > 0) {
            encode_piece(e, span, 1);
            span++;
            length--;
        }
    }
    return 0;
}

static int encode_text(struct encoding *e, const struct special_tokens *specials, const char *text,
                       size_t length) {
    const struct special_token *special = NULL;
    for (size_t position = 0; position < length;) {
        size_t found = special_tokens_find(specials, text, length, position, &special);
        if (encode_span(e, text + position, found - position) != 0)
            return -1;
        position = found;
        if (found < length) {
            token_sink_push(&e->sink, special->id);
            position += special->text.length;
        }
    }
    return 0;
}

int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity) {
    struct encoding e = {.tokenizer = tokenizer, .sink = {.out = out, .capacity = capacity}};
    e.scratch = pretokenizer_scratch_create(tokenizer->pretokenizer);
    if (e.scratch == NULL)
        return -1;
    if ((flags & TOKENIZER_ADD_SPECIAL) != 0 && tokenizer->add_bos)
        token_sink_push(&e.sink, tokenizer->bos);
    bool parse = (flags & TOKENIZER_PARSE_SPECIAL) != 0;
    int status = encode_text(&e, parse ? &tokenizer->specials : &tokenizer->added, text, length);
    pretokenizer_scratch_destroy(e.scratch);
    bpe_scratch_finish(&e.bpe_scratch);
    return status == 0 ? (int64_t)e.sink.count : -1;
}

/* --- Tokens ----------------------------------------------------------------------------------- */

struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token) {
    return vocabulary_piece(&tokenizer->vocabulary, token);
}

struct text tokenizer_raw_piece(const struct tokenizer *tokenizer, int32_t token) {
    return vocabulary_raw(&tokenizer->vocabulary, token);
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer) {
    return tokenizer->vocabulary.size;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token) {
    CHECK(token >= 0 && token < tokenizer->vocabulary.size);
    uint8_t type = tokenizer->vocabulary.types[token];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) {
    return tokenizer->bos;
}

bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token) {
    for (int i = 0; i < tokenizer->num_eos; i++) {
        if (tokenizer->eos[i] == token)
            return true;
    }
    return false;
}

const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = tokenizer->num_eos;
    return tokenizer->eos;
}

const char *tokenizer_description(const struct tokenizer *tokenizer) {
    return tokenizer->description;
}
