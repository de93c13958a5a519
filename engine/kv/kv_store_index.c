/* Two hash tables with chains: the known slots by key, and for each key that some slot names as its
 * previous one, how many do. The latter has keys whose own block is not known, since a continuation
 * may come first. A key that is to be kept has an entry there too, as if it had a continuation.
 * Slots that may leave are in a heap, the least recently used on top. */
#include "engine/kv/kv_store_index.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STAMP (UINT64_MAX / 2) /* of a file; larger ones are damaged */

enum slot_state { SLOT_FREE, SLOT_WRITTEN, SLOT_READY, SLOT_DROPPED /* but pinned */ };

struct slot {
    struct block_key key;
    int32_t group;
    int32_t next;   /* of the bucket, or the next free one; -1 at the end */
    int32_t parent; /* entry of `parents` with the previous key */
    int32_t place;  /* in the heap, -1: not in it */
    int32_t num_pins;
    bool has_tokens;
    enum slot_state state;
};

struct parent {
    struct block_key key;
    int32_t group;
    int32_t num_children; /* known slots that have it as previous, and num_kept */
    int32_t num_kept;     /* calls of kv_store_index_keep */
    int32_t next;         /* of the bucket, or the next unused one; -1 at the end */
};

struct kv_store_index {
    int32_t num_slots, block_size;
    int32_t num_known, num_kept; /* slots; keys that are to be kept */
    uint32_t mask;               /* number of buckets of either table, less 1 */
    int32_t *buckets, *parent_buckets;
    int32_t free_slot, free_parent; /* first ones; -1: none */
    struct slot *slots;
    struct parent *parents; /* [max_parents]: each known slot names one, each kept key another */
    int32_t max_parents;
    int32_t *tokens; /* [num_slots][block_size] */
    int32_t *heap;   /* [heap_size] slots, room for all */
    int32_t heap_size;
    bool loading; /* the heap is not kept yet */
    _Atomic uint64_t last_stamp;
    _Atomic uint64_t *stamps; /* [num_slots] */
};

/* --- Life --- */

static uint32_t buckets_for(int32_t num_slots) {
    uint32_t buckets = 1;
    while (buckets < (uint32_t)num_slots)
        buckets *= 2;
    return buckets;
}

int32_t kv_store_index_max_kept(int32_t num_slots) {
    return num_slots / 2;
}

size_t kv_store_index_bytes(int32_t num_slots, int32_t block_size) {
    size_t num_parents = (size_t)num_slots + (size_t)kv_store_index_max_kept(num_slots);
    size_t of_slot =
        sizeof(struct slot) + ((size_t)block_size + 1) * sizeof(int32_t) + sizeof(uint64_t);
    return 2 * (size_t)buckets_for(num_slots) * sizeof(int32_t) + (size_t)num_slots * of_slot +
           num_parents * sizeof(struct parent);
}

struct kv_store_index *kv_store_index_create(int32_t num_slots, int32_t block_size) {
    CHECK(num_slots >= 1 && block_size >= 1);
    struct kv_store_index *index = calloc(1, sizeof(*index));
    if (index == NULL)
        return NULL;
    size_t count = (size_t)num_slots, num_buckets = buckets_for(num_slots);
    index->num_slots = num_slots;
    index->block_size = block_size;
    index->mask = (uint32_t)num_buckets - 1;
    index->max_parents = num_slots + kv_store_index_max_kept(num_slots);
    index->buckets = malloc(num_buckets * sizeof(*index->buckets));
    index->parent_buckets = malloc(num_buckets * sizeof(*index->parent_buckets));
    index->slots = malloc(count * sizeof(*index->slots));
    index->parents = calloc((size_t)index->max_parents, sizeof(*index->parents));
    index->tokens = calloc(count, (size_t)block_size * sizeof(*index->tokens));
    index->heap = malloc(count * sizeof(*index->heap));
    index->stamps = calloc(count, sizeof(*index->stamps));
    if (index->buckets == NULL || index->parent_buckets == NULL || index->slots == NULL ||
        index->parents == NULL || index->tokens == NULL || index->heap == NULL ||
        index->stamps == NULL) {
        kv_store_index_destroy(index);
        return NULL;
    }
    kv_store_index_clear(index);
    index->loading = true;
    return index;
}

void kv_store_index_destroy(struct kv_store_index *index) {
    if (index == NULL)
        return;
    free(index->buckets);
    free(index->parent_buckets);
    free(index->slots);
    free(index->parents);
    free(index->tokens);
    free(index->heap);
    free(index->stamps);
    free(index);
}

/* --- The heap --- */

static uint64_t stamp_of(const struct kv_store_index *index, int32_t slot) {
    return atomic_load_explicit(&index->stamps[slot], memory_order_relaxed);
}

static void set_stamp(struct kv_store_index *index, int32_t slot, uint64_t stamp) {
    atomic_store_explicit(&index->stamps[slot], stamp, memory_order_relaxed);
}

static uint64_t next_stamp(struct kv_store_index *index) {
    return atomic_fetch_add_explicit(&index->last_stamp, 1, memory_order_relaxed) + 1;
}

static void place_at(struct kv_store_index *index, int32_t place, int32_t slot) {
    index->heap[place] = slot;
    index->slots[slot].place = place;
}

static void move_up(struct kv_store_index *index, int32_t place) {
    int32_t slot = index->heap[place];
    uint64_t stamp = stamp_of(index, slot);
    while (place > 0 && stamp_of(index, index->heap[(place - 1) / 2]) > stamp) {
        place_at(index, place, index->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    place_at(index, place, slot);
}

static void move_down(struct kv_store_index *index, int32_t place) {
    int32_t slot = index->heap[place];
    uint64_t stamp = stamp_of(index, slot);
    for (;;) {
        int64_t child = 2 * (int64_t)place + 1;
        if (child + 1 < index->heap_size &&
            stamp_of(index, index->heap[child + 1]) < stamp_of(index, index->heap[child]))
            child++;
        if (child >= index->heap_size || stamp_of(index, index->heap[child]) >= stamp)
            break;
        place_at(index, place, index->heap[child]);
        place = (int32_t)child;
    }
    place_at(index, place, slot);
}

static void heap_add(struct kv_store_index *index, int32_t slot) {
    place_at(index, index->heap_size, slot);
    move_up(index, index->heap_size++);
}

static void heap_remove(struct kv_store_index *index, int32_t slot) {
    int32_t place = index->slots[slot].place;
    int32_t last = index->heap[--index->heap_size];
    index->slots[slot].place = -1;
    if (last == slot)
        return;
    place_at(index, place, last);
    move_up(index, place);
    move_down(index, index->slots[last].place);
}

/* --- The tables --- */

static int32_t *bucket_of(const struct kv_store_index *index, int32_t *buckets,
                          const struct block_key *key, int32_t group) {
    return &buckets[(key->low + (uint64_t)group) & index->mask];
}

static int32_t find_key(const struct kv_store_index *index, const struct block_key *key,
                        int32_t group) {
    int32_t slot = *bucket_of(index, index->buckets, key, group);
    while (slot >= 0 &&
           (index->slots[slot].group != group || !block_key_equal(&index->slots[slot].key, key)))
        slot = index->slots[slot].next;
    return slot;
}

static int32_t find_parent(const struct kv_store_index *index, const struct block_key *key,
                           int32_t group) {
    int32_t parent = *bucket_of(index, index->parent_buckets, key, group);
    while (parent >= 0 && (index->parents[parent].group != group ||
                           !block_key_equal(&index->parents[parent].key, key)))
        parent = index->parents[parent].next;
    return parent;
}

static int32_t *tokens_of(const struct kv_store_index *index, int32_t slot) {
    return index->tokens + (size_t)slot * (size_t)index->block_size;
}

/* Of the keys that have an entry, leaves those that are to be kept. */
static void clear_parents(struct kv_store_index *index) {
    int32_t num_kept = 0;
    for (int32_t i = 0; i < index->max_parents; i++)
        if (index->parents[i].num_kept > 0)
            index->parents[num_kept++] = index->parents[i];
    for (int32_t i = 0; i < num_kept; i++) {
        struct parent *it = &index->parents[i];
        int32_t *bucket = bucket_of(index, index->parent_buckets, &it->key, it->group);
        it->num_children = it->num_kept;
        it->next = *bucket;
        *bucket = i;
    }
    for (int32_t i = num_kept; i < index->max_parents; i++)
        index->parents[i] = (struct parent){.next = i + 1 < index->max_parents ? i + 1 : -1};
    index->free_parent = num_kept < index->max_parents ? num_kept : -1;
}

void kv_store_index_clear(struct kv_store_index *index) {
    for (uint32_t i = 0; i <= index->mask; i++)
        index->buckets[i] = index->parent_buckets[i] = -1;
    for (int32_t i = 0; i < index->num_slots; i++)
        index->slots[i] = (struct slot){.next = i + 1 < index->num_slots ? i + 1 : -1, .place = -1};
    clear_parents(index);
    index->free_slot = 0;
    index->num_known = 0;
    index->heap_size = 0;
}

/* Puts a slot into the heap or takes it out, as its state demands. */
static void settle(struct kv_store_index *index, int32_t slot) {
    const struct slot *it = &index->slots[slot];
    if (index->loading)
        return;
    bool may_leave =
        it->state == SLOT_READY && it->num_pins == 0 && find_parent(index, &it->key, it->group) < 0;
    if (may_leave && it->place < 0)
        heap_add(index, slot);
    if (!may_leave && it->place >= 0)
        heap_remove(index, slot);
}

static void settle_key(struct kv_store_index *index, const struct block_key *key, int32_t group) {
    int32_t slot = find_key(index, key, group);
    if (slot >= 0)
        settle(index, slot);
}

/* Counts a continuation of that key; returns its entry. */
static int32_t add_child(struct kv_store_index *index, const struct block_key *key, int32_t group) {
    int32_t parent = find_parent(index, key, group);
    if (parent < 0) {
        int32_t *bucket = bucket_of(index, index->parent_buckets, key, group);
        parent = index->free_parent;
        CHECK(parent >= 0);
        index->free_parent = index->parents[parent].next;
        index->parents[parent] = (struct parent){.key = *key, .group = group, .next = *bucket};
        *bucket = parent;
    }
    index->parents[parent].num_children++;
    settle_key(index, key, group);
    return parent;
}

static void remove_child(struct kv_store_index *index, int32_t parent) {
    struct parent *it = &index->parents[parent];
    if (--it->num_children > 0)
        return;
    int32_t *link = bucket_of(index, index->parent_buckets, &it->key, it->group);
    while (*link != parent)
        link = &index->parents[*link].next;
    *link = it->next;
    it->next = index->free_parent;
    index->free_parent = parent;
    settle_key(index, &it->key, it->group);
}

bool kv_store_index_keep(struct kv_store_index *index, const struct block_key *key, int32_t group) {
    int32_t parent = find_parent(index, key, group);
    bool is_kept = parent >= 0 && index->parents[parent].num_kept > 0;
    if (!is_kept && index->num_kept == kv_store_index_max_kept(index->num_slots))
        return false;
    index->num_kept += !is_kept;
    index->parents[add_child(index, key, group)].num_kept++;
    return true;
}

void kv_store_index_unkeep(struct kv_store_index *index, const struct block_key *key,
                           int32_t group) {
    int32_t parent = find_parent(index, key, group);
    if (parent < 0 || index->parents[parent].num_kept == 0)
        return;
    index->num_kept -= --index->parents[parent].num_kept == 0;
    remove_child(index, parent);
}

/* Fills a slot that is in no list. */
static void fill(struct kv_store_index *index, int32_t slot, const struct block_content *content,
                 enum slot_state state) {
    int32_t *bucket = bucket_of(index, index->buckets, &content->key, content->group);
    index->slots[slot] = (struct slot){.key = content->key,
                                       .group = content->group,
                                       .next = *bucket,
                                       .place = -1,
                                       .has_tokens = content->tokens != NULL,
                                       .state = state};
    *bucket = slot;
    if (content->tokens != NULL)
        memcpy(tokens_of(index, slot), content->tokens,
               (size_t)index->block_size * sizeof(*content->tokens));
    index->slots[slot].parent = add_child(index, &content->previous, content->group);
    index->num_known++;
}

/* --- While it is made --- */

bool kv_store_index_load(struct kv_store_index *index, int32_t slot,
                         const struct block_content *content, uint64_t stamp) {
    CHECK(index->loading && slot >= 0 && slot < index->num_slots);
    if (index->slots[slot].state != SLOT_FREE ||
        find_key(index, &content->key, content->group) >= 0)
        return false;
    if (stamp > MAX_STAMP)
        stamp = 0;
    fill(index, slot, content, SLOT_READY);
    set_stamp(index, slot, stamp);
    if (stamp > index->last_stamp)
        index->last_stamp = stamp;
    return true;
}

void kv_store_index_begin(struct kv_store_index *index) {
    CHECK(index->loading);
    index->loading = false;
    index->free_slot = -1;
    for (int32_t slot = index->num_slots - 1; slot >= 0; slot--) {
        if (index->slots[slot].state == SLOT_FREE) {
            index->slots[slot].next = index->free_slot;
            index->free_slot = slot;
        } else {
            settle(index, slot);
        }
    }
}

/* --- Use --- */

int32_t kv_store_index_find(const struct kv_store_index *index,
                            const struct block_content *content) {
    int32_t slot = find_key(index, &content->key, content->group);
    if (slot < 0 || index->slots[slot].state != SLOT_READY)
        return -1;
    bool same =
        block_key_equal(&index->parents[index->slots[slot].parent].key, &content->previous) &&
        (!index->slots[slot].has_tokens ||
         memcmp(tokens_of(index, slot), content->tokens,
                (size_t)index->block_size * sizeof(*content->tokens)) == 0);
    return same ? slot : -1;
}

void kv_store_index_touch(struct kv_store_index *index, int32_t slot) {
    set_stamp(index, slot, next_stamp(index));
    if (index->slots[slot].place >= 0)
        move_down(index, index->slots[slot].place);
}

void kv_store_index_pin(struct kv_store_index *index, int32_t slot) {
    index->slots[slot].num_pins++;
    settle(index, slot);
}

void kv_store_index_unpin(struct kv_store_index *index, int32_t slot) {
    CHECK(index->slots[slot].num_pins > 0);
    index->slots[slot].num_pins--;
    if (index->slots[slot].num_pins == 0 && index->slots[slot].state == SLOT_DROPPED)
        kv_store_index_drop(index, slot);
    else
        settle(index, slot);
}

static void evict(struct kv_store_index *index, struct block_content *left) {
    const struct slot *it = &index->slots[index->heap[0]];
    *left = (struct block_content){
        .key = it->key, .group = it->group, .previous = index->parents[it->parent].key};
    kv_store_index_drop(index, index->heap[0]);
}

bool kv_store_index_shrink(struct kv_store_index *index, struct block_content *left) {
    if (index->heap_size == 0)
        return false;
    evict(index, left);
    index->free_slot = index->slots[index->free_slot].next;
    return true;
}

int32_t kv_store_index_take(struct kv_store_index *index, const struct block_content *content,
                            bool *evicted, struct block_content *left) {
    CHECK(!index->loading);
    if (find_key(index, &content->key, content->group) >= 0)
        return -1;
    /* What a new block continues must not leave for it. */
    int32_t before = find_key(index, &content->previous, content->group);
    if (before >= 0)
        kv_store_index_touch(index, before);
    *evicted = index->free_slot < 0;
    if (*evicted) {
        if (index->heap_size == 0 || index->heap[0] == before)
            return -1;
        evict(index, left);
    }
    int32_t slot = index->free_slot;
    index->free_slot = index->slots[slot].next;
    fill(index, slot, content, SLOT_WRITTEN);
    set_stamp(index, slot, next_stamp(index));
    return slot;
}

void kv_store_index_written(struct kv_store_index *index, int32_t slot) {
    CHECK(index->slots[slot].state == SLOT_WRITTEN);
    index->slots[slot].state = SLOT_READY;
    settle(index, slot);
}

void kv_store_index_drop(struct kv_store_index *index, int32_t slot) {
    struct slot *it = &index->slots[slot];
    CHECK(!index->loading && it->state != SLOT_FREE);
    if (it->place >= 0)
        heap_remove(index, slot);
    if (it->num_pins > 0) {
        it->state = SLOT_DROPPED;
        return;
    }
    int32_t *link = bucket_of(index, index->buckets, &it->key, it->group);
    while (*link != slot)
        link = &index->slots[*link].next;
    *link = it->next;
    int32_t parent = it->parent;
    *it = (struct slot){.next = index->free_slot, .place = -1};
    index->free_slot = slot;
    index->num_known--;
    remove_child(index, parent);
}

int32_t kv_store_index_num_known(const struct kv_store_index *index) {
    return index->num_known;
}

int32_t kv_store_index_num_kept(const struct kv_store_index *index) {
    return index->num_kept;
}

int32_t kv_store_index_num_slots(const struct kv_store_index *index) {
    return index->num_slots;
}

const _Atomic uint64_t *kv_store_index_stamps(const struct kv_store_index *index) {
    return index->stamps;
}

uint64_t kv_store_index_last_stamp(const struct kv_store_index *index) {
    return atomic_load_explicit(&index->last_stamp, memory_order_relaxed);
}
