#include "engine/core/mask_workers.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICE 10             /* what steps need comes first */
#define TURN_COST (1 << 17) /* of a job's turn: a few ms */

/* Linked through grammar_job.next. */
struct job_list {
    struct grammar_job *first;
};

struct worker_threads {
    struct mask_workers base;
    struct mask_workers_config config;
    pthread_t *threads; /* [num_started] */
    int32_t num_started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    struct job_list waiting, done;
    int32_t num_running;
    int64_t *served; /* [num_shares] cost of the share's jobs; never less than `turn` was when
                            one of them came */
    int64_t turn;    /* served of the share whose turn was last */
    bool stopping;
};

static struct worker_threads *threads_of(struct mask_workers *workers) {
    return (struct worker_threads *)workers;
}

static void append(struct job_list *list, struct grammar_job *job) {
    struct grammar_job **end = &list->first;
    while (*end != NULL)
        end = &(*end)->next;
    job->next = NULL;
    *end = job;
}

static void remove_job(struct job_list *list, const struct grammar_job *job) {
    struct grammar_job **at = &list->first;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
}

/* --- Threads --- */

/* Returns the job whose turn it is, no longer waiting; NULL: the thread is to end. */
static struct grammar_job *wait_for_turn(struct worker_threads *threads) {
    while (threads->waiting.first == NULL && !threads->stopping)
        pthread_cond_wait(&threads->changed, &threads->lock);
    if (threads->stopping)
        return NULL;
    struct grammar_job *next = threads->waiting.first;
    for (struct grammar_job *job = next->next; job != NULL; job = job->next)
        if (threads->served[job->share] < threads->served[next->share])
            next = job;
    remove_job(&threads->waiting, next);
    threads->turn = threads->served[next->share];
    threads->served[next->share] += TURN_COST;
    return next;
}

static void *thread_main(void *argument) {
    struct worker_threads *threads = argument;
    struct grammar_job *job;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    pthread_mutex_lock(&threads->lock);
    while ((job = wait_for_turn(threads)) != NULL) {
        threads->num_running++;
        pthread_mutex_unlock(&threads->lock);
        bool is_done = grammar_job_run(job, TURN_COST);
        pthread_mutex_lock(&threads->lock);
        threads->num_running--;
        append(is_done ? &threads->done : &threads->waiting, job);
        pthread_cond_broadcast(&threads->changed);
        if (!is_done)
            continue;
        pthread_mutex_unlock(&threads->lock);
        threads->config.wake(threads->config.context);
        pthread_mutex_lock(&threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

/* --- Operations --- */

static void add_job(struct mask_workers *workers, struct grammar_job *job) {
    struct worker_threads *threads = threads_of(workers);
    pthread_mutex_lock(&threads->lock);
    CHECK(!threads->stopping && job->share >= 0 && job->share < threads->config.num_shares);
    threads->served[job->share] = max_int64(threads->served[job->share], threads->turn);
    append(&threads->waiting, job);
    pthread_cond_signal(&threads->changed);
    pthread_mutex_unlock(&threads->lock);
}

static struct grammar_job *take_done(struct mask_workers *workers) {
    struct worker_threads *threads = threads_of(workers);
    pthread_mutex_lock(&threads->lock);
    struct grammar_job *least = threads->done.first;
    for (struct grammar_job *job = least; job != NULL; job = job->next)
        if (job->id < least->id)
            least = job;
    if (least != NULL)
        remove_job(&threads->done, least);
    pthread_mutex_unlock(&threads->lock);
    return least;
}

static void stop(struct mask_workers *workers) {
    struct worker_threads *threads = threads_of(workers);
    pthread_mutex_lock(&threads->lock);
    threads->stopping = true;
    pthread_cond_broadcast(&threads->changed);
    while (threads->num_running > 0)
        pthread_cond_wait(&threads->changed, &threads->lock);
    struct grammar_job *job;
    while ((job = threads->waiting.first) != NULL) {
        remove_job(&threads->waiting, job);
        append(&threads->done, job);
    }
    pthread_mutex_unlock(&threads->lock);
}

/* --- Life --- */

void mask_workers_destroy(struct mask_workers *workers) {
    if (workers == NULL)
        return;
    struct worker_threads *threads = threads_of(workers);
    stop(workers);
    CHECK(threads->waiting.first == NULL && threads->done.first == NULL);
    for (int32_t i = 0; i < threads->num_started; i++)
        CHECK(pthread_join(threads->threads[i], NULL) == 0);
    pthread_cond_destroy(&threads->changed);
    pthread_mutex_destroy(&threads->lock);
    free(threads->served);
    free(threads->threads);
    free(threads);
}

/* Signals are for other threads. */
static int start_threads(struct worker_threads *threads) {
    sigset_t all, before;
    int status = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t i = 0; status == 0 && i < threads->config.num_threads; i++) {
        status = pthread_create(&threads->threads[i], NULL, thread_main, threads);
        if (status == 0)
            pthread_setname_np(threads->threads[i], "quire-masks");
        threads->num_started += status == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

int mask_workers_create(const struct mask_workers_config *config, struct mask_workers **out,
                        struct error *err) {
    static const struct mask_workers_ops ops = {.add = add_job, .take = take_done, .stop = stop};
    struct worker_threads *threads = calloc(1, sizeof(*threads));
    if (threads == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the threads that find masks");
    threads->base.ops = &ops;
    threads->config = *config;
    CHECK(pthread_mutex_init(&threads->lock, NULL) == 0);
    CHECK(pthread_cond_init(&threads->changed, NULL) == 0);
    threads->threads = calloc((size_t)config->num_threads, sizeof(*threads->threads));
    threads->served = calloc((size_t)config->num_shares, sizeof(*threads->served));
    int status = ENOMEM;
    if (threads->threads != NULL && threads->served != NULL)
        status = start_threads(threads);
    if (status == 0) {
        *out = &threads->base;
        return 0;
    }
    mask_workers_destroy(&threads->base);
    return error_set(err, ERROR_IO, "cannot start the threads that find masks: %s",
                     strerror(status));
}

/* --- The jobs of a core --- */

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
