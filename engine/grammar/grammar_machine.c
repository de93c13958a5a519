/* One step: every reading that takes the byte moves on, and then along the ops that read nothing,
 * depth first and the grammar's first alternative first, until all readings wait for a byte again.
 *
 * A reading only goes where its stack has room to come to an end (grammar.needs), so every reading
 * in a set can be completed, and a set is READING_NONE only when no text goes on with these bytes.
 * Readings beyond the bounds are dropped: the text still matches the grammar by those that are
 * kept. */
#include "engine/grammar/grammar_machine.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "engine/grammar/grammar_state.h"
#include "engine/grammar/grammar_vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64
#define MAX_SEEN 16384 /* readings passed through in one step */

void grammar_machine_destroy(struct grammar_machine *machine) {
    if (machine == NULL)
        return;
    reading_store_finish(&machine->store);
    free(machine->path);
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
    m->path = calloc((size_t)vocabulary->max_token_bytes + 2, sizeof(*m->path));
    if (m->path == NULL || reading_store_init(&m->store, grammar->num_classes) != 0) {
        grammar_machine_destroy(m);
        return NULL;
    }
    return m;
}

/* --- Readings seen in this step --- */

static struct reading_key *find_seen(struct grammar_machine *m, struct reading reading) {
    uint32_t mask = (uint32_t)m->num_seen_slots - 1;
    uint32_t hash = (uint32_t)reading.op * UINT32_C(0x9e3779b1) +
                    (uint32_t)reading.frame * UINT32_C(0x85ebca77);
    uint32_t i = (hash ^ hash >> 15) & mask;
    while (m->seen[i].round == m->round &&
           (m->seen[i].reading.op != reading.op || m->seen[i].reading.frame != reading.frame))
        i = (i + 1) & mask;
    return &m->seen[i];
}

static bool grow_seen(struct grammar_machine *m) {
    int32_t num_old = m->num_seen_slots;
    struct reading_key *old = m->seen;
    int32_t num_slots = num_old > 0 ? num_old * 2 : FIRST_SLOTS;
    struct reading_key *slots = calloc((size_t)num_slots, sizeof(*slots));
    if (slots == NULL)
        return false;
    m->seen = slots;
    m->num_seen_slots = num_slots;
    for (int32_t i = 0; i < num_old; i++)
        if (old[i].round == m->round)
            *find_seen(m, old[i].reading) = old[i];
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

static bool mark_seen(struct grammar_machine *m, struct reading reading) {
    if (m->num_seen == MAX_SEEN)
        return false;
    if (m->num_seen == m->num_seen_slots / 2 && !grow_seen(m)) {
        m->has_failed = true;
        return false;
    }
    struct reading_key *key = find_seen(m, reading);
    if (key->round == m->round)
        return false;
    *key = (struct reading_key){reading, m->round};
    m->num_seen++;
    return true;
}

/* --- Following --- */

static bool has_room(const struct grammar_machine *m, struct reading reading) {
    return reading_store_depth(&m->store, reading.frame) + m->grammar->needs[reading.op] <=
           GRAMMAR_MAX_DEPTH;
}

static void push(struct grammar_machine *m, int32_t op, int32_t frame) {
    struct reading reading = {op, frame};
    if (m->has_failed || !has_room(m, reading))
        return;
    if (!array_reserve(&m->pending, &m->pending_capacity, (size_t)m->num_pending + 1,
                       sizeof(reading))) {
        m->has_failed = true;
        return;
    }
    m->pending[m->num_pending++] = reading;
}

static void push_call(struct grammar_machine *m, int32_t target, int32_t return_to, int32_t count,
                      int32_t frame) {
    if (reading_store_depth(&m->store, frame) == GRAMMAR_MAX_DEPTH)
        return;
    int32_t called = reading_store_frame(&m->store, return_to, count, frame);
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
    if (frame == READING_NO_FRAME) {
        m->is_complete = true;
        return;
    }
    struct reading_frame top = m->store.frames[frame];
    if (m->grammar->ops[top.op].kind == OP_REPEAT)
        push_repeat(m, top.op, top.count, top.parent);
    else
        push(m, top.op, top.parent);
}

static void follow(struct grammar_machine *m, struct reading reading) {
    const struct grammar_op *op = &m->grammar->ops[reading.op];
    switch ((enum op_kind)op->kind) {
    case OP_BYTE:
    case OP_TOKEN:
        if (m->num_found < GRAMMAR_MAX_READINGS)
            m->found[m->num_found++] = reading;
        break;
    case OP_RETURN:
        follow_return(m, reading.frame);
        break;
    case OP_SPLIT:
        push(m, op->target, reading.frame);
        push(m, op->next, reading.frame);
        break;
    case OP_JUMP:
        push(m, op->target, reading.frame);
        break;
    case OP_CALL:
        push_call(m, op->target, op->next, 0, reading.frame);
        break;
    case OP_REPEAT:
        push_repeat(m, reading.op, 0, reading.frame);
        break;
    }
}

/* The set of what the pending readings come to. */
static int32_t finish_step(struct grammar_machine *m) {
    while (m->num_pending > 0 && !m->has_failed) {
        struct reading reading = m->pending[--m->num_pending];
        if (mark_seen(m, reading))
            follow(m, reading);
    }
    m->work += m->num_seen;
    if (m->has_failed)
        return -1;
    return reading_store_set(&m->store, m->found, m->num_found, m->is_complete);
}

/* --- Sweeping --- */

/* Moves what states and path[0..depth] stand on into a new store; all else is forgotten. */
static int sweep(struct grammar_machine *m, int depth) {
    struct reading_store store;
    if (reading_store_init(&store, m->grammar->num_classes) != 0)
        return -1;
    for (struct grammar_state *state = m->states; state != NULL; state = state->next) {
        state->moved_set = reading_store_copy_set(&store, &m->store, state->set);
        if (state->moved_set < 0) {
            reading_store_finish(&store);
            return -1;
        }
    }
    for (int i = 0; i <= depth; i++) {
        if (reading_store_copy_set(&store, &m->store, m->path[i]) < 0) {
            reading_store_finish(&store);
            return -1;
        }
    }
    for (struct grammar_state *state = m->states; state != NULL; state = state->next)
        state->set = state->moved_set;
    for (int i = 0; i <= depth; i++) /* there by now */
        m->path[i] = reading_store_copy_set(&store, &m->store, m->path[i]);
    reading_store_finish(&m->store);
    m->store = store;
    m->max_bytes = m->grammar->cache_bytes;
    if (m->max_bytes < 2 * store.bytes)
        m->max_bytes = 2 * store.bytes;
    return 0;
}

/* --- Steps --- */

int32_t grammar_machine_start(struct grammar_machine *machine) {
    begin_step(machine);
    push(machine, machine->grammar->entry, READING_NO_FRAME);
    return finish_step(machine);
}

int32_t grammar_machine_step(struct grammar_machine *machine, int depth, uint8_t byte) {
    int class = machine->grammar->classes[byte];
    int32_t to = machine->store.sets[machine->path[depth]]->next[class];
    if (to == READING_UNKNOWN) {
        if (machine->store.bytes > machine->max_bytes && sweep(machine, depth) != 0)
            return -1;
        begin_step(machine);
        int32_t from = machine->path[depth];
        const struct reading_set *set = machine->store.sets[from];
        machine->work += set->num_readings;
        for (int32_t i = set->num_readings - 1; i >= 0; i--) {
            const struct grammar_op *op = &machine->grammar->ops[set->readings[i].op];
            if (op->kind == OP_BYTE && byte >= op->first && byte <= op->last)
                push(machine, op->next, set->readings[i].frame);
        }
        to = finish_step(machine);
        if (to < 0)
            return -1;
        machine->store.sets[from]->next[class] = to;
    }
    machine->path[depth + 1] = to;
    return to;
}

int32_t grammar_machine_step_token(struct grammar_machine *machine, int32_t set, int32_t token) {
    const struct reading_set *from = machine->store.sets[set];
    begin_step(machine);
    for (int32_t i = from->num_readings - 1; i >= 0; i--) {
        const struct grammar_op *op = &machine->grammar->ops[from->readings[i].op];
        if (op->kind == OP_TOKEN && op->target == token)
            push(machine, op->next, from->readings[i].frame);
    }
    return finish_step(machine);
}
