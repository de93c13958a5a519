/* The levels of a program that checks the tiles of AMX on any machine: it is linked with this list
 * in place of the product's (cpu_levels.h). The level "amx-model" is the source of "amx", on a
 * model of the tile instructions and the vectors of "portable". */
#include "tests/kernels/amx_model.h"

#include "kernels/cpu/levels/cpu_levels.h"

#define tile_configure amx_model_configure
#define tile_release amx_model_release
#define tile_zero amx_model_zero
#define tile_load amx_model_load
#define tile_store amx_model_store
#define tile_dot_bytes amx_model_dot_bytes
#define tile_dot_bf16 amx_model_dot_bf16

#define PACK_BLOCKS cpu_gemm_pack_blocks_portable
#include "kernels/cpu/levels/gemm/cpu_gemm_amx_template.h"

static bool always(void) {
    return true;
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", false, always, cpu_gemm_add_portable, cpu_ops_add_portable},
    {"amx-model", "model of AMX", true, always, add_amx_formats, NULL},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
