#include "models/chat_template/template_cursor.h"

#include "config/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Equal names have equal data. */
static struct text intern(struct template_cursor *cursor, struct text name) {
    struct template_mapping *names = cursor->names.mapping;
    struct template_value key = template_value_text(name, TEMPLATE_ORIGIN_SERVER);
    const struct template_value *known = template_value_map_find(cursor->arena, names, &key);
    if (known != NULL)
        return (struct text){known->string.data, known->string.length};
    if (!template_value_map_set(cursor->arena, names, &key, key))
        template_cursor_fail_memory(cursor);
    return name;
}

void template_cursor_init(struct template_cursor *cursor, struct template_arena *arena,
                          struct text source, const struct template_builtins *builtins,
                          struct template_names *out, struct error *err) {
    *cursor = (struct template_cursor){.arena = arena, .builtins = builtins};
    cursor->uses_end = &cursor->uses;
    cursor->failed = template_lexer_init(&cursor->lexer, arena, source, err) != 0;
    if (cursor->failed)
        return;
    if (!template_value_map(arena, TEMPLATE_MAP, &cursor->names) ||
        !template_value_map(arena, TEMPLATE_MAP, &cursor->defined)) {
        template_cursor_fail_memory(cursor);
        return;
    }
    out->loop = intern(cursor, (struct text){"loop", 4});
    out->caller = intern(cursor, (struct text){"caller", 6});
    template_cursor_define(cursor, out->caller);
    template_cursor_advance(cursor);
}

/* --- Failures --- */

static void end_here(struct template_cursor *cursor) {
    cursor->failed = true;
    cursor->has_ahead = false;
    cursor->token = (struct template_token){.kind = TOKEN_END, .line = cursor->token.line};
}

void template_cursor_fail(struct template_cursor *cursor, int line, const char *format, ...) {
    char text[256];
    va_list arguments;
    if (cursor->failed)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    template_lexer_fail(&cursor->lexer, line, "%s", text);
    end_here(cursor);
}

void template_cursor_fail_memory(struct template_cursor *cursor) {
    if (!cursor->failed)
        template_lexer_fail_memory(&cursor->lexer);
    end_here(cursor);
}

void template_cursor_fail_expected(struct template_cursor *cursor, const char *what) {
    const struct template_token *token = &cursor->token;
    char got[UTF8_PRINTABLE_BYTES] = "the end of the template";
    if (token->kind == TOKEN_NAME || token->kind == TOKEN_STRING)
        utf8_printable(token->text, got);
    else if (token->kind == TOKEN_OPERATOR && token->op < 256)
        snprintf(got, sizeof(got), "'%c'", token->op);
    else if (token->kind == TOKEN_OUTPUT_END || token->kind == TOKEN_BLOCK_END)
        snprintf(got, sizeof(got), "the end of the tag");
    else if (token->kind != TOKEN_END)
        snprintf(got, sizeof(got), "a number or an operator");
    template_cursor_fail(cursor, token->line, "expected %s, got %s", what, got);
}

void template_cursor_enter(struct template_cursor *cursor) {
    if (cursor->nesting++ >= TEMPLATE_MAX_NESTING)
        template_cursor_fail(cursor, cursor->token.line,
                             "more than %d statements and expressions within another",
                             TEMPLATE_MAX_NESTING);
}

void template_cursor_leave(struct template_cursor *cursor) {
    cursor->nesting--;
}

/* --- Tokens --- */

void template_cursor_advance(struct template_cursor *cursor) {
    if (cursor->failed)
        return;
    if (cursor->has_ahead)
        cursor->token = cursor->ahead;
    else if (template_lexer_next(&cursor->lexer, &cursor->token) != 0)
        end_here(cursor);
    cursor->has_ahead = false;
}

const struct template_token *template_cursor_look(struct template_cursor *cursor) {
    if (!cursor->failed && !cursor->has_ahead) {
        cursor->has_ahead = template_lexer_next(&cursor->lexer, &cursor->ahead) == 0;
        if (!cursor->has_ahead)
            end_here(cursor);
    }
    return cursor->has_ahead ? &cursor->ahead : &cursor->token;
}

bool template_cursor_is_name(const struct template_token *token, const char *name) {
    return token->kind == TOKEN_NAME && text_is(token->text, name);
}

bool template_cursor_is_operator(const struct template_cursor *cursor, int op) {
    return cursor->token.kind == TOKEN_OPERATOR && cursor->token.op == op;
}

bool template_cursor_closes(const struct template_cursor *cursor, int op) {
    return cursor->failed || template_cursor_is_operator(cursor, op);
}

bool template_cursor_skip_name(struct template_cursor *cursor, const char *name) {
    if (!template_cursor_is_name(&cursor->token, name))
        return false;
    template_cursor_advance(cursor);
    return true;
}

bool template_cursor_skip_operator(struct template_cursor *cursor, int op) {
    if (!template_cursor_is_operator(cursor, op))
        return false;
    template_cursor_advance(cursor);
    return true;
}

void template_cursor_expect_operator(struct template_cursor *cursor, int op) {
    char what[] = {'\'', (char)op, '\'', '\0'};
    if (!template_cursor_skip_operator(cursor, op))
        template_cursor_fail_expected(cursor, what);
}

struct text template_cursor_take_name(struct template_cursor *cursor) {
    if (cursor->token.kind != TOKEN_NAME) {
        template_cursor_fail_expected(cursor, "a name");
        return (struct text){"", 0};
    }
    struct text name = intern(cursor, cursor->token.text);
    template_cursor_advance(cursor);
    return name;
}

/* --- Nodes --- */

struct template_node *template_cursor_node(struct template_cursor *cursor,
                                           enum template_node_kind kind, int line) {
    struct template_node *node =
        cursor->failed ? NULL : template_arena_alloc(cursor->arena, sizeof(*node));
    if (node == NULL) {
        template_cursor_fail_memory(cursor);
        node = &cursor->spare;
    }
    *node = (struct template_node){.kind = (uint8_t)kind, .line = line};
    return node;
}

struct template_node *template_cursor_make(struct template_cursor *cursor,
                                           enum template_node_kind kind) {
    return template_cursor_node(cursor, kind, cursor->token.line);
}

void template_cursor_append(struct template_node ***end, struct template_node *node) {
    **end = node;
    *end = &node->next;
}

/* --- Names --- */

void template_cursor_fail_unknown(struct template_cursor *cursor, const char *what,
                                  struct text name, int line) {
    char printable[UTF8_PRINTABLE_BYTES];
    utf8_printable(name, printable);
    template_cursor_fail(cursor, line, "unknown %s '%s'", what, printable);
}

void template_cursor_define(struct template_cursor *cursor, struct text name) {
    struct template_value key = template_value_text(name, TEMPLATE_ORIGIN_SERVER);
    if (!cursor->failed &&
        !template_value_map_set(cursor->arena, cursor->defined.mapping, &key, key))
        template_cursor_fail_memory(cursor);
}

void template_cursor_use(struct template_cursor *cursor, const char *what, struct text name,
                         int line) {
    struct template_use *use =
        cursor->failed ? NULL : template_arena_alloc(cursor->arena, sizeof(*use));
    if (use == NULL) {
        template_cursor_fail_memory(cursor);
        return;
    }
    *use = (struct template_use){what, name, line, NULL};
    *cursor->uses_end = use;
    cursor->uses_end = &use->next;
}

void template_cursor_check_uses(struct template_cursor *cursor) {
    for (const struct template_use *use = cursor->uses; use != NULL; use = use->next)
        if (!cursor->failed &&
            template_value_map_find_text(cursor->arena, cursor->defined.mapping, use->name) == NULL)
            template_cursor_fail_unknown(cursor, use->what, use->name, use->line);
}
