/* The parts of the cluster's simulation: ring, router, trace, cost model, queue of events, results.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "scripts/bench/cluster_sim/cost_model.h"
#include "scripts/bench/cluster_sim/event_queue.h"
#include "scripts/bench/cluster_sim/mix.h"
#include "scripts/bench/cluster_sim/results.h"
#include "scripts/bench/cluster_sim/router.h"
#include "scripts/bench/cluster_sim/synthetic_tokenizer.h"
#include "scripts/bench/cluster_sim/trace.h"

#include <math.h>
#include <string.h>

#define REPLICAS 16
#define KEYS 20000

static void assert_near(double value, double expected, double tolerance) {
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%g is not within %g of %g", value, tolerance, expected);
}

/* --- Ring --- */

static bool takes_all(const void *context, int32_t replica) {
    return true;
}

static bool takes_others(const void *context, int32_t replica) {
    return replica != *(const int32_t *)context;
}

static bool takes_none(const void *context, int32_t replica) {
    return false;
}

static void test_a_replica_that_goes_moves_its_keys_alone(void **state) {
    struct hash_ring ring;
    int32_t gone = 3, moved = 0;
    int32_t owned[REPLICAS] = {0}, inherited[REPLICAS] = {0};
    assert_int_equal(hash_ring_init(&ring, REPLICAS), 0);
    for (uint64_t key = 0; key < KEYS; key++) {
        int32_t before = hash_ring_find(&ring, key, takes_all, NULL);
        int32_t after = hash_ring_find(&ring, key, takes_others, &gone);
        owned[before]++;
        assert_true(before == gone ? after != gone : after == before);
        inherited[after] += before == gone;
        moved += before == gone;
    }
    assert_int_equal(moved, owned[gone]);
    assert_in_range(moved, KEYS / REPLICAS / 2, 2 * KEYS / REPLICAS);
    int32_t heirs = 0;
    for (int32_t i = 0; i < REPLICAS; i++) {
        assert_in_range(owned[i], KEYS / REPLICAS / 3, 3 * KEYS / REPLICAS);
        heirs += inherited[i] > 0;
    }
    assert_true(heirs > 3); /* not all to one neighbour */
    hash_ring_finish(&ring);
}

static void test_a_ring_may_have_nobody(void **state) {
    struct hash_ring ring;
    assert_int_equal(hash_ring_init(&ring, 2), 0);
    assert_int_equal(hash_ring_find(&ring, 1, takes_none, NULL), -1);
    hash_ring_finish(&ring);
}

/* --- Router --- */

static struct router make_router(enum router_kind kind, int32_t num_replicas) {
    struct router router;
    assert_int_equal(router_init(&router, kind, num_replicas), 0);
    return router;
}

static int32_t send(struct router *router, uint64_t conversation) {
    int32_t replica = router_choose(router, conversation, NULL);
    router_sent(router, replica);
    return replica;
}

static void test_each_in_turn_but_closed_ones(void **state) {
    struct router router = make_router(ROUTER_ROUND_ROBIN, 4);
    router_set_open(&router, 2, false);
    static const int32_t expected[] = {0, 1, 3, 0, 1, 3};
    for (int i = 0; i < 6; i++)
        assert_int_equal(send(&router, 7), expected[i]);
    router_finish(&router);
}

static void test_the_fewest_requests(void **state) {
    struct router router = make_router(ROUTER_LEAST, 3);
    assert_int_equal(send(&router, 1), 0);
    assert_int_equal(send(&router, 1), 1);
    assert_int_equal(send(&router, 1), 2);
    router_ended(&router, 1);
    assert_int_equal(send(&router, 1), 1);
    router_set_open(&router, 0, false);
    router_ended(&router, 0); /* it would be the least */
    assert_int_not_equal(send(&router, 1), 0);
    router_finish(&router);
}

static void test_a_conversation_stays_where_it_was(void **state) {
    struct router router = make_router(ROUTER_AFFINITY, REPLICAS);
    int32_t homes[100], different = 0;
    for (uint64_t c = 0; c < 100; c++) {
        homes[c] = router_choose(&router, c, NULL);
        different += homes[c] != homes[0];
    }
    for (uint64_t c = 0; c < 100; c++)
        assert_int_equal(router_choose(&router, c, NULL), homes[c]);
    assert_true(different > 50);
    router_finish(&router);
}

static void test_affinity_ends_at_twice_the_mean(void **state) {
    struct router router = make_router(ROUTER_AFFINITY, 4);
    int32_t home = router_choose(&router, 5, NULL), at_home = 0;
    for (int32_t i = 0; i < 400; i++)
        at_home += send(&router, 5) == home;
    for (int32_t i = 0; i < 4; i++)
        assert_true(router.num_waiting[i] <= 2 * 400 / 4);
    assert_int_equal(at_home, 200);
    router_finish(&router);
}

static void test_the_mean_is_of_those_that_are_open(void **state) {
    struct router router = make_router(ROUTER_AFFINITY, 4);
    int32_t home = router_choose(&router, 5, NULL);
    for (int32_t i = 0; i < 40; i++)
        send(&router, (uint64_t)i);
    int64_t at_home = router.num_waiting[home];
    router_set_open(&router, home, false);
    assert_int_equal(router.total_waiting, 40 - at_home);
    router_ended(&router, home);
    assert_int_equal(router.total_waiting, 40 - at_home);
    assert_int_not_equal(router_choose(&router, 5, NULL), home);
    router_set_open(&router, home, true);
    assert_int_equal(router.total_waiting, 39);
    assert_int_equal(router_choose(&router, 5, NULL), home);
    for (int32_t i = 0; i < 4; i++)
        router_set_open(&router, i, false);
    assert_int_equal(router_choose(&router, 5, NULL), -1);
    router_finish(&router);
}

static void test_the_longest_prefix_below_the_bound(void **state) {
    struct router router = make_router(ROUTER_PREFIX, 3);
    static const int32_t cached[] = {16, 64, 64}, none[] = {0, 0, 0};
    router_sent(&router, 1);
    assert_int_equal(router_choose(&router, 1, cached), 2);
    router_sent(&router, 2);
    router_sent(&router, 2);
    assert_int_equal(router_choose(&router, 1, cached), 1);
    for (int32_t i = 0; i < 4; i++) {
        router_sent(&router, 1);
        router_sent(&router, 2);
    }
    assert_int_equal(router_choose(&router, 1, cached), 1); /* 5 and 6 of 11: below 8 */
    for (int32_t i = 0; i < 10; i++)
        router_sent(&router, 1);
    assert_int_equal(router_choose(&router, 1, cached), 2); /* 15 of 21 is above */
    assert_int_equal(router_choose(&router, 1, none), 0);
    router_finish(&router);
}

/* --- Trace --- */

static const struct trace_settings settings = {
    .seed = 3,
    .conversations_per_s = 4,
    .mean_turns = 3.5,
    .mean_think_s = 10,
    .num_system_prompts = 5,
    .mean_system_tokens = 100,
    .max_model_len = 1 << 20,
};

static void test_the_same_seed_the_same_trace(void **state) {
    struct trace a, b, other;
    struct trace_settings other_settings = settings;
    other_settings.seed = 4;
    assert_int_equal(trace_init(&a, &settings, 5), 0);
    assert_int_equal(trace_init(&b, &settings, 5), 0);
    assert_int_equal(trace_init(&other, &other_settings, 5), 0);
    int32_t same = 0;
    for (int i = 0; i < 100; i++) {
        struct conversation x, y, z;
        struct turn s, t;
        trace_next_conversation(&a, &x);
        trace_next_conversation(&b, &y);
        trace_next_conversation(&other, &z);
        assert_memory_equal(&x, &y, sizeof(x));
        same += x.arrival_ns == z.arrival_ns;
        while (trace_next_turn(&a, &x, &s)) {
            assert_true(trace_next_turn(&b, &y, &t));
            assert_memory_equal(&s, &t, sizeof(s));
        }
        assert_false(trace_next_turn(&b, &y, &t));
    }
    assert_int_equal(same, 0);
    trace_finish(&a);
    trace_finish(&b);
    trace_finish(&other);
}

struct sums {
    double conversations, turns, in, out, think_s, thoughts, first_system;
};

/* Adds up a conversation whose turns grow as they must. */
static void add_conversation(struct trace *trace, struct conversation *c, struct sums *sums) {
    struct turn turn;
    int32_t before = c->num_system_tokens;
    bool is_first = true;
    for (; trace_next_turn(trace, c, &turn); is_first = false) {
        assert_true(turn.num_prompt_tokens > before);
        assert_int_equal(c->num_tokens, turn.num_prompt_tokens + turn.num_output_tokens);
        assert_true(!is_first || turn.think_ns == 0);
        sums->turns++;
        sums->in += turn.num_prompt_tokens - before;
        sums->out += turn.num_output_tokens;
        sums->think_s += (double)turn.think_ns / (double)CLOCK_NS_PER_S;
        sums->thoughts += !is_first;
        before = c->num_tokens;
    }
}

static void test_the_trace_has_the_means_it_says(void **state) {
    struct trace trace;
    struct sums sums = {0};
    assert_int_equal(trace_init(&trace, &settings, 0), 0);
    for (int i = 0; i < KEYS; i++) {
        struct conversation c;
        trace_next_conversation(&trace, &c);
        assert_int_equal(c.id, i + 1);
        assert_in_range(c.num_system_tokens, 50, 150);
        sums.first_system += c.system_prompt == 0;
        sums.conversations++;
        add_conversation(&trace, &c, &sums);
    }
    double seconds = (double)trace.now_ns / (double)CLOCK_NS_PER_S;
    assert_near(sums.conversations / seconds, 4, 0.1);
    assert_near(sums.turns / sums.conversations, 3.5, 0.1);
    assert_near(sums.in / sums.turns, 202, 4);
    assert_near(sums.out / sums.turns, 179, 4);
    assert_near(sums.think_s / sums.thoughts, 10, 0.2);
    /* Zipf of five: 1 / (1 + 1/2 + 1/3 + 1/4 + 1/5) */
    assert_near(sums.first_system / sums.conversations, 0.438, 0.01);
    trace_finish(&trace);
}

static void test_arrivals_are_poisson(void **state) {
    struct trace trace;
    double sum = 0.0, squares = 0.0;
    int64_t last_ns = 0;
    assert_int_equal(trace_init(&trace, &settings, 0), 0);
    for (int i = 0; i < KEYS; i++) {
        struct conversation c;
        trace_next_conversation(&trace, &c);
        double gap = (double)(c.arrival_ns - last_ns);
        sum += gap;
        squares += gap * gap;
        last_ns = c.arrival_ns;
    }
    double mean = sum / KEYS;
    assert_near(sqrt(squares / KEYS - mean * mean) / mean, 1.0, 0.03); /* of exponential gaps */
    trace_finish(&trace);
}

static void test_a_conversation_ends_before_it_is_too_long(void **state) {
    struct trace trace;
    struct trace_settings s = settings;
    int32_t longest = 0;
    s.max_model_len = 1500;
    s.mean_turns = 50;
    assert_int_equal(trace_init(&trace, &s, 0), 0);
    for (int i = 0; i < 500; i++) {
        struct conversation c;
        struct turn turn;
        trace_next_conversation(&trace, &c);
        while (trace_next_turn(&trace, &c, &turn))
            longest = c.num_tokens > longest ? c.num_tokens : longest;
    }
    assert_in_range(longest, 1400, 1500);
    trace_finish(&trace);
}

static void test_texts_begin_alike_as_far_as_the_system_prompt(void **state) {
    struct conversation a = {.id = 1, .system_prompt = 2, .num_system_tokens = 40}, b = a, c = a;
    int32_t of_a[60], of_b[60], of_c[60], equal = 0;
    b.id = 2;
    c.system_prompt = 1;
    conversation_write(&a, 60, of_a);
    conversation_write(&b, 60, of_b);
    conversation_write(&c, 60, of_c);
    assert_memory_equal(of_a, of_b, 40 * sizeof(*of_a));
    for (int i = 0; i < 60; i++) {
        assert_in_range(of_a[i], 0, SYNTHETIC_VOCAB_SIZE - 1);
        equal += i < 40 ? of_a[i] == of_c[i] : of_a[i] == of_b[i];
    }
    assert_true(equal < 4);
    assert_int_equal(conversation_token(&a, 50), of_a[50]);
}

/* --- Cost model --- */

static void test_a_step_costs_the_sum_of_its_parts(void **state) {
    static const int32_t query_start[] = {0, 1, 4}, context_lens[] = {100, 10};
    const struct batch batch = {.inputs = {.num_tokens = 4,
                                           .num_seqs = 2,
                                           .query_start = query_start,
                                           .context_lens = context_lens},
                                .num_sample_rows = 2};
    const struct step_size size = step_size_of(&batch);
    assert_int_equal(size.tokens, 4);
    assert_int_equal(size.context_tokens, 110);
    assert_int_equal(size.pairs, 100 + 8 + 9 + 10);
    assert_int_equal(size.samples, 2);
    const struct cost_model model = {1000, 100, 10, 1, 5000};
    assert_int_equal(cost_model_ns(&model, &size), 1000 + 400 + 1100 + 127 + 10000);
    assert_int_equal(cost_model_ns(&(struct cost_model){0}, &size), 1);
}

/* The steps of fit_cost_model.py's H100_STEPS. */
static void test_the_paper_model_is_near_what_it_was_fitted_to(void **state) {
    static const struct {
        int64_t tokens, seqs, context;
        double ms;
    } steps[] = {{1, 1, 1024, 6.8},   {1, 64, 1024, 10.2},   {1, 256, 1024, 22.6},
                 {512, 1, 512, 17.0}, {2048, 1, 2048, 55.0}, {8192, 1, 8192, 284.0}};
    const struct simulated_device *device = simulated_device_find("h100-8b");
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        int64_t n = steps[i].tokens, before = steps[i].context - n;
        const struct step_size size = {.tokens = n * steps[i].seqs,
                                       .context_tokens = steps[i].context * steps[i].seqs,
                                       .pairs = steps[i].seqs * (n * before + n * (n + 1) / 2),
                                       .samples = steps[i].seqs};
        double ms = (double)cost_model_ns(&device->cost, &size) / 1e6;
        assert_near(ms, steps[i].ms, 0.04 * steps[i].ms);
    }
    assert_null(simulated_device_find("h100"));
}

/* --- Queue of events --- */

static void test_events_come_by_time_and_then_in_order(void **state) {
    struct event_queue queue = {0};
    struct event event, last = {.time_ns = -1};
    int32_t taken = 0;
    for (int32_t i = 0; i < 1000; i++)
        assert_int_equal(
            event_queue_add(
                &queue, (struct event){.time_ns = (int64_t)(mix((uint64_t)i) % 50), .replica = i}),
            0);
    for (; event_queue_take(&queue, &event); last = event, taken++)
        assert_true(event.time_ns > last.time_ns ||
                    (event.time_ns == last.time_ns && event.replica > last.replica));
    assert_int_equal(taken, 1000);
    event_queue_finish(&queue);
}

/* --- Results --- */

static void test_figures_are_of_what_was_sent_in_time(void **state) {
    struct results results = {0};
    struct summary s;
    for (int32_t i = 1; i <= 200; i++) {
        const struct outcome outcome = {.sent_ns = i,
                                        .ttft_s = (float)(201 - i),
                                        .tpot_s = 0.5F,
                                        .num_prompt_tokens = 10,
                                        .num_cached_tokens = 4,
                                        .num_output_tokens = 2,
                                        .replica = i % 4 == 0,
                                        .num_sent = i == 150 ? 2 : 1,
                                        .is_lost = i == 120};
        assert_int_equal(results_add(&results, &outcome), 0);
    }
    const struct result_limits limits = {.ttft_s = 50, .tpot_s = 0.5}, strict = {50, 0.4};
    assert_int_equal(results_summarise(&results, &limits, 2, 101, 201, &s), 0);
    assert_int_equal(s.num_requests, 100); /* whose first tokens took 100 down to 1 s */
    assert_int_equal(s.num_done, 99);
    assert_int_equal(s.num_lost, 1); /* the one of 81 s */
    assert_int_equal(s.num_resent, 1);
    assert_int_equal(s.num_good, 50);
    assert_int_equal(s.prompt_tokens, 990);
    assert_int_equal(s.cached_tokens, 396);
    assert_int_equal(s.output_tokens, 198);
    assert_near(s.ttft_p50_s, 50, 0);
    assert_near(s.ttft_p99_s, 100, 0); /* rank 99 of 99: 98.01 rounded up */
    assert_near(s.tpot_p99_s, 0.5, 0);
    assert_near(s.most_of_mean, 1.5, 0);
    assert_int_equal(results_summarise(&results, &strict, 2, 101, 201, &s), 0);
    assert_int_equal(s.num_good, 0);
    assert_int_equal(results_summarise(&results, &limits, 2, 500, 501, &s), 0);
    assert_int_equal(s.num_requests, 0);
    assert_near(s.ttft_p99_s, 0, 0);
    results_finish(&results);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_replica_that_goes_moves_its_keys_alone),
        cmocka_unit_test(test_a_ring_may_have_nobody),
        cmocka_unit_test(test_each_in_turn_but_closed_ones),
        cmocka_unit_test(test_the_fewest_requests),
        cmocka_unit_test(test_a_conversation_stays_where_it_was),
        cmocka_unit_test(test_affinity_ends_at_twice_the_mean),
        cmocka_unit_test(test_the_mean_is_of_those_that_are_open),
        cmocka_unit_test(test_the_longest_prefix_below_the_bound),
        cmocka_unit_test(test_the_same_seed_the_same_trace),
        cmocka_unit_test(test_the_trace_has_the_means_it_says),
        cmocka_unit_test(test_arrivals_are_poisson),
        cmocka_unit_test(test_a_conversation_ends_before_it_is_too_long),
        cmocka_unit_test(test_texts_begin_alike_as_far_as_the_system_prompt),
        cmocka_unit_test(test_a_step_costs_the_sum_of_its_parts),
        cmocka_unit_test(test_the_paper_model_is_near_what_it_was_fitted_to),
        cmocka_unit_test(test_events_come_by_time_and_then_in_order),
        cmocka_unit_test(test_figures_are_of_what_was_sent_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
