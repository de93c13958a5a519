/* Private to chat_template/: the place in the tokens that the parser's files share, and what each of
 * them does there: look at the current token, move on, expect, make a node, fail.
 *
 * Functions that return int return 0, or -1 with the reason in the error given to
 * template_cursor_init, unless they say otherwise. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CURSOR_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CURSOR_H

#include "models/chat_template/template_builtins.h"
#include "models/chat_template/template_lexer.h"
#include "models/chat_template/template_node.h"

/* Statements and expressions that are open at once, each within the one before it. */
enum { TEMPLATE_MAX_NESTING = 100 };

/* A call of what the builtins do not have, but the template may define further down. */
struct template_use {
    const char *what; /* "function", "method": for the message */
    struct text name;
    int line;
    struct template_use *next;
};

struct template_cursor {
    struct template_lexer lexer;
    struct template_arena *arena;
    struct template_token token, ahead; /* the current one and, if has_ahead, that behind it */
    bool has_ahead;
    int nesting;
    const struct template_builtins *builtins;
    struct template_value names;           /* map of the interned ones */
    struct template_value defined;         /* map of those that template_cursor_define was given */
    struct template_use *uses, **uses_end; /* in the order of the source */
};

/* Stands at the first token, with the interpreter's own names interned in `out`. The source may go
 * afterwards; texts and nodes lie in the arena. */
int template_cursor_init(struct template_cursor *cursor, struct template_arena *arena,
                         struct text source, const struct template_builtins *builtins,
                         struct template_names *out, struct error *err);

int template_cursor_fail_memory(struct template_cursor *cursor);
/* Fails with "expected WHAT, got the current token". */
int template_cursor_fail_expected(struct template_cursor *cursor, const char *what);
/* Counts one more level of nesting, which the caller takes off again. */
int template_cursor_enter(struct template_cursor *cursor);

int template_cursor_advance(struct template_cursor *cursor);
/* Returns the token behind the current one; NULL after an error. */
const struct template_token *template_cursor_look(struct template_cursor *cursor);
bool template_cursor_is_name(const struct template_token *token, const char *name);
bool template_cursor_is_operator(const struct template_cursor *cursor, int op);
/* Moves behind it if it is there: 1, else 0; -1 after an error. */
int template_cursor_skip_name(struct template_cursor *cursor, const char *name);
int template_cursor_skip_operator(struct template_cursor *cursor, int op);
int template_cursor_expect_operator(struct template_cursor *cursor, int op);
/* Interns the current token, which must be a name, and moves behind it. */
int template_cursor_take_name(struct template_cursor *cursor, struct text *out);

/* --- Names that a template uses and defines ---
 * What no template can know is refused before it is run: see template_parser_run. */

/* Fails with "unknown WHAT 'NAME'". */
int template_cursor_fail_unknown(struct template_cursor *cursor, const char *what, struct text name,
                                 int line);
/* Notes that the template itself gives the name a value, or asks whether somebody has. */
int template_cursor_define(struct template_cursor *cursor, struct text name);
/* Notes a use that template_cursor_check_uses refuses if the name is not defined by then. */
int template_cursor_use(struct template_cursor *cursor, const char *what, struct text name,
                        int line);
int template_cursor_check_uses(struct template_cursor *cursor);

/* Makes a node of that line, or of the current token's; NULL after an error. */
struct template_node *template_cursor_node(struct template_cursor *cursor,
                                           enum template_node_kind kind, int line);
struct template_node *template_cursor_make(struct template_cursor *cursor,
                                           enum template_node_kind kind);
/* Puts a node at the end of a list, *end, which moves behind it. */
void template_cursor_append(struct template_node ***end, struct template_node *node);

#endif
