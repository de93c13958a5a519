#include "models/chat_template/template_cursor.h"

#include "config/base/utf8.h"

#include <stdio.h>
#include <string.h>

int template_cursor_fail_memory(struct template_cursor *cursor) {
    if (template_arena_is_full(cursor->arena))
        return error_set(cursor->lexer.err, ERROR_SYNTAX, "the template needs more than %zu bytes",
                         template_arena_max_bytes(cursor->arena));
    return error_set(cursor->lexer.err, ERROR_MEMORY, "no memory for a chat template");
}

int template_cursor_fail_expected(struct template_cursor *cursor, const char *what) {
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
    return template_lexer_fail(&cursor->lexer, token->line, "expected %s, got %s", what, got);
}

int template_cursor_enter(struct template_cursor *cursor) {
    if (cursor->nesting == TEMPLATE_MAX_NESTING)
        return template_lexer_fail(&cursor->lexer, cursor->token.line,
                                   "more than %d statements and expressions within another",
                                   TEMPLATE_MAX_NESTING);
    cursor->nesting++;
    return 0;
}

int template_cursor_advance(struct template_cursor *cursor) {
    if (!cursor->has_ahead)
        return template_lexer_next(&cursor->lexer, &cursor->token);
    cursor->token = cursor->ahead;
    cursor->has_ahead = false;
    return 0;
}

const struct template_token *template_cursor_look(struct template_cursor *cursor) {
    if (!cursor->has_ahead && template_lexer_next(&cursor->lexer, &cursor->ahead) != 0)
        return NULL;
    cursor->has_ahead = true;
    return &cursor->ahead;
}

bool template_cursor_is_name(const struct template_token *token, const char *name) {
    return token->kind == TOKEN_NAME && text_is(token->text, name);
}

bool template_cursor_is_operator(const struct template_cursor *cursor, int op) {
    return cursor->token.kind == TOKEN_OPERATOR && cursor->token.op == op;
}

int template_cursor_skip_name(struct template_cursor *cursor, const char *name) {
    if (!template_cursor_is_name(&cursor->token, name))
        return 0;
    return template_cursor_advance(cursor) != 0 ? -1 : 1;
}

int template_cursor_skip_operator(struct template_cursor *cursor, int op) {
    if (!template_cursor_is_operator(cursor, op))
        return 0;
    return template_cursor_advance(cursor) != 0 ? -1 : 1;
}

int template_cursor_expect_operator(struct template_cursor *cursor, int op) {
    char what[] = {'\'', (char)op, '\'', '\0'};
    if (!template_cursor_is_operator(cursor, op))
        return template_cursor_fail_expected(cursor, what);
    return template_cursor_advance(cursor);
}

static int intern(struct template_cursor *cursor, struct text name, struct text *out) {
    struct template_mapping *names = cursor->names.mapping;
    struct template_value key = template_data_text(name, TEMPLATE_ORIGIN_SERVER);
    const struct template_value *known = template_mapping_find(cursor->arena, names, &key);
    if (known == NULL && !template_mapping_set(cursor->arena, names, &key, key))
        return template_cursor_fail_memory(cursor);
    *out = known == NULL ? name : (struct text){known->string.data, known->string.length};
    return 0;
}

int template_cursor_take_name(struct template_cursor *cursor, struct text *out) {
    if (cursor->token.kind != TOKEN_NAME)
        return template_cursor_fail_expected(cursor, "a name");
    return intern(cursor, cursor->token.text, out) != 0 ? -1 : template_cursor_advance(cursor);
}

struct template_node *template_cursor_node(struct template_cursor *cursor,
                                           enum template_node_kind kind, int line) {
    struct template_node *node = template_arena_alloc(cursor->arena, sizeof(*node));
    if (node == NULL) {
        template_cursor_fail_memory(cursor);
        return NULL;
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

/* --- Names -------------------------------------------------------------------------------------
 */

int template_cursor_fail_unknown(struct template_cursor *cursor, const char *what, struct text name,
                                 int line) {
    char printable[UTF8_PRINTABLE_BYTES];
    utf8_printable(name, printable);
    return template_lexer_fail(&cursor->lexer, line, "unknown %s '%s'", what, printable);
}

int template_cursor_define(struct template_cursor *cursor, struct text name) {
    struct template_value key = template_data_text(name, TEMPLATE_ORIGIN_SERVER);
    return template_mapping_set(cursor->arena, cursor->defined.mapping, &key, key)
               ? 0
               : template_cursor_fail_memory(cursor);
}

int template_cursor_use(struct template_cursor *cursor, const char *what, struct text name,
                        int line) {
    struct template_use *use = template_arena_alloc(cursor->arena, sizeof(*use));
    if (use == NULL)
        return template_cursor_fail_memory(cursor);
    *use = (struct template_use){what, name, line, NULL};
    *cursor->uses_end = use;
    cursor->uses_end = &use->next;
    return 0;
}

int template_cursor_check_uses(struct template_cursor *cursor) {
    for (const struct template_use *use = cursor->uses; use != NULL; use = use->next)
        if (template_mapping_find_text(cursor->arena, cursor->defined.mapping, use->name) == NULL)
            return template_cursor_fail_unknown(cursor, use->what, use->name, use->line);
    return 0;
}

int template_cursor_init(struct template_cursor *cursor, struct template_arena *arena,
                         struct text source, const struct template_builtins *builtins,
                         struct template_names *out, struct error *err) {
    *cursor = (struct template_cursor){.arena = arena, .builtins = builtins};
    cursor->uses_end = &cursor->uses;
    if (template_lexer_init(&cursor->lexer, arena, source, err) != 0)
        return -1;
    if (!template_mapping_create(arena, TEMPLATE_MAP, &cursor->names) ||
        !template_mapping_create(arena, TEMPLATE_MAP, &cursor->defined))
        return template_cursor_fail_memory(cursor);
    if (intern(cursor, (struct text){"loop", 4}, &out->loop) != 0 ||
        intern(cursor, (struct text){"caller", 6}, &out->caller) != 0 ||
        template_cursor_define(cursor, out->caller) != 0)
        return -1;
    return template_cursor_advance(cursor);
}
