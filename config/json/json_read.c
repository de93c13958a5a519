/* A loop over five states with an explicit stack of open containers, so that depth costs no C
 * stack. The keys of the open objects are on one key stack; when an object closes, its keys are
 * sorted, and equal neighbours are duplicates. Nodes are made like cJSON's: with malloc, and the
 * `prev` of a list's first node is its last one. */
#include "config/json/json_read.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "config/base/utf8.h"
#include "config/json/json_integer.h"
#include "config/json/json_unescape.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct key {
    const char *data; /* of its node */
    size_t length;
    size_t offset; /* of its opening quote, for messages */
};

struct level {
    cJSON *container;
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
    cJSON *root;
    int num_nodes;
    int depth;
    struct level levels[JSON_MAX_DEPTH];
    struct key *keys;
    size_t num_keys, keys_capacity;
    char *key; /* of the value that must come; owned until the value takes it */
    struct error *err;
};

static int fail_at(struct scanner *s, size_t offset, const char *what) {
    return error_set(s->err, ERROR_SYNTAX, "%s at byte %zu", what, offset);
}

static int fail_memory(struct scanner *s) {
    return error_set(s->err, ERROR_MEMORY, "no memory for the values of %zu bytes of JSON",
                     s->length);
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

/* Returns the next byte, or -1 at the end. */
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

/* Scans the rest of an escape whose "\u" is before s->at. A surrogate pair is one escape. */
static int scan_unicode_escape(struct scanner *s) {
    size_t start = s->at - 2;
    unsigned code = 0, low = 0;
    if (scan_hex4(s, &code) != 0)
        return -1;
    if (s->limits->takes_any_escape)
        return 0; /* the second half of a pair is an escape too */
    if (code == 0)
        return fail_at(s, start, "\\u0000 is not allowed in a string");
    if (!utf16_is_high(code) && !utf16_is_low(code))
        return 0;
    if (utf16_is_low(code) || s->length - s->at < 2 || memcmp(s->data + s->at, "\\u", 2) != 0)
        return fail_at(s, start, "unpaired surrogate");
    s->at += 2;
    if (scan_hex4(s, &low) != 0)
        return -1;
    return utf16_is_low(low) ? 0 : fail_at(s, start, "unpaired surrogate");
}

/* Scans the escape whose backslash is at s->at. */
static int scan_escape(struct scanner *s) {
    s->at++;
    int c = peek(s);
    if (c != 'u' && json_unescape_letter(c) < 0)
        return fail_unexpected(s, "an escape");
    s->at++;
    return c == 'u' ? scan_unicode_escape(s) : 0;
}

/* Scans the string whose opening quote is at s->at. *out_escaped becomes true if it has escapes. */
static int scan_string(struct scanner *s, bool *out_escaped) {
    size_t start = s->at++;
    for (;;) {
        int c;
        while ((c = peek(s)) >= 0x20 && c < 0x80 && c != '"' && c != '\\')
            s->at++;
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
        size_t count = utf8_char_bytes(s->data + s->at, s->length - s->at);
        if (count == 0)
            return fail_at(s, s->at, "invalid UTF-8");
        s->at += count;
    }
    s->at++;
    return 0;
}

static uint32_t hex4(const char *digits) {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++)
        code = code * 16 + (uint32_t)json_unescape_digit((unsigned char)digits[i]);
    return code;
}

/* Decodes the checked escape at text[0]. Returns its length; *out_bytes is that of the
 * character. */
static size_t undo_escape(const char *text, size_t length, char *out, size_t *out_bytes) {
    if (text[1] != 'u') {
        out[0] = (char)json_unescape_letter((unsigned char)text[1]);
        *out_bytes = 1;
        return 2;
    }
    uint32_t code = hex4(text + 2);
    bool has_more = length >= 12 && text[6] == '\\' && text[7] == 'u';
    uint32_t low = utf16_is_high(code) && has_more ? hex4(text + 8) : 0;
    if (utf16_is_low(low)) {
        *out_bytes = utf8_encode(utf16_join(code, low), out);
        return 12;
    }
    bool is_fit = code != 0 && !utf16_is_high(code) && !utf16_is_low(code);
    *out_bytes = utf8_encode(is_fit ? code : 0xFFFD, out);
    return 6;
}

/* Returns the text of the checked string whose content is text[0..length), to be freed; NULL when
 * memory is short. An escape is never shorter than its character. */
static char *copy_text(const char *text, size_t length, bool has_escapes, size_t *out_length) {
    char *copy = malloc(length + 1);
    size_t at = 0, used = 0;
    if (copy == NULL)
        return NULL;
    while (has_escapes && at < length) {
        const char *escape = memchr(text + at, '\\', length - at);
        size_t run = escape != NULL ? (size_t)(escape - text) - at : length - at, bytes = 0;
        memcpy(copy + used, text + at, run);
        at += run;
        used += run;
        if (escape != NULL)
            at += undo_escape(escape, length - at, copy + used, &bytes);
        used += bytes;
    }
    memcpy(copy + used, text + at, length - at);
    used += length - at;
    copy[used] = '\0';
    *out_length = used;
    return copy;
}

/* Reads the string at s->at; NULL on failure, with the error set. */
static char *read_string(struct scanner *s, size_t *out_length) {
    size_t start = s->at + 1;
    bool has_escapes = false;
    if (scan_string(s, &has_escapes) != 0)
        return NULL;
    char *text = copy_text(s->data + start, s->at - start - 1, has_escapes, out_length);
    if (text == NULL)
        fail_memory(s);
    return text;
}

static int read_key(struct scanner *s) {
    if (peek(s) != '"')
        return fail_unexpected(s, "a key in quotes");
    struct key key = {.offset = s->at};
    s->key = read_string(s, &key.length);
    if (s->key == NULL)
        return -1;
    key.data = s->key;
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

/* Scans the digits after a point or an exponent, of which there must be at least one. */
static int scan_digits(struct scanner *s) {
    if (!is_digit(peek(s)))
        return fail_unexpected(s, "a digit");
    skip_digits(s);
    return 0;
}

static int read_number(struct scanner *s, cJSON *node) {
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
    double value = strtod(text, NULL);
    if (!isfinite(value))
        return fail_at(s, start, "a number out of range");
    node->type = cJSON_Number;
    node->valuedouble = value;
    node->valueint = value >= INT_MAX ? INT_MAX : value <= (double)INT_MIN ? INT_MIN : (int)value;
    if (json_integer_needs_text(text, value) && (node->valuestring = strdup(text)) == NULL)
        return fail_memory(s);
    return 0;
}

static int read_literal(struct scanner *s, cJSON *node) {
    static const struct {
        const char *text;
        int type;
    } literals[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        size_t length = strlen(literals[i].text);
        if (s->length - s->at >= length && memcmp(s->data + s->at, literals[i].text, length) == 0) {
            s->at += length;
            node->type = literals[i].type;
            return 0;
        }
    }
    return fail_unexpected(s, "a value");
}

static int open_container(struct scanner *s, cJSON *node, enum state *state) {
    bool is_object = peek(s) == '{';
    if (s->depth == s->limits->max_depth)
        return error_set(s->err, ERROR_SYNTAX,
                         "nested too deeply at byte %zu: %d levels are allowed", s->at,
                         s->limits->max_depth);
    node->type = is_object ? cJSON_Object : cJSON_Array;
    s->levels[s->depth++] = (struct level){.container = node, .first_key = s->num_keys};
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

/* Appends a node to the open container, or makes it the root. The node takes over the key. */
static cJSON *add_node(struct scanner *s) {
    cJSON *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return NULL;
    node->string = s->key;
    s->key = NULL;
    if (s->depth == 0) {
        s->root = node;
        return node;
    }
    cJSON *container = s->levels[s->depth - 1].container, *first = container->child;
    if (first == NULL) {
        container->child = node->prev = node;
        return node;
    }
    first->prev->next = node;
    node->prev = first->prev;
    first->prev = node;
    return node;
}

static int read_value(struct scanner *s, enum state *state) {
    if (++s->num_nodes > s->limits->max_nodes)
        return error_set(s->err, ERROR_SYNTAX, "too many values at byte %zu: %d are allowed", s->at,
                         s->limits->max_nodes);
    cJSON *node = add_node(s);
    if (node == NULL)
        return fail_memory(s);
    int c = peek(s);
    *state = STATE_AFTER_VALUE;
    if (c == '{' || c == '[')
        return open_container(s, node, state);
    if (c == '-' || is_digit(c))
        return read_number(s, node);
    if (c != '"')
        return read_literal(s, node);
    size_t length;
    node->type = cJSON_String;
    node->valuestring = read_string(s, &length);
    return node->valuestring != NULL ? 0 : -1;
}

static int read_after_value(struct scanner *s, enum state *state) {
    bool is_object = cJSON_IsObject(s->levels[s->depth - 1].container);
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

static int read_step(struct scanner *s, enum state *state) {
    switch (*state) {
    case STATE_VALUE:
        return read_value(s, state);
    case STATE_ITEM_OR_END:
        if (peek(s) != ']')
            return read_value(s, state);
        *state = STATE_AFTER_VALUE;
        return close_container(s);
    case STATE_KEY_OR_END:
        if (peek(s) == '}') {
            *state = STATE_AFTER_VALUE;
            return close_container(s);
        }
        *state = STATE_VALUE;
        return read_key(s);
    case STATE_KEY:
        *state = STATE_VALUE;
        return read_key(s);
    case STATE_AFTER_VALUE:
        return read_after_value(s, state);
    }
    return 0;
}

static int read_document(struct scanner *s) {
    enum state state = STATE_VALUE;
    skip_space(s);
    if (peek(s) != '{')
        return fail_unexpected(s, "an object");
    do {
        if (read_step(s, &state) != 0)
            return -1;
        skip_space(s);
    } while (s->depth > 0);
    return s->at == s->length ? 0 : fail_unexpected(s, "the end");
}

cJSON *json_read(const char *data, size_t length, const struct json_limits *limits,
                 struct error *err) {
    CHECK(limits->max_depth >= 1 && limits->max_depth <= JSON_MAX_DEPTH);
    struct scanner s = {.data = data, .length = length, .limits = limits, .err = err};
    int result = read_document(&s);
    free(s.keys);
    free(s.key);
    if (result == 0)
        return s.root;
    cJSON_Delete(s.root);
    return NULL;
}
