/* Text to token ids and back. A tokenizer is immutable after tokenizer_open and shared by all
 * threads; encode allocates its own scratch.
 *
 * Byte-level BPE (tokenizer_bpe.c): the text is split by the model's pre-tokenizer regex, each
 * piece is mapped to bytes and merged by rank. Other kinds join beside it behind this header. */
#ifndef QUIRE_MODELS_TOKENIZER_H
#define QUIRE_MODELS_TOKENIZER_H

#include "config/error.h"
#include "models/tensor_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum tokenizer_flags {
    /* Add what the model wants around a prompt (bos, for models that have add_bos_token). */
    TOKENIZER_ADD_SPECIAL = 1,
    /* Let "<|im_start|>" in the text become that special token. Off for user text: special tokens
     * in it are encoded as the plain characters they are written with. (Tokens a model's users
     * added, of type 4, are no control tokens and match in every text, as in Hugging Face's.) */
    TOKENIZER_PARSE_SPECIAL = 2,
};

/* Reads the vocabulary, merges and special tokens from a file's metadata. ERROR_MODEL names the key
 * that is missing or broken, and for an unknown kind lists those known. Keeps nothing of the file.
 */
int tokenizer_open(const struct tensor_file *file, struct tokenizer **out, struct error *err);
/* Accepts NULL. */
void tokenizer_close(struct tokenizer *tokenizer);

/* Encodes text[0..length). Returns the number of tokens, which may exceed capacity: then only the
 * first `capacity` were written. Returns -1 when memory is short. Any bytes are allowed; bytes that
 * are not UTF-8 become the tokens of those bytes. A byte for which the vocabulary has no token
 * (tokenizer_description says how many there are) is left out. Time is O(n log n). */
int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity);

/* The bytes a token stands for (may be part of a UTF-8 character), never NULL for a valid id;
 * not NUL-terminated. For a special token: its written form. */
struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token);
/* The token as the vocabulary writes it (byte-level alphabet), for /tokenize's token_strs. */
struct text tokenizer_raw_piece(const struct tokenizer *tokenizer, int32_t token);

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1: none */
/* True for every token that ends generation: tokenizer.ggml.eos_token_id, eot_token_id and
 * eom_token_id, and of these names those that the file has as control tokens: <|im_end|>,
 * <|endoftext|>, <|eot_id|>, <|eom_id|>, <|end_of_text|>, <|end|>, <|eot|>, <|end_of_turn|>, <EOT>,
 * <end_of_turn>. */
bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token);
/* The ids tokenizer_is_eos accepts; *out_count of them, owned by the tokenizer. */
const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count);
/* For people: "byte-level BPE, pre-tokenizer smollm". */
const char *tokenizer_description(const struct tokenizer *tokenizer);

#endif
