/* Threads for the slow part of a request: strict JSON, tokenising. Slow input then holds up a
 * worker, never the I/O thread.
 *
 * There is one worker for each queue of jobs. It takes jobs from its own queue. If that is empty,
 * it takes short jobs with a low expected time, as long as no more run than one plus half of the
 * cores. So long jobs delay only other long jobs, and steps are computed meanwhile. Within a queue
 * the owners of jobs take turns: next is the oldest job of the owner for whom least processor time
 * will have been spent after it, assuming the time per byte of the last job (after start-time fair
 * queueing: Goyal, Vin and Cheng, SIGCOMM 1996). An owner without jobs gains no credit: with its
 * next job it starts level with whoever is served then. So a job waits only for the running one and
 * those of its own owner, regardless of what others push.
 *
 * The I/O thread pushes jobs and collects finished ones after prep_workers_fd became readable. A
 * job belongs to the workers from push until it comes back from prep_workers_take_done. The caller
 * bounds their number. */
#ifndef QUIRE_SERVER_HTTP_PREP_WORKERS_H
#define QUIRE_SERVER_HTTP_PREP_WORKERS_H

#include "config/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct prep_workers;

enum prep_queue {
    PREP_SHORT, /* some milliseconds at most */
    PREP_LONG,  /* API calls */
    PREP_BULK,  /* transforms of up to a megabyte */
    PREP_HUGE,  /* larger ones, which take seconds */
    PREP_NUM_QUEUES
};

/* Embedded in the caller's job. */
struct prep_job {
    enum prep_queue queue;
    void (*run)(struct prep_job *job); /* on a worker; touches the job's own fields only */
    int32_t owner;                     /* a number below num_owners */
    size_t num_bytes;                  /* by which its time is estimated */
    struct prep_job *next;
};

int prep_workers_create(int32_t num_owners, struct prep_workers **out, struct error *err);

/* An eventfd, readable while finished jobs wait. */
int prep_workers_fd(const struct prep_workers *workers);
void prep_workers_push(struct prep_workers *workers, struct prep_job *job);
/* Takes all finished jobs, oldest first, linked by next; NULL when none. Clears the eventfd. */
struct prep_job *prep_workers_take_done(struct prep_workers *workers);

/* Lets running jobs end, joins the threads and passes every job not yet taken to drop. Accepts
 * NULL. */
void prep_workers_destroy(struct prep_workers *workers, void (*drop)(struct prep_job *job));

#endif
