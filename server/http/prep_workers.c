#include "server/http/prep_workers.h"

#include "config/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_THREADS 16

struct job_list {
    struct prep_job *head, **tail;
};

struct prep_workers {
    int fd;
    int num_threads;
    pthread_t threads[MAX_THREADS];
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct job_list todo, done; /* guarded by lock, like stopping */
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

/* Called with the lock held; the next job, or NULL when the workers are stopping. */
static struct prep_job *wait_for_job(struct prep_workers *workers) {
    while (!workers->todo.head && !workers->stopping)
        pthread_cond_wait(&workers->arrived, &workers->lock);
    return workers->stopping ? NULL : list_pop(&workers->todo);
}

static void *worker_main(void *context) {
    struct prep_workers *workers = context;
    struct prep_job *job;
    pthread_mutex_lock(&workers->lock);
    while ((job = wait_for_job(workers))) {
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

static void no_jobs(struct prep_job *job) {
    CHECK(!job);
}

int prep_workers_create(int num_threads, struct prep_workers **out, struct error *err) {
    CHECK(num_threads >= 1 && num_threads <= MAX_THREADS);
    struct prep_workers *workers = calloc(1, sizeof(*workers));
    if (!workers)
        return error_set(err, ERROR_MEMORY, "no memory for the prep workers");
    list_init(&workers->todo);
    list_init(&workers->done);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->arrived, NULL);
    workers->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = workers->fd < 0 ? errno : 0;
    while (rc == 0 && workers->num_threads < num_threads) {
        rc = pthread_create(&workers->threads[workers->num_threads], NULL, worker_main, workers);
        if (rc == 0) {
            pthread_setname_np(workers->threads[workers->num_threads], "quire-prep");
            workers->num_threads++;
        }
    }
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
    list_append(&workers->todo, job);
    pthread_cond_signal(&workers->arrived);
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
        pthread_join(workers->threads[i], NULL);
    drop_list(workers->done.head, drop);
    drop_list(workers->todo.head, drop);
    if (workers->fd >= 0)
        close(workers->fd);
    pthread_cond_destroy(&workers->arrived);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
