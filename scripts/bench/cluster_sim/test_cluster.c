/* Whole runs of the cluster: every request ends once, a lost replica's requests end elsewhere, and
 * what the engine decides shows: cached prefixes, preemptions. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "scripts/bench/cluster_sim/cluster.h"

#include <string.h>

#define REPLICAS 4
#define REQUESTS 400
#define FAULT_S 10

/* Steps as long as those of an H100, in little memory. */
static struct simulated_device make_device(void) {
    struct simulated_device device = *simulated_device_find("h100-8b");
    device.limits.max_num_seqs = 32;
    device.limits.max_logit_rows = 32;
    device.limits.max_num_batched_tokens = 512;
    device.limits.max_model_len = 4096;
    device.limits.num_blocks = 12000;
    return device;
}

static struct cluster_config make_config(enum router_kind router) {
    static struct simulated_device device;
    device = make_device();
    return (struct cluster_config){
        .num_replicas = REPLICAS,
        .router = router,
        .replica = {.device = &device, .prefix_caching = true},
        .trace = {.seed = 1,
                  .conversations_per_s = 6,
                  .mean_turns = 4,
                  .mean_think_s = 2,
                  .num_system_prompts = 3,
                  .mean_system_tokens = 200,
                  .max_model_len = 4096},
        .num_requests = REQUESTS,
        .faults = {.kill_ns = -1, .drain_ns = -1, .return_ns = -1, .retry_ns = CLOCK_NS_PER_S / 2},
    };
}

static struct cluster run(const struct cluster_config *config) {
    struct cluster cluster;
    assert_int_equal(cluster_init(&cluster, config), 0);
    cluster_run(&cluster);
    return cluster;
}

static struct summary summarise(const struct cluster *cluster) {
    struct summary summary;
    const struct result_limits limits = {1.0, 0.05};
    assert_int_equal(results_summarise(&cluster->results, &limits, cluster->config.num_replicas, 0,
                                       INT64_MAX, &summary),
                     0);
    return summary;
}

static double hit_rate(const struct summary *summary) {
    return (double)summary->cached_tokens / (double)summary->prompt_tokens;
}

/* What holds of every run: each request has one outcome, and times go forward. */
static void check_outcomes(const struct cluster *cluster) {
    struct summary s = summarise(cluster);
    assert_int_equal(cluster->num_sent, cluster->config.num_requests);
    assert_int_equal(cluster->results.count, cluster->config.num_requests);
    assert_int_equal(s.num_done + s.num_lost, cluster->config.num_requests);
    for (int32_t i = 0; i < cluster->config.num_replicas; i++) {
        assert_int_equal(cluster->router.num_waiting[i], 0);
        assert_null(cluster->replicas[i]);
    }
    assert_int_equal(cluster->router.total_waiting, 0);
    for (size_t i = 0; i < cluster->results.count; i++) {
        const struct outcome *o = &cluster->results.outcomes[i];
        assert_in_range(o->replica, 0, cluster->config.num_replicas - 1);
        assert_true(o->sent_ns >= CLUSTER_START_NS && o->num_sent >= 1);
        if (o->is_lost)
            continue;
        assert_true(o->ttft_s > 0 && (o->num_output_tokens == 1 || o->tpot_s > 0));
        assert_true(o->num_cached_tokens < o->num_prompt_tokens);
        assert_true(o->num_cached_tokens % 16 == 0);
    }
}

static void test_every_request_ends_once(void **state) {
    for (int router = 0; router < NUM_ROUTERS; router++) {
        const struct cluster_config config = make_config((enum router_kind)router);
        struct cluster cluster = run(&config);
        check_outcomes(&cluster);
        struct summary s = summarise(&cluster);
        assert_int_equal(s.num_lost + s.num_resent, 0);
        /* What was computed is what was not cached, and each answer but for its last token. */
        assert_true(cluster.num_step_tokens >=
                    (uint64_t)(s.prompt_tokens - s.cached_tokens + s.output_tokens) - REQUESTS);
        assert_true(s.most_of_mean < 2.0);
        cluster_finish(&cluster);
    }
}

static bool is_same(const struct outcome *a, const struct outcome *b) {
    return a->sent_ns == b->sent_ns && a->ttft_s == b->ttft_s && a->tpot_s == b->tpot_s &&
           a->num_prompt_tokens == b->num_prompt_tokens &&
           a->num_cached_tokens == b->num_cached_tokens &&
           a->num_output_tokens == b->num_output_tokens && a->replica == b->replica;
}

static int32_t count_same(const struct cluster *a, const struct cluster *b) {
    int32_t count = 0;
    for (size_t i = 0; i < REQUESTS; i++)
        count += is_same(&a->results.outcomes[i], &b->results.outcomes[i]);
    return count;
}

static void test_the_same_settings_the_same_results(void **state) {
    for (int router = 0; router < NUM_ROUTERS; router++) {
        struct cluster_config config = make_config((enum router_kind)router);
        struct cluster a = run(&config), b = run(&config);
        config.trace.seed = 2;
        struct cluster other = run(&config);
        assert_int_equal(count_same(&a, &b), REQUESTS);
        assert_int_equal(count_same(&a, &other), 0);
        cluster_finish(&a);
        cluster_finish(&b);
        cluster_finish(&other);
    }
}

static struct summary run_summary(const struct cluster_config *config) {
    struct cluster cluster = run(config);
    struct summary summary = summarise(&cluster);
    cluster_finish(&cluster);
    return summary;
}

static void test_affinity_finds_prefixes(void **state) {
    struct cluster_config config = make_config(ROUTER_ROUND_ROBIN);
    struct summary in_turn = run_summary(&config);
    config.router = ROUTER_AFFINITY;
    struct summary affine = run_summary(&config);
    config.router = ROUTER_PREFIX;
    struct summary by_prefix = run_summary(&config);
    config.num_replicas = 1;
    struct summary alone = run_summary(&config);
    config.replica.prefix_caching = false;
    struct summary uncached = run_summary(&config);
    assert_true(hit_rate(&affine) > hit_rate(&in_turn) + 0.15);
    assert_true(hit_rate(&by_prefix) > hit_rate(&in_turn) + 0.15);
    assert_true(hit_rate(&alone) > 0.7);
    assert_int_equal(uncached.cached_tokens, 0);
    assert_true(uncached.ttft_p50_s > alone.ttft_p50_s);
}

static void test_a_small_pool_preempts_and_loses_nothing(void **state) {
    struct cluster_config config = make_config(ROUTER_LEAST);
    struct simulated_device device = make_device();
    device.limits.num_blocks = 260; /* of which the longest sequence takes 256 */
    config.replica.device = &device;
    config.num_replicas = 1;
    struct cluster cluster = run(&config);
    check_outcomes(&cluster);
    assert_true(cluster.num_preemptions > 0);
    cluster_finish(&cluster);
}

/* --- A replica that is lost or drained --- */

static int64_t fault_ns(void) {
    return CLUSTER_START_NS + FAULT_S * CLOCK_NS_PER_S;
}

static int32_t count_on_first(const struct cluster *cluster, int64_t from_ns, int64_t to_ns) {
    int32_t count = 0;
    for (size_t i = 0; i < cluster->results.count; i++) {
        const struct outcome *o = &cluster->results.outcomes[i];
        count += o->replica == 0 && o->sent_ns >= from_ns && o->sent_ns < to_ns;
    }
    return count;
}

static void test_a_killed_replicas_requests_end_elsewhere(void **state) {
    for (int router = 0; router < NUM_ROUTERS; router++) {
        struct cluster_config config = make_config((enum router_kind)router);
        config.faults.kill_ns = FAULT_S * CLOCK_NS_PER_S;
        struct cluster cluster = run(&config);
        check_outcomes(&cluster);
        struct summary s = summarise(&cluster);
        assert_int_equal(s.num_lost, 0);
        assert_true(s.num_resent > 0);
        assert_true(count_on_first(&cluster, 0, fault_ns()) > 0);
        assert_int_equal(count_on_first(&cluster, fault_ns(), INT64_MAX), 0);
        for (size_t i = 0; i < cluster.results.count; i++) {
            const struct outcome *o = &cluster.results.outcomes[i];
            if (o->num_sent == 1)
                continue;
            assert_int_equal(o->num_sent, 2);
            assert_int_not_equal(o->replica, 0);
            assert_true(o->sent_ns < fault_ns() && o->sent_ns + (int64_t)(o->ttft_s * 1e9F) >
                                                       fault_ns() + config.faults.retry_ns);
        }
        cluster_finish(&cluster);
    }
}

static void test_without_a_retry_they_are_lost(void **state) {
    struct cluster_config config = make_config(ROUTER_LEAST);
    config.faults.kill_ns = FAULT_S * CLOCK_NS_PER_S;
    struct summary resent = run_summary(&config);
    config.faults.retry_ns = -1;
    struct cluster cluster = run(&config);
    check_outcomes(&cluster);
    struct summary s = summarise(&cluster);
    assert_true(s.num_lost > 0);
    assert_int_equal(s.num_lost, resent.num_resent);
    assert_int_equal(s.num_resent, 0);
    cluster_finish(&cluster);
}

static void test_a_drained_replica_ends_what_it_has(void **state) {
    struct cluster_config config = make_config(ROUTER_AFFINITY);
    config.faults.drain_ns = FAULT_S * CLOCK_NS_PER_S;
    struct cluster cluster = run(&config);
    check_outcomes(&cluster);
    struct summary s = summarise(&cluster);
    assert_int_equal(s.num_lost + s.num_resent, 0);
    assert_true(count_on_first(&cluster, 0, fault_ns()) > 0);
    assert_int_equal(count_on_first(&cluster, fault_ns(), INT64_MAX), 0);
    cluster_finish(&cluster);
}

static void test_a_replica_comes_back_with_an_empty_cache(void **state) {
    struct cluster_config config = make_config(ROUTER_AFFINITY);
    config.num_replicas = 1; /* all wait for it */
    config.faults.kill_ns = FAULT_S * CLOCK_NS_PER_S;
    config.faults.return_ns = (FAULT_S + 3) * CLOCK_NS_PER_S;
    struct cluster cluster = run(&config);
    check_outcomes(&cluster);
    assert_true(count_on_first(&cluster, fault_ns() + 3 * CLOCK_NS_PER_S, INT64_MAX) > 0);
    struct summary s = summarise(&cluster), undisturbed;
    config.faults.kill_ns = config.faults.return_ns = -1;
    undisturbed = run_summary(&config);
    assert_true(hit_rate(&s) < hit_rate(&undisturbed));
    assert_int_equal(s.num_lost, 0);
    cluster_finish(&cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request_ends_once),
        cmocka_unit_test(test_the_same_settings_the_same_results),
        cmocka_unit_test(test_affinity_finds_prefixes),
        cmocka_unit_test(test_a_small_pool_preempts_and_loses_nothing),
        cmocka_unit_test(test_a_killed_replicas_requests_end_elsewhere),
        cmocka_unit_test(test_without_a_retry_they_are_lost),
        cmocka_unit_test(test_a_drained_replica_ends_what_it_has),
        cmocka_unit_test(test_a_replica_comes_back_with_an_empty_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
