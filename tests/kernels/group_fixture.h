/* Groups of backends, each rank of which is a thread: by memory, or by the messages of a network
 * that is made up. */
#ifndef QUIRE_TESTS_KERNELS_GROUP_FIXTURE_H
#define QUIRE_TESTS_KERNELS_GROUP_FIXTURE_H

#include "kernels/backend.h"

#include <pthread.h>

#define GROUP_MAX_RANKS 4
#define GROUP_MAX_ROWS 70
#define GROUP_MAX_WIDTH 4096   /* of what is summed */
#define GROUP_MAX_COLUMNS 2000 /* of a rank, gathered */
#define GROUP_FIRST_RANK 1     /* of the transport's, that is in a group by messages */
#define GROUP_EXIT_SKIPPED 77  /* of a program: to meson, a test that was not run */

struct group_kind {
    const char *device, *isa;
    int num_threads;
    enum dtype dtype; /* of the activations */
    bool fast_sums;   /* of a device */
};

enum group_way { BY_MEMORY, BY_MESSAGES, NUM_GROUP_WAYS };

struct group_form {
    const struct group_kind *kind;
    int32_t num_ranks;
    enum group_way way;
    int64_t max_delay_ns; /* of a message */
    int64_t timeout_ns;   /* of the transport; 0: none */
};

/* What one rank's thread does with its backend. cmocka fails in the thread of the test only, so
 * results are looked at once all threads have ended. */
struct group_member {
    struct backend_group *group; /* of all, or of this one alone */
    struct backend *backend;
    int32_t rank;
    const struct group_kind *kind;
    void (*body)(struct group_member *member, void *context);
    void *context;
    pthread_t thread;
};

/* Returns the device of a program's arguments, DEVICE TYPE [RANKS], and how many ranks it can have,
 * up to GROUP_MAX_RANKS. Leaves the program when the arguments are others, when it can have fewer
 * than RANKS, and with GROUP_EXIT_SKIPPED when it is not here and there are no RANKS. */
struct group_kind group_fixture_choose_device(int argc, char **argv, int32_t *out_max_ranks);

/* Opens a backend for each rank, runs the body in the thread of each, and closes them. */
void group_fixture_run(const struct group_form *form,
                       void (*body)(struct group_member *member, void *context), void *context);

#endif
