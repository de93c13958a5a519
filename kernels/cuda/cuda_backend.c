/* The CUDA device: found and judged at open, then what its parts enqueue. */
#include "kernels/cuda/state/cuda_state.h"

#include "config/base/check.h"
#include "config/build_hash.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ops/cuda_collectives.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/cuda/matrix/cuda_tuning.h"
#include "kernels/cuda/packed/packed_launch.h"
#include "kernels/kv_type.h"
#include "kernels/thread_pool.h"

#include <stdio.h>
#include <cublasLt.h>
#include <stdlib.h>

#define MIN_COMPUTE_CAPABILITY_MAJOR 8 /* bf16 mma, cp.async */

static void cuda_destroy(struct backend *base) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(b->graphs == NULL);
    thread_pool_destroy(b->converters);
    cuda_tuning_destroy(b);
    cuda_sample_parallel_destroy(b);
    cuda_sampler_destroy(b);
    cuda_gemm_destroy(b);
    cuda_staging_destroy(b);
    cuda_attention_destroy(b);
    cuda_step_destroy(b);
    cuda_collectives_destroy(b);
    cuda_comm_destroy(b);
    cuda_streams_destroy(b);
    free(b);
}

static int report_failure(const struct cuda_backend *b, struct error *err) {
    if (CUDA_OK(b))
        return 0;
    return error_set(err, b->failure.code, "%s", b->failure.message);
}

static int cuda_synchronize(struct backend *base, struct error *err) {
    cuda_staging_synchronize(cuda_state_of(base));
    return report_failure(cuda_state_of(base), err);
}

static void cuda_step_end(struct backend *base) {
    cuda_staging_end(cuda_state_of(base));
}

static bool cuda_step_is_done(struct backend *base) {
    return cuda_staging_is_done(cuda_state_of(base));
}

static int cuda_step_wait(struct backend *base, struct error *err) {
    cuda_staging_wait(cuda_state_of(base));
    return report_failure(cuda_state_of(base), err);
}

static const struct backend_ops cuda_backend_ops = {
    .destroy = cuda_destroy,
    .buffer_alloc = cuda_buffer_alloc,
    .buffer_free = cuda_buffer_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .host_pin = cuda_host_pin,
    .host_unpin = cuda_host_unpin,
    .memory_info = cuda_memory_info,
    .synchronize = cuda_synchronize,
    .matrix_bytes = cuda_matrix_bytes,
    .matrix_create = cuda_matrix_create,
    .matrix_fill = cuda_matrix_fill,
    .matrix_destroy = cuda_matrix_destroy,
    .step_begin = cuda_step_begin,
    .embed = cuda_embed,
    .norm = cuda_norm,
    .linear = cuda_linear,
    .linear_gated = cuda_linear_gated,
    .rope_store_kv = cuda_rope_store_kv,
    .store_latent = cuda_store_latent,
    .paged_attention = cuda_paged_attention,
    .act_mul = cuda_act_mul,
    .route = cuda_route,
    .choose_adapters = cuda_choose_adapters,
    .linear_experts = cuda_linear_experts,
    .linear_heads = cuda_linear_heads,
    .combine_experts = cuda_combine_experts,
    .soft_cap = cuda_soft_cap,
    .gather_rows = cuda_gather_rows,
    .scatter_rows = cuda_scatter_rows,
    .add_rows = cuda_add_rows,
    .sample = cuda_sample,
    .all_reduce = cuda_all_reduce,
    .gather_columns = cuda_gather_columns,
    .share_samples = cuda_share_samples,
    .sample_vocab_parallel = cuda_sample_vocab_parallel,
    .send_rows = cuda_send_rows,
    .receive_rows = cuda_receive_rows,
    .copy_blocks = cuda_copy_blocks,
    .swap_blocks = cuda_swap_blocks,
    .step_end = cuda_step_end,
    .step_is_done = cuda_step_is_done,
    .step_wait = cuda_step_wait,
    .recording = &cuda_recording_ops,
    .tuning = &cuda_tuning_ops,
};

/* The runtime calls a missing driver and one that is too old by the same name. */
static int check_driver(int driver, struct error *err) {
    if (driver == 0)
        return error_set(err, ERROR_DEVICE, "no CUDA driver is loaded on this machine");
    if (driver / 1000 < CUDART_VERSION / 1000)
        return error_set(
            err, ERROR_DEVICE, "the CUDA driver supports version %d.%d only; %d.%d is needed",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return 0;
}

static int open_device(struct cuda_backend *b, struct error *err) {
    int driver = 0, count = 0, shared_bytes = 0;
    struct cudaDeviceProp prop;
    if (CUDA_START(cudaDriverGetVersion(&driver), err) != 0 || check_driver(driver, err) != 0)
        return -1;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return error_set(err, ERROR_DEVICE, "there is no CUDA GPU that this process may use");
    if (CUDA_START(status, err) != 0 || report_failure(cuda_state_of(&b->base), err) != 0 ||
        CUDA_START(cudaGetDeviceProperties(&prop, b->device), err) != 0 ||
        CUDA_START(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                          b->device),
                   err) != 0)
        return -1;
    if (prop.major < MIN_COMPUTE_CAPABILITY_MAJOR)
        return error_set(err, ERROR_DEVICE,
                         "the GPU %s has compute capability %d.%d; %d.0 or later is needed",
                         prop.name, prop.major, prop.minor, MIN_COMPUTE_CAPABILITY_MAJOR);
    int code = 0;
    if (CUDA_START(packed_code(&code), err) != 0)
        return -1;
    b->level = cuda_levels_select(b->config.isa, 10 * prop.major + prop.minor, code, err);
    if (b->level == NULL)
        return -1;
    if (b->config.fp8_activations && !b->level->multiplies_fp8)
        return error_set(err, ERROR_CONFIG,
                         "fp8-activations: needs kernels of sm_89 or later; the GPU %s, of compute "
                         "capability %d.%d, has those of %s",
                         prop.name, prop.major, prop.minor, b->level->name);
    b->scales_fp8_rows = b->config.fp8_activations && !b->config.batch_invariant &&
                         b->level->begins_early && prop.major == 9;
    const int most = b->config.max_multiprocessors;
    b->num_multiprocessors =
        most > 0 && most < prop.multiProcessorCount ? most : prop.multiProcessorCount;
    b->max_shared_bytes = (size_t)shared_bytes;
    snprintf(b->base.description, sizeof(b->base.description),
             "%.64s, sm_%d%d, kernels of %s, %d multiprocessors, %s%s", prop.name, prop.major,
             prop.minor, b->level->name, prop.multiProcessorCount,
             dtype_name(b->base.activation_dtype),
             b->config.fp8_activations ? ", fp8 activations" : "");
    snprintf(b->base.numerics, sizeof(b->base.numerics),
             "%.28s, sm_%d%d, kernels of %s, %d multiprocessors%s%s, driver %d, toolkit %d, "
             "cublasLt %zu, build %s",
             prop.name, prop.major, prop.minor, b->level->name, prop.multiProcessorCount,
             b->config.fp8_activations ? ", fp8 x" : "", cuda_sums_by_nccl(b) ? ", NCCL sums" : "",
             driver, CUDART_VERSION, cublasLtGetVersion(), build_hash());
    return 0;
}

/* Memory of the first device; those of a group are assumed to be alike. Opening it reports why
 * there is none. The driver is asked for properties by the device's number, which takes cuInit and
 * no context; cudaSetDevice and cudaMemGetInfo would make one. */
size_t cuda_device_memory(void) {
    struct cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, 0) == cudaSuccess)
        return prop.totalGlobalMem;
    cudaGetLastError();
    return 0;
}

static int create_parts(struct cuda_backend *b, struct error *err) {
    size_t free_before, free_after, total;
    cuda_memory_info(&b->base, &free_before, &total);
    if (cuda_streams_create(b, err) != 0 || cuda_collectives_create(b, err) != 0 ||
        cuda_step_create(b, err) != 0 || cuda_attention_create(b, err) != 0 ||
        cuda_staging_create(b, cuda_step_packed_bytes(b), err) != 0 ||
        cuda_gemm_create(b, err) != 0 || cuda_sampler_create(b, err) != 0 ||
        cuda_sample_parallel_create(b, err) != 0 || cuda_converters_create(b, err) != 0)
        return -1;
    cuda_memory_info(&b->base, &free_after, &total);
    b->base.workspace_bytes = free_before > free_after ? free_before - free_after : 0;
    return cuda_synchronize(&b->base, err);
}

/* A latent layout is not quantised. */
static uint32_t kv_types(const struct backend_config *config) {
    uint32_t plain = KV_TYPE_BIT(kv_type_of_dtype(config->activation_dtype));
    return config->latent_dim > 0 ? plain : plain | KV_TYPE_BIT(KV_INT8) | KV_TYPE_BIT(KV_E4M3);
}

struct backend *cuda_backend_open(const struct backend_config *config, struct error *err) {
    if (config->activation_dtype != DTYPE_BF16 && config->activation_dtype != DTYPE_F16) {
        error_set(err, ERROR_CONFIG, "the device %s computes in bf16 or f16, not in %s",
                  CUDA_DEVICE_NAME, dtype_name(config->activation_dtype));
        return NULL;
    }
    struct cuda_backend *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        error_set(err, ERROR_MEMORY, "out of memory for the device %s", CUDA_DEVICE_NAME);
        return NULL;
    }
    b->base = (struct backend){.ops = &cuda_backend_ops,
                               .activation_dtype = config->activation_dtype,
                               .kv_types = kv_types(config),
                               .has_dedicated_memory = true,
                               .head_rows_step = CUDA_HEAD_ROWS_STEP,
                               .name = CUDA_DEVICE_NAME};
    b->config = *config;
    if (cuda_comm_create(b, err) != 0 || open_device(b, err) != 0 || create_parts(b, err) != 0) {
        cuda_destroy(&b->base);
        return NULL;
    }
    return &b->base;
}
