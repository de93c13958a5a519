#include "models/tokenizer/pretokenizer_syntax.h"

#include "config/base/utf8.h"
#include "models/tokenizer/unicode_classes.h"

#include <stdio.h>

/* Members of classes: PCRE2's own, and what newer Unicode added. */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NO_SPACE                                                                                   \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-"         \
    "\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"        \
    "\\x{3001}-\\x{10ffff}"

struct class {
    const char *name;
    const char *members;
};

/* Scripts are listed where newer Unicode added to them. */
static const struct class categories[] = {
    {"L", "\\p{L}" NEW_L},
    {"Letter", "\\p{L}" NEW_L},
    {"Lu", "\\p{Lu}" NEW_LU},
    {"Ll", "\\p{Ll}" NEW_LL},
    {"Lt", "\\p{Lt}"},
    {"Lm", "\\p{Lm}" NEW_LM},
    {"Lo", "\\p{Lo}" NEW_LO},
    {"M", "\\p{M}" NEW_M},
    {"Mark", "\\p{M}" NEW_M},
    {"Mn", "\\p{Mn}" NEW_MN},
    {"Mc", "\\p{Mc}" NEW_MC},
    {"Me", "\\p{Me}"},
    {"N", "\\p{N}" NEW_N},
    {"Number", "\\p{N}" NEW_N},
    {"Nd", "\\p{Nd}" NEW_ND},
    {"Nl", "\\p{Nl}"},
    {"No", "\\p{No}" NEW_NO},
    {"P", "\\p{P}" NEW_P},
    {"Punctuation", "\\p{P}" NEW_P},
    {"Pc", "\\p{Pc}"},
    {"Pd", "\\p{Pd}" NEW_PD},
    {"Ps", "\\p{Ps}"},
    {"Pe", "\\p{Pe}"},
    {"Pi", "\\p{Pi}"},
    {"Pf", "\\p{Pf}"},
    {"Po", "\\p{Po}" NEW_PO},
    {"S", "\\p{S}" NEW_S},
    {"Symbol", "\\p{S}" NEW_S},
    {"Sm", "\\p{Sm}" NEW_SM},
    {"Sc", "\\p{Sc}"},
    {"Sk", "\\p{Sk}"},
    {"So", "\\p{So}" NEW_SO},
    {"Z", "\\p{Z}"},
    {"Zs", "\\p{Zs}"},
    {"Zl", "\\p{Zl}"},
    {"Zp", "\\p{Zp}"},
    {"Cc", "\\p{Cc}"},
    {"Cf", "\\p{Cf}" NEW_CF},
    {"Co", "\\p{Co}"},
    {"Han", "\\p{sc:Han}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"Hiragana", "\\p{sc:Hiragana}\\x{1b132}"},
    {"Katakana", "\\p{sc:Katakana}\\x{1b155}"},
    {"Hangul", "\\p{sc:Hangul}"},
    {"Thai", "\\p{sc:Thai}"},
};

/* Appends \s and the like. */
static const struct class shorthands[] = {
    {"s", SPACE},
    {"d", "\\p{Nd}" NEW_ND},
    {"w", "\\p{L}" NEW_L "\\p{M}" NEW_M "\\p{Nd}" NEW_ND "\\p{Nl}\\p{Pc}" ODD_WORD},
    {"h", "0-9A-Fa-f"},
};

struct rewrite {
    struct text pattern;
    size_t at;
    bool in_class;
    struct byte_buffer *out;
    struct error *err;
};

static int refuse(const struct rewrite *r, const char *what) {
    char shown[UTF8_PRINTABLE_BYTES];
    utf8_printable(r->pattern, shown);
    return error_set(r->err, ERROR_MODEL, "regex \"%s\": %s at %zu is not supported", shown, what,
                     r->at);
}

static void put(struct rewrite *r, const char *text) {
    byte_buffer_append(r->out, text, strlen(text));
}

static void copy(struct rewrite *r, size_t length) {
    byte_buffer_append(r->out, r->pattern.data + r->at, length);
    r->at += length;
}

/* Returns the character `ahead` of the current one, 0 behind the end. */
static char peek(const struct rewrite *r, size_t ahead) {
    return r->at + ahead < r->pattern.length ? r->pattern.data[r->at + ahead] : 0;
}

static int put_class(struct rewrite *r, const char *members, bool negated) {
    if (r->in_class && negated) {
        if (strcmp(members, SPACE) != 0)
            return refuse(r, "a negated class within a class");
        members = NO_SPACE;
        negated = false;
    }
    put(r, r->in_class ? "" : negated ? "[^" : "[");
    put(r, members);
    put(r, r->in_class ? "" : "]");
    return 0;
}

static const char *find_category(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof(categories) / sizeof(categories[0]); i++) {
        if (strlen(categories[i].name) == length && memcmp(categories[i].name, name, length) == 0)
            return categories[i].members;
    }
    return NULL;
}

/* \p{..} and \P{..}. */
static int rewrite_property(struct rewrite *r) {
    bool negated = peek(r, 1) == 'P';
    size_t begin = r->at + 3;
    if (peek(r, 2) == '{' && peek(r, 3) == '^') {
        negated = !negated;
        begin++;
    }
    size_t end = begin;
    while (end < r->pattern.length && r->pattern.data[end] != '}')
        end++;
    const char *members = peek(r, 2) == '{' && end < r->pattern.length
                              ? find_category(r->pattern.data + begin, end - begin)
                              : NULL;
    if (members == NULL)
        return refuse(r, "a character property of that name");
    if (put_class(r, members, negated) != 0)
        return -1;
    r->at = end + 1;
    return 0;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \uHHHH */
static int rewrite_code_point(struct rewrite *r) {
    for (size_t i = 2; i < 6; i++) {
        if (!is_hex(peek(r, i)))
            return refuse(r, "\\u without four digits");
    }
    put(r, "\\x{");
    r->at += 2;
    copy(r, 4);
    put(r, "}");
    return 0;
}

static int rewrite_escape(struct rewrite *r) {
    char c = peek(r, 1);
    if (c == 'p' || c == 'P')
        return rewrite_property(r);
    if (c == 'u')
        return rewrite_code_point(r);
    for (size_t i = 0; i < sizeof(shorthands) / sizeof(shorthands[0]); i++) {
        char name = shorthands[i].name[0];
        if (c != name && c != name - 'a' + 'A')
            continue;
        if (put_class(r, shorthands[i].members, c != name) != 0)
            return -1;
        r->at += 2;
        return 0;
    }
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == 0 || (is_letter && strchr(r->in_class ? "nrtfvaex" : "nrtfvaexAzZbB", c) == NULL))
        return refuse(r, "that escape");
    copy(r, 2);
    return 0;
}

/* "(?" and its options: (?m) makes a point match newlines, which PCRE2 writes (?s). */
static int rewrite_group(struct rewrite *r) {
    if (peek(r, 1) == '*' ||
        (peek(r, 1) == '?' && peek(r, 2) != 0 && strchr("CR&P0123456789~", peek(r, 2)) != NULL))
        return refuse(r, "a group of that kind");
    if (peek(r, 1) != '?') {
        copy(r, 1);
        return 0;
    }
    copy(r, 2);
    while (peek(r, 0) != 0 && strchr("imx-", peek(r, 0)) != NULL) {
        if (peek(r, 0) == 'm') {
            put(r, "s");
            r->at++;
        } else {
            copy(r, 1);
        }
    }
    return 0;
}

/* {n}, {n,m}; any other brace is itself. */
static int rewrite_brace(struct rewrite *r) {
    size_t end = 1;
    while (peek(r, end) == ',' || (peek(r, end) >= '0' && peek(r, end) <= '9'))
        end++;
    if (peek(r, end) == '}' && end > 1 && peek(r, end + 1) == '+')
        return refuse(r, "a + behind a count");
    /* "{,m}" counts from 0 there and is plain text in older PCRE2. */
    if (peek(r, end) == '}' && end > 2 && peek(r, 1) == ',') {
        put(r, "{0");
        r->at++;
        end--;
    }
    copy(r, peek(r, end) == '}' ? end + 1 : 1);
    return 0;
}

static int rewrite_in_class(struct rewrite *r) {
    char c = peek(r, 0);
    if (c == '\\')
        return rewrite_escape(r);
    if (c == '[')
        return refuse(r, "a class within a class");
    if (c == '&' && peek(r, 1) == '&')
        return refuse(r, "&& in a class");
    r->in_class = c != ']';
    copy(r, 1);
    return 0;
}

static int rewrite_outside(struct rewrite *r) {
    switch (peek(r, 0)) {
    case '\\':
        return rewrite_escape(r);
    case '(':
        return rewrite_group(r);
    case '{':
        return rewrite_brace(r);
    case '[':
        r->in_class = true;
        copy(r, peek(r, 1) == '^' ? 2 : 1);
        if (peek(r, 0) == ']')
            return refuse(r, "an empty class");
        return 0;
    default:
        copy(r, 1);
        return 0;
    }
}

int pretokenizer_syntax_rewrite(struct text pattern, struct byte_buffer *out, struct error *err) {
    struct rewrite r = {.pattern = pattern, .out = out, .err = err};
    if (pattern.length > PRETOKENIZER_MAX_PATTERN)
        return error_set(err, ERROR_MODEL, "a regex has %zu bytes, allowed are %d", pattern.length,
                         PRETOKENIZER_MAX_PATTERN);
    if (memchr(pattern.data, 0, pattern.length) != NULL)
        return error_set(err, ERROR_MODEL, "a regex has a NUL character");
    while (r.at < pattern.length) {
        if ((r.in_class ? rewrite_in_class(&r) : rewrite_outside(&r)) != 0)
            return -1;
    }
    return out->failed ? error_set(err, ERROR_MEMORY, "no memory for a regex") : 0;
}
