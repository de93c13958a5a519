#include "kernels/transport.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/poll_pause.h"
#include "kernels/module.h"

#include <stdlib.h>

/* Messages within a step come in a fraction of it. */
static const struct poll_pace pace = {.spin_ns = 200000, .longest_nap_ns = CLOCK_NS_PER_MS};

/* The messages that are waited for. */
struct waiting {
    struct transport_request *requests[TRANSPORT_MAX_REQUESTS];
    int32_t ranks[TRANSPORT_MAX_REQUESTS];
    int count;
};

/* Drops those that are done. -1 when one has failed. */
static int test_all(struct transport *t, struct waiting *waiting, struct error *err) {
    int left = 0;
    for (int i = 0; i < waiting->count; i++) {
        int state = t->ops->test(t, waiting->requests[i], err);
        if (state < 0)
            return -1;
        if (state == 0) {
            waiting->requests[left] = waiting->requests[i];
            waiting->ranks[left++] = waiting->ranks[i];
        }
    }
    waiting->count = left;
    return 0;
}

static int wait_for(struct transport *t, struct waiting *waiting, struct error *err) {
    int64_t start = clock_now_ns();
    for (;;) {
        if (test_all(t, waiting, err) != 0)
            return -1;
        if (waiting->count == 0)
            return 0;
        int64_t waited = clock_now_ns() - start;
        if (t->timeout_ns > 0 && waited >= t->timeout_ns)
            return error_set(err, ERROR_DEVICE,
                             "rank %d has not answered within %g s (--rank-timeout)",
                             waiting->ranks[0], (double)t->timeout_ns / CLOCK_NS_PER_S);
        poll_pause(&pace, waited);
    }
}

int transport_wait(struct transport *t, struct transport_request *const *requests,
                   const int32_t *ranks, int count, struct error *err) {
    CHECK(count <= TRANSPORT_MAX_REQUESTS);
    struct waiting waiting = {.count = count};
    for (int i = 0; i < count; i++) {
        waiting.requests[i] = requests[i];
        waiting.ranks[i] = ranks[i];
    }
    return wait_for(t, &waiting, err);
}

static int wait_for_one(struct transport *t, struct transport_request *request, int32_t rank,
                        struct error *err) {
    return request != NULL ? transport_wait(t, &request, &rank, 1, err) : -1;
}

int transport_send(struct transport *t, enum transport_channel channel, int32_t rank,
                   const void *data, size_t bytes, struct error *err) {
    return wait_for_one(t, t->ops->send(t, channel, rank, data, bytes, err), rank, err);
}

int transport_receive(struct transport *t, enum transport_channel channel, int32_t rank, void *data,
                      size_t bytes, struct error *err) {
    return wait_for_one(t, t->ops->receive(t, channel, rank, data, bytes, err), rank, err);
}

/* How many processes those who start them say there are, the nearest of them first: mpirun of Open
 * MPI; mpiexec of MPICH, and of those that speak its PMI; srun. Slurm's SLURM_NTASKS and
 * SLURM_PROCID are also in the environment of a batch script and of a shell inside an allocation;
 * the number of tasks of a step is not, or is 1. */
static const char *const size_variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                             "SLURM_STEP_NUM_TASKS"};

bool transport_is_expected(void) {
    for (size_t i = 0; i < sizeof(size_variables) / sizeof(size_variables[0]); i++) {
        const char *size = getenv(size_variables[i]);
        if (size != NULL)
            return strtol(size, NULL, 10) > 1;
    }
    return false;
}

/* srun tells its processes of each other by PMIx or PMI alone, as --mpi says. An MPI library that
 * finds neither ends the process, with a text that is its own. */
static bool is_told_of_others(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        if (getenv(variables[i]) != NULL)
            return true;
    return getenv("SLURM_STEP_NUM_TASKS") == NULL;
}

int transport_open(struct transport **out, struct error *err) {
    if (!is_told_of_others())
        return error_set(err, ERROR_CONFIG,
                         "started by srun, whose processes find each other with --mpi=pmix alone");
    const struct transport_module *module =
        module_find("mpi", QUIRE_TRANSPORT_SYMBOL, QUIRE_TRANSPORT_INTERFACE, err);
    struct transport *t = NULL;
    if (module == NULL || module->open(&t, err) != 0)
        return -1;
    if (t->num_ranks == 1 && transport_is_expected()) {
        t->ops->destroy(t);
        return error_set(err, ERROR_DEVICE,
                         "started as one of several processes, of which MPI sees this one only: "
                         "start them with the mpirun of the MPI library that libquire-mpi.so is "
                         "built with, or with srun --mpi=pmix");
    }
    *out = t;
    return 0;
}
