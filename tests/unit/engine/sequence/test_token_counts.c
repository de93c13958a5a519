#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/sequence/token_counts.h"

static const struct token_count *find(const struct token_counts *counts, int32_t token) {
    for (int32_t i = 0; i < counts->num_items; i++)
        if (counts->items[i].token == token)
            return &counts->items[i];
    return NULL;
}

static void test_prompt_and_output(void **state) {
    struct token_counts counts = {0};
    assert_int_equal(token_counts_add(&counts, 7, 0), 0);
    assert_int_equal(token_counts_add(&counts, 7, 0), 0);
    assert_int_equal(token_counts_add(&counts, 9, 1), 0);
    assert_int_equal(token_counts_add(&counts, 7, 1), 0);
    assert_int_equal(token_counts_add(&counts, 9, 1), 0);
    assert_int_equal(counts.num_items, 2);
    assert_int_equal(find(&counts, 7)->output_count, 1);
    assert_int_equal(find(&counts, 9)->output_count, 2);
    token_counts_finish(&counts);
}

/* Growth over many doublings loses nothing; tokens that share a slot stay apart. */
static void test_many_tokens(void **state) {
    struct token_counts counts = {0};
    enum { NUM = 5000 };
    for (int round = 0; round < 3; round++)
        for (int32_t i = 0; i < NUM; i++)
            assert_int_equal(token_counts_add(&counts, i * 64, i % 3), 0);
    assert_int_equal(counts.num_items, NUM);
    for (int32_t i = 0; i < NUM; i++) {
        assert_int_equal(counts.items[i].token, i * 64);
        assert_int_equal(counts.items[i].output_count, i % 3 * 3);
    }
    token_counts_finish(&counts);
    assert_int_equal(counts.num_items, 0);
}

static void expect(const struct token_count *item, int32_t token, int32_t output_count) {
    assert_int_equal(item->token, token);
    assert_int_equal(item->output_count, output_count);
}

/* Old items keep their places, new ones come after them, and the counts stay as they are. */
static void test_tokens_more(void **state) {
    static const int32_t more[] = {9, 5, 7, 5, 71};
    struct token_counts counts = {0};
    struct token_count out[5];
    assert_int_equal(token_counts_fill(&counts, NULL, 0, out), 0);
    assert_int_equal(token_counts_fill(&counts, more, 4, out), 3);
    expect(&out[1], 5, 2);
    assert_int_equal(token_counts_add(&counts, 7, 0), 0);
    assert_int_equal(token_counts_add(&counts, 9, 1), 0);
    assert_int_equal(token_counts_fill(&counts, more, 5, out), 4);
    expect(&out[0], 7, 1);
    expect(&out[1], 9, 2);
    expect(&out[2], 5, 2);
    expect(&out[3], 71, 1);
    assert_int_equal(token_counts_fill(&counts, more, 0, out), 2);
    expect(&out[0], 7, 0);
    expect(&out[1], 9, 1);
    token_counts_finish(&counts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_and_output),
        cmocka_unit_test(test_many_tokens),
        cmocka_unit_test(test_tokens_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
