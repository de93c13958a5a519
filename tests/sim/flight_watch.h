/* Watches the blocks that steps in flight use: none of them may be free, or be handed to anybody
 * else, until its step was collected. Steps run in order, so that most of what breaks this rule
 * would harm nobody on the fake executor: it is checked from the tables alone.
 *
 * Not watched: a block that a step only swaps in, or copies to, for a sequence that it does not
 * compute. Whatever uses it next comes after that in the device's order. */
#ifndef QUIRE_TESTS_SIM_FLIGHT_WATCH_H
#define QUIRE_TESTS_SIM_FLIGHT_WATCH_H

#include "engine/core/engine_core.h"

#include <stdbool.h>
#include <stdint.h>

#define FLIGHT_WATCH_MAX_BLOCKS 4096
#define FLIGHT_WATCH_MAX_HOLDERS 8192

/* A group, and a used block that a sequence of it held when the step was submitted: what forks from
 * that one since may write to the block as well. */
struct block_holder {
    uint64_t step; /* serial; of an earlier step: nothing is here */
    const struct sequence_group *group;
    int32_t block;
};

struct watched_step {
    uint64_t serial;
    uint64_t used[FLIGHT_WATCH_MAX_BLOCKS];                /* the serial: in use */
    struct block_holder holders[FLIGHT_WATCH_MAX_HOLDERS]; /* by hash */
};

/* A zeroed struct watches nothing. */
struct flight_watch {
    struct watched_step steps[EXECUTOR_MAX_STEPS]; /* step n in place n % EXECUTOR_MAX_STEPS */
    uint64_t num_submitted, num_collected;
};

/* Takes the step that was submitted last. Returns a block that it writes to although a step before
 * it uses that block, for others; -1: none. */
int32_t flight_watch_submit(struct flight_watch *watch, const struct engine_core *core,
                            const struct step *step);
/* Forgets the oldest step. */
void flight_watch_collect(struct flight_watch *watch);
/* Returns a block in use by a step in flight that is free; -1: none. */
int32_t flight_watch_find_free(struct flight_watch *watch, const struct block_pool *pool);

#endif
