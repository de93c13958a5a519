#include "engine/grammar/machine/open_runs.h"

#include "engine/grammar/machine/character_kinds.h"
#include "engine/grammar/machine/grammar_vocabulary.h"
#include "config/base/numbers.h"

/* --- Many items of a repetition at once --- */

/* Why that is so: let f add 1 to the count of every frame of one OP_REPEAT with one parent, and to
 * = f(from). A step passes the same ops from f(set) as from the set, since counts matter only where
 * push_repeat compares them, and no comparison changes (num_alike). Frames that the step makes for
 * a newly entered repetition start at 1 from either set; none of those may be in `to`, because f
 * would have had to make it of a count of 0. So the step from f(from) ends in f(to). */

#define MAX_STATES 64 /* far below GRAMMAR_MAX_PARSE_STATES: no step from such sets drops any */

/* The frames that differ: of the repetition `op` above `parent`, from the lowest count to the
 * highest. */
struct shifted {
    int32_t op, parent;
    int32_t lowest, highest;
};

static bool is_shifted(const struct shifted *s, const struct parse_frame *frame) {
    return frame->op == s->op && frame->parent == s->parent;
}

/* Compares the stack `from` with `to`, which differ. Returns false when it is in more than one
 * count that is higher by one. */
static bool add_difference(const struct parse_store *store, int32_t from, int32_t to,
                           struct shifted *s) {
    while (from != PARSE_NO_FRAME && to != PARSE_NO_FRAME) {
        const struct parse_frame *a = &store->frames[from], *b = &store->frames[to];
        if (a->op != b->op)
            return false;
        if (a->parent != b->parent && a->count != b->count)
            return false;
        if (a->parent == b->parent) {
            bool is_first = s->op < 0;
            if (is_first)
                *s = (struct shifted){a->op, a->parent, a->count, a->count};
            s->lowest = min_int32(s->lowest, a->count);
            s->highest = max_int32(s->highest, a->count);
            return is_shifted(s, a) && b->count == a->count + 1;
        }
        from = a->parent;
        to = b->parent;
    }
    return false;
}

/* Returns whether the stack has a frame of the repetition. */
static bool has_repetition(const struct parse_store *store, int32_t frame,
                           const struct shifted *s) {
    for (; frame != PARSE_NO_FRAME; frame = store->frames[frame].parent)
        if (is_shifted(s, &store->frames[frame]))
            return true;
    return false;
}

/* Fills *out with how the sets differ; false when it is in anything else. */
static bool find_shifted(const struct parse_store *store, const struct parse_set *from,
                         const struct parse_set *to, struct shifted *out) {
    *out = (struct shifted){.op = -1};
    if (from->num_states != to->num_states || from->num_states > MAX_STATES ||
        from->is_complete != to->is_complete)
        return false;
    for (int32_t i = 0; i < from->num_states; i++) {
        int32_t a = from->states[i].frame, b = to->states[i].frame;
        if (from->states[i].op != to->states[i].op || (a != b && !add_difference(store, a, b, out)))
            return false;
    }
    for (int32_t i = 0; out->op >= 0 && i < from->num_states; i++)
        if (from->states[i].frame == to->states[i].frame &&
            has_repetition(store, from->states[i].frame, out))
            return false;
    return out->op >= 0;
}

/* Returns how many items more may come, at most `most`, before any count could be compared with the
 * minimum or the maximum with another outcome than now. A text of an item may be the bytes of
 * several items in a stack that ends with it. */
static int32_t num_alike(const struct grammar_op *repeat, const struct shifted *s, int32_t most) {
    int32_t after = s->highest + 1 + REPEAT_SHIFT_MAX_BYTES;
    if (s->lowest < repeat->min)
        most = min_int32(most, repeat->min - 1 - after);
    if (repeat->max >= 0)
        most = min_int32(most, repeat->max - 1 - after);
    return max_int32(most, 0);
}

/* Returns the frame with the repetition's count higher by so much; -1 when memory is short. */
static int32_t shift_frame(struct parse_store *store, int32_t frame, const struct shifted *s,
                           int32_t by) {
    const struct parse_frame top = store->frames[frame];
    if (is_shifted(s, &top))
        return parse_store_frame(store, top.op, top.count + by, top.parent);
    int32_t parent = shift_frame(store, top.parent, s, by);
    return parent < 0 ? -1 : parse_store_frame(store, top.op, top.count, parent);
}

static int32_t shift_set(struct parse_store *store, int32_t set, const struct shifted *s,
                         int32_t by) {
    struct parse_state states[MAX_STATES];
    const struct parse_set *from = store->sets[set];
    for (int32_t i = 0; i < from->num_states; i++) {
        states[i] = from->states[i];
        if (!has_repetition(store, states[i].frame, s))
            continue;
        states[i].frame = shift_frame(store, states[i].frame, s, by);
        if (states[i].frame < 0)
            return -1;
    }
    return parse_store_set(store, states, from->num_states, from->is_complete);
}

int32_t repeat_shift(struct grammar_machine *machine, int32_t from, int32_t to, int32_t most,
                     int32_t *out_set) {
    struct parse_store *store = &machine->store;
    struct shifted shifted;
    if (!find_shifted(store, store->sets[from], store->sets[to], &shifted))
        return 0;
    int32_t count = num_alike(&machine->grammar->ops[shifted.op], &shifted, most);
    if (count > 0)
        *out_set = shift_set(store, to, &shifted, count);
    return count > 0 && *out_set < 0 ? -1 : count;
}

/* --- Questions about a set --- */

#define MIXED (-2)        /* not all characters of a kind lead to one set */
#define ENDLESS INT32_MAX /* a run */
#define ALL_KINDS                                                                                  \
    ((KIND_BIT(KIND_END_SINGLES) - 1) | KIND_BIT(KIND_TAB) | KIND_BIT(KIND_NEWLINE) |              \
     KIND_BIT(KIND_RETURN))

#define QUOTES (KIND_BIT(character_kind('"')) | KIND_BIT(character_kind('\\')))

#define MAX_OPEN_SETS 16
#define MAX_WORK 8192 /* parse states followed to answer one question */

/* A question: sets keep their ids until it is given up. */
struct question {
    struct grammar_machine *machine;
    uint32_t num_sweeps;
    int64_t work; /* of the machine, at its end at the latest */
    bool is_given_up;
};

/* Returns where the byte leads; -1 when memory is short, and PARSE_SET_EMPTY once it is given up.
 */
static int32_t step(struct question *q, int32_t set, uint8_t byte) {
    struct grammar_machine *machine = q->machine;
    if (q->is_given_up)
        return PARSE_SET_EMPTY;
    int32_t to = machine->store.sets[set]->next[machine->grammar->classes[byte]];
    if (to != PARSE_SET_UNKNOWN)
        return to;
    if (machine->work < q->work)
        to = grammar_machine_step(machine, set, byte);
    q->is_given_up |= machine->work >= q->work || machine->num_sweeps != q->num_sweeps;
    return q->is_given_up && to != -1 ? PARSE_SET_EMPTY : to;
}

/* Returns the set that the bytes first..last lead to, each followed by num_more continuation bytes;
 * MIXED: there are several. */
static int32_t target_of_bytes(struct question *q, int32_t set, uint8_t first, uint8_t last,
                               int num_more) {
    const uint8_t *classes = q->machine->grammar->classes;
    int32_t target = MIXED, last_to = MIXED;
    for (int byte = first; byte <= last; byte++) {
        if (byte > first && classes[byte] == classes[byte - 1])
            continue;
        int32_t to = step(q, set, (uint8_t)byte);
        if (to == -1 || q->is_given_up)
            return to;
        if (to == last_to)
            continue;
        last_to = to;
        if (num_more > 0 && to > PARSE_SET_EMPTY)
            to = target_of_bytes(q, to, 0x80, 0xbf, num_more - 1);
        if (to < 0 || (target != MIXED && to != target))
            return to == -1 ? -1 : MIXED;
        target = to;
    }
    return target;
}

static int32_t target_beyond_ascii(struct question *q, int32_t set, int kind) {
    const uint8_t *classes = q->machine->grammar->classes;
    int32_t target = MIXED;
    for (int i = 0; i < character_num_lead_ranges; i++) {
        const struct lead_range *range = &character_lead_ranges[i];
        for (int lead = range->first; lead <= range->last && range->kind == kind; lead++) {
            if (lead > range->first && classes[lead] == classes[lead - 1])
                continue;
            int32_t to = step(q, set, (uint8_t)lead);
            if (to > PARSE_SET_EMPTY)
                to = target_of_bytes(q, to, range->second, range->second_last, range->num_more);
            if (to < 0 || q->is_given_up || (target != MIXED && to != target))
                return to == -1 || q->is_given_up ? to : MIXED;
            target = to;
        }
    }
    return target;
}

/* Returns the set that all characters of the kind lead to; MIXED; -1 when memory is short. */
static int32_t target_of_kind(struct question *q, int32_t set, int kind) {
    static const uint8_t firsts[] = {'a', 'A', '0'}, lasts[] = {'z', 'Z', '9'};
    if (kind == KIND_CONTROLS || q->is_given_up)
        return MIXED;
    if (kind >= KIND_FIRST_SINGLE)
        return step(q, set, character_of_single(kind));
    int32_t target = q->machine->store.sets[set]->targets[kind];
    if (target != PARSE_SET_UNKNOWN)
        return target;
    target = kind >= KIND_FIRST_BEYOND_ASCII
                 ? target_beyond_ascii(q, set, kind)
                 : target_of_bytes(q, set, firsts[kind], lasts[kind], 0);
    if (target != -1 && !q->is_given_up)
        q->machine->store.sets[set]->targets[kind] = target;
    return target;
}

/* --- Runs --- */

/* Where the kinds of characters lead from a set. */
struct branching {
    uint64_t kinds; /* to `target` */
    uint64_t dead;  /* nowhere */
    int32_t target; /* of the first kind that has one; MIXED: of none */
};

static int find_branching(struct question *q, int32_t set, struct branching *out) {
    *out = (struct branching){.target = MIXED};
    for (uint64_t left = ALL_KINDS; left != 0; left &= left - 1) {
        int32_t to = target_of_kind(q, set, __builtin_ctzll(left));
        if (to == -1)
            return -1;
        if (to == PARSE_SET_EMPTY)
            out->dead |= left & -left;
        if (to > PARSE_SET_EMPTY && out->target == MIXED)
            out->target = to;
        if (to > PARSE_SET_EMPTY && to == out->target)
            out->kinds |= left & -left;
    }
    return 0;
}

/* Follows the set's own kinds until they lead elsewhere, or as far as any token may go. */
static int find_run(struct question *q, int32_t set, struct parse_run *run) {
    struct branching at;
    if (find_branching(q, set, &at) != 0)
        return -1;
    *run = (struct parse_run){.kinds = at.kinds, .dead = at.dead};
    while (at.target != MIXED && !q->is_given_up && run->length < VOCABULARY_MAX_TAIL) {
        const struct branching before = at;
        if (at.target == set) {
            run->length = ENDLESS;
            break;
        }
        int32_t most = ENDLESS - run->length - 1;
        int32_t num_more = repeat_shift(q->machine, set, at.target, most, &at.target);
        set = at.target;
        if (num_more < 0 || find_branching(q, set, &at) != 0)
            return -1;
        run->length += 1 + num_more;
        run->ends = at.kinds != before.kinds || at.dead != before.dead;
        run->behind = set;
        if (run->ends)
            break;
    }
    return 0;
}

/* Fills *out with the set's run: without any kinds when the question is given up. */
static int run_of(struct question *q, int32_t set, struct parse_run *out) {
    *out = q->machine->store.sets[set]->run;
    if (out->is_known)
        return 0;
    if (find_run(q, set, out) != 0)
        return -1;
    if (q->is_given_up)
        *out = (struct parse_run){0};
    out->is_known = true;
    if (q->machine->num_sweeps == q->num_sweeps)
        q->machine->store.sets[set]->run = *out;
    return 0;
}

/* --- Open kinds --- */

struct open_sets {
    int32_t sets[MAX_OPEN_SETS];
    int count;
};

/* Returns false when there are too many. */
static bool add_set(struct open_sets *open, int32_t set) {
    for (int i = 0; i < open->count; i++)
        if (open->sets[i] == set)
            return true;
    if (open->count == MAX_OPEN_SETS)
        return false;
    open->sets[open->count++] = set;
    return true;
}

/* Adds where the ASCII bytes of the kinds lead from the set. Returns the kinds of those that lead
 * nowhere; all of them when there are too many sets. */
static uint64_t add_targets(struct question *q, struct open_sets *open, int32_t set,
                            uint64_t kinds) {
    const uint8_t *classes = q->machine->grammar->classes;
    uint64_t closed = 0;
    for (int byte = 0; byte < 0x80; byte++) {
        uint64_t kind = KIND_BIT(character_kind((uint8_t)byte));
        if ((kinds & kind) == 0 ||
            (byte > 0 && character_kind((uint8_t)(byte - 1)) == character_kind((uint8_t)byte) &&
             classes[byte] == classes[byte - 1]))
            continue;
        int32_t to = step(q, set, (uint8_t)byte);
        if (to <= PARSE_SET_EMPTY)
            closed |= kind;
        else if (!add_set(open, to))
            return kinds;
    }
    for (int kind = KIND_FIRST_BEYOND_ASCII; kind < KIND_FIRST_SINGLE; kind++) {
        int32_t to = (kinds >> kind & 1) != 0 ? target_of_kind(q, set, kind) : set;
        if (to <= PARSE_SET_EMPTY || !add_set(open, to))
            closed |= KIND_BIT(kind);
    }
    return closed;
}

/* Returns kinds of which any characters may follow the set, in any number. A kind that is closed in
 * a set that others lead to is left out, and the search begins again; at first that is done with
 * those that end a JSON string or are escaped in it, as they would close all others. */
static uint64_t find_open(struct question *q, int32_t set) {
    uint64_t kinds = UINT64_MAX & ~(KIND_BIT(KIND_CONTROLS));
    bool has_quotes = true;
    while (kinds != 0 && !q->is_given_up) {
        struct open_sets open = {{set}, 1};
        uint64_t closed = 0;
        for (int i = 0; i < open.count && closed == 0; i++) {
            closed = add_targets(q, &open, open.sets[i], kinds);
            if (closed != 0 && has_quotes && i > 0) {
                closed = QUOTES;
                has_quotes = false;
            }
        }
        if (closed == 0)
            return kinds;
        kinds &= ~closed;
    }
    return 0;
}

static uint64_t open_kinds(struct question *q, int32_t set) {
    if (!q->machine->store.sets[set]->has_open_kinds) {
        uint64_t kinds = find_open(q, set);
        if (q->machine->num_sweeps != q->num_sweeps)
            return 0;
        q->machine->store.sets[set]->open_kinds |= kinds;
        q->machine->store.sets[set]->has_open_kinds = true;
    }
    return q->machine->store.sets[set]->open_kinds;
}

/* --- Answers --- */

/* Finds where all characters of the kinds lead; MIXED: to several sets. Returns 0, and the kind in
 * question in *out_closed, when one leads nowhere or it is not known; -1 when memory is short. */
static int32_t find_target(struct question *q, int32_t set, uint64_t kinds, uint64_t *out_closed) {
    int32_t target = PARSE_SET_UNKNOWN;
    for (uint64_t left = kinds; left != 0 && target != MIXED; left &= left - 1) {
        int32_t to = target_of_kind(q, set, __builtin_ctzll(left));
        *out_closed = left & -left;
        if (to == -1 || to == PARSE_SET_EMPTY || q->is_given_up)
            return to == -1 ? -1 : 0;
        target = target == PARSE_SET_UNKNOWN || target == to ? to : MIXED;
    }
    *out_closed = kinds;
    return target;
}

/* Stores with the set that this number of characters of the kinds may not follow. */
static int refuse(const struct question *q, int32_t set, uint64_t kinds, int count) {
    if (q->is_given_up)
        return 0; /* a sweep may have renamed the set */
    struct parse_set *kept = q->machine->store.sets[set];
    kept->closed_kinds = kinds;
    kept->closed_length = (uint8_t)count;
    return 0;
}

/* Where the kinds are not those of the set's run. */
static int follow_kinds(struct question *q, int32_t first, uint64_t kinds, int count) {
    int32_t set = first;
    for (int i = 0; i < count; i++) {
        struct parse_set *at = q->machine->store.sets[set];
        uint64_t closed;
        if ((kinds & ~at->open_kinds) == 0)
            return 1;
        if (at->closed_length > 0 && count - i >= at->closed_length &&
            (kinds & at->closed_kinds) == at->closed_kinds)
            return 0;
        int32_t target = find_target(q, set, kinds, &closed);
        if (target == -1)
            return OPEN_RUNS_FAILED;
        if (target == MIXED && (kinds & ~open_kinds(q, set)) == 0)
            return 1;
        if (target <= PARSE_SET_EMPTY)
            return refuse(q, first, closed, i + 1);
        if (target == set)
            at->open_kinds |= kinds;
        set = target;
    }
    return 1;
}

int open_runs_may_follow(struct grammar_machine *machine, int32_t set, uint64_t kinds, int count) {
    struct question q = {machine, machine->num_sweeps, machine->work + MAX_WORK, false};
    struct parse_run run;
    for (; count > 0; count -= run.length, set = run.behind) {
        if ((kinds & ~machine->store.sets[set]->open_kinds) == 0)
            return 1;
        if (run_of(&q, set, &run) != 0)
            return OPEN_RUNS_FAILED;
        if (q.is_given_up || (kinds & run.dead) != 0)
            return 0;
        if ((kinds & ~run.kinds) != 0)
            return follow_kinds(&q, set, kinds, count);
        if (count > run.length && !run.ends)
            return 0;
    }
    return 1;
}

int open_runs_plain(struct grammar_machine *machine, int32_t set) {
    struct question q = {machine, machine->num_sweeps, machine->work + MAX_WORK, false};
    const uint64_t plain = character_plain_kinds();
    struct parse_run run;
    for (int length = 0; length < VOCABULARY_MAX_TAIL; set = run.behind) {
        if (run_of(&q, set, &run) != 0)
            return OPEN_RUNS_FAILED;
        if (q.is_given_up)
            return OPEN_RUNS_UNKNOWN;
        if ((plain & ~run.dead) == 0)
            return length;
        if ((plain & ~run.kinds) != 0)
            return (plain & ~open_kinds(&q, set)) == 0 ? VOCABULARY_MAX_TAIL : OPEN_RUNS_UNKNOWN;
        if (!run.ends)
            break; /* as long as any token */
        length += run.length;
    }
    return VOCABULARY_MAX_TAIL;
}

void open_runs_pass(struct grammar_machine *machine, int32_t from, int32_t to, uint8_t byte) {
    const struct parse_run *run = &machine->store.sets[from]->run;
    struct parse_run *next = &machine->store.sets[to]->run;
    if (!run->is_known || next->is_known || run->length < 2 || byte >= 0x80 ||
        (run->kinds & KIND_BIT(character_kind(byte))) == 0)
        return;
    bool may_be_short = !run->ends && run->length <= VOCABULARY_MAX_TAIL; /* looked at no further */
    if (may_be_short)
        return;
    *next = *run;
    next->length -= run->length != ENDLESS;
}
