#include "scripts/bench/cluster_sim/event_queue.h"

#include "config/base/array.h"

#include <stdlib.h>

static bool is_before(const struct event *a, const struct event *b) {
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

int event_queue_add(struct event_queue *queue, struct event event) {
    if (!array_reserve(&queue->heap, &queue->capacity, queue->count + 1, sizeof(*queue->heap)))
        return -1;
    event.order = queue->num_added++;
    size_t place = queue->count++;
    for (; place > 0 && is_before(&event, &queue->heap[(place - 1) / 2]); place = (place - 1) / 2)
        queue->heap[place] = queue->heap[(place - 1) / 2];
    queue->heap[place] = event;
    return 0;
}

bool event_queue_take(struct event_queue *queue, struct event *out) {
    if (queue->count == 0)
        return false;
    struct event *heap = queue->heap;
    *out = heap[0];
    struct event last = heap[--queue->count];
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < queue->count; place = child) {
        if (child + 1 < queue->count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &last))
            break;
        heap[place] = heap[child];
    }
    heap[place] = last;
    return true;
}

void event_queue_finish(struct event_queue *queue) {
    free(queue->heap);
    *queue = (struct event_queue){0};
}
