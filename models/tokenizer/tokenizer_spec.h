/* Private to models/: everything that defines a tokenizer, in one neutral form. A front end reads
 * it from a file (tokenizer_gguf.c, tokenizer_json.c); the tokenizer (tokenizer.c) is built from it
 * and keeps no reference to it. All texts and arrays are owned by the spec (tokenizer_spec_alloc)
 * or point into memory that outlives the call; the front end checks what its format says, the
 * tokenizer what concerns both (counts, ids in range, merges that fit the vocabulary).
 *
 * Encoding works like Hugging Face's tokenizers: added tokens are cut out of the text; the text
 * between them is normalised, split by the pre-tokenizer steps, and each piece merged (BPE); the
 * template's tokens surround the result. */
#ifndef QUIRE_MODELS_TOKENIZER_TOKENIZER_SPEC_H
#define QUIRE_MODELS_TOKENIZER_TOKENIZER_SPEC_H

#include "config/base/error.h"
#include "models/files/tensor_file.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* U+2581, which stands for a space in vocabularies of characters. */
#define TOKENIZER_SPACE "\xe2\x96\x81"

#define TOKENIZER_MAX_STEPS 16
#define TOKENIZER_MAX_TEMPLATE 8
#define TOKENIZER_MAX_EOS 16

/* What the vocabulary's texts consist of. */
enum vocabulary_alphabet {
    ALPHABET_BYTES,      /* one visible character a byte (GPT-2's table) */
    ALPHABET_CHARACTERS, /* plain text; U+2581 for a space if the normaliser inserts it */
};

/* Tokens matched in the text itself. */
struct added_token {
    int32_t id;
    bool special;     /* a control token: matched only with TOKENIZER_PARSE_SPECIAL */
    bool lstrip;      /* consumes white space before it */
    bool rstrip;      /* and after it */
    bool single_word; /* only between characters that are not letters, digits or underscores */
    bool normalized;  /* matched in the normalised text */
};

/* Two tokens as written in the file. They and their concatenation are looked up in the vocabulary
 * when a tokenizer is built. */
struct merge_texts {
    struct text left;
    struct text right;
};

enum normalizer_kind {
    NORMALIZER_NFC,
    NORMALIZER_NFKC,
    NORMALIZER_LOWERCASE,
    NORMALIZER_PREPEND, /* content, unless the text is empty */
    NORMALIZER_REPLACE, /* every `pattern` by `content` */
    NORMALIZER_STRIP,   /* white space, at the left, the right or both */
};

struct normalizer_step {
    enum normalizer_kind kind;
    struct text pattern; /* REPLACE: a plain string */
    struct text content; /* PREPEND, REPLACE */
    bool left, right;    /* STRIP */
};

/* What happens to a match of a split: it stays a piece, is removed, or joins a neighbour. */
enum split_behaviour {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

enum pretokenizer_kind {
    PRETOKENIZER_SPLIT,       /* by a regex or a string */
    PRETOKENIZER_DIGITS,      /* runs of digits, or each digit, separately */
    PRETOKENIZER_PUNCTUATION, /* each character separately */
    PRETOKENIZER_BYTE_LEVEL,  /* GPT-2's regex, if use_regex */
    PRETOKENIZER_METASPACE,   /* spaces become `replacement`, one is put in front, split there */
};

enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct pretokenizer_step {
    enum pretokenizer_kind kind;
    struct text pattern; /* SPLIT: a regex, or a plain string */
    bool pattern_is_regex;
    bool invert;                    /* SPLIT: the pattern matches pieces, not what is between */
    bool individual;                /* DIGITS */
    bool add_prefix_space;          /* BYTE_LEVEL */
    bool use_regex;                 /* BYTE_LEVEL */
    enum split_behaviour behaviour; /* SPLIT, PUNCTUATION */
    struct text replacement;        /* METASPACE */
    enum prepend_scheme prepend;
    bool split; /* METASPACE */
};

struct tokenizer_spec {
    const char *pretokenizer_name; /* for people: "llama-bpe", "tokenizer.json" */
    enum vocabulary_alphabet alphabet;
    int32_t num_tokens;
    struct text *tokens; /* [num_tokens] as the file writes them; length 0: no such id */
    uint8_t *types;      /* [num_tokens] enum token_type (vocabulary.h) */
    size_t num_merges;
    struct merge_texts *merges; /* by rank: the first is merged first */
    float *scores; /* [num_tokens], SentencePiece's; NULL: merges are given. Otherwise merges are
                      derived from the scores: every pair of tokens whose concatenation is a token,
                      the highest score first */
    bool ignore_merges; /* a piece that is a token becomes it */
    bool byte_fallback; /* a character without a token becomes its bytes' tokens "<0x0A>" */
    bool fuse_unknown;  /* neighbouring unknown characters become one */
    int32_t unknown;    /* -1: a character without a token is left out */

    size_t num_added;
    struct added_token *added;
    int num_normalizers;
    struct normalizer_step normalizers[TOKENIZER_MAX_STEPS];
    int num_pretokenizers;
    struct pretokenizer_step pretokenizers[TOKENIZER_MAX_STEPS];

    int num_prefix; /* tokens around a prompt, for TOKENIZER_ADD_SPECIAL */
    int32_t prefix[TOKENIZER_MAX_TEMPLATE];
    int num_suffix;
    int32_t suffix[TOKENIZER_MAX_TEMPLATE];
    int32_t bos;                /* -1: none */
    int32_t fim[NUM_FIM_PARTS]; /* if names_fim; otherwise found by their texts */
    bool names_fim[NUM_FIM_PARTS];
    int32_t fim_marks[NUM_FIM_MARKS]; /* if has_fim_marks */
    bool has_fim_marks[NUM_FIM_MARKS];
    size_t num_named;
    struct named_token *named;
    int num_eos;
    int32_t eos[TOKENIZER_MAX_EOS];

    /* Decoding of ALPHABET_CHARACTERS: U+2581 becomes a space; this many are removed from the front
     * of a text that is decoded as a whole (tokens of a continuation keep theirs). */
    int strip_leading_spaces;
    bool space_replacement; /* U+2581 stands for a space */

    struct spec_block *blocks; /* allocated by tokenizer_spec_alloc */
};

/* Returns `bytes` of zeroed memory that lives as long as the spec; NULL when memory is short. */
void *tokenizer_spec_alloc(struct tokenizer_spec *spec, size_t bytes);
/* Returns an unpredictable number, for hashes of texts from a file: with a predictable one, a
 * vocabulary could be made to collide and take quadratic time. */
uint64_t tokenizer_spec_seed(void);
/* Makes the number of tokens in the spec equal to the model's rows of logits, so that no text and
 * no caller can name an id that the model lacks. Rows beyond the spec's tokens get empty tokens
 * that no text becomes. Added tokens beyond the rows, which a family's shared tokenizer may have
 * for its larger models, are dropped; an ordinary token there is an ERROR_MODEL. A vocab_size of 0,
 * for a model that is only a tokenizer, changes nothing. */
int tokenizer_spec_fit(struct tokenizer_spec *spec, int32_t vocab_size, struct error *err);
/* Returns whether a control token of this name ends a text in every GGUF file (tokenizer.h). */
bool tokenizer_spec_ends_text(struct text name);
/* Accepts a zeroed spec and a half-filled one. */
void tokenizer_spec_finish(struct tokenizer_spec *spec);

struct model;

/* Reads a GGUF file's metadata, or the tokenizer.json (and tokenizer_config.json) of a Hugging Face
 * folder. ERROR_MODEL names file, field and value. The caller finishes *out only after success. */
int tokenizer_spec_read_gguf(const struct tensor_file *file, struct tokenizer_spec *out,
                             struct error *err);
int tokenizer_spec_read_json(const char *folder, struct tokenizer_spec *out, struct error *err);

#endif
