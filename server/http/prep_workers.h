/* Threads for the slow part of a request: strict JSON, tokenising. Slow input then holds up a
 * worker, never the I/O thread.
 *
 * There is a worker for each queue of jobs. It takes those of its own queue and, when it has none,
 * short ones that are expected to take little, while no more run than one and half of the cores:
 * what is long holds up only what is long too, and steps are computed meanwhile. In a queue the
 * owners of jobs take turns: next is the oldest job of the owner for which least processor time
 * will have been spent then, if it takes as long for a byte as the last one (after start-time fair
 * queueing: Goyal, Vin and Cheng, SIGCOMM 1996). An owner without jobs gains no credit: with its
 * next one it is level with whoever is served then. So a job waits for the one that runs and for
 * those of its own owner, whatever others push.
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
    size_t num_bytes;                  /* that its time is expected to grow with */
    struct prep_job *next;
};

int prep_workers_create(int32_t num_owners, struct prep_workers **out, struct error *err);

/* An eventfd, readable while finished jobs wait. */
int prep_workers_fd(const struct prep_workers *workers);
void prep_workers_push(struct prep_workers *workers, struct prep_job *job);
/* Takes all finished jobs, oldest first, linked by next; NULL when none. Clears the eventfd. */
struct prep_job *prep_workers_take_done(struct prep_workers *workers);

/* Lets running jobs end, joins the threads and hands every job not yet taken to drop. Accepts
 * NULL. */
void prep_workers_destroy(struct prep_workers *workers, void (*drop)(struct prep_job *job));

#endif
