/* Private to chat_template/: the position in the tokens that the parser's files share, and their
 * common operations: look at the current token, advance, expect, make a node, fail.
 *
 * The first failure is kept: from then on the current token is the template's end, new nodes are
 * discarded, and nothing else fails. So a function of the grammar need not check for failures,
 * except in loops: a loop ends at the end of the template, or at template_cursor_closes. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CURSOR_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CURSOR_H

#include "config/base/error.h"
#include "config/base/text.h"
#include "models/chat_template/template_parser.h"

/* --- Tokens (template_lexer.c) --- Reads a template's source token by token, with Jinja's rules
 * for white space around tags (trim_blocks, lstrip_blocks, the signs - and +). */

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
    bool line_starts;             /* the text before ends a line */
    size_t num_brackets;
    char brackets[TEMPLATE_MAX_BRACKETS]; /* closing brackets of the open ones */
};

/* The source may go afterwards. */
int template_lexer_init(struct template_lexer *lexer, struct template_arena *arena,
                        struct text source, struct error *err);
/* Texts are allocated in the arena. */
int template_lexer_next(struct template_lexer *lexer, struct template_token *out);
/* Fills err with "line N: ...". Returns -1. */
int template_lexer_fail(struct template_lexer *lexer, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Called after an allocation failed. Returns -1. */
int template_lexer_fail_memory(struct template_lexer *lexer);

/* --- The position in the tokens --- */

/* Maximum nesting of statements and expressions. */
enum { TEMPLATE_MAX_NESTING = 100 };

/* A call of something that the builtins do not have, but the template may define further down. */
struct template_use {
    const char *what; /* "function", "method": for the message */
    struct text name;
    int line;
    struct template_use *next;
};

struct template_cursor {
    struct template_lexer lexer;
    struct template_arena *arena;
    struct template_token token, ahead; /* the current one and, if has_ahead, the one after it */
    bool has_ahead, failed;
    int nesting;
    struct template_node spare; /* the node returned after a failure */
    const struct template_builtins *builtins;
    struct template_value names;           /* map of the interned ones */
    struct template_value defined;         /* map of the names given to template_cursor_define */
    struct template_use *uses, **uses_end; /* in the order of the source */
};

/* Starts at the first token, with the interpreter's own names interned in `out`. The source may be
 * freed afterwards; texts and nodes lie in the arena. */
void template_cursor_init(struct template_cursor *cursor, struct template_arena *arena,
                          struct text source, const struct template_builtins *builtins,
                          struct template_names *out, struct error *err);

void template_cursor_fail(struct template_cursor *cursor, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* After an allocation failed. */
void template_cursor_fail_memory(struct template_cursor *cursor);
/* Fails with "expected WHAT, got the current token". */
void template_cursor_fail_expected(struct template_cursor *cursor, const char *what);
/* Counts one more level of nesting, up to template_cursor_leave. */
void template_cursor_enter(struct template_cursor *cursor);
void template_cursor_leave(struct template_cursor *cursor);

/* --- The current token --- */

void template_cursor_advance(struct template_cursor *cursor);
/* Returns the token after the current one. */
const struct template_token *template_cursor_look(struct template_cursor *cursor);
bool template_cursor_is_name(const struct template_token *token, const char *name);
bool template_cursor_is_operator(const struct template_cursor *cursor, int op);
/* Returns whether the current token is that operator, or the template has ended. */
bool template_cursor_closes(const struct template_cursor *cursor, int op);
/* Return whether the current token is it, and advance past it if so. */
bool template_cursor_skip_name(struct template_cursor *cursor, const char *name);
bool template_cursor_skip_operator(struct template_cursor *cursor, int op);
/* Advance past it; fail if the current token is something else. */
void template_cursor_expect_operator(struct template_cursor *cursor, int op);
/* Interns the current token, which must be a name, and advances past it. */
struct text template_cursor_take_name(struct template_cursor *cursor);

/* --- Nodes --- */

/* Makes a node of that line, or of the current token's. Never NULL. */
struct template_node *template_cursor_node(struct template_cursor *cursor,
                                           enum template_node_kind kind, int line);
struct template_node *template_cursor_make(struct template_cursor *cursor,
                                           enum template_node_kind kind);
/* Appends a node to a list at *end, and advances *end past it. */
void template_cursor_append(struct template_node ***end, struct template_node *node);

/* --- Names that a template uses and defines --- A name that is not defined anywhere is refused
 * before the template runs: see template_parser_run. */

/* Fails with "unknown WHAT 'NAME'". */
void template_cursor_fail_unknown(struct template_cursor *cursor, const char *what,
                                  struct text name, int line);
/* Notes that the template itself gives the name a value, or tests whether it is defined. */
void template_cursor_define(struct template_cursor *cursor, struct text name);
/* Notes a use, which template_cursor_check_uses refuses if the name is still undefined then. */
void template_cursor_use(struct template_cursor *cursor, const char *what, struct text name,
                         int line);
void template_cursor_check_uses(struct template_cursor *cursor);

/* --- Expressions (template_expression.c) --- */

/* Words that end a tuple without brackets, like a closing bracket or the tag's end. */
enum template_tuple_end { TUPLE_END_NONE, TUPLE_END_IN, TUPLE_END_RECURSIVE };

/* Parses one expression; without a condition, an `if` after it is left to the caller. */
struct template_node *template_expression_parse(struct template_cursor *cursor,
                                                bool with_condition);
/* Parses one expression, or several with commas between them. */
struct template_node *template_expression_parse_tuple(struct template_cursor *cursor,
                                                      bool with_condition,
                                                      enum template_tuple_end end);
/* Parses a name, names with commas, or a namespace's member, all of which the template thereby
 * defines. */
struct template_node *template_expression_parse_target(struct template_cursor *cursor,
                                                       enum template_tuple_end end,
                                                       bool with_member);
/* Parses filters applied to `node`, each after a bar, except the first if `bare`. */
struct template_node *template_expression_parse_filters(struct template_cursor *cursor,
                                                        struct template_node *node, bool bare);

#endif
