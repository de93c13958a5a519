/* A mask is found by walking the prefix tree of the vocabulary with the grammar's machine: a byte
 * that leads nowhere cuts off its whole subtree. The mask is kept with the set of parse states it
 * was found for, and found again by every state that comes to the same set. */
#include "engine/grammar/grammar_machine.h"

#include "config/base/check.h"
#include "engine/grammar/grammar_vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* Parse states followed for one mask, some tens of ms. A grammar that takes more (hundreds of them
 * that continue with every token) gets the tokens found so far, once there are any. */
#define MAX_MASK_WORK (1 << 21)

static void link_state(struct grammar_state *state) {
    struct grammar_machine *machine = state->grammar->machine;
    state->previous = NULL;
    state->next = machine->users;
    if (state->next != NULL)
        state->next->previous = state;
    machine->users = state;
}

struct grammar_state *grammar_state_create(struct grammar *grammar,
                                           const struct grammar_vocabulary *vocabulary) {
    if (grammar->machine == NULL)
        grammar->machine = grammar_machine_create(grammar, vocabulary);
    if (grammar->machine == NULL)
        return NULL;
    CHECK(grammar->machine->vocabulary == vocabulary);
    int32_t set = grammar_machine_start(grammar->machine);
    struct grammar_state *state = set >= 0 ? malloc(sizeof(*state)) : NULL;
    if (state == NULL)
        return NULL;
    *state = (struct grammar_state){grammar_ref(grammar), vocabulary, .set = set};
    link_state(state);
    return state;
}

void grammar_state_destroy(struct grammar_state *state) {
    if (state == NULL)
        return;
    if (state->previous != NULL)
        state->previous->next = state->next;
    else
        state->grammar->machine->users = state->next;
    if (state->next != NULL)
        state->next->previous = state->previous;
    grammar_unref(state->grammar);
    free(state);
}

struct grammar_state *grammar_state_clone(const struct grammar_state *state) {
    struct grammar_state *clone = malloc(sizeof(*clone));
    if (clone == NULL)
        return NULL;
    *clone = *state;
    grammar_ref(clone->grammar);
    link_state(clone);
    return clone;
}

/* --- The mask --- */

static size_t mask_words(const struct grammar_vocabulary *vocabulary) {
    return ((size_t)vocabulary->vocab_size + 31) / 32;
}

static void set_bit(uint32_t *mask, int32_t token) {
    mask[token / 32] |= UINT32_C(1) << (token % 32);
}

static bool test_bit(const uint32_t *mask, int32_t token) {
    return (mask[token / 32] >> (token % 32) & 1) != 0;
}

/* Sets the bits of the tree's tokens that lead somewhere. Returns -1 when memory is short. */
static int walk_tree(struct grammar_state *state, uint32_t *mask, bool *out_any) {
    const struct grammar_vocabulary *vocabulary = state->vocabulary;
    struct grammar_machine *machine = state->grammar->machine;
    const uint8_t *classes = state->grammar->classes;
    int64_t max_work = machine->work + MAX_MASK_WORK;
    machine->path[0] = state->set;
    for (int32_t i = 0; i < vocabulary->num_nodes;) {
        const struct vocabulary_node *node = &vocabulary->nodes[i];
        int32_t from = machine->path[node->depth];
        int32_t to = machine->store.sets[from]->next[classes[node->byte]];
        if (to == PARSE_SET_UNKNOWN) {
            if (machine->work > max_work && *out_any)
                return 0;
            to = grammar_machine_step(machine, node->depth, node->byte);
            if (to < 0)
                return -1;
        }
        if (to == PARSE_SET_EMPTY) {
            i = node->end;
            continue;
        }
        machine->path[node->depth + 1] = to;
        for (int32_t t = 0; t < node->num_tokens; t++)
            set_bit(mask, vocabulary->tokens[node->first_token + t]);
        *out_any |= node->num_tokens > 0;
        i++;
    }
    return 0;
}

/* Sets the bits of tokens that the grammar names; returns whether there is any. */
static bool add_named_tokens(const struct grammar_state *state, uint32_t *mask) {
    const struct parse_set *set = state->grammar->machine->store.sets[state->set];
    bool any = false;
    for (int32_t i = 0; i < set->num_states; i++) {
        const struct grammar_op *op = &state->grammar->ops[set->states[i].op];
        if (op->kind != OP_TOKEN || op->target < 0 || op->target >= state->vocabulary->vocab_size)
            continue;
        set_bit(mask, op->target);
        any = true;
    }
    return any;
}

static int find_mask(struct grammar_state *state, uint32_t *mask) {
    bool any = false;
    if (walk_tree(state, mask, &any) != 0)
        return -1;
    const struct parse_set *set = state->grammar->machine->store.sets[state->set];
    any |= add_named_tokens(state, mask);
    int num_ends;
    const int32_t *ends = tokenizer_eos_tokens(state->vocabulary->tokenizer, &num_ends);
    if (set->is_complete || !any) {
        for (int i = 0; i < num_ends; i++)
            set_bit(mask, ends[i]);
        if (num_ends == 0 && !any)
            set_bit(mask, 0);
    }
    return 0;
}

/* The mask of the state's set, found now if it is not known; NULL when memory is short. */
static const uint32_t *ensure_mask(struct grammar_state *state) {
    struct parse_store *store = &state->grammar->machine->store;
    if (store->sets[state->set]->mask != NULL)
        return store->sets[state->set]->mask;
    size_t words = mask_words(state->vocabulary);
    uint32_t *mask = calloc(words > 0 ? words : 1, sizeof(*mask));
    if (mask == NULL || find_mask(state, mask) != 0) {
        free(mask);
        return NULL;
    }
    store->bytes += words * sizeof(*mask);
    store->sets[state->set]->mask = mask;
    return mask;
}

int grammar_state_mask(struct grammar_state *state, uint32_t *mask) {
    const uint32_t *found = ensure_mask(state);
    if (found == NULL)
        return -1;
    memcpy(mask, found, mask_words(state->vocabulary) * sizeof(*mask));
    return 0;
}

/* --- Moving on --- */

static int32_t step_text(struct grammar_state *state, struct text piece) {
    struct grammar_machine *machine = state->grammar->machine;
    machine->path[0] = state->set;
    int32_t set = state->set;
    for (size_t i = 0; i < piece.length && set > PARSE_SET_EMPTY; i++)
        set = grammar_machine_step(machine, (int)i, (uint8_t)piece.data[i]);
    return set;
}

int grammar_state_accept(struct grammar_state *state, int32_t token) {
    const struct tokenizer *tokenizer = state->vocabulary->tokenizer;
    if (token < 0 || token >= state->vocabulary->vocab_size)
        return -1;
    int32_t set = grammar_machine_step_token(state->grammar->machine, state->set, token);
    if (set == PARSE_SET_EMPTY && tokenizer_is_eos(tokenizer, token)) {
        const uint32_t *mask = ensure_mask(state);
        return mask != NULL && test_bit(mask, token) ? 0 : -1;
    }
    if (set == PARSE_SET_EMPTY && grammar_vocabulary_has_text(tokenizer, token))
        set = step_text(state, tokenizer_piece(tokenizer, token));
    if (set <= PARSE_SET_EMPTY)
        return -1;
    state->set = set;
    return 0;
}

bool grammar_state_is_final(const struct grammar_state *state) {
    const struct parse_set *set = state->grammar->machine->store.sets[state->set];
    return set->is_complete && set->num_states == 0;
}
