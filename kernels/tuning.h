/* Algorithms chosen by their measured time, for a device whose library has several for one product
 * (backend_ops.tuning; NULL if there is nothing to choose, as on the CPU). Called by the backend's
 * thread, once, at start.
 *
 * From `begin` to `end`, the first `linear` for each shape of weights and bucket of row counts
 * times the algorithms that the library offers and keeps the fastest permanently: neither `end` nor
 * a later op changes it. Products that do not occur in that time, or only after the budget is
 * spent, use the library's first algorithm. The ops' results are valid as at any other time;
 * nothing is recorded meanwhile.
 *
 * Two algorithms may round differently, so two starts may differ in the bits of results:
 * `backend.numerics` names the choice where it differs from the library's. If backend_config asks
 * for batch_invariant, nothing is timed, and every start chooses the same. */
#ifndef QUIRE_KERNELS_TUNING_H
#define QUIRE_KERNELS_TUNING_H

#include "config/base/error.h"

#include <stdint.h>

struct backend;

/* Counts products, by shape of the weights, bucket of rows, and kind of result. */
struct tuning_report {
    int32_t num_timed;
    int32_t num_changed; /* of these, use an algorithm other than the library's first */
    int32_t num_left;    /* were not timed: the budget was spent, or memory was short */
    double seconds;      /* device time of timed runs */
};

struct tuning_ops {
    /* budget_seconds: device time for timed runs, exceeded by at most one run of each algorithm of
     * one product. The first run of each, which loads its kernel, does not count. Uses free device
     * memory until `end`. With ERROR_DEVICE or ERROR_MEMORY, nothing is begun. */
    int (*begin)(struct backend *b, double budget_seconds, struct error *err);
    void (*end)(struct backend *b, struct tuning_report *out);
};

#endif
