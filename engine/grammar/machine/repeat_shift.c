/* Why that is so: let f add 1 to the count of every frame of one OP_REPEAT with one parent, and to
 * = f(from). A step passes the same ops from f(set) as from the set, since counts matter only where
 * push_repeat compares them, and no comparison changes (num_alike). Frames that the step makes for
 * a repetition entered anew start at 1 from either set; none of those may be in `to`, because f
 * would have had to make it of a count of 0. So the step from f(from) ends in f(to). */
#include "engine/grammar/machine/repeat_shift.h"

#include "config/base/numbers.h"

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
