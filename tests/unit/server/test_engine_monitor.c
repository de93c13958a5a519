#include "server/engine_monitor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_idle_engine_is_alive(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.step = 7};
    engine_monitor_update(&monitor, &stats, 1000);
    engine_monitor_update(&monitor, &stats, 100000);
    assert_true(engine_monitor_is_alive(&monitor, 100000));
}

static void test_working_engine_is_alive(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.num_running = 1};
    for (int64_t now_ms = 1000; now_ms < 60000; now_ms += 4000) {
        stats.step++;
        engine_monitor_update(&monitor, &stats, now_ms);
        assert_true(engine_monitor_is_alive(&monitor, now_ms + 3999));
    }
}

static void test_stuck_engine_is_not(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.step = 3};
    engine_monitor_update(&monitor, &stats, 1000);
    stats.num_waiting = 1;
    engine_monitor_update(&monitor, &stats, 1250);
    engine_monitor_update(&monitor, &stats, 1000 + ENGINE_STUCK_MS + 1);
    assert_false(engine_monitor_is_alive(&monitor, 1000 + ENGINE_STUCK_MS + 1));
    stats.step++;
    engine_monitor_update(&monitor, &stats, 7000);
    assert_true(engine_monitor_is_alive(&monitor, 7000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_engine_is_alive),
        cmocka_unit_test(test_working_engine_is_alive),
        cmocka_unit_test(test_stuck_engine_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
