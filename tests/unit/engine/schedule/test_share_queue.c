#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/schedule/share_queue.h"
#include "tests/unit/engine/sequence_fixture.h"

static struct sequence_group *group_of(uint64_t id, int32_t share, int32_t weight,
                                       int32_t priority) {
    struct sampling_params params = fixture_params(0);
    struct sequence_group *group = fixture_group(id, priority, 4, &params, 100, 4);
    request_set_share(group->request, share, weight);
    return group;
}

static uint64_t admit_next(struct share_queue *queue, int32_t num_tokens) {
    struct sequence_group *group = share_queue_first(queue);
    uint64_t id = group->request->id;
    share_queue_admit(queue, group, num_tokens, 0);
    share_queue_charge(queue, group, num_tokens);
    share_queue_settle(queue, group);
    sequence_group_destroy(group);
    return id;
}

/* Of eight turns alike the share of weight 3 gets six; in a share the urgent one is first. */
static void test_turns_by_weight(void **state) {
    struct share_queue queue;
    int count[2] = {0};
    assert_int_equal(share_queue_init(&queue, 2), 0);
    for (uint64_t i = 0; i < 20; i++)
        share_queue_add(&queue,
                        group_of(i + 1, (int32_t)(i % 2), i % 2 == 0 ? 1 : 3, i == 18 ? -1 : 0));
    for (int i = 0; i < 8; i++) {
        uint64_t id = admit_next(&queue, 30);
        if (id % 2 == 1 && count[0]++ == 0)
            assert_int_equal(id, 19);
        count[1] += id % 2 == 0;
    }
    assert_int_equal(count[0], 2);
    assert_int_equal(count[1], 6);
    while (queue.count > 0)
        admit_next(&queue, 1);
    share_queue_finish(&queue);
}

/* A share that comes late takes turns from then on, and does not catch up. */
static void test_idle_shares_gain_no_credit(void **state) {
    struct share_queue queue;
    assert_int_equal(share_queue_init(&queue, 2), 0);
    for (uint64_t i = 0; i < 20; i++)
        share_queue_add(&queue, group_of(i + 1, 0, 1, 0));
    for (int i = 0; i < 10; i++)
        admit_next(&queue, 50);
    for (uint64_t i = 20; i < 30; i++)
        share_queue_add(&queue, group_of(i + 1, 1, 1, 0));
    int late = 0;
    for (int i = 0; i < 10; i++)
        late += admit_next(&queue, 50) > 20;
    assert_int_equal(late, 5);
    while (queue.count > 0)
        admit_next(&queue, 1);
    share_queue_finish(&queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_by_weight),
        cmocka_unit_test(test_idle_shares_gain_no_credit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
