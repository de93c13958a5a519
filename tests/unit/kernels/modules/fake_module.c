/* A module whose device fails to open with the code that backend_config.head_dim carries; 0: it
 * opens. */
#include "kernels/module.h"

extern const struct backend_module quire_backend_module;

static void destroy(struct backend *b) {
}

static struct backend *open_fake(const struct backend_config *config, struct error *err) {
    static const struct backend_ops ops = {.destroy = destroy};
    static struct backend backend = {.ops = &ops, .name = "fake"};
    if (config->head_dim == ERROR_NONE)
        return &backend;
    error_set(err, (enum error_code)config->head_dim, "the fake GPU has trouble");
    return NULL;
}

static size_t fake_memory(void) {
    return 123;
}

const struct backend_module quire_backend_module = {
    .interface = INTERFACE, .open = open_fake, .device_memory = fake_memory};
