/* Several models behind one server: the options of each. They come from --model, which may be
 * repeated, and from `models:` of the configuration file, a map of names to settings:
 *
 *   models:
 *     small: {model: small.gguf, max-model-len: 8K, aliases: [default], pin: true}
 *
 * A setting is an option that concerns a model or its engine, or one of aliases
 * (served-model-name), pin and preload. What a model does not set is as in the rest of the options
 * (flag > environment > file > default); what it sets wins over all of these. Only
 * --served-model-name and
 * --lora-modules, which are names, apply to the first model alone. */
#ifndef QUIRE_CONFIG_MODEL_OPTIONS_H
#define QUIRE_CONFIG_MODEL_OPTIONS_H

#include "config/options.h"

#define MODEL_OPTIONS_MAX OPTIONS_MAX_LIST /* models of a server */
#define MODEL_OPTIONS_NAME_BYTES 256       /* with the NUL */

struct model_options {
    struct options options; /* all of them, those of the server too; first for the table's sake */
    bool is_pinned;         /* is not put to sleep for another model */
    bool is_preloaded;      /* is loaded at start: the first, unless it says otherwise */
    /* Reported to clients. With several models, or from `models:`, it is the first of
     * options.served_model_names, whose others are aliases ("*": any name). One model alone may
     * have none there, as ever. */
    char name[MODEL_OPTIONS_NAME_BYTES];
};

/* Zeroed: empty. Freed by model_options_finish. */
struct model_list {
    struct options all; /* without what is set in `models:`; all.model is the first model's */
    struct model_options *models;
    size_t count, capacity;
};

/* Reads the options as options_load does, and the models of --model and `models:`, in this order.
 * On failure returns -1 with ERROR_CONFIG or ERROR_MEMORY; *out then holds nothing to free. The
 * list may still be empty. A model of --model has no name ("") unless one is given; one of
 * `models:` may have no options.model. Most callers want model_list_load (server/program), which
 * completes this. */
int model_options_load(int argc, char *const *argv, char *const *environ, struct model_list *out,
                       struct error *err);

/* Appends a model with this name and path and otherwise the options of list->all; fails with
 * ERROR_CONFIG at MODEL_OPTIONS_MAX. */
int model_options_add(struct model_list *list, const char *name, const char *path,
                      struct error *err);

/* Completes the list, whose models all have names: puts the names first in served_model_names,
 * chooses what is preloaded, and fails with ERROR_CONFIG, naming both models, if two have a name,
 * an alias or a file to write (--record, --kv-events) in common, or one has no path. */
int model_options_complete(struct model_list *list, struct error *err);

/* Frees what the list owns; accepts a zeroed struct. */
void model_options_finish(struct model_list *list);

#endif
