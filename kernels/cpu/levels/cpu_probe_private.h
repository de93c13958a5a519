/* Shared by the probes of cpu_probe.h. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_PROBE_PRIVATE_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_PROBE_PRIVATE_H

#define PROBE_MARGIN 1.2     /* by which a batch must be faster */
#define PROBE_ROW_MARGIN 0.9 /* and a single row, as in a lone decode: not clearly slower */
#define PROBE_RUNS 24        /* of a few microseconds each */

/* Returns the seconds of a monotonic clock. */
double probe_now(void);

#endif
