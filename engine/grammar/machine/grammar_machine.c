/* One step: every parse state that takes the byte moves on, and then along the ops that read
 * nothing, depth first and the grammar's first alternative first, until all wait for a byte again.
 *
 * A parse state only goes where its stack has room to come to an end (grammar.needs), so every one
 * in a set can be completed, and a set is PARSE_SET_EMPTY only when no text continues with these
 * bytes. Parse states beyond the bounds are dropped: the text still matches the grammar by those
 * that are kept. */
#include "engine/grammar/machine/grammar_machine.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "engine/grammar/machine/grammar_vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64
#define MAX_SEEN 16384     /* parse states passed through in one step */
#define STATES_PER_WORK 16 /* looked at in the time that it takes to follow one */

void grammar_machine_destroy(struct grammar_machine *machine) {
    if (machine == NULL)
        return;
    parse_store_finish(&machine->store);
    free(machine->walk.path);
    free(machine->pending);
    free(machine->seen);
    free(machine);
}

struct grammar_machine *grammar_machine_create(const struct grammar *grammar,
                                               const struct grammar_vocabulary *vocabulary) {
    struct grammar_machine *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return NULL;
    m->grammar = grammar;
    m->vocabulary = vocabulary;
    m->max_bytes = grammar->cache_bytes;
    m->walk.path = calloc((size_t)vocabulary->max_token_bytes + 2, sizeof(*m->walk.path));
    if (m->walk.path == NULL || parse_store_init(&m->store, grammar->num_classes) != 0) {
        grammar_machine_destroy(m);
        return NULL;
    }
    return m;
}

void grammar_machine_report(struct grammar *grammar) {
    atomic_store_explicit(&grammar->machine_bytes,
                          sizeof(*grammar->machine) + grammar->machine->store.bytes,
                          memory_order_relaxed);
}

/* --- Parse states seen in this step --- */

static struct parse_key *find_seen(struct grammar_machine *m, struct parse_state state) {
    uint32_t mask = (uint32_t)m->num_seen_slots - 1;
    uint32_t hash =
        (uint32_t)state.op * UINT32_C(0x9e3779b1) + (uint32_t)state.frame * UINT32_C(0x85ebca77);
    uint32_t i = (hash ^ hash >> 15) & mask;
    while (m->seen[i].round == m->round &&
           (m->seen[i].state.op != state.op || m->seen[i].state.frame != state.frame))
        i = (i + 1) & mask;
    return &m->seen[i];
}

static bool grow_seen(struct grammar_machine *m) {
    int32_t num_old = m->num_seen_slots;
    struct parse_key *old = m->seen;
    int32_t num_slots = num_old > 0 ? num_old * 2 : FIRST_SLOTS;
    struct parse_key *slots = calloc((size_t)num_slots, sizeof(*slots));
    if (slots == NULL)
        return false;
    m->seen = slots;
    m->num_seen_slots = num_slots;
    for (int32_t i = 0; i < num_old; i++)
        if (old[i].round == m->round)
            *find_seen(m, old[i].state) = old[i];
    free(old);
    return true;
}

/* Round 0 is that of slots never used. */
static void begin_step(struct grammar_machine *m) {
    if (++m->round == 0) {
        memset(m->seen, 0, (size_t)m->num_seen_slots * sizeof(*m->seen));
        m->round = 1;
    }
    m->num_seen = m->num_pending = m->num_found = 0;
    m->is_complete = m->has_failed = false;
}

static bool mark_seen(struct grammar_machine *m, struct parse_state state) {
    if (m->num_seen == MAX_SEEN)
        return false;
    if (m->num_seen == m->num_seen_slots / 2 && !grow_seen(m)) {
        m->has_failed = true;
        return false;
    }
    struct parse_key *key = find_seen(m, state);
    if (key->round == m->round)
        return false;
    *key = (struct parse_key){state, m->round};
    m->num_seen++;
    return true;
}

/* --- Following --- */

static bool has_room(const struct grammar_machine *m, struct parse_state state) {
    return parse_store_depth(&m->store, state.frame) + m->grammar->needs[state.op] <=
           GRAMMAR_MAX_DEPTH;
}

static void push(struct grammar_machine *m, int32_t op, int32_t frame) {
    struct parse_state state = {op, frame};
    if (m->has_failed || !has_room(m, state))
        return;
    if (!array_reserve(&m->pending, &m->pending_capacity, (size_t)m->num_pending + 1,
                       sizeof(state))) {
        m->has_failed = true;
        return;
    }
    m->pending[m->num_pending++] = state;
}

static void push_call(struct grammar_machine *m, int32_t target, int32_t return_to, int32_t count,
                      int32_t frame) {
    if (parse_store_depth(&m->store, frame) == GRAMMAR_MAX_DEPTH)
        return;
    int32_t called = parse_store_frame(&m->store, return_to, count, frame);
    if (called < 0)
        m->has_failed = true;
    else
        push(m, target, called);
}

/* At an OP_REPEAT, `count` items on. Without an end all counts from the minimum on are the same. */
static void push_repeat(struct grammar_machine *m, int32_t op, int32_t count, int32_t frame) {
    const struct grammar_op *repeat = &m->grammar->ops[op];
    if (count >= repeat->min)
        push(m, repeat->next, frame);
    if (repeat->max >= 0 && count >= repeat->max)
        return;
    bool counts = repeat->max >= 0 || count < repeat->min;
    push_call(m, repeat->target, op, counts ? count + 1 : count, frame);
}

static void follow_return(struct grammar_machine *m, int32_t frame) {
    if (frame == PARSE_NO_FRAME) {
        m->is_complete = true;
        return;
    }
    struct parse_frame top = m->store.frames[frame];
    if (m->grammar->ops[top.op].kind == OP_REPEAT)
        push_repeat(m, top.op, top.count, top.parent);
    else
        push(m, top.op, top.parent);
}

static void follow(struct grammar_machine *m, struct parse_state state) {
    const struct grammar_op *op = &m->grammar->ops[state.op];
    switch ((enum op_kind)op->kind) {
    case OP_BYTE:
    case OP_TOKEN:
        if (m->num_found < GRAMMAR_MAX_PARSE_STATES)
            m->found[m->num_found++] = state;
        break;
    case OP_RETURN:
        follow_return(m, state.frame);
        break;
    case OP_SPLIT:
        push(m, op->target, state.frame);
        push(m, op->next, state.frame);
        break;
    case OP_JUMP:
        push(m, op->target, state.frame);
        break;
    case OP_CALL:
        push_call(m, op->target, op->next, 0, state.frame);
        break;
    case OP_REPEAT:
        push_repeat(m, state.op, 0, state.frame);
        break;
    }
}

/* Follows the pending parse states; returns the set of those that wait for a byte. */
static int32_t finish_step(struct grammar_machine *m) {
    while (m->num_pending > 0 && !m->has_failed) {
        struct parse_state state = m->pending[--m->num_pending];
        if (mark_seen(m, state))
            follow(m, state);
    }
    m->work += m->num_seen;
    if (m->has_failed)
        return -1;
    return parse_store_set(&m->store, m->found, m->num_found, m->is_complete);
}

/* --- Sweeping --- */

/* Returns how many sets of its path a walk stands on: those of the bytes before its next node. */
static int num_on_path(const struct grammar_machine *m) {
    const struct mask_walk *walk = &m->walk;
    if (walk->state == NULL || walk->node >= walk->tree->num_nodes)
        return 0;
    return walk->tree->nodes[walk->node].depth + 1;
}

static int copy_kept(struct grammar_machine *m, struct parse_store *store) {
    for (struct grammar_state *state = m->users; state != NULL; state = state->next) {
        state->moved_set = parse_store_copy_set(store, &m->store, state->set);
        if (state->moved_set < 0)
            return -1;
    }
    for (int i = 0; i < num_on_path(m); i++)
        if (parse_store_copy_set(store, &m->store, m->walk.path[i]) < 0)
            return -1;
    return parse_store_copy_set(store, &m->store, m->at) < 0 ? -1 : 0;
}

/* Moves what states, the walk and the step stand on into a new store; all else is forgotten. */
static int sweep(struct grammar_machine *m) {
    struct parse_store store;
    if (parse_store_init(&store, m->grammar->num_classes) != 0)
        return -1;
    if (copy_kept(m, &store) != 0) {
        parse_store_finish(&store);
        return -1;
    }
    for (struct grammar_state *state = m->users; state != NULL; state = state->next)
        state->set = state->moved_set;
    for (int i = 0; i < num_on_path(m); i++) /* there by now */
        m->walk.path[i] = parse_store_copy_set(&store, &m->store, m->walk.path[i]);
    m->at = parse_store_copy_set(&store, &m->store, m->at);
    parse_store_finish(&m->store);
    m->store = store;
    m->num_sweeps++;
    m->max_bytes = m->grammar->cache_bytes;
    if (m->max_bytes < 2 * store.bytes)
        m->max_bytes = 2 * store.bytes;
    return 0;
}

/* Before a step that leaves the set, which is machine->at then. */
static int bound_store(struct grammar_machine *m, int32_t set) {
    m->at = set;
    return m->store.bytes > m->max_bytes ? sweep(m) : 0;
}

/* --- Steps --- */

int32_t grammar_machine_start(struct grammar_machine *machine) {
    begin_step(machine);
    push(machine, machine->grammar->entry, PARSE_NO_FRAME);
    return finish_step(machine);
}

static bool takes(const struct grammar_machine *m, const struct parse_state *state, uint8_t byte) {
    const struct grammar_op *op = &m->grammar->ops[state->op];
    return op->kind == OP_BYTE && byte >= op->first && byte <= op->last;
}

/* Of the set that the step leaves: bytes that the same parse states take lead to the same set. */
static void note_alike(struct grammar_machine *m, uint8_t byte, int32_t to) {
    struct parse_set *from = m->store.sets[m->at];
    for (int class = 0; class < m->grammar->num_classes; class ++) {
        uint8_t other = m->grammar->class_bytes[class];
        int32_t i = 0;
        if (from->next[class] != PARSE_SET_UNKNOWN)
            continue;
        while (i < from->num_states &&
               takes(m, &from->states[i], byte) == takes(m, &from->states[i], other))
            i++;
        if (i == from->num_states)
            from->next[class] = to;
        m->work += (i + 1) / STATES_PER_WORK;
    }
}

int32_t grammar_machine_step(struct grammar_machine *machine, int32_t set, uint8_t byte) {
    int class = machine->grammar->classes[byte];
    int32_t to = machine->store.sets[set]->next[class];
    if (to != PARSE_SET_UNKNOWN)
        return to;
    if (bound_store(machine, set) != 0)
        return -1;
    begin_step(machine);
    const struct parse_set *from = machine->store.sets[machine->at];
    machine->work += from->num_states;
    for (int32_t i = from->num_states - 1; i >= 0; i--) {
        const struct parse_state *state = &from->states[i];
        if (takes(machine, state, byte))
            push(machine, machine->grammar->ops[state->op].next, state->frame);
    }
    to = finish_step(machine);
    if (to >= 0)
        note_alike(machine, byte, to);
    return to;
}

int32_t grammar_machine_step_token(struct grammar_machine *machine, int32_t set, int32_t token) {
    if (bound_store(machine, set) != 0)
        return -1;
    const struct parse_set *from = machine->store.sets[machine->at];
    begin_step(machine);
    for (int32_t i = from->num_states - 1; i >= 0; i--) {
        const struct grammar_op *op = &machine->grammar->ops[from->states[i].op];
        if (op->kind == OP_TOKEN && op->target == token)
            push(machine, op->next, from->states[i].frame);
    }
    return finish_step(machine);
}
