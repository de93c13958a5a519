/* Private to front ends of grammars: sets of texts as deterministic finite automata over Unicode
 * characters, for what a grammar cannot say: that a text matches two patterns, or one and not
 * another.
 *
 * An automaton is made of nodes (a regular expression as grammar_regex.h reads it) by Thompson's
 * construction and the subset construction, combined with another by the product construction, and
 * written back as nodes. All of it counts its work in *budget (grammar_builder_work), and fails
 * with ERROR_SYNTAX when that is used up or an automaton has too many states. */
#ifndef QUIRE_ENGINE_GRAMMAR_TEXT_AUTOMATON_H
#define QUIRE_ENGINE_GRAMMAR_TEXT_AUTOMATON_H

#include "config/base/text.h"
#include "engine/grammar/build/grammar_builder.h"

#define TEXT_AUTOMATON_MAX_STATES 8192

struct automaton_edge {
    uint32_t first, last; /* characters */
    int32_t target;
};

struct automaton_state {
    int32_t first_edge, num_edges; /* sorted, disjoint */
    bool accepts;
};

/* From every state a text can be accepted; state 0 is the start. No states: no text is. */
struct text_automaton {
    struct automaton_state *states;
    struct automaton_edge *edges;
    int32_t num_states, num_edges;
    size_t states_capacity, edges_capacity;
    bool has_failed; /* adding: memory was short */
};

enum automaton_operation { AUTOMATON_AND, AUTOMATON_OR, AUTOMATON_MINUS };

/* Returns one without states; NULL when memory is short. */
struct text_automaton *text_automaton_create(void);
void text_automaton_destroy(struct text_automaton *automaton); /* accepts NULL */

/* Adds a state, whose edges are then added in order of their characters. -1: memory is short, or
 * there are too many. */
int32_t text_automaton_add_state(struct text_automaton *automaton, bool accepts);
int text_automaton_add_edge(struct text_automaton *automaton, struct automaton_edge edge);
/* Drops the states that lead to no text. Edges may lead to states added later, but to none that was
 * not added. -1: memory is short. */
int text_automaton_trim(struct text_automaton *automaton);
/* Makes one state of those that accept the same texts (Moore's algorithm), where that takes few
 * rounds; else it stays as it is. -1: memory is short. */
int text_automaton_minimise(struct text_automaton *automaton);

/* The texts of the nodes below root, which are no rules and name no tokens. Literals are UTF-8. The
 * caller destroys *out, of this and the next. */
int text_automaton_of_nodes(const struct grammar_builder *builder, grammar_node root,
                            int64_t *budget, struct text_automaton **out, struct error *err);
/* The texts of both, of either, or of the first alone. */
int text_automaton_combine(const struct text_automaton *a, const struct text_automaton *b,
                           enum automaton_operation operation, int64_t *budget,
                           struct text_automaton **out, struct error *err);

/* *out: how many texts there are; `most` also where there are more, or no end of them. -1: memory
 * is short. */
int text_automaton_count(const struct text_automaton *automaton, int64_t most, int64_t *out);

/* `text` is UTF-8. */
bool text_automaton_accepts(const struct text_automaton *automaton, struct text text);

enum automaton_form {
    AUTOMATON_TEXT,
    AUTOMATON_JSON_STRING, /* the content of a JSON string and the quote behind it */
};

/* Nodes of the texts; the automaton has some. ERROR_MEMORY; what else fails is the builder's. */
int text_automaton_write(const struct text_automaton *automaton, struct grammar_builder *builder,
                         enum automaton_form form, grammar_node *out, struct error *err);

#endif
