/* What a regular expression's flags mean is written into the expression, for grammar_regex: with i
 * a letter is a class of two, with s the dot is any character. */
#include "engine/grammar/read/grammar_regex.h"
#include "engine/grammar/read/notation_reader.h"
#include "config/base/utf8.h"

#include <string.h>

struct flags {
    bool folds, dot_is_all;
};

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_letter(char c) {
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

static char other_case(char c) {
    return (char)(c ^ 0x20);
}

/* --- Texts --- */

int lark_folded_text(struct notation *n, const char *begin, grammar_node *out) {
    size_t mark = n->num_items;
    for (size_t i = 0; i < n->bytes.length; i++) {
        char c = n->bytes.data[i];
        const struct character_range either[] = {{(uint8_t)c, (uint8_t)c},
                                                 {(uint8_t)other_case(c), (uint8_t)other_case(c)}};
        if ((c & 0x80) != 0)
            return notation_refuse(n, begin, "the flag i is for letters of ASCII only");
        grammar_node node = is_letter(c) ? grammar_characters(n->builder, either, 2, false)
                                         : grammar_literal(n->builder, &c, 1);
        if (notation_push(n, node) != 0)
            return -1;
    }
    *out = notation_take_sequence(n, mark);
    return 0;
}

int lark_one_character(const struct notation *n, uint32_t *out) {
    size_t length = utf8_char_bytes(n->bytes.data, n->bytes.length);
    if (length == 0 || length != n->bytes.length)
        return -1;
    *out = (uint32_t)utf8_decode(n->bytes.data, length);
    return 0;
}

/* --- Regular expressions: n->bytes is the one for grammar_regex --- */

static void put(struct notation *n, const char *bytes, size_t length) {
    byte_buffer_append(&n->bytes, bytes, length);
}

/* A backslash and what it escapes; a slash needs none any more. */
static int copy_escape(struct notation *n, const struct flags *flags) {
    char c = n->at[1];
    if (flags->folds && (c == 'x' || c == 'u'))
        return notation_refuse(n, n->at, "\\%c with the flag i is not supported", c);
    if (c == '\0' || c == '\n')
        return notation_refuse(n, n->at, "a regular expression without its '/'");
    put(n, c == '/' ? n->at + 1 : n->at, c == '/' ? 1 : 2);
    n->at += 2;
    return 0;
}

/* Adds the letters of the other case that a range of a class has. */
static int fold_range(struct notation *n, char first, char last) {
    char folded[] = {other_case(first), '-', other_case(last)};
    bool has_none = last < 'A' || first > 'z' || (first > 'Z' && last < 'a');
    bool has_both = first <= 'A' && last >= 'z';
    if (has_none || has_both)
        return 0;
    if (!is_letter(first) || !is_letter(last) || is_lower(first) != is_lower(last))
        return notation_refuse(n, n->at, "a range of letters and others with the flag i");
    put(n, folded, 3);
    return 0;
}

static int copy_class_item(struct notation *n, const struct flags *flags) {
    const char *at = n->at;
    if (*at == '\\')
        return copy_escape(n, flags);
    bool is_range = at[1] == '-' && at[2] != '\0' && strchr("]\\/\n", at[2]) == NULL;
    char last = is_range ? at[2] : at[0];
    if (flags->folds && ((*at | last) & 0x80) != 0)
        return notation_refuse(n, at, "the flag i is for letters of ASCII only");
    if (flags->folds && fold_range(n, *at, last) != 0)
        return -1;
    put(n, at, is_range ? 3 : 1);
    n->at += is_range ? 3 : 1;
    return 0;
}

static int copy_class(struct notation *n, const struct flags *flags) {
    const char *begin = n->at++;
    put(n, "[", 1);
    if (*n->at == '^') {
        put(n, "^", 1);
        n->at++;
    }
    while (*n->at != ']') {
        if (*n->at == '\0' || *n->at == '/' || *n->at == '\n')
            return notation_refuse(n, begin, "a class without its ']'");
        if (copy_class_item(n, flags) != 0)
            return -1;
    }
    put(n, "]", 1);
    n->at++;
    return 0;
}

/* The "(?:" or "(?P<name>" of a group, whose letters are none of the text. */
static void copy_group(struct notation *n) {
    size_t length = n->at[1] == '?' ? 2 : 1;
    if (length == 2 && (n->at[2] == 'P' || n->at[2] == '<'))
        length += strcspn(n->at + length, ">/\n");
    put(n, n->at, length);
    n->at += length;
}

static int copy_character(struct notation *n, const struct flags *flags) {
    char c = *n->at;
    char folded[] = {'[', c, other_case(c), ']'};
    if (c == '^' || c == '$')
        return notation_refuse(n, n->at, "an anchor in a regular expression is not supported");
    if (flags->folds && (c & 0x80) != 0)
        return notation_refuse(n, n->at, "the flag i is for letters of ASCII only");
    if (c == '.' && flags->dot_is_all)
        put(n, "(?:.|\\n)", 8);
    else if (flags->folds && is_letter(c))
        put(n, folded, 4);
    else
        put(n, &c, 1);
    n->at++;
    return 0;
}

static int copy_pattern(struct notation *n, const char *end, const struct flags *flags) {
    int status = 0;
    n->bytes.length = 0;
    while (n->at < end && status == 0) {
        if (*n->at == '\\')
            status = copy_escape(n, flags);
        else if (*n->at == '[')
            status = copy_class(n, flags);
        else if (*n->at == '(')
            copy_group(n);
        else
            status = copy_character(n, flags);
    }
    put(n, "", 1);
    if (status == 0 && n->bytes.failed)
        return error_set(n->err, ERROR_MEMORY, "memory is short");
    return status;
}

/* Returns the '/' that ends the expression; NULL: there is none. */
static const char *find_end(const char *at) {
    while (*at != '/' && *at != '\0' && *at != '\n')
        at += at[0] == '\\' && at[1] != '\0' ? 2 : 1;
    return *at == '/' ? at : NULL;
}

static int read_flags(struct notation *n, const char **at, struct flags *flags) {
    for (; is_lower(**at); (*at)++) {
        flags->folds |= **at == 'i';
        flags->dot_is_all |= **at == 's';
        if (strchr("imsu", **at) == NULL)
            return notation_refuse(n, *at, "the flag %c of a regular expression is not supported",
                                   **at);
    }
    return 0;
}

int lark_pattern(struct notation *n, grammar_node *out) {
    const char *begin = n->at++, *end = find_end(n->at);
    struct flags flags = {0};
    struct error error = {0};
    if (end == NULL)
        return notation_refuse(n, begin, "a regular expression without its '/'");
    const char *behind = end + 1;
    if (read_flags(n, &behind, &flags) != 0 || copy_pattern(n, end, &flags) != 0)
        return -1;
    n->at = behind;
    if (grammar_regex(n->builder, n->bytes.data, REGEX_TEXT, out, &error) == 0)
        return 0;
    if (error.code == ERROR_MEMORY)
        return error_set(n->err, ERROR_MEMORY, "%s", error.message);
    return notation_refuse(n, begin, "in the regular expression: %.180s", error.message);
}

/* --- The terminals of Lark's library "common" (lark/grammars/common.lark) --- */

/* Where that uses look-behind (the strings) or lazy repetition (the comments), the expressions here
 * express what is meant. */

#define INT "[0-9]+"
#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT "(?:[eE][+-]?[0-9]+)"
#define FLOAT "(?:" INT EXPONENT "|" DECIMAL EXPONENT "?)"
#define NUMBER "(?:" FLOAT "|" INT ")"

const char *lark_common(struct text name) {
    static const struct {
        const char *name, *pattern;
    } terminals[] = {
        {"DIGIT", "[0-9]"},
        {"HEXDIGIT", "[a-fA-F0-9]"},
        {"INT", INT},
        {"SIGNED_INT", "[+-]?" INT},
        {"DECIMAL", DECIMAL},
        {"FLOAT", FLOAT},
        {"SIGNED_FLOAT", "[+-]?" FLOAT},
        {"NUMBER", NUMBER},
        {"SIGNED_NUMBER", "[+-]?" NUMBER},
        {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
        {"LCASE_LETTER", "[a-z]"},
        {"UCASE_LETTER", "[A-Z]"},
        {"LETTER", "[a-zA-Z]"},
        {"WORD", "[a-zA-Z]+"},
        {"CNAME", "[a-zA-Z_][a-zA-Z_0-9]*"},
        {"WS_INLINE", "[ \\t]+"},
        {"WS", "[ \\t\\f\\r\\n]+"},
        {"CR", "\\r"},
        {"LF", "\\n"},
        {"NEWLINE", "(?:\\r?\\n)+"},
        {"SH_COMMENT", "#[^\\n]*"},
        {"CPP_COMMENT", "//[^\\n]*"},
        {"C_COMMENT", "/\\*[^*]*\\*+(?:[^/*][^*]*\\*+)*/"},
        {"SQL_COMMENT", "--[^\\n]*"},
    };
    for (size_t i = 0; i < sizeof(terminals) / sizeof(terminals[0]); i++)
        if (text_is(name, terminals[i].name))
            return terminals[i].pattern;
    return NULL;
}
