/* The adapters of `quire serve`: those of --lora-modules, and those that administrators load from
 * --lora-dir while it runs. Reads the files, hands them to the engine, and lists them for clients.
 */
#ifndef QUIRE_SERVER_PROGRAM_ADAPTER_LOADER_H
#define QUIRE_SERVER_PROGRAM_ADAPTER_LOADER_H

#include "config/options.h"
#include "engine/engine.h"
#include "models/config/model.h"
#include "server/api/call/served_adapters.h"

#include <pthread.h>

struct adapter_module {
    char name[MAX_ADAPTER_NAME_BYTES + 1];
    char *path; /* owned */
};

struct adapter_loader {
    struct adapter_module modules[OPTIONS_MAX_LIST];
    int num_modules;
    const char *folder; /* NULL: nothing is loaded while the server runs */
    const struct model *model;
    struct lora_shape shape;
    struct engine *engine;
    struct served_adapters *served;
    pthread_mutex_t lock; /* one load or unload at a time */
    struct adapter_actions actions;
};

/* Reads --lora-modules; names of a hub are replaced by paths by the caller. On failure returns -1
 * with ERROR_CONFIG; the loader must be finished then, too. */
int adapter_loader_read(struct adapter_loader *loader, const struct options *options,
                        struct error *err);
/* Chooses the room for adapters, by the options and the ranks of the modules' matrices. Their files
 * are read for that: ERROR_MODEL, or ERROR_CONFIG. */
int adapter_loader_shape(const struct adapter_loader *loader, const struct options *options,
                         const struct model *model, struct lora_shape *out, struct error *err);
/* Loads the modules. The arguments outlive the loader's use. */
int adapter_loader_start(struct adapter_loader *loader, const struct options *options,
                         const struct model *model, const struct lora_shape *shape,
                         struct engine *engine, struct error *err);
/* Opens the module of that name for a replay; returns a reference, or NULL and ERROR_CONFIG if
 * there is none. */
struct adapter *adapter_loader_open(const struct adapter_loader *loader, const char *name,
                                    const struct model *model, const struct lora_shape *shape,
                                    struct error *err);
/* Called once the engine has ended. Accepts a zeroed one. */
void adapter_loader_finish(struct adapter_loader *loader);

#endif
