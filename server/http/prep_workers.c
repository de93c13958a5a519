#include "server/http/prep_workers.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/cores.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HELP_NS (5 * CLOCK_NS_PER_MS)
#define MAX_AHEAD_NS (100 * CLOCK_NS_PER_MS) /* for which an owner may be after all others */

struct job_list {
    struct prep_job *first, **end;
};

/* An owner's jobs of a queue. */
struct turn {
    struct job_list jobs; /* that wait */
    struct turn *next;    /* whose jobs wait too */
    int64_t spent_ns; /* virtual time: processor time of its jobs, lifted as it begins to wait */
    double byte_ns;   /* what its last job took for a byte, as the next one is expected to */
};

struct worker {
    struct prep_workers *workers;
    enum prep_queue queue;
    pthread_t thread;
};

struct prep_workers {
    int fd;
    int num_threads, most_with_help;
    int32_t num_owners;
    struct worker threads[PREP_NUM_QUEUES];
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct prep_queue_state {
        struct turn *turns;    /* [num_owners] */
        struct turn *first;    /* of those that wait, in order of arrival */
        int64_t now_ns;        /* virtual time of the last one whose turn came */
    } queues[PREP_NUM_QUEUES]; /* guarded by lock, like all below */
    struct job_list done;
    int num_running;
    bool stopping;
};

static void append(struct job_list *list, struct prep_job *job) {
    if (list->first == NULL)
        list->end = &list->first;
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct turn *turn_of(const struct prep_workers *workers, const struct prep_job *job) {
    CHECK(job->owner >= 0 && job->owner < workers->num_owners);
    return &workers->queues[job->queue].turns[job->owner];
}

/* Returns what the next job is expected to take. */
static int64_t expected_ns(const struct turn *turn) {
    return (int64_t)fmin(turn->byte_ns * (double)turn->jobs.first->num_bytes, MAX_AHEAD_NS);
}

static void begin_to_wait(struct prep_queue_state *queue, struct turn *turn) {
    struct turn **end = &queue->first;
    while (*end != NULL)
        end = &(*end)->next;
    *end = turn;
    turn->next = NULL;
    if (turn->spent_ns < queue->now_ns)
        turn->spent_ns = queue->now_ns;
    else if (turn->spent_ns > queue->now_ns + MAX_AHEAD_NS)
        turn->spent_ns = queue->now_ns + MAX_AHEAD_NS;
}

/* Takes the next job of a queue, of those with at most that expected time; NULL: there is none. */
static struct prep_job *take(struct prep_queue_state *queue, int64_t most_ns) {
    struct turn **best = NULL;
    for (struct turn **at = &queue->first; *at != NULL; at = &(*at)->next)
        if (expected_ns(*at) <= most_ns &&
            (best == NULL ||
             (*at)->spent_ns + expected_ns(*at) < (*best)->spent_ns + expected_ns(*best)))
            best = at;
    if (best == NULL)
        return NULL;
    struct turn *turn = *best;
    struct prep_job *job = turn->jobs.first;
    if (queue->now_ns < turn->spent_ns)
        queue->now_ns = turn->spent_ns;
    turn->jobs.first = job->next;
    if (job->next == NULL)
        *best = turn->next;
    return job;
}

/* The lock is held. Returns NULL when the workers are stopping. */
static struct prep_job *wait_for_job(struct prep_workers *workers, enum prep_queue queue) {
    while (!workers->stopping) {
        struct prep_job *job = take(&workers->queues[queue], INT64_MAX);
        if (job == NULL && workers->num_running < workers->most_with_help)
            job = take(&workers->queues[PREP_SHORT], HELP_NS);
        if (job != NULL)
            return job;
        pthread_cond_wait(&workers->arrived, &workers->lock);
    }
    return NULL;
}

static void *worker_main(void *context) {
    const struct worker *worker = context;
    struct prep_workers *workers = worker->workers;
    struct prep_job *job;
    pthread_mutex_lock(&workers->lock);
    while ((job = wait_for_job(workers, worker->queue))) {
        struct turn *turn = turn_of(workers, job);
        workers->num_running++;
        pthread_mutex_unlock(&workers->lock);
        int64_t begin_ns = clock_thread_ns();
        job->run(job);
        int64_t spent_ns = clock_thread_ns() - begin_ns;
        pthread_mutex_lock(&workers->lock);
        turn->spent_ns += spent_ns;
        turn->byte_ns = (double)spent_ns / (double)(job->num_bytes + 1);
        workers->num_running--;
        append(&workers->done, job);
        const uint64_t one = 1;
        CHECK(write(workers->fd, &one, sizeof(one)) == sizeof(one));
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static int start_worker(struct prep_workers *workers, enum prep_queue queue) {
    struct worker *worker = &workers->threads[queue];
    *worker = (struct worker){.workers = workers, .queue = queue};
    int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc != 0)
        return rc;
    pthread_setname_np(worker->thread, "quire-prep");
    workers->num_threads++;
    return 0;
}

static void no_jobs(struct prep_job *job) {
    CHECK(!job);
}

static int add_turns(struct prep_workers *workers) {
    int rc = 0;
    for (int i = 0; i < PREP_NUM_QUEUES && rc == 0; i++) {
        workers->queues[i].turns = calloc((size_t)workers->num_owners, sizeof(struct turn));
        rc = workers->queues[i].turns != NULL ? 0 : ENOMEM;
    }
    return rc;
}

int prep_workers_create(int32_t num_owners, struct prep_workers **out, struct error *err) {
    struct prep_workers *workers = calloc(1, sizeof(*workers));
    if (!workers)
        return error_set(err, ERROR_MEMORY, "no memory for the prep workers");
    workers->num_owners = num_owners;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->arrived, NULL);
    workers->most_with_help = 1 + cores_available() / 2;
    workers->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = workers->fd < 0 ? errno : add_turns(workers);
    while (rc == 0 && workers->num_threads < PREP_NUM_QUEUES)
        rc = start_worker(workers, (enum prep_queue)workers->num_threads);
    if (rc != 0) {
        prep_workers_destroy(workers, no_jobs);
        return error_set(err, ERROR_IO, "cannot start the prep workers: %s", strerror(rc));
    }
    *out = workers;
    return 0;
}

int prep_workers_fd(const struct prep_workers *workers) {
    return workers->fd;
}

void prep_workers_push(struct prep_workers *workers, struct prep_job *job) {
    pthread_mutex_lock(&workers->lock);
    struct turn *turn = turn_of(workers, job);
    if (turn->jobs.first == NULL)
        begin_to_wait(&workers->queues[job->queue], turn);
    append(&turn->jobs, job);
    pthread_cond_broadcast(&workers->arrived);
    pthread_mutex_unlock(&workers->lock);
}

struct prep_job *prep_workers_take_done(struct prep_workers *workers) {
    uint64_t count;
    pthread_mutex_lock(&workers->lock);
    ssize_t got = read(workers->fd, &count, sizeof(count));
    CHECK(got == sizeof(count) || errno == EAGAIN);
    struct prep_job *jobs = workers->done.first;
    workers->done.first = NULL;
    pthread_mutex_unlock(&workers->lock);
    return jobs;
}

static void drop_list(struct prep_job *job, void (*drop)(struct prep_job *job)) {
    while (job) {
        struct prep_job *next = job->next;
        drop(job);
        job = next;
    }
}

void prep_workers_destroy(struct prep_workers *workers, void (*drop)(struct prep_job *job)) {
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->arrived);
    pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < workers->num_threads; i++)
        pthread_join(workers->threads[i].thread, NULL);
    drop_list(workers->done.first, drop);
    for (int i = 0; i < PREP_NUM_QUEUES; i++) {
        for (struct turn *turn = workers->queues[i].first; turn != NULL; turn = turn->next)
            drop_list(turn->jobs.first, drop);
        free(workers->queues[i].turns);
    }
    if (workers->fd >= 0)
        close(workers->fd);
    pthread_cond_destroy(&workers->arrived);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
