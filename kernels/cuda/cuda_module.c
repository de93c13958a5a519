/* The one symbol that the module exports; everything else is hidden. */
#include "kernels/cuda/state/cuda_state.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/module.h"

__attribute__((visibility("default"))) extern const struct backend_module quire_backend_module;

const struct backend_module quire_backend_module = {
    .interface = QUIRE_MODULE_INTERFACE,
    .open = cuda_backend_open,
    .device_memory = cuda_device_memory,
    .group_create = cuda_group_create,
    .group_create_remote = cuda_group_create_remote,
    .pipeline_create = cuda_pipeline_create,
};
