/* Messages between the ranks of a model that are processes, on one machine or several. Between two
 * ranks, and on one channel, messages arrive in the order in which they were sent, and each is
 * received with the number of bytes that it was sent with: both sides know what comes next.
 *
 * A channel is used by one thread at a time, and two channels by two threads at once. */
#ifndef QUIRE_KERNELS_TRANSPORT_H
#define QUIRE_KERNELS_TRANSPORT_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport;
struct transport_request; /* a message that was begun */

enum transport_channel {
    TRANSPORT_STEPS,  /* between rank 0 and the others: what to compute, and what came of it */
    TRANSPORT_SUMS,   /* the collective ops (backend.h); before them, weights that rank 0 sends */
    TRANSPORT_STAGES, /* from a stage of a pipeline to the next: hidden states (likewise) */
    TRANSPORT_NUM_CHANNELS
};

#define TRANSPORT_MAX_REQUESTS 64 /* begun and not tested to their end, of one channel */

struct transport_ops {
    /* Begin a message to or from a rank; its memory stays as it is until the message is done. NULL
     * with ERROR_DEVICE: the rank cannot be reached. */
    struct transport_request *(*send)(struct transport *t, enum transport_channel channel,
                                      int32_t rank, const void *data, size_t bytes,
                                      struct error *err);
    struct transport_request *(*receive)(struct transport *t, enum transport_channel channel,
                                         int32_t rank, void *data, size_t bytes, struct error *err);
    /* 1: it is done, and gone; 0: not yet; -1 with ERROR_DEVICE: it never will be, and is gone.
     * Does not wait. By the channel's thread. */
    int (*test)(struct transport *t, struct transport_request *request, struct error *err);
    /* No message is begun any more. Every rank calls it, or leaves by _exit(2). */
    void (*destroy)(struct transport *t);
};

/* Every implementation's state starts with this. */
struct transport {
    const struct transport_ops *ops;
    int32_t rank, num_ranks;
    int32_t num_local;  /* of the ranks on this machine, whose memory they share out; this one is
                          among them */
    int64_t timeout_ns; /* for a rank to send or take what it is waited for; 0, as it is opened: for
                           ever. The caller's to set */
};

/* Waits for all of these messages, in any order. 0, or -1 with ERROR_DEVICE: the first that fails,
 * or `ranks[i]`, by name, has let the timeout pass; the others are not to be waited for any more,
 * and their memory is the transport's for good. count <= TRANSPORT_MAX_REQUESTS. */
int transport_wait(struct transport *t, struct transport_request *const *requests,
                   const int32_t *ranks, int count, struct error *err);
/* Sends, or receives, one message and waits for it. Likewise. */
int transport_send(struct transport *t, enum transport_channel channel, int32_t rank,
                   const void *data, size_t bytes, struct error *err);
int transport_receive(struct transport *t, enum transport_channel channel, int32_t rank, void *data,
                      size_t bytes, struct error *err);

/* Returns whether this process was started as one of several by mpirun, mpiexec or srun, which say
 * so in its environment; one process alone, or a shell inside an allocation of Slurm, was not. */
bool transport_is_expected(void);
/* Opens it through the module libquire-mpi.so (module.h), once in a process: ERROR_CONFIG when that
 * is not installed, or srun does not tell its processes of each other; ERROR_DEVICE when MPI does
 * not start, or sees one process where several were started. */
int transport_open(struct transport **out, struct error *err);

#endif
