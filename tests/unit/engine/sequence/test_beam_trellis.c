#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/sequence/beam_trellis.h"
#include "tests/unit/failing_allocations.h"

#include <stdbool.h>

static int32_t add(struct beam_trellis *trellis, int32_t parent, int32_t token, int32_t num_top) {
    assert_int_equal(beam_trellis_reserve(trellis, 1), 0);
    int32_t node = beam_trellis_add(trellis, parent);
    trellis->nodes[node].token = token;
    trellis->nodes[node].logprob = -(float)token;
    trellis->nodes[node].rank = 1;
    trellis->nodes[node].num_top = num_top;
    for (int32_t i = 0; i < num_top; i++)
        beam_trellis_top(trellis, node)[i] = (struct top_logprob){token * 10 + i, -1.0F};
    return node;
}

static void test_two_histories_share_a_beginning(void **state) {
    struct beam_trellis trellis;
    beam_trellis_init(&trellis, 2);
    int32_t first = add(&trellis, BEAM_TRELLIS_ROOT, 1, 2);
    int32_t left = add(&trellis, first, 2, 1), right = add(&trellis, first, 3, 2);
    beam_trellis_unref(&trellis, first);
    assert_int_equal(trellis.num_used, 3);

    int32_t num_tokens;
    size_t num_top;
    beam_trellis_count(&trellis, left, &num_tokens, &num_top);
    assert_int_equal(num_tokens, 2);
    assert_int_equal(num_top, 3);
    struct token_record records[2];
    struct top_logprob top[4];
    beam_trellis_read(&trellis, left, records, top);
    assert_int_equal(records[0].token, 1);
    assert_int_equal(records[1].token, 2);
    assert_int_equal(records[1].first_top, 2);
    assert_int_equal(records[1].num_top, 1);
    assert_int_equal(top[1].token, 11);
    assert_int_equal(top[2].token, 20);

    beam_trellis_unref(&trellis, left);
    assert_int_equal(trellis.num_used, 2);
    beam_trellis_read(&trellis, right, records, top);
    assert_int_equal(top[3].token, 31);
    beam_trellis_unref(&trellis, right);
    assert_int_equal(trellis.num_used, 0);
    beam_trellis_finish(&trellis);
}

/* Two histories that begin anew at every step: what was dropped is used again. */
static void test_dropped_nodes_are_used_again(void **state) {
    struct beam_trellis trellis;
    beam_trellis_init(&trellis, 0);
    int32_t tip = BEAM_TRELLIS_ROOT;
    for (int32_t i = 0; i < 5000; i++) {
        int32_t dropped = add(&trellis, tip, i, 0);
        int32_t next = add(&trellis, i % 50 == 49 ? BEAM_TRELLIS_ROOT : tip, i, 0);
        beam_trellis_unref(&trellis, dropped);
        beam_trellis_unref(&trellis, tip);
        tip = next;
    }
    assert_int_equal(trellis.capacity, 64);
    beam_trellis_unref(&trellis, tip);
    assert_int_equal(trellis.num_used, 0);
    beam_trellis_finish(&trellis);
}

static void test_short_memory(void **state) {
    struct beam_trellis trellis;
    beam_trellis_init(&trellis, 3);
    int32_t tip = add(&trellis, BEAM_TRELLIS_ROOT, 0, 3);
    for (long allowed = 0;; allowed++) {
        allocations_left = allowed;
        int result = beam_trellis_reserve(&trellis, 1000);
        allocations_left = -1;
        if (result == 0)
            break;
        int32_t next = add(&trellis, tip, 0, 3);
        beam_trellis_unref(&trellis, tip);
        tip = next;
    }
    beam_trellis_unref(&trellis, tip);
    assert_int_equal(trellis.num_used, 0);
    beam_trellis_finish(&trellis);
    beam_trellis_finish(&trellis);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_histories_share_a_beginning),
        cmocka_unit_test(test_dropped_nodes_are_used_again),
        cmocka_unit_test(test_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
