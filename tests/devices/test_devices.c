/* The engine does the same on a device as on the CPU: for each seed a load is run on both with the
 * real executor, and every step's plan, blocks and moves, every event of every stream and every end
 * must be the same, in the same order. One executor runs all seeds.
 *
 *   test_devices --model FILE [--device cuda-sim] [--seeds N] [--first-seed S]
 *
 * A failure prints the seed and the first event that differs; the same seed replays it. */
#include "tests/devices/device_run.h"
#include "tests/sim/count_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENOUGH_SEEDS = 24 /* for everything to occur */, SKIPPED = 77 /* for Meson */ };

static const char *option(int argc, char **argv, const char *name, const char *fallback) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return fallback;
}

/* Prints them; false when one of them is 0. */
static bool print_totals(const struct run_totals *totals, uint64_t num_events) {
    const struct counted rows[] = {
        {"events", num_events},
        {"steps", totals->steps},
        {"submitted while another was in flight", totals->ahead},
        {"supplied with late inputs", totals->supplied},
        {"replayed", totals->replayed},
        {"preemptions by swapping", totals->swaps},
        {"preemptions by recomputation", totals->recomputes},
        {"blocks swapped in", totals->swapped_in},
        {"blocks copied on write", totals->copies},
        {"tokens found in the prefix cache", totals->hits},
        {"drafted tokens accepted", totals->drafts_accepted},
        {"jobs that found masks", totals->mask_jobs},
        {"choices stopped", totals->finished[FINISH_STOP]},
        {"ended by their length", totals->finished[FINISH_LENGTH]},
        {"by their deadline", totals->finished[FINISH_DEADLINE]},
        {"before they ran", totals->finished[FINISH_QUEUE_TIMEOUT]},
        {"cancelled", totals->finished[FINISH_ABORT]},
        {"requests refused", totals->refused},
    };
    return count_table_print(rows, sizeof(rows) / sizeof(rows[0]));
}

struct pair {
    struct run_device cpu, device;
    struct event_log cpu_log, device_log;
    struct run_totals cpu_totals, totals;
    uint64_t num_events;
};

static bool run_seed(struct pair *pair, uint64_t seed) {
    event_log_clear(&pair->cpu_log);
    event_log_clear(&pair->device_log);
    bool passed = run_device_seed(&pair->cpu, seed, &pair->cpu_log, &pair->cpu_totals) &&
                  run_device_seed(&pair->device, seed, &pair->device_log, &pair->totals) &&
                  event_log_compare(&pair->cpu_log, &pair->device_log);
    if (!passed)
        printf("seed %llu\n", (unsigned long long)seed);
    pair->num_events += pair->device_log.num_lines;
    return passed;
}

static bool run_seeds(struct pair *pair, uint64_t first, uint64_t count) {
    uint64_t num_failed = 0, num_run = 0;
    for (; num_run < count && num_failed < 10; num_run++)
        num_failed += !run_seed(pair, first + num_run);
    bool all_occurred = print_totals(&pair->totals, pair->num_events);
    printf("%llu seeds, %llu broken\n", (unsigned long long)num_run,
           (unsigned long long)num_failed);
    if (num_run >= ENOUGH_SEEDS && !all_occurred)
        printf("a kind of event never occurred: the runs show nothing of it\n");
    return num_failed == 0 && (all_occurred || num_run < ENOUGH_SEEDS);
}

int main(int argc, char **argv) {
    static struct pair pair;
    struct error err = {0};
    const char *model = option(argc, argv, "--model", ""),
               *device = option(argc, argv, "--device", "cuda-sim");
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was found is printed even if a seed never ends */
    if (strcmp(device, "cuda") == 0 && backend_device_memory("cuda") == 0)
        return SKIPPED;
    if (run_device_open(&pair.cpu, model, "cpu", &err) != 0 ||
        run_device_open(&pair.device, model, device, &err) != 0) {
        printf("%s\n", err.message);
        return 1;
    }
    bool passed = run_seeds(&pair, strtoull(option(argc, argv, "--first-seed", "1"), NULL, 10),
                            strtoull(option(argc, argv, "--seeds", "24"), NULL, 10));
    run_device_close(&pair.cpu);
    run_device_close(&pair.device);
    event_log_finish(&pair.cpu_log);
    event_log_finish(&pair.device_log);
    return passed ? 0 : 1;
}
