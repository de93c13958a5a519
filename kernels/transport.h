/* Messages between the ranks of a model in several processes, on one machine or several. Between
 * two ranks and on one channel, messages arrive in the order in which they were sent, and each is
 * received with the number of bytes that was sent: both sides know what comes next.
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
    TRANSPORT_STEPS,  /* between rank 0 and the others: what to compute, and the results */
    TRANSPORT_SUMS,   /* the collective ops (backend.h), or what GPUs need to begin with them;
                         before, weights that rank 0 sends */
    TRANSPORT_STAGES, /* hidden states from a stage of a pipeline to the next (backend.h) */
    TRANSPORT_NUM_CHANNELS
};

#define TRANSPORT_MAX_REQUESTS 128 /* maximum number of unfinished messages of one channel */

struct transport_ops {
    /* Begin a message to or from a rank; its memory stays valid and unchanged until the message is
     * done. NULL with ERROR_DEVICE: the rank cannot be reached. */
    struct transport_request *(*send)(struct transport *t, enum transport_channel channel,
                                      int32_t rank, const void *data, size_t bytes,
                                      struct error *err);
    struct transport_request *(*receive)(struct transport *t, enum transport_channel channel,
                                         int32_t rank, void *data, size_t bytes, struct error *err);
    /* Returns 1 when the message is done, 0 when not yet, -1 with ERROR_DEVICE when it failed;
     * after 1 and -1 the request is freed. Does not block. Called by the channel's thread. */
    int (*test)(struct transport *t, struct transport_request *request, struct error *err);
    /* No message may be begun afterwards. Every rank calls it, or leaves with _exit(2). */
    void (*destroy)(struct transport *t);
};

/* Every implementation's state starts with this. */
struct transport {
    const struct transport_ops *ops;
    int32_t rank, num_ranks;
    int32_t num_local;  /* ranks on this machine, this one included; they divide its memory */
    int32_t local_rank; /* this one's number among them: on GPUs, that of its GPU */
    int64_t timeout_ns; /* time for a rank to send or receive what others wait for; 0 (initially):
                           unlimited. Set by the caller */
};

/* Waits for all of these messages, in any order. Returns 0, or -1 with ERROR_DEVICE when one fails
 * or the rank `ranks[i]`, which the error names, exceeds the timeout. The other messages must then
 * not be waited for any more, and their memory belongs to the transport for good. count <=
 * TRANSPORT_MAX_REQUESTS. */
int transport_wait(struct transport *t, struct transport_request *const *requests,
                   const int32_t *ranks, int count, struct error *err);
/* Send or receive one message and wait for it. Errors as above. */
int transport_send(struct transport *t, enum transport_channel channel, int32_t rank,
                   const void *data, size_t bytes, struct error *err);
int transport_receive(struct transport *t, enum transport_channel channel, int32_t rank, void *data,
                      size_t bytes, struct error *err);

/* Returns whether this process was started as one of several by mpirun, mpiexec or srun, which show
 * in its environment. False for a single process, or a shell inside a Slurm allocation. */
bool transport_is_expected(void);
/* Opens the transport through the module libquire-mpi.so (module.h), once per process. Fails with
 * ERROR_CONFIG when the module is not installed or srun does not connect its processes;
 * ERROR_DEVICE when MPI does not start, or sees one process although several were started. */
int transport_open(struct transport **out, struct error *err);

#endif
