/* Shares with waiting groups are in a binary heap. A share moves in it when its first group
 * changes, or its sum of virtual time and reserved tokens; groups of any number cost nothing per
 * step. */
#include "engine/schedule/share_queue.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ASSUMED_OUTPUT 128 /* tokens, of a share of which nothing has ended yet */
#define OUTPUTS_IN_MEAN 8

int share_queue_init(struct share_queue *queue, int32_t num_shares) {
    CHECK(num_shares >= 1);
    *queue = (struct share_queue){
        .shares = calloc((size_t)num_shares, sizeof(*queue->shares)),
        .heap = calloc((size_t)num_shares, sizeof(struct share *)),
        .num_shares = num_shares,
    };
    if (queue->shares == NULL || queue->heap == NULL) {
        share_queue_finish(queue);
        return -1;
    }
    for (int32_t i = 0; i < num_shares; i++) {
        queue->shares[i].weight = 1;
        queue->shares[i].mean_output = ASSUMED_OUTPUT;
    }
    return 0;
}

size_t share_queue_bytes(int32_t num_shares) {
    return (size_t)num_shares * (sizeof(struct share) + sizeof(struct share *));
}

void share_queue_finish(struct share_queue *queue) {
    free(queue->shares);
    free(queue->heap);
    memset(queue, 0, sizeof(*queue));
}

static struct share *share_of(const struct share_queue *queue, const struct sequence_group *group) {
    CHECK(group->request->share < queue->num_shares);
    return &queue->shares[group->request->share];
}

/* --- Order of shares --- */

static double sum_of(const struct share *share) {
    return share->virtual_time + (double)share->num_reserved / share->weight;
}

static bool has_place(const struct sequence_group *group) {
    return group->place < INFINITY;
}

static double order_of(const struct share *share, const struct sequence_group *group) {
    return has_place(group) ? group->place : sum_of(share);
}

static bool is_first_of(const struct share *a, const struct sequence_group *group_a,
                        const struct share *b, const struct sequence_group *group_b) {
    double order_a = order_of(a, group_a), order_b = order_of(b, group_b);
    return order_a != order_b ? order_a < order_b : group_a->request->id < group_b->request->id;
}

static bool is_before(const struct share *a, const struct share *b) {
    return is_first_of(a, a->waiting.first, b, b->waiting.first);
}

static void put(struct share_queue *queue, int32_t index, struct share *share) {
    queue->heap[index] = share;
    share->heap_index = index;
}

static void sift_up(struct share_queue *queue, struct share *share) {
    int32_t index = share->heap_index;
    for (; index > 0 && is_before(share, queue->heap[(index - 1) / 2]); index = (index - 1) / 2)
        put(queue, index, queue->heap[(index - 1) / 2]);
    put(queue, index, share);
}

static void sift_down(struct share_queue *queue, struct share *share) {
    int32_t index = share->heap_index;
    for (;;) {
        int32_t child = 2 * index + 1;
        if (child + 1 < queue->heap_count && is_before(queue->heap[child + 1], queue->heap[child]))
            child++;
        if (child >= queue->heap_count || !is_before(queue->heap[child], share))
            break;
        put(queue, index, queue->heap[child]);
        index = child;
    }
    put(queue, index, share);
}

static void update(struct share_queue *queue, struct share *share) {
    if (share->waiting.count == 0)
        return;
    sift_up(queue, share);
    sift_down(queue, share);
}

/* Lifts a share that begins to wait. */
static void lift(struct share_queue *queue, struct share *share) {
    const struct share *next = queue->heap_count > 0 ? queue->heap[0] : NULL;
    if (next == NULL)
        queue->current = queue->latest;
    else if (!has_place(next->waiting.first))
        queue->current = fmax(queue->current, next->virtual_time);
    share->virtual_time = fmax(share->virtual_time, queue->current);
}

/* --- Order in a share --- */

static void exchange(struct sequence_group *a, struct sequence_group *b) {
    double place = a->place;
    a->place = b->place;
    b->place = place;
}

/* Redistributes the places of the group and of those of its share in the list, in their order: each
 * group after it takes the place of the one before. Groups without a place come after all others of
 * their share, before and after this. Returns whether a place of the list changed. */
static bool exchange_places(struct group_list *list, struct sequence_group *group) {
    struct sequence_group *last = group;
    bool has_changed = false;
    for (struct sequence_group *g = list->first; g != NULL; g = g->list_next) {
        if (g->request->share != group->request->share)
            continue;
        if (!has_place(g) && !has_place(last))
            break;
        bool is_behind = sequence_group_before(group, g);
        if (is_behind ? g->place < last->place : g->place > group->place) {
            exchange(g, is_behind ? last : group);
            has_changed = true;
        }
        last = is_behind ? g : group;
    }
    return has_changed;
}

void share_queue_insert_running(struct group_list *running, struct sequence_group *group) {
    CHECK(has_place(group));
    if (exchange_places(running, group)) {
        struct group_list before = *running;
        *running = (struct group_list){0};
        while (before.first != NULL) {
            struct sequence_group *g = before.first;
            group_list_remove(&before, g);
            group_list_insert(running, g);
        }
    }
    group_list_insert(running, group);
}

/* --- Groups that wait --- */

void share_queue_return(struct share_queue *queue, struct sequence_group *group) {
    struct share *share = share_of(queue, group);
    exchange_places(&share->waiting, group);
    group_list_insert(&share->waiting, group);
    if (share->waiting.count == 1)
        put(queue, queue->heap_count++, share);
    queue->count++;
    update(queue, share);
}

void share_queue_yield(struct share_queue *queue, struct sequence_group *group) {
    group->place = INFINITY;
    share_queue_return(queue, group);
}

void share_queue_add(struct share_queue *queue, struct sequence_group *group) {
    struct share *share = share_of(queue, group);
    share->weight = group->request->weight;
    if (share->waiting.count == 0)
        lift(queue, share);
    share_queue_yield(queue, group);
}

void share_queue_remove(struct share_queue *queue, struct sequence_group *group) {
    struct share *share = share_of(queue, group);
    group_list_remove(&share->waiting, group);
    queue->count--;
    if (share->waiting.count > 0) {
        update(queue, share);
        return;
    }
    struct share *last = queue->heap[--queue->heap_count];
    if (last == share)
        return;
    put(queue, share->heap_index, last);
    update(queue, last);
}

static void reserve(struct share *share, struct sequence_group *group, int32_t num_pending,
                    int32_t num_outputs) {
    const struct sequence *sequence = &group->sequences[0];
    int32_t most = sequence->max_tokens - sequence_num_prompt(sequence);
    share->num_reserved -= group->num_reserved;
    group->num_reserved = num_pending + (int64_t)(num_outputs * fmin(share->mean_output, most));
    share->num_reserved += group->num_reserved;
}

void share_queue_admit(struct share_queue *queue, struct sequence_group *group, int32_t num_pending,
                       int32_t num_outputs) {
    struct share *share = share_of(queue, group);
    share_queue_remove(queue, group);
    if (!has_place(group)) {
        group->place = sum_of(share);
        queue->current = fmax(queue->current, share->virtual_time);
    }
    if (!group->started)
        reserve(share, group, num_pending, num_outputs);
    group->num_served_before = group->num_served;
    share->num_running++;
    update(queue, share);
}

void share_queue_stop(struct share_queue *queue, const struct sequence_group *group) {
    share_of(queue, group)->num_running--;
}

struct sequence_group *share_queue_next(const struct share_queue *queue,
                                        const struct sequence_group *group) {
    if (group != NULL && group->list_next != NULL)
        return group->list_next;
    int32_t index = group == NULL ? 0 : share_of(queue, group)->heap_index + 1;
    return index < queue->heap_count ? queue->heap[index]->waiting.first : NULL;
}

static struct sequence_group *first_not_stalled(const struct share *share) {
    struct sequence_group *g = share->waiting.first;
    while (g != NULL && g->stalled)
        g = g->list_next;
    return g;
}

/* Few groups are stalled: as a rule the first share has the answer. */
struct sequence_group *share_queue_first(const struct share_queue *queue) {
    const struct share *best = NULL;
    struct sequence_group *first = NULL;
    for (int32_t i = 0; i < queue->heap_count; i++) {
        const struct share *share = queue->heap[i];
        struct sequence_group *g = first_not_stalled(share);
        if (i == 0 && g == share->waiting.first)
            return g;
        if (g == NULL || (first != NULL && is_first_of(best, first, share, g)))
            continue;
        best = share;
        first = g;
    }
    return first;
}

struct sequence_group *share_queue_first_idle(const struct share_queue *queue,
                                              const struct sequence_group *first) {
    const struct share *best = share_of(queue, first);
    struct sequence_group *found = NULL;
    if (best->num_running == 0)
        return NULL;
    for (int32_t i = 0; i < queue->heap_count; i++) {
        const struct share *share = queue->heap[i];
        struct sequence_group *g = first_not_stalled(share);
        if (share->num_running > 0 || g == NULL || sum_of(share) > sum_of(best))
            continue;
        best = share;
        found = g;
    }
    return found;
}

bool share_queue_is_due(const struct share_queue *queue, const struct sequence_group *group,
                        const struct sequence_group *next) {
    return sum_of(share_of(queue, group)) <= order_of(share_of(queue, next), next);
}

/* --- Service --- */

void share_queue_charge(struct share_queue *queue, struct sequence_group *group,
                        int32_t num_tokens) {
    struct share *share = share_of(queue, group);
    int64_t num_reserved = min_int64(group->num_reserved, num_tokens);
    if (num_tokens == 0)
        return;
    group->num_served += num_tokens;
    group->num_reserved -= num_reserved;
    share->num_reserved -= num_reserved;
    share->virtual_time += (double)num_tokens / share->weight;
    queue->latest = fmax(queue->latest, share->virtual_time);
    update(queue, share);
}

void share_queue_note_output(struct share_queue *queue, const struct sequence_group *group,
                             int32_t num_tokens) {
    struct share *share = share_of(queue, group);
    share->mean_output += (num_tokens - share->mean_output) / OUTPUTS_IN_MEAN;
}

void share_queue_settle(struct share_queue *queue, struct sequence_group *group) {
    struct share *share = share_of(queue, group);
    share->num_reserved -= group->num_reserved;
    group->num_reserved = 0;
    update(queue, share);
}
