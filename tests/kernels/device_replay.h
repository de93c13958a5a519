/* Times a batch of calls by the device's own clock: the batch is recorded once, its replays follow
 * one another with a mark between each two, and the first only keeps the device busy while the host
 * enqueues the others. So a call that takes the host longer than the device shows the device's
 * time, which includes what passes from the end of a call to the beginning of the next.
 *
 * That the replays do the work is checked: what the last call writes is overwritten before the
 * first replay, and has to come back as the batch called directly has left it. */
#ifndef QUIRE_TESTS_KERNELS_DEVICE_REPLAY_H
#define QUIRE_TESTS_KERNELS_DEVICE_REPLAY_H

#include "tests/kernels/device_bench.h"

/* Seconds of each of bench->num_batches replays of calls first .. first + count - 1, the like of
 * which were called before. False, with a line on
 * stderr that says why, where the device does not record them; ends the program when a replay is
 * not its batch. */
bool device_replay_run(struct device_bench *bench, const struct device_bench_job *job,
                       int64_t first, int64_t count, double *out_seconds);

#endif
