#include "kernels/backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/module.h"

#include <string.h>

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
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].open ? backends[i].open(config, err)
                                    : module_open(name, config, err);
    error_set(err, ERROR_CONFIG, "unknown device '%s': must be cpu, cpu-ref, cuda or cuda-sim",
              name);
    return NULL;
}

size_t backend_device_memory(const char *name) {
    return strncmp(name, "cuda", 4) == 0 ? module_device_memory(name) : 0;
}

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
    cpu_memory_info("/proc/meminfo", "/sys/fs/cgroup", &free_bytes, &total_bytes);
    return total_bytes > 0 ? free_bytes : SIZE_MAX;
}
