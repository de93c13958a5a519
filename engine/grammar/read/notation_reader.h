/* Private to engine/grammar/: what the readers of grammars in a notation share: the place in the
 * text, the rules by their names, and nodes side by side as they are read. */
#ifndef QUIRE_ENGINE_GRAMMAR_NOTATION_READER_H
#define QUIRE_ENGINE_GRAMMAR_NOTATION_READER_H

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
    grammar_node *items; /* a stack: of those side by side that are being read */
    size_t num_items, items_capacity;
    struct byte_buffer bytes; /* of a text that is being read */
    struct error *err;
};

void notation_init(struct notation *n, struct grammar_builder *builder, const char *text,
                   struct error *err);
void notation_finish(struct notation *n); /* not the builder */

/* The functions that return int return -1 with *err filled. */

/* "line L, column C: ..." */
int notation_refuse(const struct notation *n, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The name of what is at `at`, for messages. */
void notation_describe(const char *at, char out[static 16]);

/* Returns the rule of that name, made when it is not there. It moves when others are made. NULL
 * with *err. */
struct notation_rule *notation_rule(struct notation *n, struct text name);
/* Defines the rule of the name, which stands there in the text. */
int notation_define(struct notation *n, struct text name, grammar_node body);
/* Refuses rules that are used and not defined, and a start without any text. *out: the node of the
 * rule to start with. */
int notation_start(struct notation *n, const char *name, grammar_node *out);

int notation_push(struct notation *n, grammar_node node);
/* Take the nodes from `mark` on off the stack, and return a node of them. */
grammar_node notation_take_sequence(struct notation *n, size_t mark);
grammar_node notation_take_alternatives(struct notation *n, size_t mark);

int notation_enter_group(struct notation *n);
bool notation_is_name(char c); /* a letter, a digit or '_' */
int notation_number(struct notation *n, int *out);
/* A character of a text or class that is not escaped. */
int notation_character(struct notation *n, uint32_t *out);
/* Behind a backslash: the character meant; what no notation has is refused. */
int notation_escape(struct notation *n, uint32_t *out);
/* Behind a '"': the text up to the next, into n->bytes. Only where it may have several lines is a
 * line break one of its characters. */
int notation_quoted(struct notation *n, bool may_have_lines);
/* Appends to n->bytes. */
int notation_append(struct notation *n, const char *at, uint32_t character);

/* --- Notations: the whole text; *out is the node to start with --- */

int grammar_gbnf(struct notation *n, grammar_node *out);
int grammar_lark(struct notation *n, grammar_node *out);

/* --- lark_pattern.c: the pieces of Lark's notation that are more than a text --- */

/* /regex/flags, at the first '/'. */
int lark_pattern(struct notation *n, grammar_node *out);
/* The text in n->bytes, which stands at `begin`, with letters of either case. */
int lark_folded_text(struct notation *n, const char *begin, grammar_node *out);
/* The one character that n->bytes holds; -1 where it is not one, without an error. */
int lark_one_character(const struct notation *n, uint32_t *out);
/* Returns the regular expression of a terminal of Lark's library "common"; NULL: it has none of
 * that name. */
const char *lark_common(struct text name);

#endif
