/* Drives the machine of sleep through every state by every event that can come there, beside what
 * an executor would have of its memory, and checks what must hold in each. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/sleep_machine.h"

#include <stdlib.h>
#include <string.h>

/* Of the executor's memory. */
enum held { HELD_ALL, HELD_WEIGHTS, HELD_NOTHING, NUM_HELD };

struct world {
    struct sleep_machine machine;
    enum held held;
};

static bool is_of_front_end(enum sleep_event event) {
    return event <= SLEEP_EVENT_SUBMIT;
}

/* Returns whether the engine's thread can give the event: as engine_sleep.c does its duty. */
static bool can_come(const struct world *world, enum sleep_event event) {
    enum sleep_duty duty = sleep_machine_duty(&world->machine);
    if (is_of_front_end(event))
        return true;
    if (event == SLEEP_EVENT_IDLE || event == SLEEP_EVENT_DRAINED)
        return duty == SLEEP_DUTY_SERVE;
    if (event == SLEEP_EVENT_RELEASED)
        return duty == SLEEP_DUTY_RELEASE || duty == SLEEP_DUTY_RELEASE_ALL;
    return duty == SLEEP_DUTY_TAKE;
}

/* What the executor has once the thread has done its duty. */
static enum held held_after(const struct world *before, enum sleep_event event) {
    enum sleep_duty duty = sleep_machine_duty(&before->machine);
    if (event == SLEEP_EVENT_WOKEN)
        return HELD_ALL;
    if (event != SLEEP_EVENT_RELEASED)
        return before->held;
    return duty == SLEEP_DUTY_RELEASE_ALL ? HELD_NOTHING : HELD_WEIGHTS;
}

/* The contract of executor_ops.sleep and wake, and what the state says to others. */
static void check_world(const struct world *world) {
    enum engine_rest rest = sleep_machine_rest(&world->machine);
    bool discards = sleep_machine_discards_weights(&world->machine);
    switch (sleep_machine_duty(&world->machine)) {
    case SLEEP_DUTY_SERVE:
        assert_int_equal(world->held, HELD_ALL);
        break;
    case SLEEP_DUTY_RELEASE:
        assert_int_equal(world->held, HELD_ALL);
        break;
    case SLEEP_DUTY_RELEASE_ALL:
        assert_int_not_equal(world->held, HELD_NOTHING);
        break;
    case SLEEP_DUTY_REST:
        assert_int_equal(rest, ENGINE_ASLEEP);
        assert_int_equal(world->held, discards ? HELD_NOTHING : HELD_WEIGHTS);
        break;
    case SLEEP_DUTY_TAKE:
        assert_int_equal(rest, ENGINE_WAKING);
        assert_int_equal(world->held, discards ? HELD_NOTHING : HELD_WEIGHTS);
        break;
    }
    if (sleep_machine_is_idle_sleep(&world->machine))
        assert_false(sleep_machine_refuses_requests(&world->machine) || discards);
    if (rest == ENGINE_AWAKE || rest == ENGINE_WAKING)
        assert_false(sleep_machine_refuses_requests(&world->machine));
}

/* Returns whether it changed. */
static bool step(struct world *world, enum sleep_event event) {
    struct world before = *world;
    bool is_taken = sleep_machine_take(&world->machine, event, 7);
    if (!is_taken)
        assert_memory_equal(&world->machine, &before.machine, sizeof(before.machine));
    world->held = held_after(&before, event);
    check_world(world);
    return world->machine.state != before.machine.state;
}

/* Without any further event of the front end. Returns how many steps the thread takes. */
static int run_thread(struct world *world, bool wakes) {
    int count = 0;
    for (;; count++) {
        switch (sleep_machine_duty(&world->machine)) {
        case SLEEP_DUTY_SERVE:
            if (sleep_machine_rest(&world->machine) == ENGINE_AWAKE)
                return count;
            assert_true(step(world, SLEEP_EVENT_DRAINED));
            break;
        case SLEEP_DUTY_RELEASE:
        case SLEEP_DUTY_RELEASE_ALL:
            assert_true(step(world, SLEEP_EVENT_RELEASED));
            break;
        case SLEEP_DUTY_TAKE:
            assert_true(step(world, wakes ? SLEEP_EVENT_WOKEN : SLEEP_EVENT_WAKE_FAILED));
            break;
        case SLEEP_DUTY_REST:
            return count;
        }
    }
}

/* Wherever it is, it comes to rest, wakes when it is told to, and keeps its word to requests. */
static void check_ways_out(const struct world *from) {
    struct world world = *from;
    assert_in_range(run_thread(&world, true), 0, 4);
    assert_true(sleep_machine_take(&world.machine, SLEEP_EVENT_WAKE, 8));
    run_thread(&world, true);
    assert_int_equal(sleep_machine_rest(&world.machine), ENGINE_AWAKE);
    world = *from;
    if (sleep_machine_take(&world.machine, SLEEP_EVENT_SUBMIT, 8)) {
        struct world failing = world;
        run_thread(&world, true);
        assert_int_equal(sleep_machine_rest(&world.machine), ENGINE_AWAKE);
        run_thread(&failing, false);
        assert_true(sleep_machine_rest(&failing.machine) == ENGINE_AWAKE ||
                    failing.machine.num_wake_failures == from->machine.num_wake_failures + 1);
    }
}

static void test_every_state_by_every_event(void **state) {
    static bool is_known[NUM_SLEEP_STATES][NUM_HELD];
    static struct world known[NUM_SLEEP_STATES * NUM_HELD];
    int num_known = 1, num_steps = 0;
    is_known[SLEEP_STATE_AWAKE][HELD_ALL] = true;
    for (int i = 0; i < num_known; i++) {
        check_ways_out(&known[i]);
        for (int event = 0; event < NUM_SLEEP_EVENTS; event++) {
            struct world next = known[i];
            if (!can_come(&next, (enum sleep_event)event))
                continue;
            num_steps++;
            step(&next, (enum sleep_event)event);
            if (!is_known[next.machine.state][next.held])
                known[num_known++] = next;
            is_known[next.machine.state][next.held] = true;
        }
    }
    int num_states = 0;
    for (int s = 0; s < NUM_SLEEP_STATES; s++)
        num_states +=
            is_known[s][HELD_ALL] || is_known[s][HELD_WEIGHTS] || is_known[s][HELD_NOTHING];
    print_message("# %d states, %d with their memory, %d steps\n", num_states, num_known,
                  num_steps);
    assert_int_equal(num_states, NUM_SLEEP_STATES);
}

/* Who waits for an end of what it began sees it by the counts, whatever came since. */
static void test_counts(void **state) {
    struct sleep_machine machine = {0};
    static const enum sleep_event events[] = {
        SLEEP_EVENT_IDLE,    SLEEP_EVENT_RELEASED, SLEEP_EVENT_SUBMIT,   SLEEP_EVENT_WAKE_FAILED,
        SLEEP_EVENT_SUBMIT,  SLEEP_EVENT_WOKEN,    SLEEP_EVENT_SLEEP_1,  SLEEP_EVENT_DRAINED,
        SLEEP_EVENT_SLEEP_2, SLEEP_EVENT_RELEASED, SLEEP_EVENT_RELEASED, SLEEP_EVENT_WAKE,
        SLEEP_EVENT_WOKEN,
    };
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        assert_true(sleep_machine_take(&machine, events[i], (int64_t)i * 1000000000));
    struct engine_rest_view view = sleep_machine_view(&machine);
    assert_true(view.rest == ENGINE_AWAKE && view.num_slept == 2 && view.num_woken == 2 &&
                view.num_wake_failures == 1);
    assert_true(machine.idle.num_sleeps == 1 && machine.idle.num_wakes == 1 &&
                machine.idle.num_wake_failures == 1 && machine.idle.wake_seconds == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_state_by_every_event),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
