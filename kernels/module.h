/* Shared modules that are opened at run time, so that one binary serves machines with and without
 * the libraries that they need: the backend of a device, and the transport over MPI. The module
 * `libquire-NAME.so` is searched for like any library of the dynamic loader: LD_LIBRARY_PATH, then
 * the run path of the program (its build folder, or ../lib/quire of an installed one). It exports
 * one symbol, a struct that begins with the number of its interface.
 *
 * Program and module are built together: a module with another interface number is refused. The
 * backend's number is raised with every change of backend.h, recording.h, tuning.h or sampling.h,
 * except for a change of sample_row's size, which the number includes; the transport's with every
 * change of transport.h. A module is never unloaded. */
#ifndef QUIRE_KERNELS_MODULE_H
#define QUIRE_KERNELS_MODULE_H

#include "kernels/backend.h"
#include "kernels/transport.h"

#define QUIRE_MODULE_INTERFACE (20007 + (int)sizeof(struct sample_row))
#define QUIRE_MODULE_SYMBOL "quire_backend_module"

struct backend_module {
    int interface; /* QUIRE_MODULE_INTERFACE */
    /* Fails with ERROR_DEVICE and the reason when there is no usable device. */
    struct backend *(*open)(const struct backend_config *config, struct error *err);
    /* Returns the total bytes of the device's memory, before it is opened; 0: there is no device.
     * Creates no context and allocates no device memory, since it is also called by a process whose
     * ranks live in another one. */
    size_t (*device_memory)(void);
    /* See backend_group_create, for 1 to BACKEND_MAX_RANKS ranks. */
    int (*group_create)(int32_t num_ranks, struct backend_group **out, struct error *err);
    /* See backend_group_create_remote, likewise. */
    int (*group_create_remote)(struct transport *transport, int32_t first_rank, int32_t num_ranks,
                               struct backend_group **out, struct error *err);
    /* See backend_pipeline_create_remote, and, with NULL for the transport,
     * backend_pipeline_create; for at most BACKEND_MAX_RANKS ranks in all. */
    int (*pipeline_create)(struct transport *transport, int32_t num_stages, int32_t num_ranks,
                           struct backend_pipeline **out, struct error *err);
};

#define QUIRE_TRANSPORT_INTERFACE 2
#define QUIRE_TRANSPORT_SYMBOL "quire_transport_module"

struct transport_module {
    int interface; /* QUIRE_TRANSPORT_INTERFACE */
    /* Like transport_open, without a timeout. */
    int (*open)(struct transport **out, struct error *err);
};

/* Returns the struct that libquire-NAME.so exports as `symbol`. Returns NULL with ERROR_CONFIG when
 * the module or a library that it needs is missing, or it is from another build. */
const void *module_find(const char *name, const char *symbol, int interface, struct error *err);

/* Opens the backend of libquire-NAME.so. Fails with ERROR_CONFIG when module_find fails, otherwise
 * with the error of its `open`. */
struct backend *module_open(const char *name, const struct backend_config *config,
                            struct error *err);

/* See backend_group_create and backend_group_create_remote. ERROR_CONFIG also in the cases in which
 * module_open fails with it. */
int module_group_create(const char *name, int32_t num_ranks, struct backend_group **out,
                        struct error *err);
int module_group_create_remote(const char *name, struct transport *transport, int32_t first_rank,
                               int32_t num_ranks, struct backend_group **out, struct error *err);

/* See pipeline_create; ERROR_CONFIG likewise. */
int module_pipeline_create(const char *name, struct transport *transport, int32_t num_stages,
                           int32_t num_ranks, struct backend_pipeline **out, struct error *err);

/* See backend_device_memory; 0 also if module_open fails. */
size_t module_device_memory(const char *name);

#endif
