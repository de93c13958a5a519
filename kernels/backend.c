#include "kernels/backend.h"

#include "config/log.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/module.h"

#include <string.h>

/* The card when it is there. One that is there but too full is an error: the CPU would be slower by
 * orders of magnitude, which nobody wants by accident. */
static struct backend *open_auto(const struct backend_config *config, struct error *err) {
    struct error reason = {0};
    struct backend *b = module_open("cuda", config, &reason);
    if (b != NULL)
        return b;
    if (reason.code == ERROR_MEMORY) {
        error_set(err, reason.code, "%s", reason.message);
        return NULL;
    }
    log_info("device auto: computing on the CPU, because %s", reason.message);
    return cpu_backend_open(config, err);
}

static const struct {
    const char *name;
    struct backend *(*open)(const struct backend_config *config, struct error *err);
} backends[] = {
    {"auto", open_auto}, {"cpu", cpu_backend_open}, {"cpu-ref", cpu_ref_open},
    {"cuda", NULL},      {"cuda-sim", NULL}, /* in modules */
};

struct backend *backend_open(const char *name, const struct backend_config *config,
                             struct error *err) {
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].open ? backends[i].open(config, err)
                                    : module_open(name, config, err);
    error_set(err, ERROR_CONFIG,
              "unknown device '%s': must be auto, cpu, cpu-ref, cuda or cuda-sim", name);
    return NULL;
}

void backend_close(struct backend *b) {
    if (b != NULL)
        b->ops->destroy(b);
}
