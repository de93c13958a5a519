#include "server/program/model_list.h"

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/api/call/api_context.h"
#include "server/client/client.h"
#include "server/client/hub/hub.h"
#include "server/client/hub/hub_reference.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct found_model {
    char name[MODEL_OPTIONS_NAME_BYTES];
    char path[PATH_MAX];
};

/* Those of one place. */
struct found_models {
    const char *place; /* for messages */
    size_t count;
    struct found_model models[MODEL_OPTIONS_MAX];
};

static bool is_name(const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < length;) {
        size_t bytes = utf8_char_bytes(name + i, length - i);
        if (bytes == 0 || utf8_is_control(utf8_decode(name + i, bytes)))
            return false;
        i += bytes;
    }
    return length > 0 && length < MODEL_OPTIONS_NAME_BYTES;
}

/* Keeps a model; one whose name no client could use is left out. */
static int keep(struct found_models *found, const char *name, const char *path, struct error *err) {
    if (!is_name(name)) {
        log_warning("%s: %.200s is left out: its name is too long, or not printable", found->place,
                    name);
        return 0;
    }
    if (found->count == MODEL_OPTIONS_MAX)
        return error_set(err, ERROR_CONFIG,
                         "%s has more than %d models: give those to serve with --model, or in "
                         "models: of the configuration file",
                         found->place, MODEL_OPTIONS_MAX);
    struct found_model *model = &found->models[found->count++];
    snprintf(model->name, sizeof(model->name), "%s", name);
    snprintf(model->path, sizeof(model->path), "%s", path);
    return 0;
}

/* --- A folder --- */

/* Returns whether an entry of a folder is a model, by names alone. */
static bool is_model(const char *path, const char *name) {
    struct stat status;
    char config[PATH_MAX + 16];
    if (name[0] == '.' || stat(path, &status) != 0)
        return false;
    if (S_ISREG(status.st_mode))
        return hub_selection_is_gguf(name);
    snprintf(config, sizeof(config), "%s/config.json", path);
    return S_ISDIR(status.st_mode) && stat(config, &status) == 0 && S_ISREG(status.st_mode);
}

static int search_folder(const char *folder, struct found_models *found, struct error *err) {
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    int status = 0;
    if (entries == NULL)
        return error_set(err, ERROR_CONFIG, "%s: cannot be read: %s", found->place,
                         strerror(errno));
    while (status == 0 && (entry = readdir(entries)) != NULL) {
        char path[PATH_MAX], name[MODEL_OPTIONS_NAME_BYTES];
        if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path) ||
            !is_model(path, entry->d_name))
            continue;
        api_context_model_name(path, name, sizeof(name));
        status = keep(found, name, path, err);
    }
    closedir(entries);
    return status;
}

/* --- The hub's cache --- */

struct hub_search {
    struct hub_settings settings;
    struct found_models *found;
};

/* Without the network, a model is resolved only if all of its files are here. */
static int take_cached(void *context, const struct hub_inventory_item *item, struct error *err) {
    static const struct hub_watcher no_watcher = {0};
    struct hub_search *search = context;
    struct hub_reference reference;
    struct hub_model model;
    struct error why = {0};
    snprintf(why.message, sizeof(why.message), "%s", item->problem);
    if (item->problem[0] == '\0' && hub_reference_parse(item->name, &reference, &why) == 0 &&
        hub_resolve(&reference, &search->settings, HUB_CACHE_FIRST, &no_watcher, &model, &why) == 0)
        return keep(search->found, item->name, model.path, err);
    log_info("%s: %.200s is left out: %s", search->found->place, item->name, why.message);
    return 0;
}

static int search_hub(struct found_models *found, struct error *err) {
    struct hub_search *search = calloc(1, sizeof(*search));
    if (search == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a list of models");
    int status = hub_settings_read(&search->settings, err);
    search->settings.is_offline = true;
    search->found = found;
    if (status == 0)
        status = hub_inventory_read(search->settings.cache, take_cached, search, err);
    explicit_bzero(search->settings.token, sizeof(search->settings.token));
    free(search);
    return status;
}

/* --- The list --- */

/* The name that a model without a given one has. */
static void name_model(struct model_options *model) {
    struct hub_reference reference;
    if (model->name[0] != '\0')
        return;
    if (command_pull_is_reference(model->options.model) &&
        hub_reference_parse(model->options.model, &reference, NULL) == 0)
        snprintf(model->name, sizeof(model->name), "%s", reference.repository);
    else
        api_context_model_name(model->options.model, model->name, sizeof(model->name));
}

static bool has_name(const struct model_options *model, const char *name) {
    const struct option_list *names = &model->options.served_model_names;
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0)
            return true;
    return strcmp(model->name, name) == 0;
}

/* A given model comes before a found one of its name, and if it has settings but no path these are
 * the found one's. */
static int add(struct model_list *list, size_t num_given, const struct found_model *found,
               struct error *err) {
    for (size_t i = 0; i < num_given; i++) {
        struct model_options *given = &list->models[i];
        if (!has_name(given, found->name))
            continue;
        if (given->options.model == NULL && strcmp(given->name, found->name) == 0 &&
            (given->options.model = strdup(found->path)) == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for a list of models");
        return 0;
    }
    return model_options_add(list, found->name, found->path, err);
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct found_model *)a)->name, ((const struct found_model *)b)->name);
}

/* folder NULL: the hub's cache. */
static int add_found(struct model_list *list, size_t num_given, const char *folder,
                     struct error *err) {
    char place[160] = "option models-hub";
    struct found_models *found = calloc(1, sizeof(*found));
    if (found == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a list of models");
    if (folder != NULL)
        snprintf(place, sizeof(place), "option models-dir \"%.100s\"", folder);
    found->place = place;
    int status = folder != NULL ? search_folder(folder, found, err) : search_hub(found, err);
    if (status == 0)
        qsort(found->models, found->count, sizeof(found->models[0]), compare);
    for (size_t i = 0; i < found->count && status == 0; i++)
        status = add(list, num_given, &found->models[i], err);
    free(found);
    return status;
}

static int complete(struct model_list *list, struct error *err) {
    size_t num_given = list->count;
    for (size_t i = 0; i < num_given; i++)
        if (list->models[i].options.model != NULL)
            name_model(&list->models[i]);
    if (list->all.models_dir != NULL && add_found(list, num_given, list->all.models_dir, err) != 0)
        return -1;
    if (list->all.models_hub && add_found(list, num_given, NULL, err) != 0)
        return -1;
    if (list->count == 0 && (list->all.models_dir != NULL || list->all.models_hub))
        return error_set(err, ERROR_CONFIG, "no model is given, and none was found in %.300s",
                         list->all.models_dir != NULL ? list->all.models_dir : "the hub's cache");
    return model_options_complete(list, err);
}

int model_list_load(int argc, char *const *argv, char *const *environ, struct model_list *out,
                    struct error *err) {
    struct model_list list;
    if (model_options_load(argc, argv, environ, &list, err) != 0)
        return -1;
    if (complete(&list, err) != 0) {
        model_options_finish(&list);
        return -1;
    }
    *out = list;
    return 0;
}
