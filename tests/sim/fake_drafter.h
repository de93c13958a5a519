/* A drafter that knows from the oracle what will be sampled, and tells the truth, the contrary, or
 * now this and now that. */
#ifndef QUIRE_TESTS_SIM_FAKE_DRAFTER_H
#define QUIRE_TESTS_SIM_FAKE_DRAFTER_H

#include "engine/draft/drafter.h"
#include "tests/sim/random_request.h"
#include "tests/sim/stream_checker.h"

#define FAKE_DRAFTER_MAX_REQUESTS 32

enum fake_drafts {
    FAKE_DRAFTS_RIGHT, /* and beyond the end of a sequence, random tokens */
    FAKE_DRAFTS_WRONG, /* the first one at least */
    FAKE_DRAFTS_MIXED, /* as many as comes, each of them right or random */
};

struct fake_drafter {
    struct drafter base;
    enum fake_drafts kind;
    struct random random;
    const struct stream_checker *checkers[FAKE_DRAFTER_MAX_REQUESTS];
    int32_t num_checkers;
};

/* Nothing is to be freed; base.ops->destroy does nothing. */
void fake_drafter_init(struct fake_drafter *fake, enum fake_drafts kind, uint64_t seed);
/* Takes a request's checker, which outlives the drafter. */
void fake_drafter_add(struct fake_drafter *fake, const struct stream_checker *checker);

#endif
