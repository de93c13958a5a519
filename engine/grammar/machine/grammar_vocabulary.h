/* Private to engine/grammar/: the prefix tree of the text tokens. It contains no control tokens,
 * end tokens or tokens without bytes. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_VOCABULARY_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_VOCABULARY_H

#include "engine/grammar/machine/grammar.h"

#define GRAMMAR_MAX_TOKEN_BYTES 4096 /* the tree leaves out longer tokens */
#define VOCABULARY_MAX_TAIL 32
#define VOCABULARY_NO_TAIL 255
#define VOCABULARY_MAX_LINE_BREAK 8 /* maximum tokens of a line break */
#define VOCABULARY_MAX_QUOTES 3     /* numbers of quotes that are distinguished */

/* Nodes are in depth-first order. */
struct vocabulary_node {
    int32_t end;         /* the first node after this one's subtree */
    int32_t first_token; /* the tokens that end here: tokens[first_token..+num_tokens) */
    uint16_t num_tokens;
    uint16_t depth; /* 0: the first byte of a token */
    uint8_t byte;
    uint8_t tail_length; /* longest tail after it, see character_kinds.h. VOCABULARY_NO_TAIL: not
                            whole characters, or more than VOCABULARY_MAX_TAIL */
};

struct vocabulary_tree {
    int32_t num_nodes;
    struct vocabulary_node
        *nodes;           /* [num_nodes + 1]; the last one's first_token is the number of tokens */
    uint64_t *tail_kinds; /* [num_nodes] bits of the kinds of characters after each node */
    int32_t *tokens;      /* sorted by their bytes */
};

struct grammar_vocabulary {
    const struct tokenizer *tokenizer;
    int32_t vocab_size;
    int max_token_bytes;
    /* The tokens of a line break, for a tokenizer that puts a space before each text; otherwise
     * num_line_break is 0. */
    int32_t line_break[VOCABULARY_MAX_LINE_BREAK];
    int32_t num_line_break;
    int32_t *quoted; /* the tokens with a quote in their text, those with more quotes first */
    int32_t num_quoted[VOCABULARY_MAX_QUOTES]; /* number of tokens with at least 1, 2, ... quotes */
    struct vocabulary_tree all;
    /* Plain tokens are texts of a JSON string, without escapes, of at most VOCABULARY_MAX_TAIL
     * characters. */
    struct vocabulary_tree others; /* tokens that are not plain */
    uint32_t *plain_masks; /* [VOCABULARY_MAX_TAIL][(vocab_size + 31) / 32] bits of the plain tokens
                              of at most 1, 2, ... characters */
    int32_t num_plain[VOCABULARY_MAX_TAIL]; /* number of set bits */
};

bool grammar_vocabulary_has_text(const struct tokenizer *tokenizer, int32_t token);

#endif
