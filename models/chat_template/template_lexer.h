/* Private to chat_template/: a template's source as tokens, one after the other, with Jinja's rules
 * for white space around tags (trim_blocks, lstrip_blocks, the signs - and +). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_LEXER_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_LEXER_H

#include "config/base/error.h"
#include "config/base/text.h"
#include "models/chat_template/template_value_private.h"

enum template_token_kind {
    TOKEN_END,
    TOKEN_DATA, /* text between tags; may be empty */
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

/* One character, or a value of these for the operators of two. */
enum template_operator {
    OPERATOR_EQUAL = 256,
    OPERATOR_NOT_EQUAL,
    OPERATOR_LESS_EQUAL,
    OPERATOR_GREATER_EQUAL,
    OPERATOR_FLOOR_DIVIDE,
    OPERATOR_IN, /* words, as the parser finds them */
    OPERATOR_NOT_IN,
};

struct template_token {
    enum template_token_kind kind;
    int line;
    int op;           /* OPERATOR: the character, or enum template_operator */
    struct text text; /* DATA, NAME, STRING (without quotes and escapes) */
    int64_t integer;
    double real;
};

enum { TEMPLATE_MAX_BRACKETS = 128 };

struct template_lexer {
    struct text source; /* in the arena, all newlines are \n */
    struct template_arena *arena;
    struct error *err;
    size_t at;
    int line;
    enum { LEXER_TEXT, LEXER_TAG, LEXER_BLOCK, LEXER_OUTPUT } state;
    enum template_token_kind tag; /* LEXER_TAG: which one begins at `at` */
    bool line_starts;             /* what came before ends a line */
    size_t num_brackets;
    char brackets[TEMPLATE_MAX_BRACKETS]; /* which close the open ones */
};

/* The source may go afterwards. */
int template_lexer_init(struct template_lexer *lexer, struct template_arena *arena,
                        struct text source, struct error *err);
/* Texts lie in the arena. */
int template_lexer_next(struct template_lexer *lexer, struct template_token *out);
/* Fills err with "line N: ...". Returns -1. */
int template_lexer_fail(struct template_lexer *lexer, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* After an allocation failed. Returns -1. */
int template_lexer_fail_memory(struct template_lexer *lexer);

#endif
