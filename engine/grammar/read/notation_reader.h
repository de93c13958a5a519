/* Private to engine/grammar/: shared by the readers of the two notations: the position in the text,
 * the rules by name, and the neighbouring nodes read so far. */
#ifndef QUIRE_ENGINE_GRAMMAR_READ_NOTATION_READER_H
#define QUIRE_ENGINE_GRAMMAR_READ_NOTATION_READER_H

#include "config/base/text.h"
#include "config/base/byte_buffer.h"
#include "engine/grammar/build/grammar_nodes.h"

struct notation_rule {
    struct text name;
    grammar_node node;
    bool is_defined;
};

struct notation {
    struct grammar_builder *builder;
    const char *text, *at; /* NUL-terminated */
    int depth;             /* of groups */
    struct notation_rule *rules;
    int32_t num_rules;
    size_t rules_capacity;
    int32_t *slots; /* a hash table of the rules' indices by name; -1: free */
    int32_t num_slots;
    grammar_node *items; /* a stack of the neighbouring nodes being read */
    size_t num_items, items_capacity;
    struct byte_buffer bytes; /* of the text being read */
    struct error *err;
};

void notation_init(struct notation *n, struct grammar_builder *builder, const char *text,
                   struct error *err);
void notation_finish(struct notation *n); /* not the builder */

/* The functions that return int return -1 with *err filled. */

/* "line L, column C: ..." */
int notation_refuse(const struct notation *n, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes a name for what is at `at`, for messages. */
void notation_describe(const char *at, char out[static 16]);

/* Returns the rule of that name, creating it if necessary. Creating others moves it in memory.
 * Returns NULL with *err on failure. */
struct notation_rule *notation_rule(struct notation *n, struct text name);
/* Defines the rule of that name; the name points into the text. */
int notation_define(struct notation *n, struct text name, grammar_node body);
/* Refuses rules that are used but not defined, and a start rule that matches nothing. *out is the
 * node of the start rule. */
int notation_start(struct notation *n, const char *name, grammar_node *out);

int notation_push(struct notation *n, grammar_node node);
/* Pop the nodes from `mark` on off the stack, and return a node made of them. */
grammar_node notation_take_sequence(struct notation *n, size_t mark);
grammar_node notation_take_alternatives(struct notation *n, size_t mark);

int notation_enter_group(struct notation *n);
bool notation_is_name(char c); /* a letter, a digit or '_' */
int notation_number(struct notation *n, int *out);
/* Reads an unescaped character of a text or class. */
int notation_character(struct notation *n, uint32_t *out);
/* Reads an escape after its backslash: *out is the character meant. Escapes that no notation has
 * are refused. */
int notation_escape(struct notation *n, uint32_t *out);
/* Reads a text after its opening '"' up to the closing one, into n->bytes. A line break is allowed
 * in it only with may_have_lines. */
int notation_quoted(struct notation *n, bool may_have_lines);
/* Appends to n->bytes. */
int notation_append(struct notation *n, const char *at, uint32_t character);

/* --- Notations: read the whole text; *out is the start node --- */

int grammar_gbnf(struct notation *n, grammar_node *out);
int grammar_lark(struct notation *n, grammar_node *out);

/* --- lark_pattern.c: Lark's patterns --- */

/* Reads /regex/flags, at the first '/'. */
int lark_pattern(struct notation *n, grammar_node *out);
/* Makes a node of the text in n->bytes, which was read at `begin`, with letters of either case. */
int lark_folded_text(struct notation *n, const char *begin, grammar_node *out);
/* Reads the single character that n->bytes holds; returns -1, without an error, if it is not
 * exactly one. */
int lark_one_character(const struct notation *n, uint32_t *out);
/* Returns the regular expression of a terminal of Lark's library "common"; NULL: it has no terminal
 * of that name. */
const char *lark_common(struct text name);

#endif
