#include "kernels/backend.h"

#include "kernels/backend_group.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/ranks/cpu_group.h"
#include "kernels/cpu/ranks/cpu_pipeline.h"
#include "kernels/cpu/memory/cpu_memory.h"
#include "kernels/module.h"
#include "kernels/transport.h"

#include <string.h>

static bool is_in_module(const char *name) {
    return strncmp(name, "cuda", 4) == 0;
}

static const struct {
    const char *name;
    struct backend *(*open)(const struct backend_config *config, struct error *err);
} backends[] = {
    {"cpu", cpu_backend_open},
    {"cpu-ref", cpu_ref_open},
    {"cuda", NULL},
    {"cuda-sim", NULL}, /* in modules */
};

struct backend *backend_open(const char *name, const struct backend_config *config,
                             struct error *err) {
    if (config->fp8_activations && !is_in_module(name)) {
        error_set(err, ERROR_CONFIG,
                  "fp8-activations: needs an NVIDIA GPU of compute capability 8.9 or later; the "
                  "device is %s",
                  name);
        return NULL;
    }
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].open ? backends[i].open(config, err)
                                    : module_open(name, config, err);
    error_set(err, ERROR_CONFIG, "unknown device '%s': must be cpu, cpu-ref, cuda or cuda-sim",
              name);
    return NULL;
}

size_t backend_device_memory(const char *name) {
    return is_in_module(name) ? module_device_memory(name) : 0;
}

/* --- Groups --- */

static int check_num_ranks(int32_t num_ranks, struct error *err) {
    if (num_ranks < 1 || num_ranks > BACKEND_MAX_RANKS)
        return error_set(err, ERROR_CONFIG, "%d ranks: must be 1 to %d", num_ranks,
                         BACKEND_MAX_RANKS);
    return 0;
}

int backend_group_create(const char *device, int32_t num_ranks, struct backend_group **out,
                         struct error *err) {
    if (check_num_ranks(num_ranks, err) != 0)
        return -1;
    return is_in_module(device) ? module_group_create(device, num_ranks, out, err)
                                : cpu_group_create(num_ranks, out, err);
}

int backend_group_create_remote(const char *device, struct transport *transport, int32_t first_rank,
                                int32_t num_ranks, struct backend_group **out, struct error *err) {
    if (check_num_ranks(num_ranks, err) != 0)
        return -1;
    return is_in_module(device)
               ? module_group_create_remote(device, transport, first_rank, num_ranks, out, err)
               : cpu_group_create_remote(transport, first_rank, num_ranks, out, err);
}

void backend_group_destroy(struct backend_group *group) {
    if (group != NULL)
        group->destroy(group);
}

void backend_group_get_traffic(const struct backend_group *group, int32_t rank,
                               struct backend_group_traffic *out) {
    *out = group->counts[rank].traffic;
}

/* --- Pipelines --- */

static int check_num_stages(int32_t num_stages, int32_t num_ranks, struct error *err) {
    if (num_stages < 1 || num_ranks < 1 || num_ranks > BACKEND_MAX_RANKS ||
        num_stages > BACKEND_MAX_RANKS / num_ranks)
        return error_set(err, ERROR_CONFIG,
                         "%d stages of %d ranks: must be 1 to %d stages, and at most %d ranks in "
                         "all",
                         num_stages, num_ranks, BACKEND_MAX_RANKS, BACKEND_MAX_RANKS);
    return 0;
}

int backend_pipeline_create(const char *device, int32_t num_stages, int32_t num_ranks,
                            struct backend_pipeline **out, struct error *err) {
    if (check_num_stages(num_stages, num_ranks, err) != 0)
        return -1;
    return is_in_module(device)
               ? module_pipeline_create(device, NULL, num_stages, num_ranks, out, err)
               : cpu_pipeline_create(num_stages, num_ranks, out, err);
}

int backend_pipeline_create_remote(const char *device, struct transport *transport,
                                   int32_t num_stages, int32_t num_ranks,
                                   struct backend_pipeline **out, struct error *err) {
    if (check_num_stages(num_stages, num_ranks, err) != 0)
        return -1;
    return is_in_module(device)
               ? module_pipeline_create(device, transport, num_stages, num_ranks, out, err)
               : cpu_pipeline_create_remote(transport, num_stages, num_ranks, out, err);
}

void backend_pipeline_get_traffic(const struct backend_pipeline *pipeline, int32_t stage,
                                  int32_t rank, struct backend_group_traffic *out) {
    *out = pipeline->traffic[stage * pipeline->num_ranks + rank];
}

void backend_pipeline_destroy(struct backend_pipeline *pipeline) {
    if (pipeline != NULL)
        pipeline->destroy(pipeline);
}

/* --- Backends --- */

void backend_close(struct backend *b) {
    if (b != NULL)
        b->ops->destroy(b);
}

enum kv_type backend_kv_type(const struct backend *b, enum kv_type wanted) {
    enum kv_type type = wanted;
    if ((b->kv_types & KV_TYPE_BIT(wanted)) == 0)
        for (type = KV_F32; (b->kv_types & KV_TYPE_BIT(type)) == 0;)
            type++;
    return type;
}

size_t backend_host_free_bytes(void) {
    size_t free_bytes, total_bytes;
    cpu_memory_info("", &free_bytes, &total_bytes);
    return total_bytes > 0 ? free_bytes : SIZE_MAX;
}
