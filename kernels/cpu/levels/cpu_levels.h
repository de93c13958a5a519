/* The instruction-set levels this program was built with, and which of them this machine has.
 *
 * If the machine supports a level, its add functions are called after those of the levels before
 * it, and overwrite in struct cpu_kernels what they improve, like dav1d's. Each level has its own
 * files, cpu_gemm_LEVEL.c (formats of the matrix product) or cpu_ops_LEVEL.c (the other ops),
 * compiled with that level's compiler flags (kernels/meson.build). Their code must not be executed
 * before `supported` was checked. Such a file exports functions with the level in their names and
 * shares code with others only through `static inline` functions: an external inline function could
 * be linked from the level with the widest instructions and then run on a machine that lacks
 * them. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_LEVELS_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_LEVELS_H

#include "config/base/error.h"
#include "kernels/cpu/levels/cpu_op_kernels.h"

#include <stdbool.h>

struct cpu_gemm_format; /* cpu_gemm_format.h */

struct cpu_kernels {
    const struct cpu_gemm_format *formats[DTYPE_COUNT];
    struct cpu_op_kernels op;
};

struct cpu_level {
    const char *name;  /* as in backend_config.isa */
    const char *label; /* for people */
    bool on_trial;     /* not faster on every machine that has it */
    bool (*supported)(void);
    void (*add_formats)(struct cpu_kernels *kernels); /* NULL: none */
    void (*add_ops)(struct cpu_kernels *kernels);     /* NULL: none */
};

/* Best last; the first one runs everywhere and fills the whole table. The list has its own file, so
 * that a test can be linked with another one. */
extern const struct cpu_level cpu_levels[];
extern const int num_cpu_levels;

/* name: NULL or "auto" for the best level of this machine. Returns NULL with ERROR_CONFIG when the
 * name is unknown or the machine lacks the level. */
const struct cpu_level *cpu_levels_select(const char *name, struct error *err);

/* Fills the table with what the levels up to and including this one add. */
void cpu_levels_fill(const struct cpu_level *level, struct cpu_kernels *out);

/* Fills the table from all levels of this machine. A format or attention of a level on trial is
 * used only if it was measured to be clearly faster than the previous one (cpu_probe.h), and one
 * with uncommon bits only if `any_bits`, or for quantised weights, whose activations may always be
 * rounded. Returns the last level that contributed anything. It
 * measures once per process, so that the ranks of a model compute equally. Any thread.
 */
const struct cpu_level *cpu_levels_fill_fastest(bool any_bits, struct cpu_kernels *out);

/* cpu_gemm_LEVEL.c */
void cpu_gemm_add_portable(struct cpu_kernels *kernels);
void cpu_gemm_add_avx2(struct cpu_kernels *kernels);
void cpu_gemm_add_avxvnni(struct cpu_kernels *kernels);
void cpu_gemm_add_avx512vnni(struct cpu_kernels *kernels);
void cpu_gemm_add_avx512bf16(struct cpu_kernels *kernels);
void cpu_gemm_add_amx(struct cpu_kernels *kernels);
void cpu_gemm_add_neon(struct cpu_kernels *kernels);
void cpu_gemm_add_dotprod(struct cpu_kernels *kernels);
void cpu_gemm_add_i8mm(struct cpu_kernels *kernels);

/* cpu_ops_LEVEL.c */
void cpu_ops_add_portable(struct cpu_kernels *kernels);
void cpu_ops_add_avx2(struct cpu_kernels *kernels);
void cpu_ops_add_avx512vnni(struct cpu_kernels *kernels);
void cpu_ops_add_avx512bf16(struct cpu_kernels *kernels);
void cpu_ops_add_neon(struct cpu_kernels *kernels);

#endif
