/* The low-rank adapters that requests may name as their model, by name. Any thread. */
#ifndef QUIRE_SERVER_API_CALL_SERVED_ADAPTERS_H
#define QUIRE_SERVER_API_CALL_SERVED_ADAPTERS_H

#include "config/json/api_error.h"
#include "engine/request/adapter.h"

#include <stdbool.h>

#define MAX_ADAPTER_NAME_BYTES 255

struct served_adapters;

/* What administrators may do with them, on a worker; it may take as long as reading a file. The
 * functions return -1 and fill *err: 400, 404, 409 or 503. */
struct adapter_actions {
    void *context;
    /* path: below the folder of --lora-dir. replaces: one of that name is unloaded first. Returns
     * once requests may name it. */
    int (*load)(void *context, const char *name, const char *path, bool replaces,
                struct api_error *err);
    /* Requests that have begun with it end as usual. */
    int (*unload)(void *context, const char *name, struct api_error *err);
};

struct served_adapters *served_adapters_create(void);           /* NULL when memory is short */
void served_adapters_destroy(struct served_adapters *adapters); /* accepts NULL */

/* Takes a reference. Returns -1 if one has the name, or there are LORA_MAX_SLOTS. */
int served_adapters_add(struct served_adapters *adapters, struct adapter *adapter);
/* Returns a reference, which the caller drops; NULL: none has the name. */
struct adapter *served_adapters_find(struct served_adapters *adapters, const char *name);
/* The same, and it is not served any more. */
struct adapter *served_adapters_remove(struct served_adapters *adapters, const char *name);
/* Writes a reference to each, in the order in which they were added. Returns their number. */
int served_adapters_list(struct served_adapters *adapters,
                         struct adapter *out[static LORA_MAX_SLOTS]);

#endif
