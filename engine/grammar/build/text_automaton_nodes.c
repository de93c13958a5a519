#include "engine/grammar/build/character_class.h"
#include "engine/grammar/build/grammar_nodes.h"
#include "engine/grammar/build/text_automaton.h"
#include "config/base/array.h"
#include "config/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Nodes to an automaton --- */

/* Nodes to a nondeterministic automaton, backwards towards what follows (Thompson's construction),
 * and that to a deterministic one whose states are sets of the former's (the subset construction).
 */

#define LAST_CHARACTER 0x10ffff
#define MAX_PLACES 32768
#define MAX_NESTING 512
#define NO_PLACE (-1)

/* A place of the nondeterministic automaton: it reads a character of its ranges and continues at
 * next, or continues at next and other without reading. Place 0 accepts. */
struct place {
    int32_t first_range, num_ranges; /* num_ranges < 0: it reads nothing */
    int32_t next, other;
};

struct construction {
    const struct grammar_builder *builder;
    int64_t *budget;
    struct error *err;
    struct place *places;
    int32_t num_places;
    size_t places_capacity;
    struct character_range *ranges;
    int32_t num_ranges;
    size_t ranges_capacity;
    int nesting;
    struct text_automaton *out;
    /* The sets: of[i] is where set i begins in members, whose last is of[i + 1]. */
    int32_t *members, *of;
    size_t members_capacity, of_capacity;
    int32_t num_members, num_sets;
    int32_t *slots; /* a hash table of sets; -1: free */
    uint32_t *seen; /* [num_places] the round in which it was seen last */
    uint32_t round;
    int32_t *stack, *found; /* [2 * num_places + 1], [num_places] */
    int32_t num_found;
    struct automaton_edge *steps; /* of the current set */
    uint32_t *cuts;               /* where they begin, and after where they end */
    size_t steps_capacity, cuts_capacity;
};

#define NUM_SLOTS (2 * TEXT_AUTOMATON_MAX_STATES)

static int no_memory(struct construction *c) {
    return error_set(c->err, ERROR_MEMORY, "memory is short");
}

static int too_large(struct construction *c) {
    return error_set(c->err, ERROR_SYNTAX, "the combination of patterns is too large");
}

/* --- Places --- */

static int32_t add_place(struct construction *c, struct place place) {
    if (c->num_places == MAX_PLACES)
        return too_large(c);
    if (!array_reserve(&c->places, &c->places_capacity, (size_t)c->num_places + 1, sizeof(place)))
        return no_memory(c);
    c->places[c->num_places] = place;
    return c->num_places++;
}

static int32_t add_split(struct construction *c, int32_t next, int32_t other) {
    if (next < 0 || other < 0)
        return NO_PLACE;
    return add_place(c, (struct place){0, -1, next, other});
}

static int add_range(struct construction *c, uint32_t first, uint32_t last) {
    if (!array_reserve(&c->ranges, &c->ranges_capacity, (size_t)c->num_ranges + 1,
                       sizeof(*c->ranges)))
        return no_memory(c);
    c->ranges[c->num_ranges++] = (struct character_range){first, last};
    return 0;
}

static int compare_ranges(const void *a, const void *b) {
    const struct character_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* The characters outside of the last `count` ranges, in their place. */
static int complement(struct construction *c, int32_t count) {
    int32_t begin = c->num_ranges - count;
    struct character_range *copy = malloc(((size_t)count + 1) * sizeof(*copy));
    if (copy == NULL)
        return no_memory(c);
    if (count > 0)
        memcpy(copy, c->ranges + begin, (size_t)count * sizeof(*copy));
    qsort(copy, (size_t)count, sizeof(*copy), compare_ranges);
    c->num_ranges = begin;
    uint32_t outside = 0;
    int result = 0;
    for (int32_t i = 0; i < count && result == 0; i++) {
        if (copy[i].first > outside)
            result = add_range(c, outside, copy[i].first - 1);
        if (copy[i].last + 1 > outside)
            outside = copy[i].last + 1;
    }
    if (outside <= LAST_CHARACTER && result == 0)
        result = add_range(c, outside, LAST_CHARACTER);
    free(copy);
    return result;
}

static int32_t place_of_characters(struct construction *c, const struct node *node, int32_t next) {
    int32_t first = c->num_ranges;
    for (int32_t i = 0; i < node->count; i++) {
        struct character_range range = c->builder->ranges[node->first + i];
        if (add_range(c, range.first, range.last) != 0)
            return NO_PLACE;
    }
    if (node->negated && complement(c, node->count) != 0)
        return NO_PLACE;
    return add_place(c, (struct place){first, c->num_ranges - first, next, 0});
}

static int32_t place_of_literal(struct construction *c, const struct node *node, int32_t next) {
    const char *bytes = c->builder->bytes + node->first;
    for (int32_t end = node->count; end > 0 && next >= 0;) {
        int32_t begin = end - 1;
        while (begin > 0 && utf8_continues(bytes[begin]))
            begin--;
        size_t length = utf8_char_bytes(bytes + begin, (size_t)(end - begin));
        if (length == 0)
            return error_set(c->err, ERROR_SYNTAX, "a literal is not UTF-8");
        uint32_t character = (uint32_t)utf8_decode(bytes + begin, length);
        int32_t range = c->num_ranges;
        if (add_range(c, character, character) != 0)
            return NO_PLACE;
        next = add_place(c, (struct place){range, 1, next, 0});
        end = begin;
    }
    return next;
}

static int32_t place_of(struct construction *c, grammar_node id, int32_t next);

static int32_t place_of_repeat(struct construction *c, const struct node *node, int32_t next) {
    grammar_node item = c->builder->items[node->first];
    int32_t at = next;
    if (node->max < 0) {
        int32_t loop = at = add_split(c, next, next);
        int32_t entry = loop >= 0 ? place_of(c, item, loop) : NO_PLACE;
        if (entry < 0)
            return NO_PLACE;
        c->places[loop].next = entry;
    }
    for (int i = node->min; i < node->max && at >= 0; i++)
        at = add_split(c, place_of(c, item, at), next);
    for (int i = 0; i < node->min && at >= 0; i++)
        at = place_of(c, item, at);
    return at;
}

static int32_t place_of_sequence(struct construction *c, const struct node *node, int32_t next) {
    for (int32_t i = node->count - 1; i >= 0 && next >= 0; i--)
        next = place_of(c, c->builder->items[node->first + i], next);
    return next;
}

/* Without alternatives, which nothing matches, a place that reads no character. */
static int32_t place_of_alternatives(struct construction *c, const struct node *node,
                                     int32_t next) {
    int32_t at = NO_PLACE;
    if (node->count == 0)
        return add_place(c, (struct place){0, 0, next, 0});
    for (int32_t i = node->count - 1; i >= 0; i--) {
        int32_t item = place_of(c, c->builder->items[node->first + i], next);
        at = i == node->count - 1 ? item : add_split(c, item, at);
        if (at < 0)
            return NO_PLACE;
    }
    return at;
}

static int32_t place_of_node(struct construction *c, const struct node *node, int32_t next) {
    switch (node->kind) {
    case NODE_LITERAL:
        return place_of_literal(c, node, next);
    case NODE_CHARACTERS:
        return place_of_characters(c, node, next);
    case NODE_REPEAT:
        return place_of_repeat(c, node, next);
    case NODE_SEQUENCE:
        return place_of_sequence(c, node, next);
    case NODE_ALTERNATIVES:
        return place_of_alternatives(c, node, next);
    case NODE_TOKEN:
    case NODE_RULE:
        break;
    }
    return error_set(c->err, ERROR_SYNTAX, "an automaton has neither rules nor tokens");
}

static int32_t place_of(struct construction *c, grammar_node id, int32_t next) {
    if (next < 0)
        return NO_PLACE;
    if (c->nesting == MAX_NESTING || id < 0)
        return too_large(c);
    c->nesting++;
    int32_t place = place_of_node(c, &c->builder->nodes[id], next);
    c->nesting--;
    return place;
}

/* --- Sets of places --- */

/* Adds a place, and those reachable from it without reading, to the current set; only places that
 * read, and the accepting one, are kept. */
static void add_closure(struct construction *c, int32_t place) {
    int32_t depth = 0;
    c->stack[depth++] = place;
    while (depth > 0) {
        int32_t at = c->stack[--depth];
        if (c->seen[at] == c->round)
            continue;
        c->seen[at] = c->round;
        --*c->budget;
        const struct place *p = &c->places[at];
        if (p->num_ranges >= 0) {
            c->found[c->num_found++] = at;
            continue;
        }
        if (c->seen[p->other] != c->round)
            c->stack[depth++] = p->other;
        if (c->seen[p->next] != c->round && p->next != p->other)
            c->stack[depth++] = p->next;
    }
}

static int compare_places(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool is_set(const struct construction *c, int32_t set) {
    int32_t count = c->of[set + 1] - c->of[set];
    return count == c->num_found &&
           memcmp(c->members + c->of[set], c->found, (size_t)count * sizeof(*c->found)) == 0;
}

static int32_t store_set(struct construction *c) {
    int32_t set = c->num_sets;
    if (set == TEXT_AUTOMATON_MAX_STATES)
        return too_large(c);
    if (!array_reserve(&c->members, &c->members_capacity,
                       (size_t)c->num_members + (size_t)c->num_found, sizeof(*c->members)) ||
        !array_reserve(&c->of, &c->of_capacity, (size_t)set + 2, sizeof(*c->of)))
        return no_memory(c);
    if (c->num_found > 0)
        memcpy(c->members + c->num_members, c->found, (size_t)c->num_found * sizeof(*c->found));
    c->of[set] = c->num_members;
    c->num_members += c->num_found;
    c->of[set + 1] = c->num_members;
    return c->num_sets++;
}

/* Returns the number of the set that was found; -1 on failure. */
static int32_t find_set(struct construction *c) {
    qsort(c->found, (size_t)c->num_found, sizeof(*c->found), compare_places);
    uint32_t hash = UINT32_C(2166136261);
    for (int32_t i = 0; i < c->num_found; i++)
        hash = (hash ^ (uint32_t)c->found[i]) * UINT32_C(16777619);
    uint32_t i = (hash ^ hash >> 15) % NUM_SLOTS;
    *c->budget -= c->num_found;
    for (; c->slots[i] >= 0; i = (i + 1) % NUM_SLOTS)
        if (is_set(c, c->slots[i]))
            return c->slots[i];
    int32_t set = store_set(c);
    c->slots[i] = set >= 0 ? set : -1;
    return set;
}

/* --- Steps --- */

static int compare_cuts(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Collects where the set's places lead; returns how many steps there are, -1 on failure. */
static int32_t collect_steps(struct construction *c, int32_t set) {
    int32_t count = 0;
    for (int32_t i = c->of[set]; i < c->of[set + 1]; i++) {
        struct place p = c->places[c->members[i]];
        size_t more = (size_t)count + (size_t)p.num_ranges;
        if (c->members[i] == 0)
            continue;
        if (!array_reserve(&c->steps, &c->steps_capacity, more, sizeof(*c->steps)) ||
            !array_reserve(&c->cuts, &c->cuts_capacity, 2 * more, sizeof(*c->cuts)))
            return no_memory(c);
        for (int32_t k = 0; k < p.num_ranges; k++, count++) {
            struct character_range range = c->ranges[p.first_range + k];
            c->steps[count] = (struct automaton_edge){range.first, range.last, p.next};
            c->cuts[2 * count] = range.first;
            c->cuts[2 * count + 1] = range.last + 1;
        }
    }
    return count;
}

/* The characters between two cuts all lead to the same places. */
static int add_edges(struct construction *c, int32_t num_steps) {
    if (num_steps == 0) /* and nothing to sort */
        return 0;
    qsort(c->cuts, (size_t)num_steps * 2, sizeof(*c->cuts), compare_cuts);
    for (int32_t i = 0; i + 1 < 2 * num_steps; i++) {
        if (c->cuts[i] == c->cuts[i + 1])
            continue;
        c->round++;
        c->num_found = 0;
        for (int32_t k = 0; k < num_steps; k++)
            if (c->steps[k].first <= c->cuts[i] && c->steps[k].last >= c->cuts[i])
                add_closure(c, c->steps[k].target);
        *c->budget -= num_steps;
        if (*c->budget < 0)
            return too_large(c);
        if (c->num_found == 0)
            continue;
        int32_t target = find_set(c);
        if (target < 0)
            return -1;
        struct automaton_edge edge = {c->cuts[i], c->cuts[i + 1] - 1, target};
        if (text_automaton_add_edge(c->out, edge) != 0)
            return c->out->has_failed ? no_memory(c) : too_large(c);
    }
    return 0;
}

static int add_state(struct construction *c, int32_t set) {
    bool accepts = c->of[set] < c->of[set + 1] && c->members[c->of[set]] == 0;
    if (text_automaton_add_state(c->out, accepts) < 0)
        return c->out->has_failed ? no_memory(c) : too_large(c);
    int32_t num_steps = collect_steps(c, set);
    return num_steps < 0 ? -1 : add_edges(c, num_steps);
}

static int make_states(struct construction *c, int32_t start) {
    size_t count = (size_t)c->num_places;
    c->out = text_automaton_create();
    c->slots = malloc(NUM_SLOTS * sizeof(*c->slots));
    c->seen = calloc(count, sizeof(*c->seen));
    c->stack = malloc((2 * count + 1) * sizeof(*c->stack));
    c->found = malloc(count * sizeof(*c->found));
    if (c->out == NULL || c->slots == NULL || c->seen == NULL || c->stack == NULL ||
        c->found == NULL)
        return no_memory(c);
    for (int32_t i = 0; i < NUM_SLOTS; i++)
        c->slots[i] = -1;
    c->round = 1;
    add_closure(c, start);
    if (find_set(c) < 0)
        return -1;
    for (int32_t set = 0; set < c->num_sets; set++)
        if (add_state(c, set) != 0)
            return -1;
    return text_automaton_trim(c->out) == 0 ? 0 : no_memory(c);
}

int text_automaton_of_nodes(const struct grammar_builder *builder, grammar_node root,
                            int64_t *budget, struct text_automaton **out, struct error *err) {
    struct construction c = {.builder = builder, .budget = budget, .err = err};
    int result = -1;
    if (builder->failure != ERROR_NONE)
        return error_set(err, builder->failure, "%s", builder->reason);
    if (add_place(&c, (struct place){0}) == 0) {
        int32_t start = place_of(&c, root, 0);
        *budget -= c.num_places;
        result = start >= 0 ? make_states(&c, start) : -1;
    }
    free(c.places);
    free(c.ranges);
    free(c.members);
    free(c.of);
    free(c.slots);
    free(c.seen);
    free(c.stack);
    free(c.found);
    free(c.steps);
    free(c.cuts);
    if (result == 0)
        *out = c.out;
    else
        text_automaton_destroy(c.out);
    return result;
}

/* --- An automaton to nodes --- */

/* An automaton as nodes: a rule for each state, whose alternatives read a character and continue
 * with the rule of another state. The last call of a rule is a jump (grammar_program.c), so that a
 * text of any length takes one frame. */

#define LAST_CHARACTER 0x10ffff

struct writer {
    const struct text_automaton *automaton;
    struct grammar_builder *builder;
    enum automaton_form form;
    grammar_node end;    /* of an accepted text */
    grammar_node *rules; /* [num_states] */
    bool *takes_all;     /* [num_states] every text is accepted from there */
    grammar_node *items; /* alternatives of the current state */
    size_t items_capacity;
    int32_t num_items;
    struct character_range *ranges; /* of the characters that lead to one state */
    size_t ranges_capacity;
    int32_t num_ranges;
    grammar_node digits[16]; /* one of '0' + i alone, where it was made */
    struct error *err;
};

static int write_no_memory(struct writer *w) {
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
        return write_no_memory(w);
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

/* Surrogates are not characters of a text. */
static int write_range(struct writer *w, uint32_t first, uint32_t last) {
    if (first >= 0xd800 && last <= 0xdfff)
        return 0;
    if (!array_reserve(&w->ranges, &w->ranges_capacity, (size_t)w->num_ranges + 1,
                       sizeof(*w->ranges)))
        return write_no_memory(w);
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
        if ((at > from && write_range(w, from, at - 1) != 0) || add_escaped(w, at, rest) != 0)
            return -1;
        from = at + 1;
    }
    return from <= edge.last ? write_range(w, from, edge.last) : 0;
}

static int add_target(struct writer *w, const struct automaton_state *state, int32_t first) {
    const struct automaton_edge *edges = w->automaton->edges + state->first_edge;
    grammar_node rest = w->rules[edges[first].target];
    w->num_ranges = 0;
    for (int32_t k = first; k < state->num_edges; k++) {
        if (edges[k].target != edges[first].target)
            continue;
        int result = w->form == AUTOMATON_JSON_STRING
                         ? add_json_range(w, edges[k], rest)
                         : write_range(w, edges[k].first, edges[k].last);
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

/* From a state after which every text is accepted, characters may be written in any form that JSON
 * allows. */
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
    int result = w.rules != NULL && w.takes_all != NULL ? 0 : write_no_memory(&w);
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
