#include "engine/sleep_machine.h"

#include "config/base/check.h"
#include "config/base/clock.h"

/* The next state of each state by event. What is left out the engine's thread never does then. */
#define REFUSED (-1) /* the state stays, and the caller gets false */
#define ON(name) [SLEEP_EVENT_##name]
#define TO(name) (1 + SLEEP_STATE_##name)

static const signed char next_states[NUM_SLEEP_STATES][NUM_SLEEP_EVENTS] = {
    [SLEEP_STATE_AWAKE] = {ON(SLEEP_1) = TO(DUE_1), ON(SLEEP_2) = TO(DUE_2), ON(WAKE) = TO(AWAKE),
                           ON(SUBMIT) = TO(AWAKE), ON(IDLE) = TO(RELEASING_IDLE),
                           ON(DRAINED) = REFUSED},
    [SLEEP_STATE_DUE_1] = {ON(SLEEP_1) = TO(DUE_1), ON(SLEEP_2) = TO(DUE_2), ON(WAKE) = TO(AWAKE),
                           ON(SUBMIT) = REFUSED, ON(IDLE) = REFUSED, ON(DRAINED) = TO(RELEASING_1)},
    [SLEEP_STATE_DUE_2] = {ON(SLEEP_1) = TO(DUE_2), ON(SLEEP_2) = TO(DUE_2), ON(WAKE) = TO(AWAKE),
                           ON(SUBMIT) = REFUSED, ON(IDLE) = REFUSED, ON(DRAINED) = TO(RELEASING_2)},
    [SLEEP_STATE_RELEASING_IDLE] = {ON(SLEEP_1) = TO(RELEASING_1),
                                    ON(SLEEP_2) = TO(RELEASING_1_THEN_2),
                                    ON(WAKE) = TO(RELEASING_IDLE_WAKES),
                                    ON(SUBMIT) = TO(RELEASING_IDLE_WAKES),
                                    ON(RELEASED) = TO(ASLEEP_IDLE)},
    [SLEEP_STATE_RELEASING_1] = {ON(SLEEP_1) = TO(RELEASING_1),
                                 ON(SLEEP_2) = TO(RELEASING_1_THEN_2),
                                 ON(WAKE) = TO(RELEASING_1_WAKES), ON(SUBMIT) = REFUSED,
                                 ON(RELEASED) = TO(ASLEEP_1)},
    [SLEEP_STATE_RELEASING_1_THEN_2] = {ON(SLEEP_1) = TO(RELEASING_1_THEN_2),
                                        ON(SLEEP_2) = TO(RELEASING_1_THEN_2),
                                        ON(WAKE) = TO(RELEASING_1_WAKES), ON(SUBMIT) = REFUSED,
                                        ON(RELEASED) = TO(RELEASING_2)},
    [SLEEP_STATE_RELEASING_2] = {ON(SLEEP_1) = TO(RELEASING_2), ON(SLEEP_2) = TO(RELEASING_2),
                                 ON(WAKE) = TO(RELEASING_2_WAKES), ON(SUBMIT) = REFUSED,
                                 ON(RELEASED) = TO(ASLEEP_2)},
    [SLEEP_STATE_RELEASING_IDLE_WAKES] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = REFUSED,
                                          ON(WAKE) = TO(RELEASING_IDLE_WAKES),
                                          ON(SUBMIT) = TO(RELEASING_IDLE_WAKES),
                                          ON(RELEASED) = TO(WAKING_IDLE)},
    [SLEEP_STATE_RELEASING_1_WAKES] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = REFUSED,
                                       ON(WAKE) = TO(RELEASING_1_WAKES),
                                       ON(SUBMIT) = TO(RELEASING_1_WAKES),
                                       ON(RELEASED) = TO(WAKING_1)},
    [SLEEP_STATE_RELEASING_2_WAKES] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = REFUSED,
                                       ON(WAKE) = TO(RELEASING_2_WAKES),
                                       ON(SUBMIT) = TO(RELEASING_2_WAKES),
                                       ON(RELEASED) = TO(WAKING_2)},
    [SLEEP_STATE_ASLEEP_IDLE] = {ON(SLEEP_1) = TO(ASLEEP_1), ON(SLEEP_2) = TO(RELEASING_2),
                                 ON(WAKE) = TO(WAKING_IDLE), ON(SUBMIT) = TO(WAKING_IDLE)},
    [SLEEP_STATE_ASLEEP_1] = {ON(SLEEP_1) = TO(ASLEEP_1), ON(SLEEP_2) = TO(RELEASING_2),
                              ON(WAKE) = TO(WAKING_1), ON(SUBMIT) = REFUSED},
    [SLEEP_STATE_ASLEEP_2] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = TO(ASLEEP_2),
                              ON(WAKE) = TO(WAKING_2), ON(SUBMIT) = REFUSED},
    [SLEEP_STATE_WAKING_IDLE] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = REFUSED,
                                 ON(WAKE) = TO(WAKING_IDLE), ON(SUBMIT) = TO(WAKING_IDLE),
                                 ON(WOKEN) = TO(AWAKE), ON(WAKE_FAILED) = TO(ASLEEP_IDLE)},
    [SLEEP_STATE_WAKING_1] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = REFUSED, ON(WAKE) = TO(WAKING_1),
                              ON(SUBMIT) = TO(WAKING_1), ON(WOKEN) = TO(AWAKE),
                              ON(WAKE_FAILED) = TO(ASLEEP_1)},
    [SLEEP_STATE_WAKING_2] = {ON(SLEEP_1) = REFUSED, ON(SLEEP_2) = REFUSED, ON(WAKE) = TO(WAKING_2),
                              ON(SUBMIT) = TO(WAKING_2), ON(WOKEN) = TO(AWAKE),
                              ON(WAKE_FAILED) = TO(ASLEEP_2)},
};

/* What each state is. */
static const struct {
    enum engine_rest rest;
    enum sleep_duty duty;
    bool discards_weights, is_idle_sleep;
} meanings[NUM_SLEEP_STATES] = {
    [SLEEP_STATE_AWAKE] = {ENGINE_AWAKE, SLEEP_DUTY_SERVE, false, false},
    [SLEEP_STATE_DUE_1] = {ENGINE_FALLING_ASLEEP, SLEEP_DUTY_SERVE, false, false},
    [SLEEP_STATE_DUE_2] = {ENGINE_FALLING_ASLEEP, SLEEP_DUTY_SERVE, true, false},
    [SLEEP_STATE_RELEASING_IDLE] = {ENGINE_FALLING_ASLEEP, SLEEP_DUTY_RELEASE, false, true},
    [SLEEP_STATE_RELEASING_1] = {ENGINE_FALLING_ASLEEP, SLEEP_DUTY_RELEASE, false, false},
    [SLEEP_STATE_RELEASING_1_THEN_2] = {ENGINE_FALLING_ASLEEP, SLEEP_DUTY_RELEASE, true, false},
    [SLEEP_STATE_RELEASING_2] = {ENGINE_FALLING_ASLEEP, SLEEP_DUTY_RELEASE_ALL, true, false},
    [SLEEP_STATE_RELEASING_IDLE_WAKES] = {ENGINE_WAKING, SLEEP_DUTY_RELEASE, false, true},
    [SLEEP_STATE_RELEASING_1_WAKES] = {ENGINE_WAKING, SLEEP_DUTY_RELEASE, false, false},
    [SLEEP_STATE_RELEASING_2_WAKES] = {ENGINE_WAKING, SLEEP_DUTY_RELEASE_ALL, true, false},
    [SLEEP_STATE_ASLEEP_IDLE] = {ENGINE_ASLEEP, SLEEP_DUTY_REST, false, true},
    [SLEEP_STATE_ASLEEP_1] = {ENGINE_ASLEEP, SLEEP_DUTY_REST, false, false},
    [SLEEP_STATE_ASLEEP_2] = {ENGINE_ASLEEP, SLEEP_DUTY_REST, true, false},
    [SLEEP_STATE_WAKING_IDLE] = {ENGINE_WAKING, SLEEP_DUTY_TAKE, false, true},
    [SLEEP_STATE_WAKING_1] = {ENGINE_WAKING, SLEEP_DUTY_TAKE, false, false},
    [SLEEP_STATE_WAKING_2] = {ENGINE_WAKING, SLEEP_DUTY_TAKE, true, false},
};

/* Of the change that the machine has just made. */
static void count(struct sleep_machine *machine, enum sleep_state before, enum sleep_event event,
                  int64_t now_ns) {
    bool was_idle_sleep = meanings[before].is_idle_sleep;
    bool is_asleep = meanings[machine->state].rest == ENGINE_ASLEEP;
    if (meanings[before].rest != ENGINE_WAKING && meanings[machine->state].rest == ENGINE_WAKING)
        machine->waking_ns = now_ns;
    machine->num_slept += event == SLEEP_EVENT_RELEASED && is_asleep;
    machine->num_woken += event == SLEEP_EVENT_WOKEN;
    machine->num_wake_failures += event == SLEEP_EVENT_WAKE_FAILED;
    machine->idle.num_sleeps += event == SLEEP_EVENT_RELEASED && was_idle_sleep;
    machine->idle.num_wakes += event == SLEEP_EVENT_WOKEN && was_idle_sleep;
    machine->idle.num_wake_failures += event == SLEEP_EVENT_WAKE_FAILED && was_idle_sleep;
    if (event == SLEEP_EVENT_WOKEN && was_idle_sleep)
        machine->idle.wake_seconds +=
            (double)(now_ns - machine->waking_ns) / (double)CLOCK_NS_PER_S;
}

bool sleep_machine_take(struct sleep_machine *machine, enum sleep_event event, int64_t now_ns) {
    enum sleep_state before = machine->state;
    int next = next_states[before][event];
    CHECK(next != 0);
    if (next == REFUSED)
        return false;
    machine->state = (enum sleep_state)(next - 1);
    count(machine, before, event, now_ns);
    return true;
}

bool sleep_machine_refuses_requests(const struct sleep_machine *machine) {
    return next_states[machine->state][SLEEP_EVENT_SUBMIT] == REFUSED;
}

enum sleep_duty sleep_machine_duty(const struct sleep_machine *machine) {
    return meanings[machine->state].duty;
}

enum engine_rest sleep_machine_rest(const struct sleep_machine *machine) {
    return meanings[machine->state].rest;
}

struct engine_rest_view sleep_machine_view(const struct sleep_machine *machine) {
    return (struct engine_rest_view){sleep_machine_rest(machine), machine->num_slept,
                                     machine->num_woken, machine->num_wake_failures};
}

bool sleep_machine_discards_weights(const struct sleep_machine *machine) {
    return meanings[machine->state].discards_weights;
}

bool sleep_machine_is_idle_sleep(const struct sleep_machine *machine) {
    return meanings[machine->state].is_idle_sleep;
}
