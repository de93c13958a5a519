/* The instruction-set levels this program was built with, and which of them this machine has.
 *
 * Each level is a set of files NAME_LEVEL.c compiled with that level's compiler flags (see
 * kernels/meson.build); nothing else may execute what they contain before `supported` was checked.
 * A file of a level exports one constant table and shares code with others through `static inline`
 * functions only: an external inline function could be linked in from the level with the widest
 * instructions and then run on a machine that lacks them. */
#ifndef QUIRE_KERNELS_CPU_CPU_LEVELS_H
#define QUIRE_KERNELS_CPU_CPU_LEVELS_H

#include "config/error.h"

#include <stdbool.h>

struct cpu_gemm_kernels; /* cpu_gemm.h */
struct cpu_op_kernels;   /* cpu_ops.h */

struct cpu_level {
    const char *name;  /* as in backend_config.isa */
    const char *label; /* for people */
    bool (*supported)(void);
    const struct cpu_gemm_kernels *gemm;
    const struct cpu_op_kernels *op;
};

/* Best first; the last one runs everywhere. */
extern const struct cpu_level cpu_levels[];
extern const int num_cpu_levels;

/* name: NULL or "auto" for the best one this machine supports. NULL with ERROR_CONFIG when the name
 * is unknown or the machine lacks it. */
const struct cpu_level *cpu_levels_select(const char *name, struct error *err);

#endif
