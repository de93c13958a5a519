#include "engine/core/mask_jobs.h"

#include "config/base/check.h"

static void end_job(struct mask_jobs *jobs, struct grammar_job *job) {
    jobs->num_running--;
    grammar_job_end(job);
}

static void take_jobs(struct mask_jobs *jobs, struct engine_stats *stats, int64_t now_ns) {
    struct grammar_job *job;
    while ((job = jobs->workers->ops->take(jobs->workers)) != NULL) {
        stats->mask_jobs++;
        stats->mask_job_seconds += (double)(now_ns - job->begin_ns) * 1e-9;
        if (jobs->taken != NULL)
            jobs->taken(jobs->context, job->id);
        end_job(jobs, job);
    }
}

/* Several requests may have the same grammar. */
static bool is_in_flight(const struct sequence_group *groups, const struct grammar *grammar) {
    for (const struct sequence_group *g = groups; g != NULL; g = g->next)
        if (g->request->params.grammar == grammar && g->num_in_flight > 0)
            return true;
    return false;
}

void mask_jobs_update(struct mask_jobs *jobs, const struct sequence_group *groups,
                      struct engine_stats *stats, int64_t now_ns) {
    if (jobs->workers == NULL)
        return;
    take_jobs(jobs, stats, now_ns);
    for (const struct sequence_group *g = groups; g != NULL; g = g->next) {
        struct grammar *grammar = g->request->params.grammar;
        if (grammar == NULL || !grammar_is_busy(grammar) || grammar_has_job(grammar) ||
            is_in_flight(groups, grammar))
            continue;
        struct grammar_job *job = grammar_job_begin(grammar);
        job->id = ++jobs->last_id;
        job->share = g->request->share;
        job->begin_ns = now_ns;
        jobs->num_running++;
        jobs->workers->ops->add(jobs->workers, job);
    }
    stats->num_mask_jobs = jobs->num_running;
}

void mask_jobs_stop(struct mask_jobs *jobs) {
    struct grammar_job *job;
    if (jobs->workers == NULL)
        return;
    jobs->workers->ops->stop(jobs->workers);
    while ((job = jobs->workers->ops->take(jobs->workers)) != NULL)
        end_job(jobs, job);
    CHECK(jobs->num_running == 0);
}
