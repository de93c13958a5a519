/* Lark's notation (lark/grammars/lark.lark). Rules and terminals are both rules of the grammar;
 * they differ in that what %ignore names may follow each piece of text in a rule. */
#include "engine/grammar/read/grammar_regex.h"
#include "engine/grammar/read/notation_reader.h"

#include <string.h>

struct lark {
    struct notation *n;
    bool has_ignored;
    grammar_node ignored; /* what may stand between pieces of text */
    bool is_terminal;     /* it is a terminal that is being read */
};

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool begins_comment(const char *at) {
    return at[0] == '#' || (at[0] == '/' && at[1] == '/');
}

static const char *pass_blanks(const char *at, bool lines_too) {
    for (;;) {
        while (is_blank(*at) || (lines_too && *at == '\n'))
            at++;
        if (at[0] == '\\' && (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n')))
            at += at[1] == '\n' ? 2 : 3;
        else if (begins_comment(at))
            at += strcspn(at, "\n");
        else
            return at;
    }
}

/* Passes what separates items. A line's end is that of the definition, unless a group is open or
 * the next line begins with '|'. */
static void skip(struct notation *n) {
    n->at = pass_blanks(n->at, n->depth > 0);
    const char *next = pass_blanks(n->at, true);
    if (*next == '|')
        n->at = next;
}

static struct text name_at(const char *at) {
    size_t length = 0;
    while (notation_is_name(at[length]))
        length++;
    return (struct text){at, length};
}

/* A name's letters are of one case, which says what it is of. */
static int check_name(struct notation *n, struct text name, bool *out_is_terminal) {
    bool has_upper = false, has_lower = false;
    for (size_t i = 0; i < name.length; i++) {
        has_upper |= name.data[i] >= 'A' && name.data[i] <= 'Z';
        has_lower |= name.data[i] >= 'a' && name.data[i] <= 'z';
    }
    if (has_upper == has_lower)
        return notation_refuse(n, name.data,
                               "%.*s is not a name: rules are lower case, terminals upper case",
                               (int)name.length, name.data);
    *out_is_terminal = has_upper;
    return 0;
}

/* --- Items --- */

/* In a rule, what is ignored may follow. */
static grammar_node with_ignored(struct lark *l, grammar_node node) {
    grammar_node items[] = {node, l->ignored};
    return l->has_ignored && !l->is_terminal ? grammar_sequence(l->n->builder, items, 2) : node;
}

/* "a".."z", of which the first is in n->bytes. */
static int read_range(struct lark *l, const char *begin, grammar_node *out) {
    struct notation *n = l->n;
    struct character_range range;
    if (lark_one_character(n, &range.first) != 0)
        return notation_refuse(n, begin, "a range must have one character at each end");
    n->at = pass_blanks(n->at + 2, false);
    if (*n->at++ != '"' || notation_quoted(n, false) != 0 ||
        lark_one_character(n, &range.last) != 0 || range.last < range.first)
        return notation_refuse(n, begin, "a range must have one character at each end, in order");
    *out = grammar_characters(n->builder, &range, 1, false);
    return 0;
}

static int read_text(struct lark *l, grammar_node *out) {
    struct notation *n = l->n;
    const char *begin = n->at++;
    if (notation_quoted(n, false) != 0)
        return -1;
    bool folds = n->at[0] == 'i' && !notation_is_name(n->at[1]);
    n->at += folds;
    const char *next = pass_blanks(n->at, false);
    if (next[0] == '.' && next[1] == '.') {
        n->at = next;
        return read_range(l, begin, out);
    }
    if (folds)
        return lark_folded_text(n, begin, out);
    *out = grammar_literal(n->builder, n->bytes.data, n->bytes.length);
    return 0;
}

static int read_name(struct lark *l, grammar_node *out) {
    struct notation *n = l->n;
    struct text name = name_at(n->at);
    bool is_terminal = false;
    if (check_name(n, name, &is_terminal) != 0)
        return -1;
    n->at += name.length;
    if (*n->at == '{')
        return notation_refuse(n, name.data, "templates \"name{...}\" are not supported");
    if (l->is_terminal && !is_terminal)
        return notation_refuse(n, name.data, "a terminal is made of the rule %.*s",
                               (int)name.length, name.data);
    const struct notation_rule *rule = notation_rule(n, name);
    if (rule == NULL)
        return -1;
    *out = is_terminal ? with_ignored(l, rule->node) : rule->node;
    return 0;
}

static int read_alternatives(struct lark *l, grammar_node *out);

static int read_group(struct lark *l, grammar_node *out) {
    struct notation *n = l->n;
    const char *begin = n->at++;
    char close = *begin == '(' ? ')' : ']';
    if (notation_enter_group(n) != 0 || read_alternatives(l, out) != 0)
        return -1;
    n->depth--;
    if (*n->at != close)
        return notation_refuse(n, begin, "a group without its '%c'", close);
    n->at++;
    if (close == ']')
        *out = grammar_repeat(n->builder, *out, 0, 1);
    return 0;
}

static int refuse_item(struct notation *n) {
    static const struct {
        char first;
        const char *what;
    } others[] = {
        {'%', "directives such as %json inside of a rule are"},
        {'<', "special tokens \"<...>\" are"},
        {'&', "\"&\" between terminals is"},
        {'~', "\"~\" before a terminal is"},
        {'@', "other grammars \"@name\" are"},
        {'\'', "a text in single quotes is"},
    };
    char found[16];
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (*n->at == others[i].first)
            return notation_refuse(n, n->at, "%s not supported", others[i].what);
    notation_describe(n->at, found);
    return notation_refuse(n, n->at, "%s where a text, a regex, a group or a name must be", found);
}

static int read_item(struct lark *l, grammar_node *out) {
    struct notation *n = l->n;
    if (*n->at == '(' || *n->at == '[')
        return read_group(l, out);
    if (notation_is_name(*n->at))
        return read_name(l, out);
    if (*n->at != '"' && *n->at != '/')
        return refuse_item(n);
    if ((*n->at == '"' ? read_text(l, out) : lark_pattern(n, out)) != 0)
        return -1;
    *out = with_ignored(l, *out);
    return 0;
}

/* --- Repetitions, sequences, alternatives --- */

static int read_bounds(struct notation *n, int *out_min, int *out_max) {
    const char *begin = n->at;
    n->at = pass_blanks(n->at, false);
    if (notation_number(n, out_min) != 0)
        return -1;
    *out_max = *out_min;
    const char *next = pass_blanks(n->at, false);
    if (next[0] == '.' && next[1] == '.') {
        n->at = pass_blanks(next + 2, false);
        if (notation_number(n, out_max) != 0)
            return -1;
    }
    if (*out_max < *out_min)
        return notation_refuse(n, begin, "a repetition whose maximum is below its minimum");
    return 0;
}

static int read_repetition(struct notation *n, grammar_node *node) {
    n->at = pass_blanks(n->at, false);
    if (*n->at == '\0' || strchr("*+?~", *n->at) == NULL)
        return 0;
    char c = *n->at++;
    int min = c == '+', max = c == '?' ? 1 : -1;
    if (c == '~' && read_bounds(n, &min, &max) != 0)
        return -1;
    *node = grammar_repeat(n->builder, *node, min, max);
    return 0;
}

/* "-> name", which says how the tree calls it. */
static int read_alias(struct lark *l) {
    struct notation *n = l->n;
    if (n->at[0] != '-' || n->at[1] != '>')
        return 0;
    if (l->is_terminal)
        return notation_refuse(n, n->at, "an alias in a terminal");
    n->at = pass_blanks(n->at + 2, false);
    struct text name = name_at(n->at);
    if (name.length == 0)
        return notation_refuse(n, n->at, "an alias without a name");
    n->at += name.length;
    skip(n);
    return 0;
}

static bool ends_sequence(const struct notation *n) {
    return *n->at == '\0' || *n->at == '\n' || *n->at == '|' || *n->at == ')' || *n->at == ']' ||
           (n->at[0] == '-' && n->at[1] == '>');
}

static int read_sequence(struct lark *l, grammar_node *out) {
    struct notation *n = l->n;
    size_t mark = n->num_items;
    for (skip(n); !ends_sequence(n); skip(n)) {
        grammar_node node;
        if (read_item(l, &node) != 0 || read_repetition(n, &node) != 0 ||
            notation_push(n, node) != 0)
            return -1;
    }
    *out = notation_take_sequence(n, mark);
    return read_alias(l);
}

static int read_alternatives(struct lark *l, grammar_node *out) {
    struct notation *n = l->n;
    size_t mark = n->num_items;
    for (bool goes_on = true; goes_on;) {
        grammar_node node;
        if (read_sequence(l, &node) != 0 || notation_push(n, node) != 0)
            return -1;
        goes_on = *n->at == '|';
        n->at += goes_on;
    }
    *out = notation_take_alternatives(n, mark);
    return 0;
}

/* Reads a definition after its colon, to the end of the line. */
static int read_body(struct lark *l, grammar_node *out) {
    char found[16];
    if (read_alternatives(l, out) != 0)
        return -1;
    notation_describe(l->n->at, found);
    if (*l->n->at != '\0' && *l->n->at != '\n')
        return notation_refuse(l->n, l->n->at, "%s where the line must end", found);
    return 0;
}

/* --- Definitions and directives --- */

/* ".2", which chooses between ways to read a text. */
static void skip_priority(struct notation *n) {
    const char *at = n->at + (*n->at == '.');
    at += at > n->at && *at == '-';
    if (at > n->at && *at >= '0' && *at <= '9')
        n->at = at + strspn(at, "0123456789");
}

static int read_definition(struct lark *l) {
    struct notation *n = l->n;
    char found[16];
    grammar_node body;
    n->at += strspn(n->at, "?!");
    struct text name = name_at(n->at);
    notation_describe(n->at, found);
    if (name.length == 0)
        return notation_refuse(n, n->at, "%s where a rule, a terminal or a directive must be",
                               found);
    if (check_name(n, name, &l->is_terminal) != 0)
        return -1;
    n->at += name.length;
    skip_priority(n);
    n->at = pass_blanks(n->at, false);
    if (*n->at == '{' || *n->at == '[')
        return notation_refuse(n, n->at, "%s are not supported",
                               *n->at == '{' ? "templates \"name{...}\"" : "attributes of rules");
    if (*n->at != ':')
        return notation_refuse(n, n->at, "%.*s is not followed by ':'", (int)name.length,
                               name.data);
    n->at++;
    if (read_body(l, &body) != 0)
        return -1;
    return notation_define(n, name, body);
}

static int import_terminal(struct notation *n, struct text terminal, struct text name) {
    const char *pattern = lark_common(terminal);
    grammar_node node;
    if (pattern == NULL)
        return notation_refuse(n, terminal.data, "common has no terminal %.*s",
                               (int)terminal.length, terminal.data);
    if (grammar_regex(n->builder, pattern, REGEX_TEXT, &node, n->err) != 0)
        return -1;
    return notation_define(n, name, node);
}

/* Called after "common (". */
static int import_list(struct notation *n) {
    for (;;) {
        n->at = pass_blanks(n->at, true);
        struct text name = name_at(n->at);
        n->at += name.length;
        if (import_terminal(n, name, name) != 0)
            return -1;
        n->at = pass_blanks(n->at, true);
        if (*n->at != ',' && *n->at != ')')
            return notation_refuse(n, n->at, "a list of terminals without its ')'");
        if (*n->at++ == ')')
            return 0;
    }
}

static int read_import(struct notation *n) {
    const char *begin = n->at;
    struct text library = name_at(n->at);
    bool is_terminal = false;
    n->at += library.length;
    if (!text_is(library, "common"))
        return notation_refuse(n, begin,
                               "%%import of other libraries than common is not supported");
    const char *next = pass_blanks(n->at, false);
    if (*next == '(') {
        n->at = next + 1;
        return import_list(n);
    }
    if (*n->at != '.')
        return notation_refuse(n, n->at, "%%import common is not followed by '.' or '('");
    struct text terminal = name_at(++n->at), name = terminal;
    n->at = pass_blanks(n->at + terminal.length, false);
    if (n->at[0] == '-' && n->at[1] == '>') {
        n->at = pass_blanks(n->at + 2, false);
        name = name_at(n->at);
        n->at += name.length;
        if (check_name(n, name, &is_terminal) != 0)
            return -1;
        if (!is_terminal)
            return notation_refuse(n, name.data, "%.*s must be upper case, as a terminal is",
                                   (int)name.length, name.data);
    }
    return import_terminal(n, terminal, name);
}

/* Pushes what is to be ignored. */
static int read_ignore(struct lark *l) {
    grammar_node node;
    l->is_terminal = true;
    return read_body(l, &node) != 0 ? -1 : notation_push(l->n, node);
}

static int read_directive(struct lark *l) {
    struct notation *n = l->n;
    const char *begin = n->at++;
    struct text name = name_at(n->at);
    n->at = pass_blanks(n->at + name.length, false);
    if (text_is(name, "ignore"))
        return read_ignore(l);
    if (text_is(name, "import"))
        return read_import(n);
    if (text_is(name, "llguidance") && n->at[0] == '{' && n->at[1] == '}') {
        n->at += 2;
        return 0;
    }
    return notation_refuse(n, begin, "%%%.*s is not supported", (int)name.length, name.data);
}

static int read_line(struct lark *l) {
    struct notation *n = l->n;
    char found[16];
    if ((*n->at == '%' ? read_directive(l) : read_definition(l)) != 0)
        return -1;
    n->at = pass_blanks(n->at, false);
    notation_describe(n->at, found);
    if (*n->at != '\0' && *n->at != '\n')
        return notation_refuse(n, n->at, "%s where the line must end", found);
    return 0;
}

/* Returns whether a line is an %ignore: it says so only after rules may have been read. */
static bool has_ignore(const char *text) {
    for (const char *at = text; (at = strstr(at, "%ignore")) != NULL; at++) {
        const char *line = at;
        while (line > text && is_blank(line[-1]))
            line--;
        if (line == text || line[-1] == '\n')
            return true;
    }
    return false;
}

int grammar_lark(struct notation *n, grammar_node *out) {
    struct lark l = {.n = n, .has_ignored = has_ignore(n->text)};
    grammar_node start;
    l.ignored = l.has_ignored ? grammar_rule(n->builder) : GRAMMAR_FAILED;
    for (n->at = pass_blanks(n->at, true); *n->at != '\0'; n->at = pass_blanks(n->at, true))
        if (read_line(&l) != 0)
            return -1;
    if (l.has_ignored)
        grammar_define(n->builder, l.ignored,
                       grammar_repeat(n->builder,
                                      grammar_alternatives(n->builder, n->items, (int)n->num_items),
                                      0, -1));
    if (notation_start(n, "start", &start) != 0)
        return -1;
    grammar_node items[] = {l.ignored, start};
    *out = l.has_ignored ? grammar_sequence(n->builder, items, 2) : start;
    return 0;
}
