/* A rule whose body begins with the rule itself reads nothing before it comes back to itself, which
 * the machine cannot follow. Rules that begin with each other are rewritten together (a left-corner
 * transform: Moore, "Removing left recursion from context-free grammars", NAACL 2000). Each body is
 * the union of what begins with none of them (its seed) and of D tail, for some rules D among them:
 * a text of A is a seed of some C, followed by the tails that lead from C up to A.
 *
 *     A = seed(A) | A tail                  A = seed (tail)*
 *     A = seed(C) rest(A, C) | ...          rest(A, D) = tail(D in C) rest(A, C) | ... | "" if D is
 * A
 *
 * Where the end of a lone rule's seed or tail is the rule itself (A "+" A), its own tails may
 * follow on several levels with the same text: the seed alone stands there instead, so that such a
 * text has one way to be read. */
#include "engine/grammar/build/grammar_rewrite.h"

#include <stdlib.h>

#define MAX_RULES 32 /* that begin with each other */

/* --- Finding them: Tarjan's algorithm, SIAM J. Comput. 1(2), 1972, without recursion --- */

struct search {
    struct rewrite *r;
    int32_t *components;
    int32_t *order; /* [num_nodes] when the node was met, from 1; 0: not yet */
    int32_t *low;   /* [num_nodes] the earliest that it leads to */
    int32_t *edge;  /* [num_nodes] the next item to follow */
    int32_t *path, num_path, *open, num_open;
    int32_t num_met, num_components;
};

static void meet(struct search *s, grammar_node id) {
    s->order[id] = s->low[id] = ++s->num_met;
    s->path[s->num_path++] = id;
    s->open[s->num_open++] = id;
}

/* Takes the component whose first node this is off the stack of open nodes. */
static void close_component(struct search *s, grammar_node id) {
    bool is_loop = s->open[s->num_open - 1] != id;
    for (int32_t n = 0; !is_loop; n++) {
        grammar_node item = rewrite_left_item(s->r, id, n);
        if (item < 0)
            break;
        is_loop = item == id;
    }
    grammar_node member;
    do {
        member = s->open[--s->num_open];
        s->components[member] = is_loop ? s->num_components : -1;
        s->order[member] = INT32_MAX;
    } while (member != id);
    s->num_components += is_loop;
}

static void search_from(struct search *s, grammar_node start) {
    meet(s, start);
    while (s->num_path > 0) {
        grammar_node id = s->path[s->num_path - 1];
        grammar_node item = rewrite_left_item(s->r, id, s->edge[id]++);
        if (item >= 0 && s->order[item] == 0) {
            meet(s, item);
        } else if (item >= 0) {
            if (s->order[item] < s->low[id])
                s->low[id] = s->order[item];
        } else {
            s->num_path--;
            grammar_node above = s->num_path > 0 ? s->path[s->num_path - 1] : id;
            if (s->low[id] < s->low[above])
                s->low[above] = s->low[id];
            if (s->low[id] == s->order[id])
                close_component(s, id);
        }
    }
}

int32_t left_recursion_find(struct rewrite *r, int32_t *components) {
    int32_t num_nodes = r->builder->num_nodes;
    int32_t *memory = calloc((size_t)num_nodes, 5 * sizeof(*memory));
    if (memory == NULL)
        return grammar_builder_fail(r->builder, ERROR_MEMORY, "memory is short");
    struct search s = {r,
                       components,
                       memory,
                       memory + num_nodes,
                       memory + 2 * (size_t)num_nodes,
                       memory + 3 * (size_t)num_nodes,
                       0,
                       memory + 4 * (size_t)num_nodes,
                       0,
                       0,
                       0};
    for (grammar_node id = 0; id < num_nodes; id++)
        components[id] = -1;
    for (grammar_node id = 0; id < num_nodes; id++)
        if (r->is_reachable[id] && s.order[id] == 0)
            search_from(&s, id);
    free(memory);
    return s.num_components;
}

/* --- Removing them --- */

/* What became of a node in a pass over the rules; of an earlier one it says nothing. */
struct made {
    int32_t pass;
    grammar_node node;
};

struct removal {
    struct rewrite *r;
    const int32_t *components;
    int32_t component;
    grammar_node rules[MAX_RULES];
    int32_t num_rules;
    int32_t num_split; /* nodes that existed before anything was rewritten */
    struct made *made; /* [GRAMMAR_MAX_NODES] */
    int32_t pass;
    int64_t num_steps;
    int depth;
};

#define MAX_STEPS (2 << 20) /* over items, of all rules: some 30 ms */
#define MAX_DEPTH 1024      /* nodes within nodes, which are split by recursion */
#define SEED MAX_RULES      /* instead of a rule: what begins with none of them */

static bool is_inside(const struct removal *m, grammar_node id) {
    return id < m->num_split && m->components[id] == m->component;
}

static grammar_node piece(struct removal *m, grammar_node id, int32_t of);

/* Returns what follows the sequence's item i; REWRITE_NOTHING: it is the last. */
static grammar_node rest_of(struct removal *m, const struct node *node, int32_t i) {
    grammar_node *items = m->r->builder->items + node->first + i + 1;
    int32_t count = node->count - i - 1;
    if (count <= 1)
        return count == 0 ? REWRITE_NOTHING : items[0];
    /* The builder's list may move when it grows. */
    grammar_node *copy = malloc((size_t)count * sizeof(*copy));
    if (copy == NULL)
        return grammar_builder_fail(m->r->builder, ERROR_MEMORY, "memory is short");
    for (int32_t k = 0; k < count; k++)
        copy[k] = items[k];
    grammar_node made = grammar_sequence(m->r->builder, copy, count);
    free(copy);
    return made;
}

/* One after the other, as long as those before may be empty; for alternatives each of them. */
static grammar_node piece_of_list(struct removal *m, grammar_node id, int32_t of) {
    struct node node = m->r->builder->nodes[id];
    grammar_node *choices = malloc(((size_t)node.count + 1) * sizeof(*choices));
    int32_t count = 0;
    if (choices == NULL)
        return grammar_builder_fail(m->r->builder, ERROR_MEMORY, "memory is short");
    for (int32_t i = 0; i < node.count && m->r->builder->failure == ERROR_NONE; i++) {
        grammar_node item = rewrite_left_item(m->r, id, i);
        if (item < 0)
            break;
        grammar_node first = piece(m, item, of);
        m->num_steps++;
        if (first == REWRITE_NOTHING)
            continue;
        grammar_node rest =
            node.kind == NODE_SEQUENCE ? rest_of(m, &node, i) : (grammar_node)REWRITE_NOTHING;
        choices[count++] = rewrite_pair(m->r, first, rest);
    }
    grammar_node made = rewrite_choice(m->r, choices, count);
    free(choices);
    return made;
}

static grammar_node piece_of_repeat(struct removal *m, grammar_node id, int32_t of) {
    struct node node = m->r->builder->nodes[id];
    grammar_node item = m->r->builder->items[node.first];
    grammar_node first = piece(m, item, of);
    if (first == REWRITE_NOTHING || node.max == 1)
        return first;
    return rewrite_pair(m->r, first,
                        grammar_repeat(m->r->builder, item, node.min > 0 ? node.min - 1 : 0,
                                       node.max > 0 ? node.max - 1 : -1));
}

static grammar_node make_piece(struct removal *m, grammar_node id, int32_t of) {
    switch (m->r->builder->nodes[id].kind) {
    case NODE_SEQUENCE:
    case NODE_ALTERNATIVES:
        return piece_of_list(m, id, of);
    case NODE_REPEAT:
        return piece_of_repeat(m, id, of);
    default: /* a rule of the component */
        break;
    }
    if (of == SEED || m->rules[of] != id)
        return REWRITE_NOTHING;
    return grammar_literal(m->r->builder, NULL, 0);
}

static bool enter(struct removal *m) {
    if (m->depth == MAX_DEPTH)
        grammar_builder_fail(m->r->builder, ERROR_SYNTAX, "the grammar is nested too deep");
    if (m->num_steps > MAX_STEPS)
        grammar_builder_fail(m->r->builder, ERROR_SYNTAX,
                             "the grammar is left-recursive in too many ways");
    return m->r->builder->failure == ERROR_NONE;
}

/* Returns the node's texts that are not empty and begin with none of the rules, or what follows the
 * rule in those that begin with it. */
static grammar_node piece(struct removal *m, grammar_node id, int32_t of) {
    if (!enter(m))
        return GRAMMAR_FAILED;
    if (!is_inside(m, id))
        return of == SEED ? rewrite_filled(m->r, id) : REWRITE_NOTHING;
    if (m->made[id].pass == m->pass)
        return m->made[id].node;
    m->depth++;
    grammar_node made = make_piece(m, id, of);
    m->depth--;
    m->made[id] = (struct made){m->pass, made};
    return made;
}

/* Splits a rule's body. */
static grammar_node piece_of_rule(struct removal *m, int32_t rule, int32_t of) {
    m->pass++;
    return piece(m, m->r->builder->nodes[m->rules[rule]].first, of);
}

/* --- One rule --- */

/* Returns the node with `to` instead of the rule where a text of it ends; itself where it does not
 * end so. */
static grammar_node replace_end(struct removal *m, grammar_node id, grammar_node to) {
    struct grammar_builder *builder = m->r->builder;
    if (!enter(m))
        return GRAMMAR_FAILED;
    struct node node = builder->nodes[id];
    bool is_list = node.kind == NODE_ALTERNATIVES || node.kind == NODE_SEQUENCE;
    if (id == m->rules[0])
        return to;
    if (!is_list || node.count == 0)
        return id;
    if (m->made[id].pass == m->pass)
        return m->made[id].node;
    grammar_node *items = malloc((size_t)node.count * sizeof(*items));
    bool changes = false;
    if (items == NULL)
        return grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
    m->depth++;
    for (int32_t i = 0; i < node.count; i++) {
        grammar_node item = builder->items[node.first + i];
        bool ends = node.kind == NODE_ALTERNATIVES || i + 1 == node.count;
        items[i] = ends ? replace_end(m, item, to) : item;
        changes |= items[i] != item;
    }
    m->depth--;
    grammar_node made = !changes ? id
                        : node.kind == NODE_SEQUENCE
                            ? grammar_sequence(builder, items, node.count)
                            : grammar_alternatives(builder, items, node.count);
    free(items);
    m->made[id] = (struct made){m->pass, made};
    return made;
}

static grammar_node with_end(struct removal *m, grammar_node id, grammar_node to) {
    m->pass++;
    return replace_end(m, id, to);
}

static grammar_node body_of_one(struct removal *m) {
    struct grammar_builder *builder = m->r->builder;
    grammar_node seed = piece_of_rule(m, 0, SEED), tail = piece_of_rule(m, 0, 0);
    if (seed == REWRITE_NOTHING)
        return rewrite_never(m->r);
    if (builder->failure == ERROR_NONE && tail != REWRITE_NOTHING)
        tail = rewrite_filled(m->r, tail); /* A = A says nothing */
    if (tail == REWRITE_NOTHING || builder->failure != ERROR_NONE)
        return seed;
    grammar_node rule = grammar_rule(builder), alone = with_end(m, seed, rule);
    if (alone != seed) {
        grammar_define(builder, rule, alone);
        seed = rule;
    }
    tail = with_end(m, tail, seed);
    return rewrite_pair(m->r, seed, grammar_repeat(builder, tail, 0, -1));
}

/* --- Several --- */

struct tails {
    grammar_node of[MAX_RULES][MAX_RULES]; /* [d][c] what follows d in c, not empty */
    bool leads[MAX_RULES][MAX_RULES];      /* [d][c] c may be d and nothing else, over others too */
    grammar_node seeds[MAX_RULES];
    grammar_node rests[MAX_RULES]; /* of the rule under way */
};

static void find_tails(struct removal *m, struct tails *t) {
    for (int32_t c = 0; c < m->num_rules; c++) {
        t->seeds[c] = piece_of_rule(m, c, SEED);
        for (int32_t d = 0; d < m->num_rules; d++) {
            grammar_node tail = piece_of_rule(m, c, d);
            if (m->r->builder->failure != ERROR_NONE)
                return;
            bool is_some = tail != REWRITE_NOTHING;
            t->leads[d][c] = d == c || (is_some && rewrite_may_be_empty(m->r, tail));
            t->of[d][c] = is_some ? rewrite_filled(m->r, tail) : tail;
        }
    }
    for (int32_t k = 0; k < m->num_rules; k++)
        for (int32_t d = 0; d < m->num_rules; d++)
            for (int32_t c = 0; c < m->num_rules; c++)
                t->leads[d][c] |= t->leads[d][k] && t->leads[k][c];
}

static grammar_node rest_from(struct removal *m, const struct tails *t, int32_t rule, int32_t d) {
    grammar_node choices[MAX_RULES * MAX_RULES + 1];
    int32_t count = 0;
    for (int32_t k = 0; k < m->num_rules; k++)
        for (int32_t c = 0; c < m->num_rules && t->leads[d][k]; c++)
            if (t->of[k][c] != REWRITE_NOTHING)
                choices[count++] = rewrite_pair(m->r, t->of[k][c], t->rests[c]);
    if (t->leads[d][rule])
        choices[count++] = grammar_literal(m->r->builder, NULL, 0);
    grammar_node made = rewrite_choice(m->r, choices, count);
    return made == REWRITE_NOTHING ? rewrite_never(m->r) : made;
}

static grammar_node body_of_several(struct removal *m, struct tails *t, int32_t rule) {
    grammar_node choices[MAX_RULES];
    int32_t count = 0;
    for (int32_t c = 0; c < m->num_rules; c++)
        t->rests[c] = grammar_rule(m->r->builder);
    for (int32_t c = 0; c < m->num_rules; c++) {
        grammar_define(m->r->builder, t->rests[c], rest_from(m, t, rule, c));
        if (t->seeds[c] != REWRITE_NOTHING)
            choices[count++] = rewrite_pair(m->r, t->seeds[c], t->rests[c]);
    }
    grammar_node made = rewrite_choice(m->r, choices, count);
    return made == REWRITE_NOTHING ? rewrite_never(m->r) : made;
}

static int remove_several(struct removal *m) {
    struct grammar_builder *builder = m->r->builder;
    grammar_node bodies[MAX_RULES];
    struct tails *tails = calloc(1, sizeof(*tails));
    if (tails == NULL)
        return grammar_builder_fail(builder, ERROR_MEMORY, "memory is short");
    find_tails(m, tails);
    for (int32_t i = 0; i < m->num_rules && builder->failure == ERROR_NONE; i++)
        bodies[i] = body_of_several(m, tails, i);
    for (int32_t i = 0; i < m->num_rules && builder->failure == ERROR_NONE; i++)
        builder->nodes[m->rules[i]].first = bodies[i];
    free(tails);
    return builder->failure == ERROR_NONE ? 0 : -1;
}

/* --- All --- */

static int remove_component(struct removal *m) {
    struct grammar_builder *builder = m->r->builder;
    if (m->num_rules > 1)
        return remove_several(m);
    grammar_node body = body_of_one(m);
    if (builder->failure != ERROR_NONE)
        return -1;
    builder->nodes[m->rules[0]].first = body;
    return 0;
}

/* Chains the rules of each component: next[id], from first[component] on. */
static void chain_rules(const struct removal *m, grammar_node *first, grammar_node *next) {
    for (grammar_node id = m->num_split - 1; id >= 0; id--) {
        int32_t component = m->components[id];
        if (component < 0 || m->r->builder->nodes[id].kind != NODE_RULE)
            continue;
        next[id] = first[component];
        first[component] = id;
    }
}

static int list_rules(struct removal *m, const grammar_node *first, const grammar_node *next) {
    m->num_rules = 0;
    for (grammar_node id = first[m->component]; id >= 0; id = next[id]) {
        if (m->num_rules == MAX_RULES)
            return grammar_builder_fail(m->r->builder, ERROR_SYNTAX,
                                        "more than 32 rules are left-recursive by each other");
        m->rules[m->num_rules++] = id;
    }
    return 0;
}

int left_recursion_remove(struct rewrite *r, const int32_t *components, int32_t num_components) {
    size_t num_nodes = (size_t)r->builder->num_nodes;
    struct made *made = calloc(GRAMMAR_MAX_NODES, sizeof(*made));
    grammar_node *first = malloc(2 * num_nodes * sizeof(*first));
    struct removal m = {
        .r = r, .components = components, .num_split = (int32_t)num_nodes, .made = made};
    int result = 0;
    if (made == NULL || first == NULL) {
        result = grammar_builder_fail(r->builder, ERROR_MEMORY, "memory is short");
        num_components = 0;
    }
    for (int32_t i = 0; i < num_components; i++)
        first[i] = -1;
    if (num_components > 0)
        chain_rules(&m, first, first + num_nodes);
    for (; m.component < num_components && result == 0; m.component++) {
        result = list_rules(&m, first, first + num_nodes);
        if (result == 0)
            result = remove_component(&m);
    }
    free(made);
    free(first);
    return result;
}
