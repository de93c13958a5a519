/* The automaton of Aho and Corasick ("Efficient string matching", CACM 18(6), 1975) as rules: one
 * for each state, which is the longest beginning of a trigger that the text ends with. */
#include "engine/grammar/build/free_text.h"

#include "engine/grammar/build/grammar_nodes.h"
#include "config/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STATES (FREE_TEXT_MAX_CHARACTERS + 1)
#define NONE (-1)

struct state {
    uint32_t character; /* that leads here from the parent */
    int parent, fail;   /* fail: the longest proper end that is a state too */
    int first, next;    /* child, sibling */
    int trigger;        /* the first that is this state's text; NONE */
    grammar_node rule;
};

struct automaton {
    struct grammar_builder *builder;
    const struct free_text_trigger *triggers;
    int *next_same; /* [count] another trigger of the same text */
    struct state states[MAX_STATES];
    int num_states;
};

static int find_child(const struct automaton *a, int state, uint32_t character) {
    int child = a->states[state].first;
    while (child != NONE && a->states[child].character != character)
        child = a->states[child].next;
    return child;
}

static int add_child(struct automaton *a, int parent, uint32_t character) {
    if (a->num_states == MAX_STATES)
        return grammar_builder_fail(a->builder, ERROR_SYNTAX, "the triggers are too long");
    a->states[a->num_states] = (struct state){
        character, parent, 0, NONE, a->states[parent].first, NONE, grammar_rule(a->builder)};
    return a->states[parent].first = a->num_states++;
}

static int add_trigger(struct automaton *a, int index) {
    struct text text = a->triggers[index].text;
    int state = 0;
    for (size_t i = 0, length; i < text.length; i += length) {
        length = utf8_char_bytes(text.data + i, text.length - i);
        if (length == 0)
            return grammar_builder_fail(a->builder, ERROR_SYNTAX, "a trigger is not UTF-8");
        uint32_t character = (uint32_t)utf8_decode(text.data + i, length);
        int child = find_child(a, state, character);
        state = child != NONE ? child : add_child(a, state, character);
        if (state < 0)
            return -1;
    }
    if (state == 0)
        return grammar_builder_fail(a->builder, ERROR_SYNTAX, "a trigger is empty");
    a->next_same[index] = a->states[state].trigger;
    a->states[state].trigger = index;
    return 0;
}

static int step(const struct automaton *a, int state, uint32_t character) {
    int child;
    while ((child = find_child(a, state, character)) == NONE && state != 0)
        state = a->states[state].fail;
    return child == NONE ? 0 : child;
}

/* Of short states before long ones. */
static void find_fails(struct automaton *a) {
    int queue[MAX_STATES], count = 0;
    queue[count++] = 0;
    for (int i = 0; i < count; i++) {
        for (int child = a->states[queue[i]].first; child != NONE; child = a->states[child].next) {
            const struct state *state = &a->states[child];
            a->states[child].fail =
                queue[i] == 0 ? 0 : step(a, a->states[queue[i]].fail, state->character);
            queue[count++] = child;
        }
    }
}

/* Returns what follows the triggers that end at the state; NONE: no trigger ends there. */
static grammar_node behind(struct automaton *a, int state) {
    grammar_node found = NONE;
    for (; state != 0; state = a->states[state].fail) {
        for (int i = a->states[state].trigger; i != NONE; i = a->next_same[i]) {
            grammar_node either[] = {found, a->triggers[i].behind};
            found = found == NONE ? either[1] : grammar_alternatives(a->builder, either, 2);
        }
    }
    return found;
}

/* Adds where each character leads that a state on the way of fails knows, and where all others
 * do. */
static int define(struct automaton *a, int state, bool may_end) {
    struct grammar_builder *builder = a->builder;
    struct character_range known[FREE_TEXT_MAX_CHARACTERS];
    grammar_node *choices = malloc((FREE_TEXT_MAX_CHARACTERS + 2) * sizeof(*choices));
    int count = 0, num_choices = 0;
    if (choices == NULL)
        return grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
    for (int at = state;; at = a->states[at].fail) {
        for (int child = a->states[at].first; child != NONE; child = a->states[child].next) {
            uint32_t character = a->states[child].character;
            int i = 0;
            while (i < count && known[i].first != character)
                i++;
            if (i < count)
                continue;
            known[count++] = (struct character_range){character, character};
            grammar_node end = behind(a, child);
            grammar_node items[] = {grammar_characters(builder, &known[i], 1, false),
                                    end != NONE ? end : a->states[child].rule};
            choices[num_choices++] = grammar_sequence(builder, items, 2);
        }
        if (at == 0)
            break;
    }
    grammar_node others[] = {grammar_characters(builder, known, count, true), a->states[0].rule};
    choices[num_choices++] = grammar_sequence(builder, others, 2);
    if (may_end)
        choices[num_choices++] = grammar_literal(builder, NULL, 0);
    grammar_define(builder, a->states[state].rule,
                   grammar_alternatives(builder, choices, num_choices));
    free(choices);
    return 0;
}

static int build(struct automaton *a, int count, bool may_end) {
    a->states[0] = (struct state){0, NONE, 0, NONE, NONE, NONE, grammar_rule(a->builder)};
    a->num_states = 1;
    for (int i = 0; i < count; i++)
        if (add_trigger(a, i) != 0)
            return -1;
    find_fails(a);
    for (int i = 0; i < a->num_states && a->builder->failure == ERROR_NONE; i++)
        if (define(a, i, may_end) != 0)
            return -1;
    return 0;
}

grammar_node grammar_free_text(struct grammar_builder *builder,
                               const struct free_text_trigger *triggers, int count, bool may_end) {
    struct automaton *a = malloc(sizeof(*a));
    int *next_same = malloc(((size_t)count + 1) * sizeof(*next_same));
    grammar_node made = GRAMMAR_FAILED;
    if (a == NULL || next_same == NULL) {
        grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
    } else {
        a->builder = builder;
        a->triggers = triggers;
        a->next_same = next_same;
        if (build(a, count, may_end) == 0)
            made = a->states[0].rule;
    }
    free(a);
    free(next_same);
    return made;
}

/* --- Text up to a marker --- */

static grammar_node other_than(struct grammar_builder *builder, char first, char second) {
    const struct character_range ranges[] = {{(uint32_t)first, (uint32_t)first},
                                             {(uint32_t)second, (uint32_t)second}};
    return grammar_characters(builder, ranges, 2, true);
}

/* Returns what may stand between a marker's first byte and the next such byte without completing
 * the marker: nothing, or what leaves the marker at its second byte or a later one. Of "</t":
 *     (nothing | other text* | '/' (nothing | other text*)) */
static grammar_node broken_marker(struct grammar_builder *builder, const char *marker,
                                  grammar_node text) {
    size_t length = strlen(marker);
    grammar_node rest = GRAMMAR_FAILED;
    for (size_t i = length; i-- > 1;) {
        grammar_node other[] = {other_than(builder, marker[0], marker[i]), text};
        grammar_node choices[] = {grammar_literal(builder, "", 0),
                                  grammar_sequence(builder, other, 2), 0};
        bool is_last = i + 1 == length;
        if (!is_last) {
            grammar_node next[] = {grammar_literal(builder, &marker[i], 1), rest};
            choices[2] = grammar_sequence(builder, next, 2);
        }
        rest = grammar_alternatives(builder, choices, is_last ? 2 : 3);
    }
    return rest;
}

grammar_node text_until_node(struct grammar_builder *builder, const char *marker) {
    grammar_node text = grammar_repeat(builder, other_than(builder, marker[0], marker[0]), 0, -1);
    grammar_node segment[] = {grammar_literal(builder, marker, 1),
                              broken_marker(builder, marker, text)};
    grammar_node items[] = {text,
                            grammar_repeat(builder, grammar_sequence(builder, segment, 2), 0, -1),
                            grammar_literal(builder, marker, strlen(marker))};
    return grammar_sequence(builder, items, 3);
}
