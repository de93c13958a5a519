#include "kernels/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The loader's own words name the file that is missing, which for an incomplete installation is a
 * library of the device and not the module. */
static void *load(const char *file, struct error *err) {
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL)
        return handle;
    const char *reason = dlerror();
    size_t length = strlen(file);
    if (strncmp(reason, file, length) == 0 && strstr(reason + length, "No such file") != NULL)
        error_set(err, ERROR_CONFIG, "the module %s is not installed", file);
    else
        error_set(err, ERROR_CONFIG, "the module %s cannot be loaded: %s", file, reason);
    return NULL;
}

const void *module_find(const char *name, const char *symbol, int interface, struct error *err) {
    char file[64];
    snprintf(file, sizeof(file), "libquire-%s.so", name);
    void *handle = load(file, err);
    if (handle == NULL)
        return NULL;
    const int *module = dlsym(handle, symbol);
    if (module == NULL) {
        error_set(err, ERROR_CONFIG, "%s is not a module of quire: it has no symbol %s", file,
                  symbol);
        return NULL;
    }
    if (*module != interface) {
        error_set(err, ERROR_CONFIG,
                  "the module %s has interface %d, this program needs %d: install both of the same "
                  "build",
                  file, *module, interface);
        return NULL;
    }
    return module;
}

static const struct backend_module *find_backend(const char *name, struct error *err) {
    return module_find(name, QUIRE_MODULE_SYMBOL, QUIRE_MODULE_INTERFACE, err);
}

struct backend *module_open(const char *name, const struct backend_config *config,
                            struct error *err) {
    const struct backend_module *module = find_backend(name, err);
    return module != NULL ? module->open(config, err) : NULL;
}

int module_group_create(const char *name, int32_t num_ranks, struct backend_group **out,
                        struct error *err) {
    const struct backend_module *module = find_backend(name, err);
    return module != NULL ? module->group_create(num_ranks, out, err) : -1;
}

int module_group_create_remote(const char *name, struct transport *transport, int32_t first_rank,
                               int32_t num_ranks, struct backend_group **out, struct error *err) {
    const struct backend_module *module = find_backend(name, err);
    return module != NULL ? module->group_create_remote(transport, first_rank, num_ranks, out, err)
                          : -1;
}

int module_pipeline_create(const char *name, struct transport *transport, int32_t num_stages,
                           int32_t num_ranks, struct backend_pipeline **out, struct error *err) {
    const struct backend_module *module = find_backend(name, err);
    return module != NULL ? module->pipeline_create(transport, num_stages, num_ranks, out, err)
                          : -1;
}

size_t module_device_memory(const char *name) {
    const struct backend_module *module = find_backend(name, NULL);
    return module != NULL ? module->device_memory() : 0;
}
