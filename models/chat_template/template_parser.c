#include "models/chat_template/template_parser.h"

#include "config/base/utf8.h"
#include "models/chat_template/template_cursor.h"

#include <string.h>

/* Parses statements up to a tag that begins with one of the words, which end with NULL; that word
 * is the current token then. Without words: to the template's end. */
static struct template_node *parse_body(struct template_cursor *cursor, const char *const *words);

/* Parses what is between a tag that begins a block and one of the words. */
static struct template_node *parse_block(struct template_cursor *cursor, const char *const *words) {
    template_cursor_skip_operator(cursor, ':');
    if (cursor->token.kind != TOKEN_BLOCK_END)
        template_cursor_fail_expected(cursor, "the end of the tag");
    template_cursor_enter(cursor);
    template_cursor_advance(cursor);
    struct template_node *body = parse_body(cursor, words);
    template_cursor_leave(cursor);
    return body;
}

/* The same, and advances past the word. */
static struct template_node *parse_whole_block(struct template_cursor *cursor, const char *word) {
    const char *const words[] = {word, NULL};
    struct template_node *body = parse_block(cursor, words);
    template_cursor_advance(cursor);
    return body;
}

/* --- Statements: each function fills the node, starting after the statement's keyword --- */

static void parse_if(struct template_cursor *cursor, struct template_node *node) {
    static const char *const words[] = {"elif", "else", "endif", NULL};
    struct template_node **end = &node->items, *branch;
    do {
        branch = template_cursor_make(cursor, NODE_BRANCH);
        branch->left = template_expression_parse_tuple(cursor, false, TUPLE_END_NONE);
        branch->body = parse_block(cursor, words);
        template_cursor_append(&end, branch);
    } while (template_cursor_skip_name(cursor, "elif"));
    bool has_else = template_cursor_is_name(&cursor->token, "else");
    template_cursor_advance(cursor);
    if (!has_else)
        return;
    branch = template_cursor_make(cursor, NODE_BRANCH);
    branch->body = parse_whole_block(cursor, "endif");
    template_cursor_append(&end, branch);
}

static void check_loop_target(struct template_cursor *cursor, const struct template_node *target) {
    const struct template_node *name = target->kind == NODE_TUPLE ? target->items : target;
    for (; !cursor->failed && name != NULL; name = name->next)
        if (text_is(name->name, "loop"))
            template_cursor_fail(cursor, name->line, "cannot assign to the loop variable 'loop'");
}

static void parse_for(struct template_cursor *cursor, struct template_node *node) {
    static const char *const words[] = {"else", "endfor", NULL};
    node->left = template_expression_parse_target(cursor, TUPLE_END_IN, false);
    check_loop_target(cursor, node->left);
    if (!template_cursor_skip_name(cursor, "in"))
        template_cursor_fail_expected(cursor, "'in'");
    node->right = template_expression_parse_tuple(cursor, false, TUPLE_END_RECURSIVE);
    if (template_cursor_skip_name(cursor, "if"))
        node->other = template_expression_parse(cursor, true);
    if (template_cursor_is_name(&cursor->token, "recursive"))
        template_cursor_fail(cursor, cursor->token.line, "recursive loops are not supported");
    node->body = parse_block(cursor, words);
    bool has_else = template_cursor_is_name(&cursor->token, "else");
    template_cursor_advance(cursor);
    if (has_else)
        node->orelse = parse_whole_block(cursor, "endfor");
}

static struct template_node *parse_filters_over_body(struct template_cursor *cursor, bool bare) {
    struct template_node *captured = template_cursor_make(cursor, NODE_CAPTURED);
    return template_expression_parse_filters(cursor, captured, bare);
}

static void parse_set(struct template_cursor *cursor, struct template_node *node) {
    node->left = template_expression_parse_target(cursor, TUPLE_END_NONE, true);
    if (template_cursor_skip_operator(cursor, '=')) {
        node->right = template_expression_parse_tuple(cursor, true, TUPLE_END_NONE);
        return;
    }
    node->kind = NODE_SET_BLOCK;
    node->right = parse_filters_over_body(cursor, false);
    node->body = parse_whole_block(cursor, "endset");
}

static void parse_filter_block(struct template_cursor *cursor, struct template_node *node) {
    node->right = parse_filters_over_body(cursor, true);
    node->body = parse_whole_block(cursor, "endfilter");
}

static void parse_parameters(struct template_cursor *cursor, struct template_node *node) {
    struct template_node **end = &node->items;
    bool has_default = false;
    template_cursor_expect_operator(cursor, '(');
    while (!template_cursor_closes(cursor, ')')) {
        if (node->items != NULL)
            template_cursor_expect_operator(cursor, ',');
        struct template_node *parameter = template_cursor_make(cursor, NODE_PARAMETER);
        parameter->name = template_cursor_take_name(cursor);
        template_cursor_define(cursor, parameter->name);
        if (template_cursor_skip_operator(cursor, '='))
            parameter->left = template_expression_parse(cursor, true);
        else if (has_default)
            template_cursor_fail(cursor, parameter->line,
                                 "a parameter without a default follows one with a default");
        has_default = parameter->left != NULL;
        template_cursor_append(&end, parameter);
    }
    template_cursor_expect_operator(cursor, ')');
}

static void parse_macro(struct template_cursor *cursor, struct template_node *node) {
    node->name = template_cursor_take_name(cursor);
    template_cursor_define(cursor, node->name);
    parse_parameters(cursor, node);
    node->body = parse_whole_block(cursor, "endmacro");
}

static void parse_call_block(struct template_cursor *cursor, struct template_node *node) {
    node->name = (struct text){"caller", 6};
    if (template_cursor_is_operator(cursor, '('))
        parse_parameters(cursor, node);
    node->right = template_expression_parse(cursor, true);
    if (node->right->kind != NODE_CALL)
        template_cursor_fail(cursor, node->line, "expected a call");
    node->body = parse_whole_block(cursor, "endcall");
}

static void parse_generation(struct template_cursor *cursor, struct template_node *node) {
    node->body = parse_whole_block(cursor, "endgeneration");
}

/* --- Bodies --- */

/* At the word after "{%". */
static struct template_node *parse_statement(struct template_cursor *cursor) {
    static const struct {
        const char *word;
        enum template_node_kind kind;
        void (*parse)(struct template_cursor *cursor, struct template_node *node); /* or NULL */
    } statements[] = {
        {"if", NODE_IF, parse_if},
        {"for", NODE_FOR, parse_for},
        {"set", NODE_SET, parse_set},
        {"macro", NODE_MACRO, parse_macro},
        {"call", NODE_CALL_BLOCK, parse_call_block},
        {"filter", NODE_FILTER_BLOCK, parse_filter_block},
        {"generation", NODE_SCOPE, parse_generation},
        {"break", NODE_BREAK, NULL},
        {"continue", NODE_CONTINUE, NULL},
    };
    char word[UTF8_PRINTABLE_BYTES];
    struct template_node *node = template_cursor_make(cursor, NODE_TEXT);
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++)
        if (template_cursor_skip_name(cursor, statements[i].word)) {
            node->kind = (uint8_t)statements[i].kind;
            if (statements[i].parse != NULL)
                statements[i].parse(cursor, node);
            return node;
        }
    if (cursor->token.kind != TOKEN_NAME) {
        template_cursor_fail_expected(cursor, "the name of a tag");
        return node;
    }
    utf8_printable(cursor->token.text, word);
    template_cursor_fail(cursor, cursor->token.line, "unknown or misplaced tag '%s'", word);
    return node;
}

static struct template_node *parse_output(struct template_cursor *cursor) {
    struct template_node *node = template_cursor_make(cursor, NODE_OUTPUT);
    template_cursor_advance(cursor);
    node->left = template_expression_parse_tuple(cursor, true, TUPLE_END_NONE);
    if (cursor->token.kind != TOKEN_OUTPUT_END)
        template_cursor_fail_expected(cursor, "the end of the output");
    template_cursor_advance(cursor);
    return node;
}

static bool is_one_of(const struct template_token *token, const char *const *words) {
    for (; words != NULL && *words != NULL; words++)
        if (template_cursor_is_name(token, *words))
            return true;
    return false;
}

static struct template_node *parse_body(struct template_cursor *cursor, const char *const *words) {
    struct template_node *body = NULL, **end = &body;
    while (cursor->token.kind != TOKEN_END) {
        if (cursor->token.kind == TOKEN_OUTPUT_BEGIN) {
            template_cursor_append(&end, parse_output(cursor));
            continue;
        }
        if (cursor->token.kind == TOKEN_BLOCK_BEGIN) {
            template_cursor_advance(cursor);
            if (is_one_of(&cursor->token, words))
                return body;
            template_cursor_append(&end, parse_statement(cursor));
            if (cursor->token.kind != TOKEN_BLOCK_END)
                template_cursor_fail_expected(cursor, "the end of the tag");
        } else if (cursor->token.text.length > 0) {
            struct template_node *text = template_cursor_make(cursor, NODE_TEXT);
            text->value = template_value_text(cursor->token.text, TEMPLATE_ORIGIN_SERVER);
            template_cursor_append(&end, text);
        }
        template_cursor_advance(cursor);
    }
    if (words != NULL)
        template_cursor_fail(cursor, cursor->token.line, "the template ends where '%s' is expected",
                             words[0]);
    return body;
}

int template_parser_run(struct template_arena *arena, struct text source,
                        const struct template_builtins *builtins, struct template_names *out_names,
                        struct template_node **out, struct error *err) {
    struct template_cursor cursor;
    template_cursor_init(&cursor, arena, source, builtins, out_names, err);
    *out = parse_body(&cursor, NULL);
    template_cursor_check_uses(&cursor);
    return cursor.failed ? -1 : 0;
}
