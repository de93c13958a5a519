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

static const struct backend_module *find_module(const char *name, struct error *err) {
    char file[64];
    snprintf(file, sizeof(file), "libquire-%s.so", name);
    void *handle = load(file, err);
    if (handle == NULL)
        return NULL;
    const struct backend_module *module = dlsym(handle, QUIRE_MODULE_SYMBOL);
    if (module == NULL) {
        error_set(err, ERROR_CONFIG, "%s is not a module of quire: it has no symbol %s", file,
                  QUIRE_MODULE_SYMBOL);
        return NULL;
    }
    if (module->interface != QUIRE_MODULE_INTERFACE) {
        error_set(err, ERROR_CONFIG,
                  "the module %s has interface %d, this program needs %d: install both of the same "
                  "build",
                  file, module->interface, QUIRE_MODULE_INTERFACE);
        return NULL;
    }
    return module;
}

struct backend *module_open(const char *name, const struct backend_config *config,
                            struct error *err) {
    const struct backend_module *module = find_module(name, err);
    return module != NULL ? module->open(config, err) : NULL;
}

size_t module_device_memory(const char *name) {
    const struct backend_module *module = find_module(name, NULL);
    return module != NULL ? module->device_memory() : 0;
}
