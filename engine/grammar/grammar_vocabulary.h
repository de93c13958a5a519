/* Private to engine/grammar/: the prefix tree of the tokens that stand for text. Control tokens,
 * end tokens and tokens without bytes are not in it. */
#ifndef QUIRE_ENGINE_GRAMMAR_VOCABULARY_H
#define QUIRE_ENGINE_GRAMMAR_VOCABULARY_H

#include "engine/grammar/grammar.h"

#define GRAMMAR_MAX_TOKEN_BYTES 4096 /* longer tokens are left out */

/* Nodes stand in the order of a depth-first walk. */
struct vocabulary_node {
    int32_t end;         /* the first node behind this one's subtree */
    int32_t first_token; /* the tokens that end here: tokens[first_token..+num_tokens) */
    uint16_t num_tokens;
    uint16_t depth; /* 0: the first byte of a token */
    uint8_t byte;
};

struct grammar_vocabulary {
    const struct tokenizer *tokenizer;
    int32_t vocab_size;
    int max_token_bytes;
    int32_t num_nodes;
    struct vocabulary_node *nodes;
    int32_t *tokens; /* sorted by their bytes */
};

bool grammar_vocabulary_has_text(const struct tokenizer *tokenizer, int32_t token);

#endif
