#include "kernels/sampling.h"

#include <stdbool.h>
#include <stdlib.h>

static bool precedes(struct top_logprob a, struct top_logprob b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

static int compare(const void *left, const void *right) {
    const struct top_logprob *a = left, *b = right;
    return precedes(*b, *a) - precedes(*a, *b);
}

static void swap(struct top_logprob *a, struct top_logprob *b) {
    struct top_logprob kept = *a;
    *a = *b;
    *b = kept;
}

/* Of three: logits that rise or fall with the id are common. */
static struct top_logprob median(struct top_logprob a, struct top_logprob b, struct top_logprob c) {
    if (precedes(b, a))
        swap(&a, &b);
    if (precedes(c, b))
        b = precedes(c, a) ? a : c;
    return b;
}

/* Quickselect (Hoare's partition). Rounds that cut badly are bounded, as what is left is sorted
 * then. */
void top_logprobs_select(struct top_logprob *items, int32_t n, int32_t count) {
    int32_t first = 0, end = n, last = count - 1;
    for (int rounds = 0; count > 0 && end - first > 1; rounds++) {
        if (rounds == 64) {
            qsort(items + first, (size_t)(end - first), sizeof(*items), compare);
            return;
        }
        struct top_logprob pivot =
            median(items[first], items[first + (end - first) / 2], items[end - 1]);
        int32_t i = first, j = end - 1;
        while (i <= j) {
            while (precedes(items[i], pivot))
                i++;
            while (precedes(pivot, items[j]))
                j--;
            if (i <= j)
                swap(&items[i++], &items[j--]);
        }
        if (last <= j)
            end = j + 1;
        else if (last >= i)
            first = i;
        else
            return;
    }
}

void top_logprobs_sort(struct top_logprob *items, int32_t n, int32_t count) {
    top_logprobs_select(items, n, count);
    qsort(items, (size_t)count, sizeof(*items), compare);
}
