/* Two hash tables of ids with open addressing; at most half of their slots are used. The slots'
 * number also says how many entries the arrays have room for: half as many. */
#include "engine/grammar/machine/parse_store.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64
#define MAX_SLOTS (1 << 29)

static uint32_t mix(uint32_t hash, uint32_t value) {
    hash = (hash ^ value) * UINT32_C(0x9e3779b1);
    return hash ^ hash >> 15;
}

static uint32_t hash_frame(const struct parse_frame *frame) {
    uint32_t hash = mix(mix(0, (uint32_t)frame->op), (uint32_t)frame->count);
    return mix(hash, (uint32_t)frame->parent);
}

static uint32_t hash_set(const struct parse_state *states, int32_t num_states, bool is_complete) {
    uint32_t hash = is_complete;
    for (int32_t i = 0; i < num_states; i++)
        hash = mix(mix(hash, (uint32_t)states[i].op), (uint32_t)states[i].frame);
    return hash;
}

static bool frames_equal(const struct parse_frame *a, const struct parse_frame *b) {
    return a->op == b->op && a->count == b->count && a->parent == b->parent;
}

static bool is_set(const struct parse_set *set, const struct parse_state *states,
                   int32_t num_states, bool is_complete) {
    return set->num_states == num_states && set->is_complete == is_complete &&
           (num_states == 0 ||
            memcmp(set->states, states, (size_t)num_states * sizeof(*states)) == 0);
}

static int32_t *find_frame(struct parse_store *store, const struct parse_frame *frame) {
    uint32_t mask = (uint32_t)store->num_frame_slots - 1, i = hash_frame(frame) & mask;
    while (store->frame_slots[i] >= 0 &&
           !frames_equal(&store->frames[store->frame_slots[i]], frame))
        i = (i + 1) & mask;
    return &store->frame_slots[i];
}

static int32_t *find_set(struct parse_store *store, const struct parse_state *states,
                         int32_t num_states, bool is_complete) {
    uint32_t mask = (uint32_t)store->num_set_slots - 1;
    uint32_t i = hash_set(states, num_states, is_complete) & mask;
    while (store->set_slots[i] >= 0 &&
           !is_set(store->sets[store->set_slots[i]], states, num_states, is_complete))
        i = (i + 1) & mask;
    return &store->set_slots[i];
}

/* Empty slots, twice as many as *num_slots, and entries for half of them; NULL, and nothing has
 * changed, when memory is short. */
static int32_t *grow(struct parse_store *store, int32_t num_slots, void **entries,
                     size_t entry_bytes) {
    CHECK(num_slots < MAX_SLOTS);
    int32_t grown = num_slots > 0 ? num_slots * 2 : FIRST_SLOTS;
    void *more = realloc(*entries, (size_t)grown / 2 * entry_bytes);
    if (more == NULL)
        return NULL;
    *entries = more;
    int32_t *slots = malloc((size_t)grown * sizeof(*slots));
    if (slots == NULL)
        return NULL;
    memset(slots, 0xff, (size_t)grown * sizeof(*slots));
    store->bytes += (size_t)(grown - num_slots) * (sizeof(*slots) + entry_bytes / 2);
    return slots;
}

static bool grow_frames(struct parse_store *store) {
    void *frames = store->frames;
    int32_t *slots = grow(store, store->num_frame_slots, &frames, sizeof(*store->frames));
    store->frames = frames;
    if (slots == NULL)
        return false;
    free(store->frame_slots);
    store->frame_slots = slots;
    store->num_frame_slots = store->num_frame_slots > 0 ? store->num_frame_slots * 2 : FIRST_SLOTS;
    for (int32_t i = 0; i < store->num_frames; i++)
        *find_frame(store, &store->frames[i]) = i;
    return true;
}

static bool grow_sets(struct parse_store *store) {
    void *sets = store->sets;
    int32_t *slots = grow(store, store->num_set_slots, &sets, sizeof(*store->sets));
    store->sets = sets;
    if (slots == NULL)
        return false;
    free(store->set_slots);
    store->set_slots = slots;
    store->num_set_slots = store->num_set_slots > 0 ? store->num_set_slots * 2 : FIRST_SLOTS;
    for (int32_t i = 0; i < store->num_sets; i++) {
        const struct parse_set *set = store->sets[i];
        *find_set(store, set->states, set->num_states, set->is_complete) = i;
    }
    return true;
}

int parse_store_init(struct parse_store *store, int num_classes) {
    *store = (struct parse_store){.num_classes = num_classes};
    if (grow_frames(store) && parse_store_set(store, NULL, 0, false) == PARSE_SET_EMPTY)
        return 0;
    parse_store_finish(store);
    return -1;
}

void parse_store_finish(struct parse_store *store) {
    for (int32_t i = 0; i < store->num_sets; i++) {
        free(store->sets[i]->mask);
        free(store->sets[i]);
    }
    free(store->frames);
    free(store->frame_slots);
    free(store->sets);
    free(store->set_slots);
    *store = (struct parse_store){0};
}

int32_t parse_store_frame(struct parse_store *store, int32_t op, int32_t count, int32_t parent) {
    if (store->num_frames == store->num_frame_slots / 2 && !grow_frames(store))
        return -1;
    struct parse_frame frame = {op, count, parent, parse_store_depth(store, parent) + 1};
    int32_t *slot = find_frame(store, &frame);
    if (*slot < 0) {
        *slot = store->num_frames;
        store->frames[store->num_frames++] = frame;
    }
    return *slot;
}

static struct parse_set *create_set(struct parse_store *store, const struct parse_state *states,
                                    int32_t num_states, bool is_complete) {
    size_t next_bytes = (size_t)store->num_classes * sizeof(int32_t);
    size_t bytes = sizeof(struct parse_set) + next_bytes + (size_t)num_states * sizeof(*states);
    struct parse_set *set = malloc(bytes);
    if (set == NULL)
        return NULL;
    set->states = (struct parse_state *)(set->next + store->num_classes);
    set->num_states = num_states;
    set->is_complete = is_complete;
    set->mask = NULL;
    set->has_ends = false;
    set->has_open_kinds = false;
    set->closed_length = 0;
    set->run = (struct parse_run){0};
    set->open_kinds = 0;
    for (int i = 0; i < PARSE_SET_TARGETS; i++)
        set->targets[i] = PARSE_SET_UNKNOWN;
    memset(set->next, 0xff, next_bytes);
    if (num_states > 0)
        memcpy(set->states, states, (size_t)num_states * sizeof(*states));
    store->bytes += bytes;
    return set;
}

int32_t parse_store_set(struct parse_store *store, const struct parse_state *states,
                        int32_t num_states, bool is_complete) {
    if (store->num_sets == store->num_set_slots / 2 && !grow_sets(store))
        return -1;
    int32_t *slot = find_set(store, states, num_states, is_complete);
    if (*slot < 0) {
        struct parse_set *set = create_set(store, states, num_states, is_complete);
        if (set == NULL)
            return -1;
        *slot = store->num_sets;
        store->sets[store->num_sets++] = set;
    }
    return *slot;
}

static int32_t copy_frame(struct parse_store *store, const struct parse_store *from,
                          int32_t frame) {
    int32_t stack[GRAMMAR_MAX_DEPTH];
    int depth = 0;
    for (; frame != PARSE_NO_FRAME; frame = from->frames[frame].parent)
        stack[depth++] = frame;
    int32_t copy = PARSE_NO_FRAME;
    while (depth > 0) {
        const struct parse_frame *original = &from->frames[stack[--depth]];
        copy = parse_store_frame(store, original->op, original->count, copy);
        if (copy < 0)
            return -2;
    }
    return copy;
}

int32_t parse_store_copy_set(struct parse_store *store, const struct parse_store *from,
                             int32_t set) {
    const struct parse_set *original = from->sets[set];
    struct parse_state states[GRAMMAR_MAX_PARSE_STATES];
    for (int32_t i = 0; i < original->num_states; i++) {
        int32_t frame = copy_frame(store, from, original->states[i].frame);
        if (frame < PARSE_NO_FRAME)
            return -1;
        states[i] = (struct parse_state){original->states[i].op, frame};
    }
    return parse_store_set(store, states, original->num_states, original->is_complete);
}
