#include "tests/sim/fake_mask_workers.h"

#include "config/base/check.h"

#define MOST_TICKS 6

static void add_job(struct mask_workers *workers, struct grammar_job *job) {
    struct fake_mask_workers *fake = (struct fake_mask_workers *)workers;
    struct grammar_job **end = &fake->jobs;
    CHECK(!fake->stopped);
    for (; *end != NULL; end = &(*end)->next)
        CHECK((*end)->id < job->id && (*end)->grammar != job->grammar);
    job->begin_ns = *fake->now + random_range(&fake->random, 0, MOST_TICKS);
    job->next = NULL;
    *end = job;
    fake->num_begun++;
}

static struct grammar_job *take_job(struct mask_workers *workers) {
    struct fake_mask_workers *fake = (struct fake_mask_workers *)workers;
    struct grammar_job **at = &fake->jobs, *job;
    while (*at != NULL && !fake->stopped && (*at)->begin_ns > *fake->now)
        at = &(*at)->next;
    job = *at;
    if (job == NULL)
        return NULL;
    *at = job->next;
    while (!fake->stopped && !grammar_job_run(job, 1))
        ;
    return job;
}

static void stop(struct mask_workers *workers) {
    ((struct fake_mask_workers *)workers)->stopped = true;
}

void fake_mask_workers_init(struct fake_mask_workers *fake, uint64_t seed, const int64_t *now) {
    static const struct mask_workers_ops ops = {.add = add_job, .take = take_job, .stop = stop};
    *fake = (struct fake_mask_workers){.base = {&ops}, .random = random_from(seed), .now = now};
}
