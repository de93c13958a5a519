/* The first of many logprobs, against a sort of all of them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kernels/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1000

static int by_falling_logprob(const void *left, const void *right) {
    const struct top_logprob *a = left, *b = right;
    if (a->logprob != b->logprob)
        return a->logprob < b->logprob ? 1 : -1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static float logprob_of(int kind, int32_t i, int32_t n) {
    switch (kind) {
    case 0:
        return (float)-i;
    case 1:
        return (float)(i - n);
    case 2:
        return -1;
    case 3: /* up and down again */
        return (float)(i < n / 2 ? i : n - i);
    case 4:
        return i % 3 == 0 ? -INFINITY : (float)(i * 7919 % 13);
    default:
        return (float)((int64_t)i * 7919 % 1009) / -8;
    }
}

static void the_first_are_those_of_a_sort(void **state) {
    static const int32_t sizes[] = {1, 2, 3, 10, 63, 257, MOST};
    struct top_logprob items[MOST], all[MOST];
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int32_t n = sizes[s];
        for (int kind = 0; kind < 6; kind++) {
            for (int32_t count = 0; count <= n; count += 1 + n / 40) {
                for (int32_t i = 0; i < n; i++)
                    items[i] = all[i] = (struct top_logprob){i, logprob_of(kind, i, n)};
                qsort(all, (size_t)n, sizeof(*all), by_falling_logprob);
                top_logprobs_select(items, n, count);
                if (count > 0)
                    assert_memory_equal(&items[count - 1], &all[count - 1], sizeof(*all));
                top_logprobs_sort(items, n, count);
                assert_memory_equal(items, all, (size_t)count * sizeof(*all));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_are_those_of_a_sort)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
