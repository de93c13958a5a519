#include "models/chat_template/template_parser.h"

#include "config/base/utf8.h"
#include "models/chat_template/template_expression.h"
#include "models/chat_template/template_operand.h"

#include <string.h>

/* --- Statements --------------------------------------------------------------------------------
 */

/* Statements up to a tag that begins with one of the words, which end with NULL; that word is the
 * current token then. Without words: to the template's end. */
static int parse_body(struct template_cursor *cursor, const char *const *words,
                      struct template_node **out);

static bool is_one_of(const struct template_token *token, const char *const *words) {
    for (; *words != NULL; words++)
        if (template_cursor_is_name(token, *words))
            return true;
    return false;
}

/* What is between a tag that begins a block and one of the words. */
static int parse_block(struct template_cursor *cursor, const char *const *words,
                       struct template_node **out) {
    if (template_cursor_skip_operator(cursor, ':') < 0)
        return -1;
    if (cursor->token.kind != TOKEN_BLOCK_END)
        return template_cursor_fail_expected(cursor, "the end of the tag");
    if (template_cursor_enter(cursor) != 0 || template_cursor_advance(cursor) != 0 ||
        parse_body(cursor, words, out) != 0)
        return -1;
    cursor->nesting--;
    return 0;
}

/* The same, and moves behind the word. */
static int parse_whole_block(struct template_cursor *cursor, const char *word,
                             struct template_node **out) {
    const char *const words[] = {word, NULL};
    return parse_block(cursor, words, out) != 0 ? -1 : template_cursor_advance(cursor);
}

static int parse_if(struct template_cursor *cursor, struct template_node *node) {
    static const char *const words[] = {"elif", "else", "endif", NULL};
    struct template_node **end = &node->items;
    node->kind = NODE_IF;
    for (;;) {
        struct template_node *branch = template_cursor_make(cursor, NODE_BRANCH);
        if (branch == NULL ||
            template_expression_parse_tuple(cursor, false, TUPLE_END_NONE, &branch->left) != 0 ||
            parse_block(cursor, words, &branch->body) != 0)
            return -1;
        *end = branch;
        end = &branch->next;
        int skipped = template_cursor_skip_name(cursor, "elif");
        if (skipped < 0)
            return -1;
        if (skipped == 0)
            break;
    }
    bool has_else = template_cursor_is_name(&cursor->token, "else");
    if (template_cursor_advance(cursor) != 0)
        return -1;
    if (!has_else)
        return 0;
    *end = template_cursor_make(cursor, NODE_BRANCH);
    return *end == NULL ? -1 : parse_whole_block(cursor, "endif", &(*end)->body);
}

static int parse_for(struct template_cursor *cursor, struct template_node *node) {
    static const char *const words[] = {"else", "endfor", NULL};
    node->kind = NODE_FOR;
    if (template_expression_parse_target(cursor, TUPLE_END_IN, false, &node->left) != 0)
        return -1;
    for (const struct template_node *name = node->left->kind == NODE_TUPLE ? node->left->items
                                                                           : node->left;
         name != NULL; name = name->next)
        if (text_is(name->name, "loop"))
            return template_lexer_fail(&cursor->lexer, name->line,
                                       "cannot assign to the loop variable 'loop'");
    if (!template_cursor_is_name(&cursor->token, "in"))
        return template_cursor_fail_expected(cursor, "'in'");
    if (template_cursor_advance(cursor) != 0 ||
        template_expression_parse_tuple(cursor, false, TUPLE_END_RECURSIVE, &node->right) != 0)
        return -1;
    int skipped = template_cursor_skip_name(cursor, "if");
    if (skipped < 0 || (skipped == 1 && template_expression_parse(cursor, true, &node->other) != 0))
        return -1;
    if (template_cursor_is_name(&cursor->token, "recursive"))
        return template_lexer_fail(&cursor->lexer, cursor->token.line,
                                   "recursive loops are not supported");
    if (parse_block(cursor, words, &node->body) != 0)
        return -1;
    bool has_else = template_cursor_is_name(&cursor->token, "else");
    if (template_cursor_advance(cursor) != 0)
        return -1;
    return has_else ? parse_whole_block(cursor, "endfor", &node->orelse) : 0;
}

static int parse_filters_over_body(struct template_cursor *cursor, bool bare,
                                   struct template_node *node) {
    struct template_node *captured = template_cursor_make(cursor, NODE_CAPTURED);
    return captured == NULL ? -1
                            : template_operand_parse_filters(cursor, captured, bare, &node->right);
}

static int parse_set(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_SET;
    if (template_expression_parse_target(cursor, TUPLE_END_NONE, true, &node->left) != 0)
        return -1;
    int skipped = template_cursor_skip_operator(cursor, '=');
    if (skipped != 0)
        return skipped < 0
                   ? -1
                   : template_expression_parse_tuple(cursor, true, TUPLE_END_NONE, &node->right);
    node->kind = NODE_SET_BLOCK;
    return parse_filters_over_body(cursor, false, node) != 0
               ? -1
               : parse_whole_block(cursor, "endset", &node->body);
}

static int parse_filter_block(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_FILTER_BLOCK;
    return parse_filters_over_body(cursor, true, node) != 0
               ? -1
               : parse_whole_block(cursor, "endfilter", &node->body);
}

static int parse_parameters(struct template_cursor *cursor, struct template_node *node) {
    struct template_node **end = &node->items;
    bool has_default = false;
    if (template_cursor_expect_operator(cursor, '(') != 0)
        return -1;
    while (!template_cursor_is_operator(cursor, ')')) {
        struct template_node *parameter = template_cursor_make(cursor, NODE_PARAMETER);
        if (parameter == NULL ||
            (node->items != NULL && template_cursor_expect_operator(cursor, ',') != 0) ||
            template_cursor_take_name(cursor, &parameter->name) != 0 ||
            template_cursor_define(cursor, parameter->name) != 0)
            return -1;
        int skipped = template_cursor_skip_operator(cursor, '=');
        if (skipped < 0 ||
            (skipped == 1 && template_expression_parse(cursor, true, &parameter->left) != 0))
            return -1;
        if (skipped == 0 && has_default)
            return template_lexer_fail(&cursor->lexer, parameter->line,
                                       "a parameter without a default follows one with a default");
        has_default = skipped == 1;
        *end = parameter;
        end = &parameter->next;
    }
    return template_cursor_expect_operator(cursor, ')');
}

static int parse_macro(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_MACRO;
    return template_cursor_take_name(cursor, &node->name) != 0 ||
                   template_cursor_define(cursor, node->name) != 0 ||
                   parse_parameters(cursor, node) != 0
               ? -1
               : parse_whole_block(cursor, "endmacro", &node->body);
}

static int parse_call_block(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_CALL_BLOCK;
    node->name = (struct text){"caller", 6};
    if (template_cursor_is_operator(cursor, '(') && parse_parameters(cursor, node) != 0)
        return -1;
    if (template_expression_parse(cursor, true, &node->right) != 0)
        return -1;
    if (node->right->kind != NODE_CALL)
        return template_lexer_fail(&cursor->lexer, node->line, "expected a call");
    return parse_whole_block(cursor, "endcall", &node->body);
}

static int parse_generation(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_SCOPE;
    return parse_whole_block(cursor, "endgeneration", &node->body);
}

static int parse_break(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_BREAK;
    return 0;
}

static int parse_continue(struct template_cursor *cursor, struct template_node *node) {
    node->kind = NODE_CONTINUE;
    return 0;
}

/* At the word behind "{%". Each statement's function fills the node. */
static int parse_statement(struct template_cursor *cursor, struct template_node **out) {
    static const struct {
        const char *word;
        int (*parse)(struct template_cursor *cursor, struct template_node *node);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"generation", parse_generation},
        {"break", parse_break},
        {"continue", parse_continue},
    };
    char word[UTF8_PRINTABLE_BYTES];
    struct template_node *node = template_cursor_make(cursor, NODE_TEXT);
    if (node == NULL)
        return -1;
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!template_cursor_is_name(&cursor->token, statements[i].word))
            continue;
        *out = node;
        return template_cursor_advance(cursor) != 0 ? -1 : statements[i].parse(cursor, node);
    }
    if (cursor->token.kind != TOKEN_NAME)
        return template_cursor_fail_expected(cursor, "the name of a tag");
    utf8_printable(cursor->token.text, word);
    return template_lexer_fail(&cursor->lexer, cursor->token.line, "unknown or misplaced tag '%s'",
                               word);
}

static int parse_output(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_OUTPUT);
    if (node == NULL || template_cursor_advance(cursor) != 0 ||
        template_expression_parse_tuple(cursor, true, TUPLE_END_NONE, &node->left) != 0)
        return -1;
    if (cursor->token.kind != TOKEN_OUTPUT_END)
        return template_cursor_fail_expected(cursor, "the end of the output");
    *out = node;
    return template_cursor_advance(cursor);
}

static int parse_data(struct template_cursor *cursor, struct template_node **out) {
    struct text text = cursor->token.text;
    *out = NULL;
    if (text.length > 0) {
        *out = template_cursor_make(cursor, NODE_TEXT);
        if (*out == NULL)
            return -1;
        (*out)->value = template_data_text(text, TEMPLATE_ORIGIN_SERVER);
    }
    return template_cursor_advance(cursor);
}

/* 1: at one of the words. */
static int parse_tag(struct template_cursor *cursor, const char *const *words,
                     struct template_node **out) {
    if (template_cursor_advance(cursor) != 0)
        return -1;
    if (words != NULL && is_one_of(&cursor->token, words))
        return 1;
    if (parse_statement(cursor, out) != 0)
        return -1;
    if (cursor->token.kind != TOKEN_BLOCK_END)
        return template_cursor_fail_expected(cursor, "the end of the tag");
    return template_cursor_advance(cursor);
}

static int parse_body(struct template_cursor *cursor, const char *const *words,
                      struct template_node **out) {
    struct template_node **end = out;
    int status = 0;
    *out = NULL;
    while (status == 0 && cursor->token.kind != TOKEN_END) {
        if (cursor->token.kind == TOKEN_DATA)
            status = parse_data(cursor, end);
        else if (cursor->token.kind == TOKEN_OUTPUT_BEGIN)
            status = parse_output(cursor, end);
        else
            status = parse_tag(cursor, words, end);
        if (status == 0 && *end != NULL)
            end = &(*end)->next;
    }
    if (status == 0 && words != NULL)
        return template_lexer_fail(&cursor->lexer, cursor->token.line,
                                   "the template ends where '%s' is expected", words[0]);
    return status < 0 ? -1 : 0;
}

int template_parser_run(struct template_arena *arena, struct text source,
                        const struct template_builtins *builtins, struct template_names *out_names,
                        struct template_node **out, struct error *err) {
    struct template_cursor cursor;
    if (template_cursor_init(&cursor, arena, source, builtins, out_names, err) != 0 ||
        parse_body(&cursor, NULL, out) != 0)
        return -1;
    return template_cursor_check_uses(&cursor);
}
