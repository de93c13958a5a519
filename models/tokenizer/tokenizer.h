/* Text to token ids and back. A tokenizer is immutable after it was opened and shared by all
 * threads; encode allocates its own scratch.
 *
 * BPE over bytes or characters, like Hugging Face's tokenizers: tokens that are matched in the text
 * itself are cut out, the text between them is normalised and split by the model's pre-tokenizer,
 * and each piece is merged by rank (tokenizer_bpe.h). */
#ifndef QUIRE_MODELS_TOKENIZER_TOKENIZER_H
#define QUIRE_MODELS_TOKENIZER_TOKENIZER_H

#include "config/base/error.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The parts of a text with a gap (fill-in-the-middle), in the order in which a model reads them. */
enum fim_part { FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE, NUM_FIM_PARTS };
/* Further marks: padding, and what precedes the name of a repository and of a file.
 */
enum fim_mark { FIM_PAD, FIM_REPO, FIM_FILE, NUM_FIM_MARKS };
#define FIM_MAX_ENDS 32

/* A token by what Transformers calls it: "bos_token", "eos_token", "unk_token", "pad_token",
 * "sep_token", "cls_token", "mask_token", or, several times, "additional_special_tokens". */
struct named_token {
    const char *name; /* static */
    int32_t id;
};

struct model;
struct tokenizer;
struct tokenizer_spec;

enum tokenizer_flags {
    /* Add the tokens that the model expects around a prompt (usually bos). */
    TOKENIZER_ADD_SPECIAL = 1,
    /* Let "<|im_start|>" in the text become that special token. Off for text written by a chat's
     * users: special tokens in it are encoded as plain characters. (User-defined tokens, of type 4,
     * are not control tokens and match in every text, as in Hugging Face's.) */
    TOKENIZER_PARSE_SPECIAL = 2,
};

/* Opens the tokenizer of a model: that of the tokenizer.json in its folder, or of its GGUF file's
 * metadata. Its vocabulary has at least the model's vocab_size tokens. ERROR_MODEL names the file
 * and what is missing or broken, and for an unknown kind lists those known. Keeps no reference to
 * the model. */
int tokenizer_open(const struct model *model, struct tokenizer **out, struct error *err);
/* Creates one from its parts (tokenizer_spec.h), keeping no reference to them. */
int tokenizer_create(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err);
/* Accepts NULL. */
void tokenizer_close(struct tokenizer *tokenizer);

#define TOKENIZER_NO_MEMORY (-1)
#define TOKENIZER_TOO_COSTLY (-2)

/* Encodes text[0..length). Returns the number of tokens, which may exceed capacity: then only the
 * first `capacity` were written. Returns TOKENIZER_NO_MEMORY, or TOKENIZER_TOO_COSTLY when one of
 * the model's own regexes takes too long or its normalizer makes the text too long. Any bytes are
 * allowed; bytes that are not UTF-8 become the tokens of those bytes. A byte for which the
 * vocabulary has no token (tokenizer_description gives their number) becomes the unknown token or
 * is left out. Time is O(n log n). */
int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity);

/* Encodes text of which parts come from a client: with TOKENIZER_PARSE_SPECIAL a control token is
 * matched only if none of its bytes lies in one of the spans (ascending, disjoint); the same holds
 * for a token of type 4 that is written as <|...|> or <｜...｜>, like DeepSeek's that begin a turn.
 * Everything else is as if there were no spans, so that a client's text without control tokens is
 * encoded the same: text merges across the edge of a span, and a control token that consumes white
 * space does so there too. A part of a control token in a client's text does not prevent a control
 * token next to it from being matched. Control tokens that a model matches in its normalised text
 * are not matched at all in a run whose normalised form differs from the concatenated forms of its
 * parts (an accent at an edge).
 */
int64_t tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, size_t length,
                               const struct text_span *client_spans, size_t num_client_spans,
                               unsigned flags, int32_t *out, size_t capacity);

/* Returns how many tokens TOKENIZER_ADD_SPECIAL puts before and after a text. */
void tokenizer_num_added(const struct tokenizer *tokenizer, int *out_before, int *out_behind);

/* Returns the bytes that a token stands for (may be part of a UTF-8 character), never NULL for a
 * valid id; not NUL-terminated. For a special token: its written form. */
struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token);
/* Returns the token as written in the vocabulary, for /tokenize's token_strs. */
struct text tokenizer_raw_piece(const struct tokenizer *tokenizer, int32_t token);

/* Writes the bytes of a text that consists of exactly these tokens: their pieces, without control
 * tokens if skip_special, and without the space that encoding puts in front of a text, if it does.
 * Writes the first `capacity` bytes and returns the total number. For tokens that continue others,
 * concatenate tokenizer_piece instead. */
size_t tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count,
                        bool skip_special, char *out, size_t capacity);

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token);
/* Returns whether no text has the token: the vocabulary is padded with it. */
bool tokenizer_is_unused(const struct tokenizer *tokenizer, int32_t token);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1: none */
/* Returns the tokens that tokenizer_config.json names, or those that a GGUF file names (bos, eos
 * and others, but no additional ones): *out_count of them, owned by the tokenizer. */
const struct named_token *tokenizer_named_tokens(const struct tokenizer *tokenizer,
                                                 size_t *out_count);
/* Returns whether a token ends generation: those that the model's files name, and control tokens of
 * a GGUF file with one of these names: <|im_end|>, <|endoftext|>, <|eot_id|>, <|eom_id|>,
 * <|end_of_text|>, <|end|>, <|eot|>, <|end_of_turn|>, <EOT>, <end_of_turn>. */
bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token);
/* Returns the ids that tokenizer_is_eos accepts, *out_count of them, owned by the tokenizer. */
const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count);
/* Returns the tokens that precede the parts of a text with a gap, by enum fim_part, owned by the
 * tokenizer: those that the model's file names, otherwise those of known families by their text
 * (fim_tokens.c). NULL: the model has none. */
const int32_t *tokenizer_fim(const struct tokenizer *tokenizer);
/* Returns the tokens by enum fim_mark, found in the same way; -1: none. */
const int32_t *tokenizer_fim_marks(const struct tokenizer *tokenizer);
/* Returns the tokens that end a text that fills a gap, in addition to tokenizer_eos_tokens: the
 * marks, because another file begins with them, and tokens whose name says that a text ends.
 * *out_count of them, at most FIM_MAX_ENDS; none for a model without fill-in-the-middle. */
const int32_t *tokenizer_fim_ends(const struct tokenizer *tokenizer, int *out_count);
/* Describes it for people: "byte-level BPE, pre-tokenizer smollm"; "BPE over characters,
 * pre-tokenizer none". */
const char *tokenizer_description(const struct tokenizer *tokenizer);

#endif
