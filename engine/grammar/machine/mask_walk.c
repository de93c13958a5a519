#include "engine/grammar/machine/grammar_machine.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar_vocabulary.h"
#include "engine/grammar/machine/open_runs.h"

#include <stdlib.h>
#include <string.h>

/* Parse states followed for one mask, some tens of ms. A grammar that takes more (hundreds of them
 * that continue with every token) gets the tokens found so far, once there are any; at the latest
 * after the second number. */
#define MAX_MASK_WORK (1 << 21)
#define MAX_HOPELESS_WORK (1 << 23)
#define MIN_PASSED 8      /* nodes of a subtree that is worth the question whether to pass it */
#define TOKENS_PER_NODE 8 /* that are allowed together in the time of a visit */

static size_t mask_words(const struct grammar_vocabulary *vocabulary) {
    return ((size_t)vocabulary->vocab_size + 31) / 32;
}

static void set_bit(uint32_t *mask, int32_t token) {
    mask[token / 32] |= UINT32_C(1) << (token % 32);
}

void mask_walk_drop(struct grammar_machine *machine) {
    if (machine->walk.cost > machine->last_cost)
        machine->last_cost = machine->walk.cost;
    machine->walk.cost = 0;
    free(machine->walk.mask);
    machine->walk.mask = NULL;
    machine->walk.state = NULL;
}

/* Where it is known which plain tokens are allowed, only the others are walked through. -1: memory
 * is short. */
static int take_plain(struct grammar_machine *machine) {
    const struct grammar_vocabulary *vocabulary = machine->vocabulary;
    struct mask_walk *walk = &machine->walk;
    size_t words = mask_words(vocabulary);
    int64_t before = machine->work;
    int run = open_runs_plain(machine, walk->path[0]);
    walk->work += machine->work - before;
    if (run == OPEN_RUNS_FAILED)
        mask_walk_drop(machine);
    if (run < 0)
        return run == OPEN_RUNS_FAILED ? -1 : 0;
    if (run > 0) {
        memcpy(walk->mask, vocabulary->plain_masks + (size_t)(run - 1) * words,
               words * sizeof(*walk->mask));
        walk->num_tokens = vocabulary->num_plain[run - 1];
    }
    walk->tree = &vocabulary->others;
    return 0;
}

int mask_walk_begin(struct grammar_state *state) {
    struct mask_walk *walk = &state->grammar->machine->walk;
    CHECK(walk->state == NULL);
    uint32_t *mask = calloc(mask_words(state->vocabulary) + 1, sizeof(*mask));
    if (mask == NULL)
        return -1;
    *walk = (struct mask_walk){
        .state = state, .mask = mask, .tree = &state->vocabulary->all, .path = walk->path};
    walk->path[0] = state->set;
    return take_plain(state->grammar->machine);
}

static bool is_given_up(const struct mask_walk *walk) {
    return walk->work > (walk->num_tokens > 0 ? MAX_MASK_WORK : MAX_HOPELESS_WORK);
}

static void allow(struct mask_walk *walk, const int32_t *tokens, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        set_bit(walk->mask, tokens[i]);
    walk->num_tokens += count;
}

/* Returns whether it may be worth to ask if the node's subtree can be passed. */
static inline bool is_worth_asking(const struct vocabulary_node *nodes, int32_t id) {
    return nodes[id].tail_length != VOCABULARY_NO_TAIL && nodes[id].end - id > MIN_PASSED;
}

/* Visits up to that many nodes while it is known where their bytes lead, and no subtree is worth
 * checking. Returns the number of nodes, each of which costs 1. */
static int64_t visit_known(struct grammar_machine *machine, int64_t most) {
    struct mask_walk *walk = &machine->walk;
    const struct vocabulary_node *nodes = walk->tree->nodes;
    const int32_t *tokens = walk->tree->tokens;
    const uint8_t *classes = machine->grammar->classes;
    struct parse_set *const *sets = machine->store.sets;
    int32_t *path = walk->path;
    uint32_t *mask = walk->mask;
    int32_t id = walk->node, num_nodes = walk->tree->num_nodes, num_tokens = 0;
    int64_t count = 0;
    for (; count < most && id < num_nodes; count++) {
        const struct vocabulary_node *node = &nodes[id];
        int32_t to = sets[path[node->depth]]->next[classes[node->byte]];
        if (to == PARSE_SET_EMPTY) {
            id = node->end;
            continue;
        }
        if (to == PARSE_SET_UNKNOWN || is_worth_asking(nodes, id))
            break;
        path[node->depth + 1] = to;
        for (int32_t i = 0; i < node->num_tokens; i++)
            set_bit(mask, tokens[node->first_token + i]);
        num_tokens += node->num_tokens;
        id++;
    }
    walk->node = id;
    walk->num_tokens += num_tokens;
    return count;
}

/* The node's byte leads to the set at its depth + 1 of the path: skips everything after it if every
 * token there is allowed. Returns -1 when memory is short. */
static int pass_tails(struct grammar_machine *machine, const struct vocabulary_node *node) {
    struct mask_walk *walk = &machine->walk;
    const struct vocabulary_node *nodes = walk->tree->nodes;
    if (!is_worth_asking(nodes, (int32_t)(node - nodes)))
        return 0;
    int64_t before = machine->work;
    int status = open_runs_may_follow(machine, walk->path[node->depth + 1],
                                      walk->tree->tail_kinds[node - nodes], node->tail_length);
    walk->work += machine->work - before;
    if (status <= 0)
        return status;
    int32_t first = node->first_token + node->num_tokens;
    allow(walk, walk->tree->tokens + first, nodes[node->end].first_token - first);
    walk->node = node->end;
    return 0;
}

/* Follows the bytes of the node that is next. Returns 0; 1 when it is given up; -1 when memory is
 * short. */
static int visit_node(struct grammar_machine *machine) {
    struct mask_walk *walk = &machine->walk;
    const struct vocabulary_node *node = &walk->tree->nodes[walk->node];
    const struct parse_set *from = machine->store.sets[walk->path[node->depth]];
    int32_t to = from->next[machine->grammar->classes[node->byte]];
    if (to == PARSE_SET_UNKNOWN) {
        if (is_given_up(walk))
            return 1;
        int64_t before = machine->work;
        to = grammar_machine_step(machine, walk->path[node->depth], node->byte);
        if (to < 0)
            return -1;
        walk->work += machine->work - before;
    }
    if (to == PARSE_SET_EMPTY) {
        walk->node = node->end;
        return 0;
    }
    open_runs_pass(machine, walk->path[node->depth], to, node->byte);
    walk->path[node->depth + 1] = to;
    allow(walk, walk->tree->tokens + node->first_token, node->num_tokens);
    walk->node++;
    return pass_tails(machine, node);
}

/* Sets the bits of tokens that the grammar names; returns whether there is any. */
static bool add_named_tokens(const struct grammar_machine *machine, const struct parse_set *set,
                             uint32_t *mask) {
    int32_t vocab_size = machine->vocabulary->vocab_size;
    bool any = false;
    for (int32_t i = 0; i < set->num_states; i++) {
        const struct grammar_op *op = &machine->grammar->ops[set->states[i].op];
        if (op->kind != OP_TOKEN || op->target < 0 || op->target >= vocab_size)
            continue;
        set_bit(mask, op->target);
        any = true;
    }
    return any;
}

/* Keeps the mask with the set. */
static void finish_walk(struct grammar_machine *machine) {
    struct mask_walk *walk = &machine->walk;
    struct parse_set *set = machine->store.sets[walk->state->set];
    bool any = add_named_tokens(machine, set, walk->mask) || walk->num_tokens > 0;
    int num_ends;
    const int32_t *ends = tokenizer_eos_tokens(machine->vocabulary->tokenizer, &num_ends);
    if (set->is_complete || !any) {
        for (int i = 0; i < num_ends; i++)
            set_bit(walk->mask, ends[i]);
        if (num_ends == 0 && !any)
            set_bit(walk->mask, 0);
    }
    CHECK(set->mask == NULL);
    set->mask = walk->mask;
    set->has_ends = set->is_complete || !any;
    machine->store.bytes += mask_words(machine->vocabulary) * sizeof(*walk->mask);
    machine->last_cost = walk->cost;
    walk->mask = NULL;
    walk->state = NULL;
}

int mask_walk_run(struct grammar_machine *machine, int64_t *budget) {
    struct mask_walk *walk = &machine->walk;
    int status = 0;
    while (status == 0 && walk->node < walk->tree->num_nodes) {
        int64_t known = visit_known(machine, *budget);
        walk->cost += known;
        *budget -= known;
        if (walk->node == walk->tree->num_nodes)
            break;
        if (*budget <= 0)
            return 1;
        int64_t before = walk->work;
        int32_t num_before = walk->num_tokens;
        status = visit_node(machine);
        int64_t cost = 1 + (walk->work - before) * GRAMMAR_WORK_COST +
                       (walk->num_tokens - num_before) / TOKENS_PER_NODE;
        walk->cost += cost;
        *budget -= cost;
    }
    if (status > 0)
        atomic_store_explicit(&walk->state->grammar->has_given_up, true, memory_order_relaxed);
    if (status < 0)
        mask_walk_drop(machine);
    else
        finish_walk(machine);
    return status < 0 ? -1 : 0;
}
