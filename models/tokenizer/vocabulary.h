/* The tokens of a model with a hash from text to id.
 *
 * Byte-level vocabularies (ALPHABET_BYTES) write each byte as one visible character (GPT-2's
 * alphabet: printable Latin-1 as itself, the other 68 bytes as U+0100 on); user-defined tokens are
 * written as the text they match. SentencePiece's (ALPHABET_CHARACTERS) are plain text, except for
 * U+2581 in place of a space and tokens like "<0x0A>" that stand for a byte. All tokens are decoded
 * once, at init, into one arena; the written forms are copied into another, so that truncating or
 * overwriting a file in use does no harm. Immutable after init.
 *
 * Tokens are looked up by their bytes in a byte-level vocabulary, otherwise by their written form.
 * Of duplicates the last one is found, as when Hugging Face's loader fills a map. */
#ifndef QUIRE_MODELS_TOKENIZER_VOCABULARY_H
#define QUIRE_MODELS_TOKENIZER_VOCABULARY_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits for files. The largest known vocabularies have 262,144 tokens. */
#define VOCABULARY_MAX_TOKENS (1 << 22)
#define VOCABULARY_MAX_TOKEN_BYTES 65535

/* Values of `tokenizer.ggml.token_type` (GGUF specification, ggml-org/ggml docs/gguf.md). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

struct vocabulary {
    int32_t size;
    enum vocabulary_alphabet alphabet;
    uint8_t *types;            /* [size] enum token_type */
    char *written;             /* written forms of all tokens, in id order */
    uint32_t *written_offsets; /* [size + 1] into written */
    char *arena;               /* decoded bytes of all tokens, in id order */
    uint32_t *offsets;         /* [size + 1] into arena; an empty range: not in the alphabet */
    const char *keys;          /* arena or written: what tokens are looked up by */
    const uint32_t *key_offsets;
    int32_t *slots; /* [slot_mask + 1] open addressing, -1: free */
    uint32_t slot_mask;
    uint64_t seed;            /* of the hash */
    size_t max_length;        /* of the keys */
    int32_t byte_tokens[256]; /* -1: the vocabulary has no token for this byte */
};

/* Reads the tokens and types of spec, keeping no reference to it. */
int vocabulary_init(const struct tokenizer_spec *spec, struct vocabulary *out, struct error *err);
/* Accepts a zeroed struct. */
void vocabulary_finish(struct vocabulary *vocabulary);

/* Returns the token with this key, of any type, or -1. */
int32_t vocabulary_find_any(const struct vocabulary *vocabulary, const char *key, size_t length);
/* Returns it only if plain text may become this token: not control, unknown and unused tokens, nor
 * those that stand for a byte in a vocabulary of characters. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *key, size_t length);

/* Returns whether plain text may become this token. */
static inline bool vocabulary_is_text(const struct vocabulary *vocabulary, int32_t token) {
    uint8_t type = vocabulary->types[token];
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED ||
           (type == TOKEN_BYTE && vocabulary->alphabet == ALPHABET_BYTES);
}

/* Returns the token's output: its decoded bytes, or the written form for control and unknown
 * tokens, and if the written form is not in the alphabet. */
struct text vocabulary_piece(const struct vocabulary *vocabulary, int32_t token);
/* Returns the written form. */
struct text vocabulary_raw(const struct vocabulary *vocabulary, int32_t token);

/* Decodes a written form of a byte-level vocabulary to bytes; out has room for `written.length`.
 * Returns the number of bytes, or -1 if a character is not in the byte-level alphabet. */
int64_t vocabulary_decode(struct text written, char *out);

/* --- Fill-in-the-middle (fim_tokens.c) --- The tokens that mark the parts of a text with a gap,
 * for models trained to fill it in. tokenizer.h defines the counts. */

/* Completes ids[NUM_FIM_PARTS], in which -1 means unknown, with those of the first model family
 * whose three names the vocabulary has, as written, of any type. The names are those that
 * llama.cpp's loader knows (llama-vocab.cpp). Returns false if at least one remains unknown. */
bool fim_tokens_find(const struct vocabulary *vocabulary, int32_t *ids);
/* Completes marks[NUM_FIM_MARKS], in which -1 means unknown, with the first name of each that the
 * vocabulary has. Writes the tokens that end a text that fills a gap to ends[FIM_MAX_ENDS], each
 * once, and returns their number: the marks, every token with one of their names, and tokens that
 * end a text by name (llama-vocab.cpp's, StarCoder2's and CodeGemma's). */
int fim_tokens_find_marks(const struct vocabulary *vocabulary, int32_t *marks, int32_t *ends);

#endif
