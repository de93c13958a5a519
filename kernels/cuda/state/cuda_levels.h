/* Which kernels a GPU gets: the levels this module was built with, of which each has what those
 * before it have, and more. To add one: an entry in cuda_levels.c that names the first GPUs with
 * its instructions, and a field here for what it brings, which host code asks for where it launches
 * (b->level). Instructions stand in device_ptx.cuh under __CUDA_ARCH__, or in a header
 * like device_wgmma.cuh, and once more in kernels/cudasim; a kernel that uses them throughout has a
 * file of its own, which meson.build compiles for those GPUs alone. check_cuda_module.py says what
 * code each GPU must have. */
#ifndef QUIRE_KERNELS_CUDA_STATE_CUDA_LEVELS_H
#define QUIRE_KERNELS_CUDA_STATE_CUDA_LEVELS_H

#include "config/base/error.h"

#include <stdbool.h>

struct cuda_level {
    const char *name;    /* as in backend_config.isa */
    int capability;      /* the least that has it, as 80 for 8.0 */
    int code;            /* what the kernels of all levels are compiled for, at least */
    bool is_alone;       /* later GPUs lack it */
    bool multiplies_fp8; /* E4M3 by E4M3 (packed_product_fp8.cu) */
    bool has_wgmma;      /* warpgroups multiply wide tiles of attention (device_wgmma.cuh) */
    /* Products, norms and rope_store are launched before what is before them is done
     * (device_ptx.cuh): products read weights meanwhile. */
    bool begins_early;
};

/* isa: NULL or "auto" for the last level of a GPU of this capability. code: what this module's
 * kernels of all levels are compiled for on this GPU. Returns NULL with ERROR_CONFIG when the name
 * is unknown, or the GPU or the module lacks the level. */
const struct cuda_level *cuda_levels_select(const char *isa, int capability, int code,
                                            struct error *err);

#endif
