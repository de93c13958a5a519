#include "engine/grammar/build/text_automaton.h"

#include "config/base/array.h"
#include "config/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EDGES 131072
#define MAX_ROUNDS 24
#define DEAD (-1)

static int no_memory(struct error *err) {
    return error_set(err, ERROR_MEMORY, "memory is short");
}

static int too_large(struct error *err) {
    return error_set(err, ERROR_SYNTAX, "the combination of patterns is too large");
}

struct text_automaton *text_automaton_create(void) {
    return calloc(1, sizeof(struct text_automaton));
}

void text_automaton_destroy(struct text_automaton *automaton) {
    if (automaton == NULL)
        return;
    free(automaton->states);
    free(automaton->edges);
    free(automaton);
}

int32_t text_automaton_add_state(struct text_automaton *a, bool accepts) {
    if (a->num_states == TEXT_AUTOMATON_MAX_STATES)
        return -1;
    a->has_failed = !array_reserve(&a->states, &a->states_capacity, (size_t)a->num_states + 1,
                                   sizeof(*a->states));
    if (a->has_failed)
        return -1;
    a->states[a->num_states] = (struct automaton_state){a->num_edges, 0, accepts};
    return a->num_states++;
}

/* Edges side by side that lead to one state are one. */
int text_automaton_add_edge(struct text_automaton *a, struct automaton_edge edge) {
    struct automaton_state *state = &a->states[a->num_states - 1];
    struct automaton_edge *last = state->num_edges > 0 ? &a->edges[a->num_edges - 1] : NULL;
    if (last != NULL && last->target == edge.target && last->last + 1 == edge.first) {
        last->last = edge.last;
        return 0;
    }
    if (a->num_edges == MAX_EDGES)
        return -1;
    a->has_failed =
        !array_reserve(&a->edges, &a->edges_capacity, (size_t)a->num_edges + 1, sizeof(*a->edges));
    if (a->has_failed)
        return -1;
    a->edges[a->num_edges++] = edge;
    state->num_edges++;
    return 0;
}

/* --- States that lead to no text --- */

/* Marks the states from which an accepting one is reached: backwards along the edges, indexed by
 * their targets. */
static void mark_productive(const struct text_automaton *a, int32_t *first_user, int32_t *users,
                            int32_t *stack, bool *marked) {
    int32_t depth = 0;
    for (int32_t i = 0; i < a->num_edges; i++)
        first_user[a->edges[i].target + 1]++;
    for (int32_t i = 0; i < a->num_states; i++)
        first_user[i + 1] += first_user[i];
    for (int32_t i = a->num_states - 1; i >= 0; i--)
        for (int32_t k = 0; k < a->states[i].num_edges; k++)
            users[--first_user[a->edges[a->states[i].first_edge + k].target + 1]] = i;
    /* first_user[t + 1] is now where the users of t begin; they end where those of t + 1 do. */
    for (int32_t i = 0; i < a->num_states; i++)
        if ((marked[i] = a->states[i].accepts))
            stack[depth++] = i;
    while (depth > 0) {
        int32_t target = stack[--depth];
        int32_t end = target + 2 <= a->num_states ? first_user[target + 2] : a->num_edges;
        for (int32_t i = first_user[target + 1]; i < end; i++)
            if (!marked[users[i]]) {
                marked[users[i]] = true;
                stack[depth++] = users[i];
            }
    }
}

/* Keeps the states with a new number, and the edges between them. */
static void renumber(struct text_automaton *a, const int32_t *numbers) {
    int32_t num_states = 0, num_edges = 0;
    for (int32_t i = 0; i < a->num_states; i++) {
        struct automaton_state state = a->states[i];
        if (numbers[i] < 0)
            continue;
        int32_t first = num_edges;
        for (int32_t k = 0; k < state.num_edges; k++) {
            struct automaton_edge edge = a->edges[state.first_edge + k];
            if (numbers[edge.target] < 0)
                continue;
            edge.target = numbers[edge.target];
            a->edges[num_edges++] = edge;
        }
        a->states[num_states++] = (struct automaton_state){first, num_edges - first, state.accepts};
    }
    a->num_states = num_states;
    a->num_edges = num_edges;
}

int text_automaton_trim(struct text_automaton *a) {
    size_t num_states = (size_t)a->num_states, num_edges = (size_t)a->num_edges;
    int32_t *memory = calloc(3 * num_states + num_edges + 2, sizeof(*memory));
    bool *marked = calloc(num_states + 1, sizeof(*marked));
    bool done = memory != NULL && marked != NULL;
    if (done) {
        int32_t *numbers = memory + 2 * num_states + num_edges + 2, count = 0;
        mark_productive(a, memory, memory + num_states + 2, memory + num_states + 2 + num_edges,
                        marked);
        for (int32_t i = 0; i < a->num_states; i++)
            numbers[i] = marked[i] && marked[0] ? count++ : DEAD;
        renumber(a, numbers);
    }
    free(memory);
    free(marked);
    return done ? 0 : -1;
}

/* --- Minimising --- */

struct minimiser {
    const struct text_automaton *automaton;
    int32_t *classes, *order; /* [num_states] */
};

/* Where the state's characters lead, as classes; edges that lead to one class count as one. */
static bool next_edge(const struct minimiser *m, int32_t state, int32_t *at,
                      struct automaton_edge *out) {
    const struct automaton_state *s = &m->automaton->states[state];
    const struct automaton_edge *edges = m->automaton->edges + s->first_edge;
    if (*at == s->num_edges)
        return false;
    *out = edges[(*at)++];
    out->target = m->classes[out->target];
    for (; *at < s->num_edges && edges[*at].first == out->last + 1 &&
           m->classes[edges[*at].target] == out->target;
         (*at)++)
        out->last = edges[*at].last;
    return true;
}

static int compare_states(const struct minimiser *m, int32_t a, int32_t b) {
    if (m->classes[a] != m->classes[b])
        return m->classes[a] < m->classes[b] ? -1 : 1;
    for (int32_t i = 0, k = 0;;) {
        struct automaton_edge x, y;
        bool has_x = next_edge(m, a, &i, &x), has_y = next_edge(m, b, &k, &y);
        if (!has_x || !has_y)
            return has_x - has_y;
        if (x.first != y.first)
            return x.first < y.first ? -1 : 1;
        if (x.last != y.last)
            return x.last < y.last ? -1 : 1;
        if (x.target != y.target)
            return x.target < y.target ? -1 : 1;
    }
}

/* Merge sort: qsort has no context, and its order of equals is not defined. */
static void sort_states(const struct minimiser *m, int32_t *items, int32_t count, int32_t *spare) {
    if (count < 2)
        return;
    int32_t half = count / 2, i = 0, k = half;
    sort_states(m, items, half, spare);
    sort_states(m, items + half, count - half, spare);
    for (int32_t n = 0; n < count; n++)
        spare[n] = k == count || (i < half && compare_states(m, items[i], items[k]) <= 0)
                       ? items[i++]
                       : items[k++];
    memcpy(items, spare, (size_t)count * sizeof(*items));
}

/* Splits the classes by where their states lead; returns how many there are now. */
static int32_t split_classes(struct minimiser *m, int32_t *next, int32_t *spare) {
    int32_t count = m->automaton->num_states, num_classes = 0;
    sort_states(m, m->order, count, spare);
    for (int32_t i = 0; i < count; i++) {
        num_classes += i == 0 || compare_states(m, m->order[i - 1], m->order[i]) != 0;
        next[m->order[i]] = num_classes - 1;
    }
    memcpy(m->classes, next, (size_t)count * sizeof(*next));
    return num_classes;
}

/* Keeps one state of each class. numbers: of each state, the new one of its class; first: whether
 * the state stands for its class. */
static void keep_classes(struct text_automaton *a, const int32_t *classes, int32_t *numbers,
                         int32_t *of_class) {
    int32_t count = 0;
    for (int32_t i = 0; i < a->num_states; i++)
        of_class[i] = -1;
    for (int32_t i = 0; i < a->num_states; i++)
        if (of_class[classes[i]] < 0)
            of_class[classes[i]] = i;
    for (int32_t i = 0; i < a->num_edges; i++)
        a->edges[i].target = of_class[classes[a->edges[i].target]];
    for (int32_t i = 0; i < a->num_states; i++)
        numbers[i] = of_class[classes[i]] == i ? count++ : DEAD;
    renumber(a, numbers);
}

int text_automaton_minimise(struct text_automaton *a) {
    size_t count = (size_t)a->num_states;
    int32_t *memory = calloc(4 * count + 1, sizeof(*memory));
    if (memory == NULL)
        return -1;
    struct minimiser m = {a, memory, memory + count};
    int32_t num_classes = 0, num_before = -1;
    for (int32_t i = 0; i < a->num_states; i++) {
        m.classes[i] = a->states[i].accepts;
        m.order[i] = i;
    }
    for (int round = 0; round < MAX_ROUNDS && num_classes != num_before; round++) {
        num_before = num_classes;
        num_classes = split_classes(&m, memory + 2 * count, memory + 3 * count);
    }
    if (num_classes == num_before)
        keep_classes(a, m.classes, memory + 2 * count, memory + 3 * count);
    free(memory);
    return 0;
}

/* --- Product --- */

struct pair {
    int32_t a, b; /* DEAD: no text continues */
};

struct product {
    const struct text_automaton *a, *b;
    enum automaton_operation operation;
    int64_t *budget;
    struct text_automaton *out;
    struct pair *pairs;                   /* [TEXT_AUTOMATON_MAX_STATES] of the states */
    int32_t num_pairs, *slots, num_slots; /* a hash table of pairs; -1: free */
};

static bool accepts(const struct text_automaton *a, int32_t state) {
    return state != DEAD && a->states[state].accepts;
}

static bool is_dead(const struct product *p, struct pair pair) {
    switch (p->operation) {
    case AUTOMATON_AND:
        return pair.a == DEAD || pair.b == DEAD;
    case AUTOMATON_OR:
        return pair.a == DEAD && pair.b == DEAD;
    case AUTOMATON_MINUS:
        break;
    }
    return pair.a == DEAD;
}

static bool pair_accepts(const struct product *p, struct pair pair) {
    bool a = accepts(p->a, pair.a), b = accepts(p->b, pair.b);
    return p->operation == AUTOMATON_AND ? a && b : p->operation == AUTOMATON_OR ? a || b : a && !b;
}

/* Returns the number of the pair's state; -1: there are too many. */
static int32_t find_pair(struct product *p, struct pair pair) {
    uint32_t hash =
        (uint32_t)pair.a * UINT32_C(0x9e3779b1) + (uint32_t)pair.b * UINT32_C(0x85ebca77);
    uint32_t mask = (uint32_t)p->num_slots - 1, i = (hash ^ hash >> 15) & mask;
    for (; p->slots[i] >= 0; i = (i + 1) & mask)
        if (p->pairs[p->slots[i]].a == pair.a && p->pairs[p->slots[i]].b == pair.b)
            return p->slots[i];
    if (p->num_pairs == TEXT_AUTOMATON_MAX_STATES)
        return -1;
    p->pairs[p->num_pairs] = pair;
    p->slots[i] = p->num_pairs;
    return p->num_pairs++;
}

/* A place in a state's edges: where the characters from `from` on lead, and the last of those that
 * lead there. */
struct cursor {
    const struct automaton_edge *edge, *end;
};

static struct cursor cursor_at(const struct text_automaton *a, int32_t state) {
    if (state == DEAD || a->states[state].num_edges == 0)
        return (struct cursor){NULL, NULL};
    const struct automaton_edge *first = a->edges + a->states[state].first_edge;
    return (struct cursor){first, first + a->states[state].num_edges};
}

static int32_t look(struct cursor *cursor, uint32_t from, uint32_t *last) {
    while (cursor->edge != cursor->end && cursor->edge->last < from)
        cursor->edge++;
    if (cursor->edge == cursor->end)
        return DEAD;
    bool is_inside = cursor->edge->first <= from;
    uint32_t own_last = is_inside ? cursor->edge->last : cursor->edge->first - 1;
    *last = own_last < *last ? own_last : *last;
    return is_inside ? cursor->edge->target : DEAD;
}

#define LAST_CHARACTER 0x10ffff

static int add_pair_edges(struct product *p, struct pair pair) {
    struct cursor a = cursor_at(p->a, pair.a), b = cursor_at(p->b, pair.b);
    for (uint32_t from = 0, last; from <= LAST_CHARACTER; from = last + 1) {
        last = LAST_CHARACTER;
        struct pair to;
        to.a = look(&a, from, &last);
        to.b = look(&b, from, &last);
        *p->budget -= 4;
        if (is_dead(p, to))
            continue;
        int32_t target = find_pair(p, to);
        if (target < 0 ||
            text_automaton_add_edge(p->out, (struct automaton_edge){from, last, target}) != 0)
            return -1;
    }
    return *p->budget > 0 ? 0 : -1;
}

static int multiply(struct product *p) {
    struct pair start = {p->a->num_states > 0 ? 0 : DEAD, p->b->num_states > 0 ? 0 : DEAD};
    if (is_dead(p, start))
        return 0;
    find_pair(p, start);
    for (int32_t i = 0; i < p->num_pairs; i++) {
        struct pair pair = p->pairs[i];
        if (text_automaton_add_state(p->out, pair_accepts(p, pair)) < 0 ||
            add_pair_edges(p, pair) != 0)
            return -1;
    }
    return 0;
}

int text_automaton_combine(const struct text_automaton *a, const struct text_automaton *b,
                           enum automaton_operation operation, int64_t *budget,
                           struct text_automaton **out, struct error *err) {
    struct product p = {.a = a, .b = b, .operation = operation, .budget = budget};
    p.num_slots = 2 * TEXT_AUTOMATON_MAX_STATES;
    p.out = text_automaton_create();
    p.pairs = calloc(TEXT_AUTOMATON_MAX_STATES, sizeof(*p.pairs));
    p.slots = malloc((size_t)p.num_slots * sizeof(*p.slots));
    int result = -1;
    if (p.out == NULL || p.pairs == NULL || p.slots == NULL) {
        no_memory(err);
    } else {
        for (int32_t i = 0; i < p.num_slots; i++)
            p.slots[i] = -1;
        *budget -= p.num_slots / 4;
        if (multiply(&p) == 0)
            result = text_automaton_trim(p.out) == 0 ? 0 : no_memory(err);
        else if (p.out->has_failed)
            no_memory(err);
        else
            too_large(err);
    }
    free(p.pairs);
    free(p.slots);
    if (result != 0)
        text_automaton_destroy(p.out);
    else
        *out = p.out;
    return result;
}

/* --- Texts --- */

bool text_automaton_accepts(const struct text_automaton *a, struct text text) {
    int32_t state = a->num_states > 0 ? 0 : DEAD;
    for (size_t i = 0, bytes; i < text.length && state != DEAD; i += bytes) {
        bytes = utf8_char_bytes(text.data + i, text.length - i);
        if (bytes == 0)
            return false;
        uint32_t last = LAST_CHARACTER;
        struct cursor cursor = cursor_at(a, state);
        state = look(&cursor, (uint32_t)utf8_decode(text.data + i, bytes), &last);
    }
    return accepts(a, state);
}

/* --- How many texts --- */

static int64_t add_bounded(int64_t a, int64_t b, int64_t most) {
    return a < most - b ? a + b : most;
}

/* How many beginnings lead to a state, in an order in which edges lead on; a circle has none.
 * Returns how many states there is an order for. */
static int32_t count_beginnings(const struct text_automaton *automaton, int64_t most,
                                int64_t *counts, int32_t *num_missing, int32_t *order) {
    int32_t num_ordered = 0;
    for (int32_t i = 0; i < automaton->num_edges; i++)
        num_missing[automaton->edges[i].target]++;
    for (int32_t i = 0; i < automaton->num_states; i++)
        if (num_missing[i] == 0)
            order[num_ordered++] = i;
    counts[0] = 1;
    for (int32_t i = 0; i < num_ordered; i++) {
        const struct automaton_state *state = &automaton->states[order[i]];
        const struct automaton_edge *edges = automaton->edges + state->first_edge;
        for (int32_t k = 0; k < state->num_edges; k++) {
            int64_t *to = &counts[edges[k].target], width = edges[k].last - edges[k].first + 1;
            int64_t from = counts[order[i]];
            bool is_many = from > most / width;
            *to = is_many ? most : add_bounded(*to, from * width, most);
            if (--num_missing[edges[k].target] == 0)
                order[num_ordered++] = edges[k].target;
        }
    }
    return num_ordered;
}

int text_automaton_count(const struct text_automaton *automaton, int64_t most, int64_t *out) {
    size_t num_states = (size_t)automaton->num_states;
    int64_t *counts = calloc(num_states + 1, sizeof(*counts));
    int32_t *memory = calloc(2 * num_states + 1, sizeof(*memory));
    bool is_made = counts != NULL && memory != NULL;
    *out = 0;
    if (is_made && num_states > 0) {
        int32_t num_ordered =
            count_beginnings(automaton, most, counts, memory, memory + num_states);
        for (size_t i = 0; i < num_states; i++)
            if (automaton->states[i].accepts)
                *out = add_bounded(*out, counts[i], most);
        if (num_ordered < automaton->num_states)
            *out = most;
    }
    free(counts);
    free(memory);
    return is_made ? 0 : -1;
}
