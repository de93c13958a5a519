/* GBNF (llama.cpp, grammars/README.md), and xgrammar's EBNF as far as it is the same. */
#include "engine/grammar/read/notation_reader.h"

#include <string.h>

#define MAX_RANGES 1024

static void skip_space(struct notation *n) {
    for (;;) {
        while (*n->at == ' ' || *n->at == '\t' || *n->at == '\r' || *n->at == '\n')
            n->at++;
        if (*n->at != '#')
            return;
        n->at += strcspn(n->at, "\n");
    }
}

static struct text name_at(const char *at) {
    size_t length = 0;
    while (notation_is_name(at[length]) || at[length] == '-')
        length++;
    return (struct text){at, length};
}

/* Returns whether the next rule begins here. */
static bool is_definition(const struct notation *n) {
    struct text name = name_at(n->at);
    const char *at = n->at + name.length;
    while (*at == ' ' || *at == '\t')
        at++;
    return name.length > 0 && strncmp(at, "::=", 3) == 0;
}

/* --- Items --- */

static int read_literal(struct notation *n, grammar_node *out) {
    n->at++;
    if (notation_quoted(n, true) != 0)
        return -1;
    *out = grammar_literal(n->builder, n->bytes.data, n->bytes.length);
    return 0;
}

static int read_class_character(struct notation *n, const char *begin, uint32_t *out) {
    if (*n->at == '\0')
        return notation_refuse(n, begin, "a class without its ']'");
    if (*n->at != '\\')
        return notation_character(n, out);
    n->at++;
    return notation_escape(n, out);
}

static int read_class(struct notation *n, grammar_node *out) {
    struct character_range ranges[MAX_RANGES];
    int count = 0;
    const char *begin = n->at++;
    bool negated = *n->at == '^';
    n->at += negated;
    while (*n->at != ']') {
        const char *at = n->at;
        struct character_range range;
        if (count == MAX_RANGES)
            return notation_refuse(n, begin, "a class of more than %d ranges", MAX_RANGES);
        if (read_class_character(n, begin, &range.first) != 0)
            return -1;
        range.last = range.first;
        if (n->at[0] == '-' && n->at[1] != ']') {
            n->at++;
            if (read_class_character(n, begin, &range.last) != 0)
                return -1;
        }
        if (range.first > range.last || range.last > 0x10ffff)
            return notation_refuse(n, at, "an empty range of characters");
        ranges[count++] = range;
    }
    if (count == 0)
        return notation_refuse(n, begin, "a class without characters");
    n->at++;
    *out = grammar_characters(n->builder, ranges, count, negated);
    return 0;
}

static int read_alternatives(struct notation *n, grammar_node *out);

static int read_group(struct notation *n, grammar_node *out) {
    const char *begin = n->at++;
    if (*n->at == '=')
        return notation_refuse(n, begin, "lookahead \"(=\" is not supported");
    if (notation_enter_group(n) != 0 || read_alternatives(n, out) != 0)
        return -1;
    n->depth--;
    if (*n->at != ')')
        return notation_refuse(n, begin, "a group without its ')'");
    n->at++;
    return 0;
}

static int read_item(struct notation *n, grammar_node *out) {
    char found[16];
    struct text name = name_at(n->at);
    switch (*n->at) {
    case '"':
        return read_literal(n, out);
    case '[':
        return read_class(n, out);
    case '(':
        return read_group(n, out);
    case '.':
        n->at++;
        *out = grammar_characters(n->builder, NULL, 0, true);
        return 0;
    case '<':
    case '!':
        return notation_refuse(n, n->at, "tokens \"<...>\" are not supported");
    case '\'':
        return notation_refuse(n, n->at, "a text in single quotes is not supported: use '\"'");
    }
    if (name.length == 0) {
        notation_describe(n->at, found);
        return notation_refuse(n, n->at, "%s where a text, a class, a group or a rule must be",
                               found);
    }
    const struct notation_rule *rule = notation_rule(n, name);
    if (rule == NULL)
        return -1;
    *out = rule->node;
    n->at += name.length;
    return 0;
}

/* --- Repetitions, sequences, alternatives --- */

/* Called after the '{'. */
static int read_bounds(struct notation *n, int *out_min, int *out_max) {
    const char *begin = n->at;
    skip_space(n);
    if (notation_number(n, out_min) != 0)
        return -1;
    *out_max = *out_min;
    skip_space(n);
    if (*n->at == ',') {
        n->at++;
        skip_space(n);
        *out_max = -1;
        if (*n->at != '}' && notation_number(n, out_max) != 0)
            return -1;
        skip_space(n);
    }
    if (*n->at != '}')
        return notation_refuse(n, begin, "a repetition without its '}'");
    if (*out_max >= 0 && *out_max < *out_min)
        return notation_refuse(n, begin, "a repetition whose maximum is below its minimum");
    n->at++;
    return 0;
}

static int read_repetitions(struct notation *n, grammar_node *node) {
    for (skip_space(n); *n->at != '\0' && strchr("*+?{", *n->at) != NULL; skip_space(n)) {
        char c = *n->at++;
        int min = c == '+', max = c == '?' ? 1 : -1;
        if (c == '{' && read_bounds(n, &min, &max) != 0)
            return -1;
        *node = grammar_repeat(n->builder, *node, min, max);
    }
    return 0;
}

static int read_sequence(struct notation *n, grammar_node *out) {
    size_t mark = n->num_items;
    for (skip_space(n); *n->at != '\0' && *n->at != '|' && *n->at != ')'; skip_space(n)) {
        grammar_node node;
        if (n->depth == 0 && is_definition(n))
            break;
        if (read_item(n, &node) != 0 || read_repetitions(n, &node) != 0 ||
            notation_push(n, node) != 0)
            return -1;
    }
    *out = notation_take_sequence(n, mark);
    return 0;
}

static int read_alternatives(struct notation *n, grammar_node *out) {
    size_t mark = n->num_items;
    for (bool goes_on = true; goes_on;) {
        grammar_node node;
        if (read_sequence(n, &node) != 0 || notation_push(n, node) != 0)
            return -1;
        goes_on = *n->at == '|';
        n->at += goes_on;
    }
    *out = notation_take_alternatives(n, mark);
    return 0;
}

/* --- Rules --- */

static int read_rule(struct notation *n) {
    char found[16];
    struct text name = name_at(n->at);
    grammar_node body;
    notation_describe(n->at, found);
    if (!is_definition(n))
        return notation_refuse(n, n->at, "%s where a rule \"name ::=\" must be", found);
    n->at = strstr(n->at, "::=") + 3;
    if (read_alternatives(n, &body) != 0)
        return -1;
    if (*n->at == ')')
        return notation_refuse(n, n->at, "a ')' without its '('");
    return notation_define(n, name, body);
}

int grammar_gbnf(struct notation *n, grammar_node *out) {
    for (skip_space(n); *n->at != '\0'; skip_space(n))
        if (read_rule(n) != 0)
            return -1;
    return notation_start(n, "root", out);
}
