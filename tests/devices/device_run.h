/* engine_core on the real executor, driven by a load that follows from a seed alone. What happens,
 * and in which order, is noted; what the device computes is not, so that the notes of a seed are
 * the same on every device. */
#ifndef QUIRE_TESTS_DEVICES_DEVICE_RUN_H
#define QUIRE_TESTS_DEVICES_DEVICE_RUN_H

#include "engine/core/engine_core.h"
#include "models/recorded_steps.h"
#include "tests/devices/event_log.h"

/* A model on a device. One serves any number of runs, one after the other: nothing of a run is left
 * for the next one. */
struct run_device {
    struct model *model;
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
    struct executor *executor;
    struct executor_info info;
    struct recorded_steps recorded; /* their sizes */
};

/* -1: ERROR_DEVICE or ERROR_CONFIG where there is no such device. */
int run_device_open(struct run_device *device, const char *model_path, const char *name,
                    struct error *err);
void run_device_close(struct run_device *device);

/* What occurred, summed over runs. */
struct run_totals {
    uint64_t steps, ahead, replayed, supplied;
    uint64_t swaps, recomputes, swapped_in, copies, hits, drafts_accepted, mask_jobs;
    uint64_t finished[FINISH_ERROR + 1]; /* choices */
    uint64_t refused;                    /* requests */
};

/* Runs the seed's load to its end, and adds to the log and the totals. Returns false, having said
 * why, when the executor fails, a block is lost or the load does not end. */
bool run_device_seed(struct run_device *device, uint64_t seed, struct event_log *log,
                     struct run_totals *totals);

#endif
