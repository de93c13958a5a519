/* What is in a shared module, opened at run time, so that one binary serves machines with and
 * without the libraries that it needs: the backend of a device, and the transport over MPI. The
 * module `libquire-NAME.so` is searched for as the dynamic loader does: LD_LIBRARY_PATH, then the
 * run path of the program (its build folder, or ../lib/quire of an installed one). It exports one
 * symbol, a struct that begins with the number of its interface.
 *
 * Program and module are built together: a module of another interface is refused by its number,
 * raised with every change of backend.h, recording.h, tuning.h or sampling.h but for one that gives
 * sample_row another size, which the number holds; that of the transport with every change of
 * transport.h. A module is never unloaded. */
#ifndef QUIRE_KERNELS_MODULE_H
#define QUIRE_KERNELS_MODULE_H

#include "kernels/backend.h"
#include "kernels/transport.h"

#define QUIRE_MODULE_INTERFACE (20004 + (int)sizeof(struct sample_row))
#define QUIRE_MODULE_SYMBOL "quire_backend_module"

struct backend_module {
    int interface; /* QUIRE_MODULE_INTERFACE */
    /* ERROR_DEVICE: there is no device, or none that can be used, and why. */
    struct backend *(*open)(const struct backend_config *config, struct error *err);
    /* Bytes of the device's memory in all, known before it is opened; 0: there is no device. Makes
     * no context and takes no memory of the device: it is also asked by a process whose ranks live
     * in another one. */
    size_t (*device_memory)(void);
    /* As backend_group_create, for 1 to BACKEND_MAX_RANKS ranks. */
    int (*group_create)(int32_t num_ranks, struct backend_group **out, struct error *err);
};

#define QUIRE_TRANSPORT_INTERFACE 1
#define QUIRE_TRANSPORT_SYMBOL "quire_transport_module"

struct transport_module {
    int interface; /* QUIRE_TRANSPORT_INTERFACE */
    /* As transport_open, without a limit of time. */
    int (*open)(struct transport **out, struct error *err);
};

/* Returns the struct that libquire-NAME.so exports as `symbol`. NULL with ERROR_CONFIG: the module
 * is not there, or a library that it needs is not, or it is of another build. */
const void *module_find(const char *name, const char *symbol, int interface, struct error *err);

/* Opens the backend of libquire-NAME.so. ERROR_CONFIG: module_find fails; otherwise what its `open`
 * says. */
struct backend *module_open(const char *name, const struct backend_config *config,
                            struct error *err);

/* As backend_group_create. ERROR_CONFIG also where module_open fails so. */
int module_group_create(const char *name, int32_t num_ranks, struct backend_group **out,
                        struct error *err);

/* As backend_device_memory; 0 also where module_open fails. */
size_t module_device_memory(const char *name);

#endif
