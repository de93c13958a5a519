#include "engine/grammar/read/grammar_regex.h"

#include "config/base/array.h"
#include "config/base/utf8.h"
#include "engine/grammar/build/character_class.h"
#include "engine/grammar/build/grammar_nodes.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BRANCH 4096 /* items in a row, alternatives side by side */

/* Nodes of a sequence or of alternatives as they are read. */
struct node_list {
    grammar_node *items;
    int count;
    size_t capacity;
};

struct parser {
    struct grammar_builder *builder;
    const char *pattern, *at;
    enum regex_mode mode;
    int depth;
    struct error *err;
};

static int refuse(const struct parser *p, const char *what) {
    return error_set(p->err, ERROR_SYNTAX, "%s at byte %zu", what, (size_t)(p->at - p->pattern));
}

static int list_add(struct parser *p, struct node_list *list, grammar_node node) {
    if (node < 0) /* to read on would be work for nothing */
        return error_set(p->err, p->builder->failure, "%s", p->builder->reason);
    if (list->count == MAX_BRANCH)
        return refuse(p, "too many parts");
    if (!array_reserve(&list->items, &list->capacity, (size_t)list->count + 1, sizeof(node))) {
        p->builder->failure = ERROR_MEMORY;
        p->builder->reason = "memory is short";
        return error_set(p->err, ERROR_MEMORY, "memory is short");
    }
    list->items[list->count++] = node;
    return 0;
}

/* --- Characters and classes --- */

static int check_fits(const struct parser *p, bool fits) {
    return fits ? 0 : refuse(p, CHARACTER_CLASS_FULL);
}

static int class_node(struct parser *p, struct character_class *set, grammar_node *out) {
    const char *what = character_class_node(p->builder, set, p->mode == REGEX_JSON_STRING, out);
    return what == NULL ? 0 : refuse(p, what);
}

static int read_hex(struct parser *p, int digits, uint32_t *out) {
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        char c = *p->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return refuse(p, "a hexadecimal digit is missing");
        value = value * 16 + (uint32_t)digit;
    }
    *out = value;
    return 0;
}

/* Called after a backslash. A class such as \d goes into *set and *out_is_class is set; otherwise
 * the character goes into *out. */
static int read_escape(struct parser *p, struct character_class *set, bool *out_is_class,
                       uint32_t *out) {
    static const char controls[] = "nrtfv0", values[] = "\n\r\t\f\v";
    char c = *p->at;
    *out_is_class = false;
    if (c == '\0')
        return refuse(p, "a backslash without a character");
    const char *control = strchr(controls, c);
    p->at++;
    if (strchr("dwsDWS", c) != NULL) {
        *out_is_class = true;
        return check_fits(p, character_class_add_named(set, c));
    }
    if (control != NULL) {
        *out = (uint8_t)values[control - controls];
        return 0;
    }
    if (c == 'x' || c == 'u')
        return read_hex(p, c == 'x' ? 2 : 4, out);
    p->at--;
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80))
        return refuse(p, "an escape that is not supported");
    p->at++;
    *out = (uint8_t)c;
    return 0;
}

static int read_character(struct parser *p, uint32_t *out) {
    size_t length = utf8_char_bytes(p->at, strnlen(p->at, UTF8_MAX_BYTES));
    if (length == 0)
        return refuse(p, "bytes that are not UTF-8");
    *out = (uint32_t)utf8_decode(p->at, length);
    p->at += length;
    return 0;
}

/* A character of a class, or a class in it. */
static int read_class_item(struct parser *p, struct character_class *set, bool *out_is_class,
                           uint32_t *out) {
    *out_is_class = false;
    if (*p->at == '\\') {
        p->at++;
        if (*p->at == 'b') { /* in a class a backspace */
            p->at++;
            *out = '\b';
            return 0;
        }
        return read_escape(p, set, out_is_class, out);
    }
    if (*p->at == '\0')
        return refuse(p, "a class without its ']'");
    return read_character(p, out);
}

/* Called after the '['. */
static int read_class(struct parser *p, grammar_node *out) {
    struct character_class set = {.count = 0};
    bool negated = *p->at == '^';
    p->at += negated;
    for (bool is_first = true; is_first || *p->at != ']'; is_first = false) {
        if (is_first && *p->at == ']')
            return refuse(p, "an empty class");
        uint32_t first, last;
        bool is_class;
        if (read_class_item(p, &set, &is_class, &first) != 0)
            return -1;
        if (is_class)
            continue;
        last = first;
        if (p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (read_class_item(p, &set, &is_class, &last) != 0)
                return -1;
            if (is_class || last < first)
                return refuse(p, "an empty range of characters");
        }
        if (check_fits(p, character_class_add(&set, first, last)) != 0)
            return -1;
    }
    p->at++;
    if (negated && check_fits(p, character_class_complement(&set)) != 0)
        return -1;
    return class_node(p, &set, out);
}

static int one_character(struct parser *p, uint32_t character, grammar_node *out) {
    struct character_class set = {.ranges = {{character, character}}, .count = 1};
    return class_node(p, &set, out);
}

static int read_alternatives(struct parser *p, grammar_node *out);

/* Called after the '('. */
static int read_group(struct parser *p, grammar_node *out) {
    if (*p->at == '?') {
        p->at++;
        p->at += *p->at == 'P';
        if (p->at[0] == '<' && p->at[1] != '=' && p->at[1] != '!') {
            const char *end = strchr(p->at, '>');
            if (end == NULL)
                return refuse(p, "a group's name without its '>'");
            p->at = end;
        } else if (*p->at != ':') {
            return refuse(p, "a kind of group that is not supported");
        }
        p->at++;
    }
    if (++p->depth > GRAMMAR_REGEX_MAX_DEPTH)
        return refuse(p, "groups nested deeper than 64");
    if (read_alternatives(p, out) != 0)
        return -1;
    p->depth--;
    if (*p->at != ')')
        return refuse(p, "a group without its ')'");
    p->at++;
    return 0;
}

static int read_atom(struct parser *p, grammar_node *out) {
    struct character_class set = {.ranges = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}},
                                  .count = 3};
    if (p->mode == REGEX_TEXT)
        set.count = 1;
    uint32_t character;
    bool is_class;
    switch (*p->at) {
    case '(':
        p->at++;
        return read_group(p, out);
    case '[':
        p->at++;
        return read_class(p, out);
    case '.':
        p->at++;
        return check_fits(p, character_class_complement(&set)) != 0 ? -1 : class_node(p, &set, out);
    case '\\':
        p->at++;
        set.count = 0;
        if (read_escape(p, &set, &is_class, &character) != 0)
            return -1;
        return is_class ? class_node(p, &set, out) : one_character(p, character, out);
    case '*':
    case '+':
    case '?':
    case '{':
        return refuse(p, "nothing to repeat");
    case '^':
    case '$':
        return refuse(p, "an anchor that is not at an end of the pattern");
    }
    return read_character(p, &character) != 0 ? -1 : one_character(p, character, out);
}

/* --- Repetitions, sequences, alternatives --- */

static int read_count(struct parser *p, int *out) {
    int count = 0;
    if (*p->at < '0' || *p->at > '9')
        return refuse(p, "a number is missing");
    for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
        count = count * 10 + (*p->at - '0');
        if (count > GRAMMAR_MAX_REPEAT)
            return refuse(p, "a repetition of more than 65536");
    }
    *out = count;
    return 0;
}

/* Called after the '{'. */
static int read_bounds(struct parser *p, int *out_min, int *out_max) {
    if (read_count(p, out_min) != 0)
        return -1;
    *out_max = *out_min;
    if (*p->at == ',') {
        p->at++;
        *out_max = -1;
        if (*p->at != '}' && read_count(p, out_max) != 0)
            return -1;
    }
    if (*p->at != '}')
        return refuse(p, "a repetition without its '}'");
    if (*out_max >= 0 && *out_max < *out_min)
        return refuse(p, "a repetition whose maximum is below its minimum");
    p->at++;
    return 0;
}

static int read_repetition(struct parser *p, grammar_node *node) {
    int min = 0, max = -1;
    switch (*p->at) {
    case '*':
        break;
    case '+':
        min = 1;
        break;
    case '?':
        max = 1;
        break;
    case '{':
        break;
    default:
        return 0;
    }
    if (*p->at++ == '{' && read_bounds(p, &min, &max) != 0)
        return -1;
    p->at += *p->at == '?';
    if (*p->at != '\0' && strchr("*+?{", *p->at) != NULL)
        return refuse(p, "a repetition of a repetition");
    *node = grammar_repeat(p->builder, *node, min, max);
    return 0;
}

/* Makes the node of what may come before and after the matching part. */
static grammar_node anything(struct parser *p) {
    grammar_node character = p->mode == REGEX_JSON_STRING
                                 ? character_class_json(p->builder)
                                 : grammar_characters(p->builder, NULL, 0, true);
    return grammar_repeat(p->builder, character, 0, -1);
}

static bool ends_branch(const struct parser *p) {
    return *p->at == '\0' || *p->at == '|' || *p->at == ')';
}

static int read_items(struct parser *p, struct node_list *list) {
    bool outermost = p->depth == 0, searches = outermost && p->mode != REGEX_TEXT;
    if (outermost && *p->at == '^')
        p->at++;
    else if (searches && list_add(p, list, anything(p)) != 0)
        return -1;
    while (!ends_branch(p)) {
        if (outermost && *p->at == '$') {
            p->at++;
            searches = false;
            if (!ends_branch(p))
                return refuse(p, "an anchor that is not at an end of the pattern");
            break;
        }
        grammar_node node;
        if (read_atom(p, &node) != 0 || read_repetition(p, &node) != 0 ||
            list_add(p, list, node) != 0)
            return -1;
    }
    return searches ? list_add(p, list, anything(p)) : 0;
}

static int read_branch(struct parser *p, grammar_node *out) {
    struct node_list list = {0};
    int result = read_items(p, &list);
    if (result == 0)
        *out = grammar_sequence(p->builder, list.items, list.count);
    free(list.items);
    return result;
}

static int read_alternatives(struct parser *p, grammar_node *out) {
    struct node_list list = {0};
    int result = 0;
    for (bool goes_on = true; goes_on && result == 0;) {
        grammar_node branch;
        result = read_branch(p, &branch);
        if (result == 0)
            result = list_add(p, &list, branch);
        goes_on = *p->at == '|';
        p->at += goes_on && result == 0;
    }
    if (result == 0)
        *out = list.count == 1 ? list.items[0]
                               : grammar_alternatives(p->builder, list.items, list.count);
    free(list.items);
    return result;
}

int grammar_regex(struct grammar_builder *builder, const char *pattern, enum regex_mode mode,
                  grammar_node *out, struct error *err) {
    struct parser p = {builder, pattern, pattern, mode, .err = err};
    grammar_node node;
    if (read_alternatives(&p, &node) != 0)
        return -1;
    if (*p.at != '\0')
        return refuse(&p, "a ')' without its '('");
    *out = node;
    return 0;
}
