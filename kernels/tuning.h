/* Algorithms chosen by their time: what a device offers whose library has several for one product
 * (backend_ops.tuning; NULL where there is nothing to choose, as on the CPU). Called by the
 * backend's thread, once, at start.
 *
 * From `begin` to `end` the first `linear` with weights of a shape, and a number of rows in the
 * same bucket, times the algorithms that the library names for it and keeps the fastest for good:
 * neither `end` nor a later op changes it. What was not computed meanwhile, or when the budget was
 * spent, takes the algorithm that the library puts first. The ops give what they give at any time;
 * nothing is recorded meanwhile.
 *
 * Two algorithms may round differently, so that two starts may differ in the bits of results:
 * `backend.numerics` names the choice where it is not the library's. Where backend_config asks for
 * batch_invariant nothing is timed, and every start chooses the same. */
#ifndef QUIRE_KERNELS_TUNING_H
#define QUIRE_KERNELS_TUNING_H

#include "config/base/error.h"

#include <stdint.h>

struct backend;

/* Counts products, by shape of the weights, bucket of rows, and kind of result. */
struct tuning_report {
    int32_t num_timed;
    int32_t num_changed; /* of these, take another algorithm than the library's first */
    int32_t num_left;    /* were not timed: the budget was spent, or memory was short */
    double seconds;      /* of the device, for timed runs */
};

struct tuning_ops {
    /* Of the device, for timed runs: exceeded by no more than one run of each algorithm of one
     * product. The first run of each is not counted, for which its kernel is loaded. Memory of
     * the device, where there is some, is taken until `end`. ERROR_DEVICE, ERROR_MEMORY: nothing is
     * begun. */
    int (*begin)(struct backend *b, double budget_seconds, struct error *err);
    void (*end)(struct backend *b, struct tuning_report *out);
};

#endif
