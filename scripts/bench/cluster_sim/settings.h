/* The options of cluster_sim, whose head says what they mean. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_SETTINGS_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_SETTINGS_H

#include "scripts/bench/cluster_sim/cluster.h"

struct cluster_settings {
    struct cluster_config cluster;
    struct simulated_device device; /* the one named, with other limits where they were given */
    struct result_limits limits;
    int64_t warmup_ns, window_ns;
};

/* Reads `[OPTION VALUE]...`. Ends the program with status 1 and a line that names the option when
 * one is unknown or its value out of its range. The settings hold pointers into themselves. */
void cluster_settings_read(int argc, char **argv, struct cluster_settings *out);

#endif
