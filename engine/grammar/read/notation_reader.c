#include "engine/grammar/read/notation_reader.h"

#include "config/base/array.h"
#include "config/base/utf8.h"
#include "engine/grammar/build/grammar_rewrite.h"
#include "engine/grammar/read/grammar_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64

void notation_init(struct notation *n, struct grammar_builder *builder, const char *text,
                   struct error *err) {
    *n = (struct notation){.builder = builder, .text = text, .at = text, .err = err};
}

void notation_finish(struct notation *n) {
    free(n->rules);
    free(n->slots);
    free(n->items);
    byte_buffer_finish(&n->bytes);
}

/* --- Errors --- */

int notation_refuse(const struct notation *n, const char *at, const char *format, ...) {
    char message[256];
    int line = 1, column = 1;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    for (const char *c = n->text; c < at; c++) {
        line += *c == '\n';
        column = *c == '\n' ? 1 : column + !utf8_continues(*c);
    }
    return error_set(n->err, ERROR_SYNTAX, "line %d, column %d: %s", line, column, message);
}

void notation_describe(const char *at, char out[static 16]) {
    if (*at == '\0')
        snprintf(out, 16, "the end");
    else if (*at == '\n' || *at == '\r')
        snprintf(out, 16, "a line's end");
    else
        snprintf(out, 16, "'%.*s'", (int)utf8_char_bytes(at, strnlen(at, UTF8_MAX_BYTES)), at);
}

static int no_memory(struct notation *n) {
    grammar_builder_fail(n->builder, ERROR_MEMORY, "memory is short");
    return error_set(n->err, ERROR_MEMORY, "memory is short");
}

/* --- Rules --- */

/* FNV-1a, 32 bits: Fowler, Noll, Vo, RFC 9923. */
static uint32_t hash_name(struct text name) {
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ (uint8_t)name.data[i]) * UINT32_C(16777619);
    return hash;
}

static int32_t *find_slot(const struct notation *n, struct text name) {
    uint32_t mask = (uint32_t)n->num_slots - 1;
    for (uint32_t i = hash_name(name) & mask;; i = (i + 1) & mask) {
        int32_t index = n->slots[i];
        if (index < 0 || (n->rules[index].name.length == name.length &&
                          memcmp(n->rules[index].name.data, name.data, name.length) == 0))
            return &n->slots[i];
    }
}

static int grow_slots(struct notation *n) {
    int32_t num_slots = n->num_slots > 0 ? n->num_slots * 2 : FIRST_SLOTS;
    int32_t *slots = malloc((size_t)num_slots * sizeof(*slots));
    if (slots == NULL)
        return no_memory(n);
    free(n->slots);
    n->slots = slots;
    n->num_slots = num_slots;
    for (int32_t i = 0; i < num_slots; i++)
        slots[i] = -1;
    for (int32_t i = 0; i < n->num_rules; i++)
        *find_slot(n, n->rules[i].name) = i;
    return 0;
}

struct notation_rule *notation_rule(struct notation *n, struct text name) {
    if (n->num_rules >= n->num_slots / 2 && grow_slots(n) != 0)
        return NULL;
    int32_t *slot = find_slot(n, name);
    if (*slot >= 0)
        return &n->rules[*slot];
    if (n->num_rules == GRAMMAR_TEXT_MAX_RULES) {
        notation_refuse(n, name.data, "there are more than %d rules", GRAMMAR_TEXT_MAX_RULES);
        return NULL;
    }
    if (!array_reserve(&n->rules, &n->rules_capacity, (size_t)n->num_rules + 1,
                       sizeof(*n->rules))) {
        no_memory(n);
        return NULL;
    }
    *slot = n->num_rules;
    n->rules[n->num_rules] = (struct notation_rule){name, grammar_rule(n->builder), false};
    return &n->rules[n->num_rules++];
}

int notation_define(struct notation *n, struct text name, grammar_node body) {
    struct notation_rule *rule = notation_rule(n, name);
    if (rule == NULL)
        return -1;
    if (rule->is_defined)
        return notation_refuse(n, name.data, "%.*s is defined twice", (int)name.length, name.data);
    rule->is_defined = true;
    grammar_define(n->builder, rule->node, body);
    return 0;
}

/* Names the rules that have no text, some of them. */
static int refuse_endless(struct notation *n, const int8_t *has_text) {
    char names[128] = "";
    size_t length = 0;
    for (int32_t i = 0; i < n->num_rules && length < sizeof(names) - 1; i++) {
        struct text name = n->rules[i].name;
        if (has_text[n->rules[i].node] < 0)
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%.*s",
                                       length > 0 ? ", " : "", (int)name.length, name.data);
    }
    return error_set(n->err, ERROR_SYNTAX,
                     "no text matches the grammar: these rules never come to an end: %s", names);
}

static int check_end(struct notation *n, grammar_node start) {
    int8_t *has_text = malloc((size_t)n->builder->num_nodes);
    if (has_text == NULL)
        return no_memory(n);
    int result = grammar_find_texts(n->builder, has_text);
    if (result != 0)
        error_set(n->err, n->builder->failure, "%s", n->builder->reason);
    else if (has_text[start] < 0)
        result = refuse_endless(n, has_text);
    free(has_text);
    return result;
}

int notation_start(struct notation *n, const char *name, grammar_node *out) {
    struct text start = {name, strlen(name)};
    const struct notation_rule *rule = NULL;
    if (n->builder->failure != ERROR_NONE)
        return error_set(n->err, n->builder->failure, "%s", n->builder->reason);
    for (int32_t i = 0; i < n->num_rules; i++) {
        const struct text found = n->rules[i].name;
        if (!n->rules[i].is_defined)
            return notation_refuse(n, found.data, "%.*s is not defined", (int)found.length,
                                   found.data);
        if (text_is(found, start.data))
            rule = &n->rules[i];
    }
    if (rule == NULL)
        return error_set(n->err, ERROR_SYNTAX, "the grammar has no rule %s to start with", name);
    *out = rule->node;
    return check_end(n, rule->node);
}

/* --- Nodes side by side --- */

int notation_push(struct notation *n, grammar_node node) {
    if (node < 0) /* to read on would be work for nothing */
        return error_set(n->err, n->builder->failure, "%s", n->builder->reason);
    if (!array_reserve(&n->items, &n->items_capacity, n->num_items + 1, sizeof(node)))
        return no_memory(n);
    n->items[n->num_items++] = node;
    return 0;
}

/* Returns the items from the mark on, which are taken; NULL of none. */
static const grammar_node *take(struct notation *n, size_t mark, size_t *out_count) {
    *out_count = n->num_items - mark;
    n->num_items = mark;
    return *out_count > 0 ? n->items + mark : NULL;
}

grammar_node notation_take_sequence(struct notation *n, size_t mark) {
    size_t count;
    const grammar_node *items = take(n, mark, &count);
    return count == 1 ? *items : grammar_sequence(n->builder, items, (int)count);
}

grammar_node notation_take_alternatives(struct notation *n, size_t mark) {
    size_t count;
    const grammar_node *items = take(n, mark, &count);
    return count == 1 ? *items : grammar_alternatives(n->builder, items, (int)count);
}

/* --- Characters --- */

int notation_enter_group(struct notation *n) {
    if (++n->depth > GRAMMAR_TEXT_MAX_DEPTH)
        return notation_refuse(n, n->at, "groups are nested deeper than %d",
                               GRAMMAR_TEXT_MAX_DEPTH);
    return 0;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool notation_is_name(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

int notation_number(struct notation *n, int *out) {
    int number = 0;
    const char *begin = n->at;
    if (!is_digit(*n->at))
        return notation_refuse(n, n->at, "a number is missing");
    for (; is_digit(*n->at); n->at++) {
        number = number * 10 + (*n->at - '0');
        if (number > GRAMMAR_MAX_REPEAT)
            return notation_refuse(n, begin, "a repetition of more than %d", GRAMMAR_MAX_REPEAT);
    }
    *out = number;
    return 0;
}

int notation_character(struct notation *n, uint32_t *out) {
    size_t length = utf8_char_bytes(n->at, strnlen(n->at, UTF8_MAX_BYTES));
    if (length == 0)
        return notation_refuse(n, n->at, "bytes that are not UTF-8");
    *out = (uint32_t)utf8_decode(n->at, length);
    n->at += length;
    return 0;
}

static int read_hex(struct notation *n, int digits, uint32_t *out) {
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, n->at++) {
        char c = *n->at;
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return notation_refuse(n, n->at, "a hexadecimal digit is missing");
        value = value * 16 + (uint32_t)digit;
    }
    *out = value;
    return 0;
}

int notation_escape(struct notation *n, uint32_t *out) {
    static const char controls[] = "nrtf", values[] = "\n\r\t\f";
    char c = *n->at;
    const char *control = c != '\0' ? strchr(controls, c) : NULL;
    if (c == '\0' || notation_is_name(c) || (c & 0x80) != 0 || (uint8_t)c < ' ') {
        n->at++;
        if (control != NULL)
            *out = (uint8_t)values[control - controls];
        if (control != NULL)
            return 0;
        if (c == 'x' || c == 'u' || c == 'U')
            return read_hex(n, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
        return notation_refuse(n, n->at - 2, "an escape that is not supported");
    }
    *out = (uint8_t)c;
    n->at++;
    return 0;
}

int notation_append(struct notation *n, const char *at, uint32_t character) {
    char bytes[UTF8_MAX_BYTES];
    if (character > 0x10ffff || (character >= 0xd800 && character <= 0xdfff) || character == 0)
        return notation_refuse(n, at, "U+%04X is not a character of a text", (unsigned)character);
    byte_buffer_append(&n->bytes, bytes, utf8_encode(character, bytes));
    return n->bytes.failed ? no_memory(n) : 0;
}

int notation_quoted(struct notation *n, bool may_have_lines) {
    const char *begin = n->at - 1;
    n->bytes.length = 0;
    while (*n->at != '"') {
        const char *at = n->at;
        uint32_t character;
        if (*n->at == '\0' || (*n->at == '\n' && !may_have_lines))
            return notation_refuse(n, begin, "a text without its '\"'");
        n->at += *n->at == '\\';
        if ((n->at > at ? notation_escape(n, &character) : notation_character(n, &character)) !=
                0 ||
            notation_append(n, at, character) != 0)
            return -1;
    }
    n->at++;
    return 0;
}
