#include "engine/sequence/beam_trellis.h"

#include "config/base/check.h"
#include "config/base/checked.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

void beam_trellis_init(struct beam_trellis *trellis, int32_t max_top) {
    CHECK(max_top >= 0);
    *trellis = (struct beam_trellis){.max_top = max_top, .first_free = -1};
}

void beam_trellis_finish(struct beam_trellis *trellis) {
    free(trellis->nodes);
    free(trellis->top);
    memset(trellis, 0, sizeof(*trellis));
}

static int grow_top(struct beam_trellis *trellis, int32_t capacity) {
    size_t bytes;
    if (trellis->max_top == 0)
        return 0;
    if (!checked_mul((size_t)capacity * sizeof(*trellis->top), (size_t)trellis->max_top, &bytes))
        return -1;
    struct top_logprob *top = realloc(trellis->top, bytes);
    if (top == NULL)
        return -1;
    trellis->top = top;
    return 0;
}

/* Doubles the capacity. */
static int grow(struct beam_trellis *trellis) {
    if (trellis->capacity > INT32_MAX / 2)
        return -1;
    int32_t capacity = trellis->capacity > 0 ? trellis->capacity * 2 : FIRST_CAPACITY;
    if (grow_top(trellis, capacity) != 0)
        return -1;
    struct beam_node *nodes = realloc(trellis->nodes, (size_t)capacity * sizeof(*nodes));
    if (nodes == NULL)
        return -1;
    for (int32_t i = capacity - 1; i >= trellis->capacity; i--) {
        nodes[i] = (struct beam_node){.parent = trellis->first_free};
        trellis->first_free = i;
    }
    trellis->nodes = nodes;
    trellis->capacity = capacity;
    return 0;
}

int beam_trellis_reserve(struct beam_trellis *trellis, int32_t num_nodes) {
    while (trellis->capacity - trellis->num_used < num_nodes)
        if (grow(trellis) != 0)
            return -1;
    return 0;
}

static struct beam_node *used_node(const struct beam_trellis *trellis, int32_t node) {
    CHECK(node >= 0 && node < trellis->capacity && trellis->nodes[node].references > 0);
    return &trellis->nodes[node];
}

int32_t beam_trellis_add(struct beam_trellis *trellis, int32_t parent) {
    int32_t node = trellis->first_free;
    CHECK(node >= 0);
    if (parent != BEAM_TRELLIS_ROOT)
        used_node(trellis, parent)->references++;
    trellis->first_free = trellis->nodes[node].parent;
    trellis->nodes[node] = (struct beam_node){.parent = parent, .references = 1};
    trellis->num_used++;
    return node;
}

struct top_logprob *beam_trellis_top(const struct beam_trellis *trellis, int32_t node) {
    return trellis->top + (size_t)node * (size_t)trellis->max_top;
}

void beam_trellis_unref(struct beam_trellis *trellis, int32_t node) {
    while (node != BEAM_TRELLIS_ROOT && --used_node(trellis, node)->references == 0) {
        int32_t parent = trellis->nodes[node].parent;
        trellis->nodes[node].parent = trellis->first_free;
        trellis->first_free = node;
        trellis->num_used--;
        node = parent;
    }
}

void beam_trellis_count(const struct beam_trellis *trellis, int32_t node, int32_t *out_num_tokens,
                        size_t *out_num_top) {
    int32_t num_tokens = 0;
    size_t num_top = 0;
    for (; node != BEAM_TRELLIS_ROOT; node = trellis->nodes[node].parent) {
        num_tokens++;
        num_top += (size_t)used_node(trellis, node)->num_top;
    }
    *out_num_tokens = num_tokens;
    *out_num_top = num_top;
}

void beam_trellis_read(const struct beam_trellis *trellis, int32_t node,
                       struct token_record *records, struct top_logprob *top) {
    int32_t i;
    size_t num_top;
    beam_trellis_count(trellis, node, &i, &num_top);
    for (; node != BEAM_TRELLIS_ROOT; node = trellis->nodes[node].parent) {
        const struct beam_node *from = &trellis->nodes[node];
        num_top -= (size_t)from->num_top;
        if (from->num_top > 0)
            memcpy(top + num_top, beam_trellis_top(trellis, node),
                   (size_t)from->num_top * sizeof(*top));
        records[--i] = (struct token_record){.token = from->token,
                                             .logprob = from->logprob,
                                             .rank = from->rank,
                                             .first_top = (int32_t)num_top,
                                             .num_top = from->num_top};
    }
}
