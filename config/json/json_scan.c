/* A loop over five states with an explicit stack of open containers, so that depth costs no C
 * stack. The keys of the open objects lie on one key stack; when an object closes, its keys are
 * sorted and equal neighbours are duplicates. A key with escapes is compared in its unescaped form,
 * kept in an arena that the document's own length bounds (an escape is never shorter than its
 * bytes).
 */
#include "config/json/json_scan.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "config/json/json_unescape.h"
#include "config/base/utf8.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct key {
    const char *data;
    size_t length;
    size_t offset; /* of its opening quote, for messages */
};

struct level {
    bool is_object;
    size_t first_key; /* index into keys */
};

enum state {
    STATE_VALUE,       /* a value must come */
    STATE_ITEM_OR_END, /* after '[' */
    STATE_KEY_OR_END,  /* after '{' */
    STATE_KEY,         /* after ',' in an object */
    STATE_AFTER_VALUE,
};

struct scanner {
    const char *data;
    size_t length, at;
    const struct json_limits *limits;
    int num_nodes;
    int depth;
    struct level levels[JSON_MAX_DEPTH];
    struct key *keys;
    size_t num_keys, keys_capacity;
    char *arena; /* [length], allocated with the first key that has escapes */
    size_t arena_used;
    struct error *err;
};

static int fail_at(struct scanner *s, size_t offset, const char *what) {
    return error_set(s->err, ERROR_SYNTAX, "%s at byte %zu", what, offset);
}

static int fail_memory(struct scanner *s) {
    return error_set(s->err, ERROR_MEMORY, "no memory to check %zu bytes of JSON", s->length);
}

static int fail_unexpected(struct scanner *s, const char *expected) {
    if (s->at == s->length)
        return error_set(s->err, ERROR_SYNTAX, "it ends at byte %zu where %s is expected", s->at,
                         expected);
    unsigned char byte = (unsigned char)s->data[s->at];
    const char *format = byte > 0x20 && byte < 0x7F
                             ? "unexpected '%c' at byte %zu where %s is expected"
                             : "unexpected byte 0x%02x at byte %zu where %s is expected";
    return error_set(s->err, ERROR_SYNTAX, format, byte, s->at, expected);
}

/* The next byte, or -1 at the end. */
static int peek(const struct scanner *s) {
    return s->at < s->length ? (unsigned char)s->data[s->at] : -1;
}

static void skip_space(struct scanner *s) {
    int c;
    while ((c = peek(s)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        s->at++;
}

static bool is_digit(int c) {
    return c >= '0' && c <= '9';
}

/* Reads the four digits at s->at. */
static int scan_hex4(struct scanner *s, unsigned *out) {
    unsigned code = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int digit = json_unescape_digit(peek(s));
        if (digit < 0)
            return fail_unexpected(s, "a hexadecimal digit");
        code = code * 16 + (unsigned)digit;
    }
    *out = code;
    return 0;
}

/* s->at is behind "\u". A surrogate pair is one escape. */
static int scan_unicode_escape(struct scanner *s) {
    size_t start = s->at - 2;
    unsigned code = 0, low = 0;
    if (scan_hex4(s, &code) != 0)
        return -1;
    if (s->limits->takes_any_escape)
        return 0; /* the second half of a pair is an escape, too */
    if (code == 0)
        return fail_at(s, start, "\\u0000 is not allowed in a string");
    if (code < 0xD800 || code > 0xDFFF)
        return 0;
    if (code > 0xDBFF || s->length - s->at < 2 || memcmp(s->data + s->at, "\\u", 2) != 0)
        return fail_at(s, start, "unpaired surrogate");
    s->at += 2;
    if (scan_hex4(s, &low) != 0)
        return -1;
    return low >= 0xDC00 && low <= 0xDFFF ? 0 : fail_at(s, start, "unpaired surrogate");
}

/* s->at is at the backslash. */
static int scan_escape(struct scanner *s) {
    s->at++;
    int c = peek(s);
    if (c != 'u' && json_unescape_letter(c) < 0)
        return fail_unexpected(s, "an escape");
    s->at++;
    return c == 'u' ? scan_unicode_escape(s) : 0;
}

/* s->at is at the opening quote; *out_escaped becomes true if the string holds escapes. */
static int scan_string(struct scanner *s, bool *out_escaped) {
    size_t start = s->at++;
    for (;;) {
        int c = peek(s);
        if (c < 0)
            return fail_at(s, start, "the string is not closed that begins");
        if (c == '"')
            break;
        if (c < 0x20)
            return fail_at(s, s->at, "raw control character in a string");
        if (c == '\\') {
            *out_escaped = true;
            if (scan_escape(s) != 0)
                return -1;
            continue;
        }
        size_t count = c < 0x80 ? 1 : utf8_char_bytes(s->data + s->at, s->length - s->at);
        if (count == 0)
            return fail_at(s, s->at, "invalid UTF-8");
        s->at += count;
    }
    s->at++;
    return 0;
}

/* Has U+FFFD for \u0000, as readers of the key have it. Returns the length. */
static size_t copy_unescaped(const char *text, size_t count, char *out) {
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        size_t step = text[i] == '\0' ? strlen(replacement) : 1;
        memcpy(out + length, text[i] == '\0' ? replacement : text + i, step);
        length += step;
    }
    return length;
}

/* Writes the unescaped bytes of a checked string into the arena, and has the key point there. */
static int unescape_key(struct scanner *s, struct key *key) {
    struct json_unescape unescape = {0};
    if (s->arena == NULL && (s->arena = malloc(s->length)) == NULL)
        return fail_memory(s);
    char *out = s->arena + s->arena_used, text[JSON_UNESCAPE_MAX_BYTES];
    size_t length = 0;
    for (size_t i = 0; i < key->length; i++) {
        size_t count = json_unescape_push(&unescape, key->data[i], text);
        length += copy_unescaped(text, count, out + length);
    }
    length += copy_unescaped(text, json_unescape_end(&unescape, text), out + length);
    s->arena_used += length;
    key->data = out;
    key->length = length;
    return 0;
}

static int scan_key(struct scanner *s) {
    if (peek(s) != '"')
        return fail_unexpected(s, "a key in quotes");
    struct key key = {.offset = s->at};
    bool escaped = false;
    if (scan_string(s, &escaped) != 0)
        return -1;
    key.data = s->data + key.offset + 1;
    key.length = s->at - key.offset - 2;
    if (escaped && unescape_key(s, &key) != 0)
        return -1;
    if (!array_reserve(&s->keys, &s->keys_capacity, s->num_keys + 1, sizeof(key)))
        return fail_memory(s);
    s->keys[s->num_keys++] = key;
    skip_space(s);
    if (peek(s) != ':')
        return fail_unexpected(s, "':'");
    s->at++;
    return 0;
}

static void skip_digits(struct scanner *s) {
    while (is_digit(peek(s)))
        s->at++;
}

/* A point or an exponent sign is behind us: at least one digit must come. */
static int scan_digits(struct scanner *s) {
    if (!is_digit(peek(s)))
        return fail_unexpected(s, "a digit");
    skip_digits(s);
    return 0;
}

static int scan_number(struct scanner *s) {
    size_t start = s->at;
    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0') {
        s->at++;
        if (is_digit(peek(s)))
            return fail_at(s, start, "a number with a leading zero");
    } else if (scan_digits(s) != 0) {
        return -1;
    }
    if (peek(s) == '.') {
        s->at++;
        if (scan_digits(s) != 0)
            return -1;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (scan_digits(s) != 0)
            return -1;
    }
    size_t length = s->at - start;
    if (length > JSON_MAX_NUMBER_CHARS)
        return fail_at(s, start, "a number of more than 63 characters");
    char text[JSON_MAX_NUMBER_CHARS + 1];
    memcpy(text, s->data + start, length);
    text[length] = '\0';
    if (!isfinite(strtod(text, NULL)))
        return fail_at(s, start, "a number out of range");
    return 0;
}

static int scan_literal(struct scanner *s) {
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        size_t length = strlen(literals[i]);
        if (s->length - s->at >= length && memcmp(s->data + s->at, literals[i], length) == 0) {
            s->at += length;
            return 0;
        }
    }
    return fail_unexpected(s, "a value");
}

static int open_container(struct scanner *s, bool is_object, enum state *state) {
    if (s->depth == s->limits->max_depth)
        return error_set(s->err, ERROR_SYNTAX,
                         "nested too deeply at byte %zu: %d levels are allowed", s->at,
                         s->limits->max_depth);
    s->levels[s->depth++] = (struct level){.is_object = is_object, .first_key = s->num_keys};
    s->at++;
    *state = is_object ? STATE_KEY_OR_END : STATE_ITEM_OR_END;
    return 0;
}

static int compare_keys(const void *left, const void *right) {
    const struct key *a = left, *b = right;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    int order = memcmp(a->data, b->data, a->length);
    if (order != 0)
        return order;
    return a->offset < b->offset ? -1 : 1;
}

static int close_container(struct scanner *s) {
    struct level *level = &s->levels[--s->depth];
    s->at++;
    size_t count = s->num_keys - level->first_key;
    s->num_keys = level->first_key;
    if (count < 2 || s->limits->takes_doubled_keys)
        return 0;
    struct key *keys = s->keys + level->first_key;
    qsort(keys, count, sizeof(*keys), compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (keys[i].length == keys[i - 1].length &&
            memcmp(keys[i].data, keys[i - 1].data, keys[i].length) == 0)
            return fail_at(s, keys[i].offset, "a key that the object already has");
    }
    return 0;
}

static int scan_value(struct scanner *s, enum state *state) {
    if (++s->num_nodes > s->limits->max_nodes)
        return error_set(s->err, ERROR_SYNTAX, "too many values at byte %zu: %d are allowed", s->at,
                         s->limits->max_nodes);
    int c = peek(s);
    bool escaped;
    *state = STATE_AFTER_VALUE;
    if (c == '{' || c == '[')
        return open_container(s, c == '{', state);
    if (c == '"')
        return scan_string(s, &escaped);
    if (c == '-' || is_digit(c))
        return scan_number(s);
    return scan_literal(s);
}

static int scan_after_value(struct scanner *s, enum state *state) {
    bool is_object = s->levels[s->depth - 1].is_object;
    int c = peek(s);
    if (c == ',') {
        s->at++;
        *state = is_object ? STATE_KEY : STATE_VALUE;
        return 0;
    }
    if (c == (is_object ? '}' : ']'))
        return close_container(s);
    return fail_unexpected(s, is_object ? "',' or '}'" : "',' or ']'");
}

static int scan_step(struct scanner *s, enum state *state) {
    switch (*state) {
    case STATE_VALUE:
        return scan_value(s, state);
    case STATE_ITEM_OR_END:
        if (peek(s) != ']')
            return scan_value(s, state);
        *state = STATE_AFTER_VALUE;
        return close_container(s);
    case STATE_KEY_OR_END:
        if (peek(s) == '}') {
            *state = STATE_AFTER_VALUE;
            return close_container(s);
        }
        *state = STATE_VALUE;
        return scan_key(s);
    case STATE_KEY:
        *state = STATE_VALUE;
        return scan_key(s);
    case STATE_AFTER_VALUE:
        return scan_after_value(s, state);
    }
    return 0;
}

static int scan_document(struct scanner *s) {
    enum state state = STATE_VALUE;
    skip_space(s);
    if (peek(s) != '{')
        return fail_unexpected(s, "an object");
    do {
        if (scan_step(s, &state) != 0)
            return -1;
        skip_space(s);
    } while (s->depth > 0);
    return s->at == s->length ? 0 : fail_unexpected(s, "the end");
}

int json_scan(const char *data, size_t length, const struct json_limits *limits,
              struct error *err) {
    CHECK(limits->max_depth >= 1 && limits->max_depth <= JSON_MAX_DEPTH);
    struct scanner s = {.data = data, .length = length, .limits = limits, .err = err};
    int result = scan_document(&s);
    free(s.keys);
    free(s.arena);
    return result;
}
