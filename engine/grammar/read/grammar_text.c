#include "engine/grammar/read/grammar_text.h"

#include "engine/grammar/build/grammar_nodes.h"
#include "engine/grammar/read/notation_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Passes blank lines, and those that are a comment in either notation. */
static const char *skip_comments(const char *at) {
    for (;;) {
        while (is_space(*at))
            at++;
        if (at[0] != '#' && !(at[0] == '/' && at[1] == '/'))
            return at;
        at += strcspn(at, "\n");
    }
}

static bool is_gbnf(const char *text) {
    const char *at = skip_comments(text);
    while (notation_is_name(*at) || *at == '-')
        at++;
    while (is_space(*at))
        at++;
    return strncmp(at, "::=", 3) == 0;
}

int grammar_text(struct grammar_builder *builder, const char *text, grammar_node *out,
                 struct error *err) {
    struct notation n;
    if (strlen(text) > GRAMMAR_TEXT_MAX_BYTES)
        return error_set(err, ERROR_SYNTAX, "the grammar's text is longer than %d bytes",
                         GRAMMAR_TEXT_MAX_BYTES);
    notation_init(&n, builder, text, err);
    int result = is_gbnf(text) ? grammar_gbnf(&n, out) : grammar_lark(&n, out);
    notation_finish(&n);
    return result;
}

/* --- In a JSON string --- */

/* Copies the nodes of a grammar, with each character that JSON does not take as it is replaced by
 * its escape (RFC 8259, section 7). */

#define NUM_CONTROLS 0x20
#define NUM_ESCAPED (NUM_CONTROLS + 2) /* and the quote and the backslash */
#define ESCAPE_BYTES 7

struct copy {
    const struct grammar_builder *from;
    struct grammar_builder *to;
    grammar_node *made; /* [from->num_nodes] */
};

static uint32_t escaped_character(int index) {
    return index < NUM_CONTROLS ? (uint32_t)index : index == NUM_CONTROLS ? '"' : '\\';
}

/* Writes the shortest escape. Returns its length. */
static size_t write_escape(uint32_t character, char out[ESCAPE_BYTES]) {
    static const char characters[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const char *at = character != 0 ? strchr(characters, (int)character) : NULL;
    if (at == NULL)
        return (size_t)snprintf(out, ESCAPE_BYTES, "\\u%04x", character);
    out[0] = '\\';
    out[1] = letters[at - characters];
    return 2;
}

static bool is_escaped(uint32_t character) {
    return character < NUM_CONTROLS || character == '"' || character == '\\';
}

static grammar_node copy_literal(struct copy *copy, const struct node *node) {
    size_t length = 0;
    char *bytes = malloc((size_t)node->count * (ESCAPE_BYTES - 1) + ESCAPE_BYTES);
    if (bytes == NULL)
        return grammar_builder_fail(copy->to, ERROR_MEMORY, "memory is short");
    for (int32_t i = 0; i < node->count; i++) {
        uint8_t byte = (uint8_t)copy->from->bytes[node->first + i];
        if (is_escaped(byte))
            length += write_escape(byte, bytes + length);
        else
            bytes[length++] = (char)byte;
    }
    grammar_node made = grammar_literal(copy->to, bytes, length);
    free(bytes);
    return made;
}

static bool has_character(const struct copy *copy, const struct node *node, uint32_t character) {
    const struct character_range *ranges = copy->from->ranges + node->first;
    bool is_in = false;
    for (int32_t i = 0; i < node->count; i++)
        is_in |= character >= ranges[i].first && character <= ranges[i].last;
    return is_in != node->negated;
}

/* Adds first..last without those that are escaped. */
static int32_t add_plain(struct character_range *ranges, int32_t count, uint32_t first,
                         uint32_t last) {
    static const uint32_t ends[] = {'"', '\\'};
    first = first < NUM_CONTROLS ? NUM_CONTROLS : first;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) && first <= last; i++) {
        if (first > ends[i] || last < ends[i])
            continue;
        if (first < ends[i])
            ranges[count++] = (struct character_range){first, ends[i] - 1};
        first = ends[i] + 1;
    }
    if (first <= last)
        ranges[count++] = (struct character_range){first, last};
    return count;
}

/* GRAMMAR_FAILED also for none: *out_any. */
static grammar_node plain_characters(struct copy *copy, const struct node *node, bool *out_any) {
    static const struct character_range escaped[] = {
        {0, NUM_CONTROLS - 1}, {'"', '"'}, {'\\', '\\'}};
    const struct character_range *from = copy->from->ranges + node->first;
    struct character_range *ranges = malloc(((size_t)node->count + 1) * 3 * sizeof(*ranges));
    int32_t count = 0;
    *out_any = false;
    if (ranges == NULL)
        return grammar_builder_fail(copy->to, ERROR_MEMORY, "memory is short");
    for (int32_t i = 0; i < node->count; i++)
        if (node->negated)
            ranges[count++] = from[i];
        else
            count = add_plain(ranges, count, from[i].first, from[i].last);
    for (int32_t i = 0; node->negated && i < 3; i++)
        ranges[count++] = escaped[i];
    grammar_node made = GRAMMAR_FAILED;
    *out_any = node->negated || count > 0;
    if (*out_any)
        made = grammar_characters(copy->to, ranges, count, node->negated);
    free(ranges);
    return made;
}

static grammar_node copy_characters(struct copy *copy, const struct node *node) {
    grammar_node items[NUM_ESCAPED + 1];
    char escape[ESCAPE_BYTES];
    bool has_plain;
    int count = 0;
    items[0] = plain_characters(copy, node, &has_plain);
    count += has_plain;
    for (int i = 0; i < NUM_ESCAPED; i++)
        if (has_character(copy, node, escaped_character(i)))
            items[count++] =
                grammar_literal(copy->to, escape, write_escape(escaped_character(i), escape));
    return grammar_alternatives(copy->to, items, count);
}

static grammar_node copy_list(struct copy *copy, const struct node *node) {
    const grammar_node *from = copy->from->items + node->first;
    if (node->kind == NODE_REPEAT)
        return grammar_repeat(copy->to, copy->made[*from], node->min, node->max);
    grammar_node *items = malloc(((size_t)node->count + 1) * sizeof(*items));
    if (items == NULL)
        return grammar_builder_fail(copy->to, ERROR_MEMORY, "memory is short");
    for (int32_t i = 0; i < node->count; i++)
        items[i] = copy->made[from[i]];
    grammar_node made = node->kind == NODE_SEQUENCE
                            ? grammar_sequence(copy->to, items, node->count)
                            : grammar_alternatives(copy->to, items, node->count);
    free(items);
    return made;
}

static grammar_node copy_node(struct copy *copy, const struct node *node) {
    switch (node->kind) {
    case NODE_LITERAL:
        return copy_literal(copy, node);
    case NODE_CHARACTERS:
        return copy_characters(copy, node);
    case NODE_SEQUENCE:
    case NODE_ALTERNATIVES:
    case NODE_REPEAT:
        return copy_list(copy, node);
    case NODE_RULE:
        return grammar_rule(copy->to);
    case NODE_TOKEN:
        break;
    }
    return grammar_builder_fail(copy->to, ERROR_SYNTAX, "a token is not text");
}

/* Items come before what they are of, but for the bodies of rules. */
static void copy_nodes(struct copy *copy) {
    for (int32_t id = 0; id < copy->from->num_nodes; id++)
        copy->made[id] = copy_node(copy, &copy->from->nodes[id]);
    for (int32_t id = 0; id < copy->from->num_nodes; id++) {
        const struct node *node = &copy->from->nodes[id];
        if (node->kind == NODE_RULE && node->first >= 0)
            grammar_define(copy->to, copy->made[id], copy->made[node->first]);
    }
}

int grammar_text_json(struct grammar_builder *builder, const char *text, grammar_node *out,
                      struct error *err) {
    struct grammar_builder *own = grammar_builder_create();
    struct copy copy = {own, builder, NULL};
    grammar_node root;
    if (own == NULL)
        return error_set(err, ERROR_MEMORY, "memory is short");
    int status = grammar_text(own, text, &root, err);
    if (status == 0 && own->failure != ERROR_NONE)
        status = error_set(err, own->failure, "%s", own->reason);
    if (status == 0) {
        copy.made = malloc(((size_t)own->num_nodes + 1) * sizeof(*copy.made));
        if (copy.made == NULL)
            status = error_set(err, ERROR_MEMORY, "memory is short");
    }
    if (status == 0) {
        copy_nodes(&copy);
        *out = copy.made[root];
    }
    free(copy.made);
    grammar_builder_destroy(own);
    return status;
}
