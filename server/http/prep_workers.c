#include "server/http/prep_workers.h"

#include "config/base/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct job_list {
    struct prep_job *head, **tail;
};

struct worker {
    struct prep_workers *workers;
    enum prep_queue queue;
    pthread_t thread;
};

struct prep_workers {
    int fd;
    int num_threads;
    struct worker threads[PREP_NUM_QUEUES];
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct job_list todo[PREP_NUM_QUEUES], done; /* guarded by lock, like stopping */
    bool stopping;
};

static void list_init(struct job_list *list) {
    list->head = NULL;
    list->tail = &list->head;
}

static void list_append(struct job_list *list, struct prep_job *job) {
    job->next = NULL;
    *list->tail = job;
    list->tail = &job->next;
}

static struct prep_job *list_pop(struct job_list *list) {
    struct prep_job *job = list->head;
    list->head = job->next;
    if (!list->head)
        list->tail = &list->head;
    return job;
}

/* The list that the worker of the queue takes its next job from; NULL: there is none for it. */
static struct job_list *list_for(struct prep_workers *workers, enum prep_queue queue) {
    if (workers->todo[queue].head)
        return &workers->todo[queue];
    return workers->todo[PREP_SHORT].head ? &workers->todo[PREP_SHORT] : NULL;
}

/* Called with the lock held; the next job, or NULL when the workers are stopping. */
static struct prep_job *wait_for_job(struct prep_workers *workers, enum prep_queue queue) {
    struct job_list *list;
    while (!(list = list_for(workers, queue)) && !workers->stopping)
        pthread_cond_wait(&workers->arrived, &workers->lock);
    return workers->stopping ? NULL : list_pop(list);
}

static void *worker_main(void *context) {
    const struct worker *worker = context;
    struct prep_workers *workers = worker->workers;
    struct prep_job *job;
    pthread_mutex_lock(&workers->lock);
    while ((job = wait_for_job(workers, worker->queue))) {
        pthread_mutex_unlock(&workers->lock);
        job->run(job);
        pthread_mutex_lock(&workers->lock);
        list_append(&workers->done, job);
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

int prep_workers_create(struct prep_workers **out, struct error *err) {
    struct prep_workers *workers = calloc(1, sizeof(*workers));
    if (!workers)
        return error_set(err, ERROR_MEMORY, "no memory for the prep workers");
    for (int queue = 0; queue < PREP_NUM_QUEUES; queue++)
        list_init(&workers->todo[queue]);
    list_init(&workers->done);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->arrived, NULL);
    workers->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = workers->fd < 0 ? errno : 0;
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
    list_append(&workers->todo[job->queue], job);
    pthread_cond_broadcast(&workers->arrived);
    pthread_mutex_unlock(&workers->lock);
}

struct prep_job *prep_workers_take_done(struct prep_workers *workers) {
    uint64_t count;
    pthread_mutex_lock(&workers->lock);
    ssize_t got = read(workers->fd, &count, sizeof(count));
    CHECK(got == sizeof(count) || errno == EAGAIN);
    struct prep_job *jobs = workers->done.head;
    list_init(&workers->done);
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
    drop_list(workers->done.head, drop);
    for (int queue = 0; queue < PREP_NUM_QUEUES; queue++)
        drop_list(workers->todo[queue].head, drop);
    if (workers->fd >= 0)
        close(workers->fd);
    pthread_cond_destroy(&workers->arrived);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
