/* Threads for the slow part of a request: strict JSON, tokenising. Slow input then holds up a
 * worker, never the I/O thread.
 *
 * There is a worker for each queue of jobs. It runs those of its own queue in order of arrival and,
 * when it has none, short ones: what is long holds up only what is long too.
 *
 * The I/O thread pushes jobs and collects finished ones after prep_workers_fd became readable. A
 * job belongs to the workers from push until it comes back from prep_workers_take_done. The caller
 * bounds their number. */
#ifndef QUIRE_SERVER_HTTP_PREP_WORKERS_H
#define QUIRE_SERVER_HTTP_PREP_WORKERS_H

#include "config/error.h"

struct prep_workers;

enum prep_queue {
    PREP_SHORT, /* some milliseconds at most */
    PREP_LONG,  /* API calls */
    PREP_BULK,  /* transforms */
    PREP_NUM_QUEUES
};

/* Embedded in the caller's job. */
struct prep_job {
    enum prep_queue queue;
    void (*run)(struct prep_job *job); /* on a worker; touches the job's own fields only */
    struct prep_job *next;
};

int prep_workers_create(struct prep_workers **out, struct error *err);

/* An eventfd, readable while finished jobs wait. */
int prep_workers_fd(const struct prep_workers *workers);
void prep_workers_push(struct prep_workers *workers, struct prep_job *job);
/* Takes all finished jobs, oldest first, linked by next; NULL when none. Clears the eventfd. */
struct prep_job *prep_workers_take_done(struct prep_workers *workers);

/* Lets running jobs end, joins the threads and hands every job not yet taken to drop. Accepts
 * NULL. */
void prep_workers_destroy(struct prep_workers *workers, void (*drop)(struct prep_job *job));

#endif
