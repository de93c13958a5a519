#include "engine/grammar/build/utf8_ranges.h"

#include <stdlib.h>
#include <string.h>

#define LAST_CHARACTER 0x10ffff
#define FIRST_SURROGATE 0xd800
#define LAST_SURROGATE 0xdfff

struct sequence_list {
    struct utf8_sequence *items; /* NULL while they are only counted */
    int32_t count;
};

/* The last character of 1, 2, 3 and 4 bytes. */
static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xffff, LAST_CHARACTER};

/* first..last, all of num_bytes bytes. */
static void add_pieces(struct sequence_list *list, uint32_t first, uint32_t last, int num_bytes) {
    for (int i = 1; i < num_bytes; i++) {
        uint32_t tail = (UINT32_C(1) << (6 * i)) - 1;
        if ((first & ~tail) == (last & ~tail))
            continue;
        if ((first & tail) != 0) {
            add_pieces(list, first, first | tail, num_bytes);
            add_pieces(list, (first | tail) + 1, last, num_bytes);
            return;
        }
        if ((last & tail) != tail) {
            add_pieces(list, first, (last & ~tail) - 1, num_bytes);
            add_pieces(list, last & ~tail, last, num_bytes);
            return;
        }
    }
    if (list->items != NULL) {
        struct utf8_sequence *sequence = &list->items[list->count];
        sequence->num_bytes = num_bytes;
        utf8_encode(first, (char *)sequence->first);
        utf8_encode(last, (char *)sequence->last);
    }
    list->count++;
}

/* first..last without the surrogates. */
static void add_range(struct sequence_list *list, uint32_t first, uint32_t last) {
    if (first < FIRST_SURROGATE && last >= FIRST_SURROGATE) {
        add_range(list, first, FIRST_SURROGATE - 1);
        first = FIRST_SURROGATE;
    }
    if (first >= FIRST_SURROGATE && first <= LAST_SURROGATE)
        first = LAST_SURROGATE + 1;
    for (int length = 1; length <= 4 && first <= last; length++) {
        uint32_t end = last < last_of_length[length - 1] ? last : last_of_length[length - 1];
        if (first > end)
            continue;
        add_pieces(list, first, end, length);
        first = end + 1;
    }
}

static int compare_ranges(const void *a, const void *b) {
    const struct character_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* The sorted ranges' union, or what is outside of it. */
static void add_all(struct sequence_list *list, const struct character_range *sorted,
                    int32_t num_ranges, bool negated) {
    uint32_t outside = 0; /* the first character behind what was seen */
    for (int32_t i = 0; i < num_ranges;) {
        uint32_t first = sorted[i].first, last = sorted[i].last;
        for (i++; i < num_ranges && sorted[i].first <= last + 1; i++)
            last = sorted[i].last > last ? sorted[i].last : last;
        if (!negated)
            add_range(list, first, last);
        else if (first > outside)
            add_range(list, outside, first - 1);
        outside = last + 1;
    }
    if (negated && outside <= LAST_CHARACTER)
        add_range(list, outside, LAST_CHARACTER);
}

int32_t utf8_ranges_split(const struct character_range *ranges, int32_t num_ranges, bool negated,
                          struct utf8_sequence **out) {
    struct character_range *sorted = malloc(((size_t)num_ranges + 1) * sizeof(*sorted));
    if (sorted == NULL)
        return -1;
    if (num_ranges > 0)
        memcpy(sorted, ranges, (size_t)num_ranges * sizeof(*sorted));
    qsort(sorted, (size_t)num_ranges, sizeof(*sorted), compare_ranges);
    struct sequence_list list = {0};
    add_all(&list, sorted, num_ranges, negated);
    list.items = malloc(((size_t)list.count + 1) * sizeof(*list.items));
    if (list.items == NULL) {
        free(sorted);
        return -1;
    }
    list.count = 0;
    add_all(&list, sorted, num_ranges, negated);
    free(sorted);
    *out = list.items;
    return list.count;
}
