/* An automaton as nodes: a rule for each state, whose alternatives read a character and go on with
 * the rule of another. The last call of a rule is a jump (grammar_program.c), so that a text of any
 * length takes one frame. */
#include "engine/grammar/build/text_automaton.h"

#include "config/base/array.h"
#include "engine/grammar/build/character_class.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST_CHARACTER 0x10ffff

struct writer {
    const struct text_automaton *automaton;
    struct grammar_builder *builder;
    enum automaton_form form;
    grammar_node end;    /* of an accepted text */
    grammar_node *rules; /* [num_states] */
    bool *takes_all;     /* [num_states] every text is accepted from there */
    grammar_node *items; /* alternatives of the state at hand */
    size_t items_capacity;
    int32_t num_items;
    struct character_range *ranges; /* of the characters that lead to one state */
    size_t ranges_capacity;
    int32_t num_ranges;
    grammar_node digits[16]; /* one of '0' + i alone, where it was made */
    struct error *err;
};

static int no_memory(struct writer *w) {
    return error_set(w->err, ERROR_MEMORY, "memory is short");
}

/* Greatest fixed point: states accept all until an edge says otherwise. */
static void find_universal(struct writer *w) {
    const struct text_automaton *a = w->automaton;
    for (int32_t i = 0; i < a->num_states; i++) {
        const struct automaton_state *state = &a->states[i];
        uint32_t next = 0;
        for (int32_t k = 0; k < state->num_edges; k++)
            if (a->edges[state->first_edge + k].first == next)
                next = a->edges[state->first_edge + k].last + 1;
        w->takes_all[i] = state->accepts && next == LAST_CHARACTER + 1;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = a->num_states - 1; i >= 0; i--)
            for (int32_t k = 0; w->takes_all[i] && k < a->states[i].num_edges; k++)
                if (!w->takes_all[a->edges[a->states[i].first_edge + k].target]) {
                    w->takes_all[i] = false;
                    changed = true;
                }
    }
}

static int add_item(struct writer *w, grammar_node item) {
    if (!array_reserve(&w->items, &w->items_capacity, (size_t)w->num_items + 1, sizeof(item)))
        return no_memory(w);
    w->items[w->num_items++] = item;
    return 0;
}

static int add_read(struct writer *w, grammar_node characters, grammar_node rest) {
    grammar_node items[] = {characters, rest};
    return add_item(w, grammar_sequence(w->builder, items, 2));
}

/* Digits are what automata of numbers read: nodes for them are made once. */
static grammar_node characters_node(struct writer *w) {
    struct character_range range = w->ranges[0];
    bool is_digit =
        w->num_ranges == 1 && range.first == range.last && range.first >= '0' && range.first <= '9';
    if (is_digit && w->digits[range.first - '0'] >= 0)
        return w->digits[range.first - '0'];
    grammar_node node = grammar_characters(w->builder, w->ranges, w->num_ranges, false);
    if (is_digit)
        w->digits[range.first - '0'] = node;
    return node;
}

/* Surrogates are no characters of a text. */
static int add_range(struct writer *w, uint32_t first, uint32_t last) {
    if (first >= 0xd800 && last <= 0xdfff)
        return 0;
    if (!array_reserve(&w->ranges, &w->ranges_capacity, (size_t)w->num_ranges + 1,
                       sizeof(*w->ranges)))
        return no_memory(w);
    w->ranges[w->num_ranges++] = (struct character_range){first, last};
    return 0;
}

/* A character that JSON must escape, as it is written shortest. */
static int add_escaped(struct writer *w, uint32_t character, grammar_node rest) {
    static const char shorts[] = "\"\\\b\f\n\r\t", written[] = "\"\\bfnrt";
    char text[8];
    const char *found = character != 0 ? memchr(shorts, (int)character, sizeof(shorts) - 1) : NULL;
    if (found != NULL)
        snprintf(text, sizeof(text), "\\%c", written[found - shorts]);
    else
        snprintf(text, sizeof(text), "\\u%04x", (unsigned)character);
    return add_read(w, grammar_literal(w->builder, text, strlen(text)), rest);
}

/* Adds the characters first..last: those that a JSON string may hold as they are to the ranges,
 * others at once. */
static int add_json_range(struct writer *w, struct automaton_edge edge, grammar_node rest) {
    uint32_t from = edge.first;
    for (uint32_t at = edge.first; at <= edge.last && at <= '\\'; at++) {
        if (at >= ' ' && at != '"' && at != '\\')
            continue;
        if ((at > from && add_range(w, from, at - 1) != 0) || add_escaped(w, at, rest) != 0)
            return -1;
        from = at + 1;
    }
    return from <= edge.last ? add_range(w, from, edge.last) : 0;
}

static int add_target(struct writer *w, const struct automaton_state *state, int32_t first) {
    const struct automaton_edge *edges = w->automaton->edges + state->first_edge;
    grammar_node rest = w->rules[edges[first].target];
    w->num_ranges = 0;
    for (int32_t k = first; k < state->num_edges; k++) {
        if (edges[k].target != edges[first].target)
            continue;
        int result = w->form == AUTOMATON_JSON_STRING ? add_json_range(w, edges[k], rest)
                                                      : add_range(w, edges[k].first, edges[k].last);
        if (result != 0)
            return -1;
    }
    return w->num_ranges > 0 ? add_read(w, characters_node(w), rest) : 0;
}

/* Returns whether an earlier edge of the state leads to the same one. */
static bool was_added(const struct writer *w, const struct automaton_state *state, int32_t k) {
    const struct automaton_edge *edges = w->automaton->edges + state->first_edge;
    for (int32_t i = 0; i < k; i++)
        if (edges[i].target == edges[k].target)
            return true;
    return false;
}

/* What every text is accepted behind may be written in any of JSON's ways. */
static grammar_node any_text(struct writer *w) {
    grammar_node items[] = {grammar_repeat(w->builder, character_class_json(w->builder), 0, -1),
                            w->end};
    return grammar_sequence(w->builder, items, 2);
}

static int write_state(struct writer *w, int32_t index) {
    const struct automaton_state *state = &w->automaton->states[index];
    if (w->takes_all[index] && w->form == AUTOMATON_JSON_STRING) {
        grammar_define(w->builder, w->rules[index], any_text(w));
        return 0;
    }
    w->num_items = 0;
    if (state->accepts && add_item(w, w->end) != 0)
        return -1;
    for (int32_t k = 0; k < state->num_edges; k++)
        if (!was_added(w, state, k) && add_target(w, state, k) != 0)
            return -1;
    grammar_define(w->builder, w->rules[index],
                   grammar_alternatives(w->builder, w->items, w->num_items));
    return 0;
}

int text_automaton_write(const struct text_automaton *automaton, struct grammar_builder *builder,
                         enum automaton_form form, grammar_node *out, struct error *err) {
    size_t count = (size_t)automaton->num_states;
    struct writer w = {.automaton = automaton, .builder = builder, .form = form, .err = err};
    w.rules = malloc((count + 1) * sizeof(*w.rules));
    w.takes_all = calloc(count + 1, sizeof(*w.takes_all));
    int result = w.rules != NULL && w.takes_all != NULL ? 0 : no_memory(&w);
    if (result == 0) {
        for (int i = 0; i < 10; i++)
            w.digits[i] = GRAMMAR_FAILED;
        find_universal(&w);
        bool is_json = form == AUTOMATON_JSON_STRING;
        w.end = grammar_literal(builder, "\"", is_json ? 1 : 0);
        for (int32_t i = 0; i < automaton->num_states; i++)
            w.rules[i] = grammar_rule(builder);
        *out = w.rules[0];
    }
    for (int32_t i = 0; i < automaton->num_states && result == 0; i++)
        result = write_state(&w, i);
    free(w.rules);
    free(w.takes_all);
    free(w.items);
    free(w.ranges);
    return result;
}
