/* Private to front ends of grammars: sets of texts as deterministic finite automata over Unicode
 * characters, for what a context-free grammar cannot express: that a text matches two patterns, or
 * one but not another.
 *
 * An automaton is made of nodes (a regular expression as grammar_regex.h reads it) by Thompson's
 * construction and the subset construction, combined with another by the product construction, and
 * written back as nodes. All functions subtract their work from *budget (grammar_builder_work), and
 * fail with ERROR_SYNTAX when it is used up or an automaton has too many states. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILD_TEXT_AUTOMATON_H
#define QUIRE_ENGINE_GRAMMAR_BUILD_TEXT_AUTOMATON_H

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

/* From every state some text is accepted. State 0 is the start. Without states, no text is
 * accepted. */
struct text_automaton {
    struct automaton_state *states;
    struct automaton_edge *edges;
    int32_t num_states, num_edges;
    size_t states_capacity, edges_capacity;
    bool has_failed; /* adding: memory was short */
};

enum automaton_operation { AUTOMATON_AND, AUTOMATON_OR, AUTOMATON_MINUS };

/* Returns an automaton without states; NULL when memory is short. */
struct text_automaton *text_automaton_create(void);
void text_automaton_destroy(struct text_automaton *automaton); /* accepts NULL */

/* Adds a state, whose edges are then added in order of their characters. Returns -1 when memory is
 * short or there are too many. */
int32_t text_automaton_add_state(struct text_automaton *automaton, bool accepts);
int text_automaton_add_edge(struct text_automaton *automaton, struct automaton_edge edge);
/* Drops the states that lead to no text. Edges may lead to states that were added later, but not to
 * missing ones. Returns -1 when memory is short. */
int text_automaton_trim(struct text_automaton *automaton);
/* Merges states that accept the same texts (Moore's algorithm) if that takes few rounds; otherwise
 * changes nothing. Returns -1 when memory is short. */
int text_automaton_minimise(struct text_automaton *automaton);

/* Makes the automaton of the texts below root. These nodes contain neither rules nor tokens;
 * literals are UTF-8. The caller destroys *out, here and below. */
int text_automaton_of_nodes(const struct grammar_builder *builder, grammar_node root,
                            int64_t *budget, struct text_automaton **out, struct error *err);
/* Makes the automaton of the texts of both, of either, or of the first but not the second. */
int text_automaton_combine(const struct text_automaton *a, const struct text_automaton *b,
                           enum automaton_operation operation, int64_t *budget,
                           struct text_automaton **out, struct error *err);

/* Writes the number of texts to *out, or `most` if there are more or infinitely many. Returns -1
 * when memory is short. */
int text_automaton_count(const struct text_automaton *automaton, int64_t most, int64_t *out);

/* `text` is UTF-8. */
bool text_automaton_accepts(const struct text_automaton *automaton, struct text text);

enum automaton_form {
    AUTOMATON_TEXT,
    AUTOMATON_JSON_STRING, /* the content of a JSON string and its closing quote */
};

/* Makes nodes that match the texts; the automaton has at least one. Fails with ERROR_MEMORY; other
 * failures are the builder's. */
int text_automaton_write(const struct text_automaton *automaton, struct grammar_builder *builder,
                         enum automaton_form form, grammar_node *out, struct error *err);

#endif
