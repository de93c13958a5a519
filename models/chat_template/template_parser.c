#include "models/chat_template/template_parser.h"

#include "config/base/utf8.h"
#include "models/chat_template/template_mapping.h"

#include <stdio.h>
#include <string.h>

/* --- Tokens ------------------------------------------------------------------------------------
 */

int template_parser_fail_memory(struct template_parser *parser) {
    if (template_arena_is_full(parser->arena))
        return error_set(parser->lexer.err, ERROR_SYNTAX, "the template needs more than %zu bytes",
                         template_arena_max_bytes(parser->arena));
    return error_set(parser->lexer.err, ERROR_MEMORY, "no memory for a chat template");
}

int template_parser_fail_expected(struct template_parser *parser, const char *what) {
    const struct template_token *token = &parser->token;
    char got[UTF8_PRINTABLE_BYTES] = "the end of the template";
    if (token->kind == TOKEN_NAME || token->kind == TOKEN_STRING)
        utf8_printable(token->text, got);
    else if (token->kind == TOKEN_OPERATOR && token->op < 256)
        snprintf(got, sizeof(got), "'%c'", token->op);
    else if (token->kind == TOKEN_OUTPUT_END || token->kind == TOKEN_BLOCK_END)
        snprintf(got, sizeof(got), "the end of the tag");
    else if (token->kind != TOKEN_END)
        snprintf(got, sizeof(got), "a number or an operator");
    return template_lexer_fail(&parser->lexer, token->line, "expected %s, got %s", what, got);
}

int template_parser_enter(struct template_parser *parser) {
    if (parser->nesting == TEMPLATE_MAX_NESTING)
        return template_lexer_fail(&parser->lexer, parser->token.line,
                                   "more than %d statements and expressions within another",
                                   TEMPLATE_MAX_NESTING);
    parser->nesting++;
    return 0;
}

int template_parser_advance(struct template_parser *parser) {
    if (!parser->has_ahead)
        return template_lexer_next(&parser->lexer, &parser->token);
    parser->token = parser->ahead;
    parser->has_ahead = false;
    return 0;
}

const struct template_token *template_parser_look(struct template_parser *parser) {
    if (!parser->has_ahead && template_lexer_next(&parser->lexer, &parser->ahead) != 0)
        return NULL;
    parser->has_ahead = true;
    return &parser->ahead;
}

bool template_parser_is_name(const struct template_token *token, const char *name) {
    return token->kind == TOKEN_NAME && token->text.length == strlen(name) &&
           memcmp(token->text.data, name, token->text.length) == 0;
}

bool template_parser_is_operator(const struct template_parser *parser, int op) {
    return parser->token.kind == TOKEN_OPERATOR && parser->token.op == op;
}

int template_parser_skip_name(struct template_parser *parser, const char *name) {
    if (!template_parser_is_name(&parser->token, name))
        return 0;
    return template_parser_advance(parser) != 0 ? -1 : 1;
}

int template_parser_skip_operator(struct template_parser *parser, int op) {
    if (!template_parser_is_operator(parser, op))
        return 0;
    return template_parser_advance(parser) != 0 ? -1 : 1;
}

int template_parser_expect_operator(struct template_parser *parser, int op) {
    char what[] = {'\'', (char)op, '\'', '\0'};
    if (!template_parser_is_operator(parser, op))
        return template_parser_fail_expected(parser, what);
    return template_parser_advance(parser);
}

static int intern(struct template_parser *parser, struct text name, struct text *out) {
    struct template_mapping *names = parser->names.mapping;
    struct template_value key = template_data_text(name, TEMPLATE_ORIGIN_SERVER);
    const struct template_value *known = template_mapping_find(parser->arena, names, &key);
    if (known == NULL && !template_mapping_set(parser->arena, names, &key, key))
        return template_parser_fail_memory(parser);
    *out = known == NULL ? name : (struct text){known->string.data, known->string.length};
    return 0;
}

int template_parser_take_name(struct template_parser *parser, struct text *out) {
    if (parser->token.kind != TOKEN_NAME)
        return template_parser_fail_expected(parser, "a name");
    return intern(parser, parser->token.text, out) != 0 ? -1 : template_parser_advance(parser);
}

struct template_node *template_parser_node(struct template_parser *parser,
                                           enum template_node_kind kind, int line) {
    struct template_node *node = template_arena_alloc(parser->arena, sizeof(*node));
    if (node == NULL) {
        template_parser_fail_memory(parser);
        return NULL;
    }
    *node = (struct template_node){.kind = (uint8_t)kind, .line = line};
    return node;
}

struct template_node *template_parser_make(struct template_parser *parser,
                                           enum template_node_kind kind) {
    return template_parser_node(parser, kind, parser->token.line);
}

void template_parser_append(struct template_node ***end, struct template_node *node) {
    **end = node;
    *end = &node->next;
}

/* --- Statements --------------------------------------------------------------------------------
 */

/* Statements up to a tag that begins with one of the words, which end with NULL; that word is the
 * current token then. Without words: to the template's end. */
static int parse_body(struct template_parser *parser, const char *const *words,
                      struct template_node **out);

static bool is_one_of(const struct template_token *token, const char *const *words) {
    for (; *words != NULL; words++)
        if (template_parser_is_name(token, *words))
            return true;
    return false;
}

/* What is between a tag that begins a block and one of the words. */
static int parse_block(struct template_parser *parser, const char *const *words,
                       struct template_node **out) {
    if (template_parser_skip_operator(parser, ':') < 0)
        return -1;
    if (parser->token.kind != TOKEN_BLOCK_END)
        return template_parser_fail_expected(parser, "the end of the tag");
    if (template_parser_enter(parser) != 0 || template_parser_advance(parser) != 0 ||
        parse_body(parser, words, out) != 0)
        return -1;
    parser->nesting--;
    return 0;
}

/* The same, and moves behind the word. */
static int parse_whole_block(struct template_parser *parser, const char *word,
                             struct template_node **out) {
    const char *const words[] = {word, NULL};
    return parse_block(parser, words, out) != 0 ? -1 : template_parser_advance(parser);
}

static int parse_if(struct template_parser *parser, struct template_node *node) {
    static const char *const words[] = {"elif", "else", "endif", NULL};
    struct template_node **end = &node->items;
    node->kind = NODE_IF;
    for (;;) {
        struct template_node *branch = template_parser_make(parser, NODE_BRANCH);
        if (branch == NULL ||
            template_expression_parse_tuple(parser, false, TUPLE_END_NONE, &branch->left) != 0 ||
            parse_block(parser, words, &branch->body) != 0)
            return -1;
        *end = branch;
        end = &branch->next;
        int skipped = template_parser_skip_name(parser, "elif");
        if (skipped < 0)
            return -1;
        if (skipped == 0)
            break;
    }
    bool has_else = template_parser_is_name(&parser->token, "else");
    if (template_parser_advance(parser) != 0)
        return -1;
    if (!has_else)
        return 0;
    *end = template_parser_make(parser, NODE_BRANCH);
    return *end == NULL ? -1 : parse_whole_block(parser, "endif", &(*end)->body);
}

static int parse_for(struct template_parser *parser, struct template_node *node) {
    static const char *const words[] = {"else", "endfor", NULL};
    node->kind = NODE_FOR;
    if (template_expression_parse_target(parser, TUPLE_END_IN, false, &node->left) != 0)
        return -1;
    for (const struct template_node *name = node->left->kind == NODE_TUPLE ? node->left->items
                                                                           : node->left;
         name != NULL; name = name->next)
        if (name->name.length == 4 && memcmp(name->name.data, "loop", 4) == 0)
            return template_lexer_fail(&parser->lexer, name->line,
                                       "cannot assign to the loop variable 'loop'");
    if (!template_parser_is_name(&parser->token, "in"))
        return template_parser_fail_expected(parser, "'in'");
    if (template_parser_advance(parser) != 0 ||
        template_expression_parse_tuple(parser, false, TUPLE_END_RECURSIVE, &node->right) != 0)
        return -1;
    int skipped = template_parser_skip_name(parser, "if");
    if (skipped < 0 || (skipped == 1 && template_expression_parse(parser, true, &node->other) != 0))
        return -1;
    skipped = template_parser_skip_name(parser, "recursive");
    node->flag = skipped == 1;
    if (skipped < 0 || parse_block(parser, words, &node->body) != 0)
        return -1;
    bool has_else = template_parser_is_name(&parser->token, "else");
    if (template_parser_advance(parser) != 0)
        return -1;
    return has_else ? parse_whole_block(parser, "endfor", &node->orelse) : 0;
}

static int parse_filters_over_body(struct template_parser *parser, bool bare,
                                   struct template_node *node) {
    struct template_node *captured = template_parser_make(parser, NODE_CAPTURED);
    return captured == NULL ? -1
                            : template_operand_parse_filters(parser, captured, bare, &node->right);
}

static int parse_set(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_SET;
    if (template_expression_parse_target(parser, TUPLE_END_NONE, true, &node->left) != 0)
        return -1;
    int skipped = template_parser_skip_operator(parser, '=');
    if (skipped != 0)
        return skipped < 0
                   ? -1
                   : template_expression_parse_tuple(parser, true, TUPLE_END_NONE, &node->right);
    node->kind = NODE_SET_BLOCK;
    return parse_filters_over_body(parser, false, node) != 0
               ? -1
               : parse_whole_block(parser, "endset", &node->body);
}

static int parse_filter_block(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_FILTER_BLOCK;
    return parse_filters_over_body(parser, true, node) != 0
               ? -1
               : parse_whole_block(parser, "endfilter", &node->body);
}

static int parse_with(struct template_parser *parser, struct template_node *node) {
    struct template_node **end = &node->items;
    node->kind = NODE_WITH;
    while (parser->token.kind != TOKEN_BLOCK_END) {
        struct template_node *set = template_parser_make(parser, NODE_SET);
        if (set == NULL ||
            (node->items != NULL && template_parser_expect_operator(parser, ',') != 0) ||
            template_expression_parse_target(parser, TUPLE_END_NONE, false, &set->left) != 0 ||
            template_parser_expect_operator(parser, '=') != 0 ||
            template_expression_parse(parser, true, &set->right) != 0)
            return -1;
        *end = set;
        end = &set->next;
    }
    return parse_whole_block(parser, "endwith", &node->body);
}

static int parse_parameters(struct template_parser *parser, struct template_node *node) {
    struct template_node **end = &node->items;
    bool has_default = false;
    if (template_parser_expect_operator(parser, '(') != 0)
        return -1;
    while (!template_parser_is_operator(parser, ')')) {
        struct template_node *parameter = template_parser_make(parser, NODE_PARAMETER);
        if (parameter == NULL ||
            (node->items != NULL && template_parser_expect_operator(parser, ',') != 0) ||
            template_parser_take_name(parser, &parameter->name) != 0)
            return -1;
        int skipped = template_parser_skip_operator(parser, '=');
        if (skipped < 0 ||
            (skipped == 1 && template_expression_parse(parser, true, &parameter->left) != 0))
            return -1;
        if (skipped == 0 && has_default)
            return template_lexer_fail(&parser->lexer, parameter->line,
                                       "a parameter without a default follows one with a default");
        has_default = skipped == 1;
        *end = parameter;
        end = &parameter->next;
    }
    return template_parser_expect_operator(parser, ')');
}

static int parse_macro(struct template_parser *parser, struct template_node *node) {
    bool outer_takes_rest = parser->takes_rest;
    node->kind = NODE_MACRO;
    parser->takes_rest = false;
    if (template_parser_take_name(parser, &node->name) != 0 ||
        parse_parameters(parser, node) != 0 ||
        parse_whole_block(parser, "endmacro", &node->body) != 0)
        return -1;
    node->flag = parser->takes_rest;
    parser->takes_rest = outer_takes_rest;
    return 0;
}

static int parse_call_block(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_CALL_BLOCK;
    if (template_parser_is_operator(parser, '(') && parse_parameters(parser, node) != 0)
        return -1;
    if (template_expression_parse(parser, true, &node->right) != 0)
        return -1;
    if (node->right->kind != NODE_CALL)
        return template_lexer_fail(&parser->lexer, node->line, "expected a call");
    return parse_whole_block(parser, "endcall", &node->body);
}

static int parse_generation(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_SCOPE;
    return parse_whole_block(parser, "endgeneration", &node->body);
}

/* Without templates that extend others, a block is what is in it. */
static int parse_named_block(struct template_parser *parser, struct template_node *node) {
    static const char *const words[] = {"endblock", NULL};
    node->kind = NODE_SCOPE;
    if (template_parser_take_name(parser, &node->name) != 0 ||
        template_parser_skip_name(parser, "scoped") < 0 ||
        template_parser_skip_name(parser, "required") < 0 ||
        parse_block(parser, words, &node->body) != 0 || template_parser_advance(parser) != 0)
        return -1;
    return parser->token.kind == TOKEN_NAME ? template_parser_advance(parser) : 0;
}

static int parse_print(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_OUTPUT;
    return template_expression_parse(parser, true, &node->left);
}

static int parse_break(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_BREAK;
    return 0;
}

static int parse_continue(struct template_parser *parser, struct template_node *node) {
    node->kind = NODE_CONTINUE;
    return 0;
}

/* At the word behind "{%". Each statement's function fills the node. */
static int parse_statement(struct template_parser *parser, struct template_node **out) {
    static const struct {
        const char *word;
        int (*parse)(struct template_parser *parser, struct template_node *node);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"print", parse_print},
        {"block", parse_named_block},
        {"generation", parse_generation},
        {"break", parse_break},
        {"continue", parse_continue},
    };
    char word[UTF8_PRINTABLE_BYTES];
    struct template_node *node = template_parser_make(parser, NODE_TEXT);
    if (node == NULL)
        return -1;
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!template_parser_is_name(&parser->token, statements[i].word))
            continue;
        *out = node;
        return template_parser_advance(parser) != 0 ? -1 : statements[i].parse(parser, node);
    }
    if (parser->token.kind != TOKEN_NAME)
        return template_parser_fail_expected(parser, "the name of a tag");
    utf8_printable(parser->token.text, word);
    return template_lexer_fail(&parser->lexer, parser->token.line, "unknown or misplaced tag '%s'",
                               word);
}

static int parse_output(struct template_parser *parser, struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_OUTPUT);
    if (node == NULL || template_parser_advance(parser) != 0 ||
        template_expression_parse_tuple(parser, true, TUPLE_END_NONE, &node->left) != 0)
        return -1;
    if (parser->token.kind != TOKEN_OUTPUT_END)
        return template_parser_fail_expected(parser, "the end of the output");
    *out = node;
    return template_parser_advance(parser);
}

static int parse_data(struct template_parser *parser, struct template_node **out) {
    struct text text = parser->token.text;
    *out = NULL;
    if (text.length > 0) {
        *out = template_parser_make(parser, NODE_TEXT);
        if (*out == NULL)
            return -1;
        (*out)->value = template_data_text(text, TEMPLATE_ORIGIN_SERVER);
    }
    return template_parser_advance(parser);
}

/* 1: at one of the words. */
static int parse_tag(struct template_parser *parser, const char *const *words,
                     struct template_node **out) {
    if (template_parser_advance(parser) != 0)
        return -1;
    if (words != NULL && is_one_of(&parser->token, words))
        return 1;
    if (parse_statement(parser, out) != 0)
        return -1;
    if (parser->token.kind != TOKEN_BLOCK_END)
        return template_parser_fail_expected(parser, "the end of the tag");
    return template_parser_advance(parser);
}

static int parse_body(struct template_parser *parser, const char *const *words,
                      struct template_node **out) {
    struct template_node **end = out;
    int status = 0;
    *out = NULL;
    while (status == 0 && parser->token.kind != TOKEN_END) {
        if (parser->token.kind == TOKEN_DATA)
            status = parse_data(parser, end);
        else if (parser->token.kind == TOKEN_OUTPUT_BEGIN)
            status = parse_output(parser, end);
        else
            status = parse_tag(parser, words, end);
        if (status == 0 && *end != NULL)
            end = &(*end)->next;
    }
    if (status == 0 && words != NULL)
        return template_lexer_fail(&parser->lexer, parser->token.line,
                                   "the template ends where '%s' is expected", words[0]);
    return status < 0 ? -1 : 0;
}

static int intern_names(struct template_parser *parser, struct template_names *out) {
    const struct {
        const char *name;
        struct text *out;
    } names[] = {{"loop", &out->loop},
                 {"caller", &out->caller},
                 {"varargs", &out->varargs},
                 {"kwargs", &out->kwargs}};
    if (!template_mapping_create(parser->arena, TEMPLATE_MAP, &parser->names))
        return template_parser_fail_memory(parser);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (intern(parser, (struct text){names[i].name, strlen(names[i].name)}, names[i].out) != 0)
            return -1;
    return 0;
}

int template_parser_run(struct template_arena *arena, struct text source,
                        struct template_names *out_names, struct template_node **out,
                        struct error *err) {
    struct template_parser parser = {.arena = arena};
    if (template_lexer_init(&parser.lexer, arena, source, err) != 0 ||
        intern_names(&parser, out_names) != 0 || template_parser_advance(&parser) != 0)
        return -1;
    return parse_body(&parser, NULL, out);
}
