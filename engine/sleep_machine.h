/* The engine's sleep as one machine of states. It has no thread, no lock and no executor: the
 * engine passes it events under its own lock, and does what the state says (sleep_machine_duty).
 *
 *   AWAKE -SLEEP-> DUE -DRAINED-> RELEASING -RELEASED-> ASLEEP -WAKE-> WAKING -WOKEN-> AWAKE
 *                   |                 |                   ^              |
 *                   | WAKE            | WAKE              +- WAKE_FAILED-+
 *                   v                 v                                  ^
 *                 AWAKE         RELEASING_x_WAKES ------- RELEASED ------+
 *
 * Each sleep is one of three kinds: IDLE (by itself, with its weights; a request ends it), 1 (put
 * to sleep with its weights) and 2 (without them). SLEEP of a deeper kind turns one into the other.
 * The table in sleep_machine.c has every state and event.
 *
 * Who: the front end gives SLEEP_1, SLEEP_2, WAKE and SUBMIT; the engine's thread the others. */
#ifndef QUIRE_ENGINE_SLEEP_MACHINE_H
#define QUIRE_ENGINE_SLEEP_MACHINE_H

#include "engine/stats/engine_stats.h"

#include <stdint.h>

enum sleep_state {
    SLEEP_STATE_AWAKE,
    SLEEP_STATE_DUE_1, /* once accepted requests have ended; the executor has all its memory */
    SLEEP_STATE_DUE_2,
    SLEEP_STATE_RELEASING_IDLE, /* the executor gives memory back: cannot be called off */
    SLEEP_STATE_RELEASING_1,
    SLEEP_STATE_RELEASING_1_THEN_2, /* and will give back the weights next */
    SLEEP_STATE_RELEASING_2,
    SLEEP_STATE_RELEASING_IDLE_WAKES, /* and will take it again at once */
    SLEEP_STATE_RELEASING_1_WAKES,
    SLEEP_STATE_RELEASING_2_WAKES,
    SLEEP_STATE_ASLEEP_IDLE,
    SLEEP_STATE_ASLEEP_1,
    SLEEP_STATE_ASLEEP_2,
    SLEEP_STATE_WAKING_IDLE, /* the executor takes its memory again */
    SLEEP_STATE_WAKING_1,
    SLEEP_STATE_WAKING_2,
    NUM_SLEEP_STATES,
};

enum sleep_event {
    SLEEP_EVENT_SLEEP_1,
    SLEEP_EVENT_SLEEP_2,
    SLEEP_EVENT_WAKE,
    SLEEP_EVENT_SUBMIT,      /* a request comes */
    SLEEP_EVENT_IDLE,        /* no request came for a long time, and nothing is left to do */
    SLEEP_EVENT_DRAINED,     /* nothing is left to do */
    SLEEP_EVENT_RELEASED,    /* the executor has given its memory back */
    SLEEP_EVENT_WOKEN,       /* it has its memory again */
    SLEEP_EVENT_WAKE_FAILED, /* it has not */
    NUM_SLEEP_EVENTS,
};

/* What the engine's thread has to do. */
enum sleep_duty {
    SLEEP_DUTY_SERVE, /* run steps */
    SLEEP_DUTY_RELEASE,
    SLEEP_DUTY_RELEASE_ALL, /* the weights too */
    SLEEP_DUTY_REST,        /* nothing, until the next event */
    SLEEP_DUTY_TAKE,        /* take the memory again */
};

/* Zeroed, it is awake. */
struct sleep_machine {
    enum sleep_state state;
    int64_t waking_ns;                                /* when it was last asked to wake up */
    uint64_t num_slept, num_woken, num_wake_failures; /* see engine_rest_view */
    struct engine_idle_stats idle;
};

/* Goes to the next state. Returns false and changes nothing if the state refuses the event; an
 * event of the engine's thread that does not belong to the state is a CHECK. */
bool sleep_machine_take(struct sleep_machine *machine, enum sleep_event event, int64_t now_ns);

bool sleep_machine_refuses_requests(const struct sleep_machine *machine);
enum sleep_duty sleep_machine_duty(const struct sleep_machine *machine);
enum engine_rest sleep_machine_rest(const struct sleep_machine *machine);
struct engine_rest_view sleep_machine_view(const struct sleep_machine *machine);
/* For a machine that is not awake. The first: it has no weights when it sleeps; the second: it fell
 * asleep by itself. */
bool sleep_machine_discards_weights(const struct sleep_machine *machine);
bool sleep_machine_is_idle_sleep(const struct sleep_machine *machine);

#endif
