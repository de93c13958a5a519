/* Workers without threads: each job is done some ticks after it was begun, drawn at random, and
 * found in slices as thin as can be. */
#ifndef QUIRE_TESTS_SIM_FAKE_MASK_WORKERS_H
#define QUIRE_TESTS_SIM_FAKE_MASK_WORKERS_H

#include "engine/core/mask_workers.h"
#include "tests/sim/random.h"

struct fake_mask_workers {
    struct mask_workers base;
    struct random random;
    const int64_t *now;       /* the tick */
    struct grammar_job *jobs; /* by rising ids; begin_ns is the tick at which a job is done */
    bool stopped;
    uint64_t num_begun;
};

/* Nothing is to be freed. */
void fake_mask_workers_init(struct fake_mask_workers *fake, uint64_t seed, const int64_t *now);

#endif
