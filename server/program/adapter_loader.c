#include "server/program/adapter_loader.h"

#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_MAX_RANK 16
#define WAIT_NS (2 * CLOCK_NS_PER_MS)
#define LOAD_TIMEOUT_MS                                                                            \
    60000 /* for the steps that write it, and for a slot that is being freed                       \
           */

/* --- --lora-modules --- */

struct module_object {
    const char *name, *path, *base_model_name;
};

static const struct json_field object_fields[] = {
    JSON_TEXT(struct module_object, name),
    JSON_TEXT(struct module_object, path),
    JSON_TEXT(struct module_object, base_model_name),
};

static int refuse(const char *text, const char *reason, struct error *err) {
    return error_set(err, ERROR_CONFIG, "option lora-modules: '%.200s': %s", text, reason);
}

static int add_module(struct adapter_loader *loader, const char *text, const char *name,
                      size_t name_length, const char *path, struct error *err) {
    struct adapter_module *module = &loader->modules[loader->num_modules];
    if (name_length == 0 || name_length > MAX_ADAPTER_NAME_BYTES || path[0] == '\0')
        return refuse(text, "must be NAME=PATH, with a name of 1 to 255 bytes", err);
    memcpy(module->name, name, name_length);
    module->name[name_length] = '\0';
    for (int i = 0; i < loader->num_modules; i++)
        if (strcmp(loader->modules[i].name, module->name) == 0)
            return refuse(text, "another module has this name", err);
    module->path = strdup(path);
    if (module->path == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the options");
    loader->num_modules++;
    return 0;
}

static int read_object(struct adapter_loader *loader, const char *text, struct error *err) {
    const struct json_table table = JSON_TABLE(object_fields);
    struct module_object object = {0};
    struct api_error syntax;
    cJSON *json = json_parse(text, strlen(text), &syntax);
    int status = -1;
    if (json == NULL || !cJSON_IsObject(json) ||
        json_fields_read(json, table, &object, &syntax) != 0 || object.name == NULL ||
        object.path == NULL)
        refuse(text, "must be a JSON object with the texts name and path", err);
    else
        status = add_module(loader, text, object.name, strlen(object.name), object.path, err);
    cJSON_Delete(json);
    return status;
}

static int read_module(struct adapter_loader *loader, const char *text, struct error *err) {
    const char *equals = strchr(text, '=');
    if (text[0] == '{')
        return read_object(loader, text, err);
    if (equals == NULL)
        return refuse(text, "must be NAME=PATH, with a name of 1 to 255 bytes", err);
    return add_module(loader, text, text, (size_t)(equals - text), equals + 1, err);
}

int adapter_loader_read(struct adapter_loader *loader, const struct options *options,
                        struct error *err) {
    for (int i = 0; i < options->lora_modules.count; i++)
        if (read_module(loader, options->lora_modules.items[i], err) != 0)
            return -1;
    if (options->max_loras > 0 && options->max_loras < loader->num_modules)
        return error_set(err, ERROR_CONFIG,
                         "option max-loras %lld: at least %d, as lora-modules has so many",
                         (long long)options->max_loras, loader->num_modules);
    return 0;
}

/* What the system refuses is an option's mistake. */
static int open_module(const struct adapter_module *module, const struct model *model,
                       const struct lora_shape *shape, struct lora_adapter **out,
                       struct error *err) {
    struct error why = {0};
    if (lora_adapter_open(module->path, model, shape, out, &why) == 0)
        return 0;
    return error_set(err, why.code == ERROR_IO ? ERROR_CONFIG : why.code, "option lora-modules: %s",
                     why.message);
}

/* --- Room --- */

static enum dtype dtype_of(const char *name) {
    return strcmp(name, "float32") == 0    ? DTYPE_F32
           : strcmp(name, "float16") == 0  ? DTYPE_F16
           : strcmp(name, "bfloat16") == 0 ? DTYPE_BF16
                                           : DTYPE_AUTO;
}

static int largest_rank(const struct adapter_loader *loader, const struct model *model,
                        int32_t *out, struct error *err) {
    const struct lora_shape any = {.num_slots = 1, .max_rank = LORA_MAX_RANK, .dtype = DTYPE_F32};
    *out = loader->num_modules > 0 ? 0 : DEFAULT_MAX_RANK;
    for (int i = 0; i < loader->num_modules; i++) {
        struct lora_adapter *adapter;
        if (open_module(&loader->modules[i], model, &any, &adapter, err) != 0)
            return -1;
        int32_t rank = lora_adapter_rank(adapter);
        *out = rank > *out ? rank : *out;
        lora_adapter_close(adapter);
    }
    return 0;
}

int adapter_loader_shape(const struct adapter_loader *loader, const struct options *options,
                         const struct model *model, struct lora_shape *out, struct error *err) {
    int32_t rank = (int32_t)options->max_lora_rank;
    *out = (struct lora_shape){.num_slots = (int32_t)options->max_loras,
                               .dtype = dtype_of(options->lora_dtype)};
    if (out->num_slots == 0)
        out->num_slots = loader->num_modules;
    if (out->num_slots == 0)
        return 0;
    if (rank == 0 && largest_rank(loader, model, &rank, err) != 0)
        return -1;
    out->max_rank = (rank + LORA_RANK_STEP - 1) / LORA_RANK_STEP * LORA_RANK_STEP;
    return 0;
}

/* --- Loading --- */

static void sleep_a_little(void) {
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    nanosleep(&pause, NULL);
}

/* Waits until the engine has it; a slot may first have to become free. Returns whether it has. */
static bool hand_over(struct engine *engine, struct adapter *adapter) {
    int64_t deadline_ms = clock_now_ms() + LOAD_TIMEOUT_MS;
    bool has_slot = false;
    while (atomic_load(&adapter->state) != ADAPTER_READY) {
        if (clock_now_ms() > deadline_ms || engine_has_failed(engine))
            return false;
        if (!has_slot)
            has_slot = engine_load_adapter(engine, adapter) == 0;
        if (atomic_load(&adapter->state) == ADAPTER_GONE)
            return false;
        sleep_a_little();
    }
    return true;
}

/* Takes `lora` over. On failure the engine gives its slot back. */
static int serve_adapter(struct adapter_loader *loader, const char *name, struct lora_adapter *lora,
                         struct error *err) {
    struct adapter *adapter = adapter_create(name, lora);
    if (adapter == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for an adapter");
    int status = 0;
    if (!hand_over(loader->engine, adapter)) {
        engine_unload_adapter(loader->engine, adapter);
        status = error_set(err, ERROR_UNAVAILABLE,
                           "adapter '%.64s' was not loaded within %d s: the engine sleeps, or its "
                           "%d slots are in use",
                           name, LOAD_TIMEOUT_MS / 1000, loader->shape.num_slots);
    } else if (served_adapters_add(loader->served, adapter) != 0) {
        engine_unload_adapter(loader->engine, adapter);
        status = error_set(err, ERROR_CONFIG, "another adapter is called '%.64s'", name);
    }
    adapter_unref(adapter);
    return status;
}

static int load_module(struct adapter_loader *loader, const struct adapter_module *module,
                       struct error *err) {
    struct lora_adapter *lora;
    int64_t begin_ns = clock_now_ns();
    if (open_module(module, loader->model, &loader->shape, &lora, err) != 0)
        return -1;
    int32_t rank = lora_adapter_rank(lora);
    if (serve_adapter(loader, module->name, lora, err) != 0)
        return -1;
    log_info("adapter    %s of rank %d, loaded in %.0f ms", module->name, rank,
             (double)(clock_now_ns() - begin_ns) / (double)CLOCK_NS_PER_MS);
    return 0;
}

/* --- Of administrators --- */

/* For people, without the path of the file. */
static int refuse_file(const char *path, const struct error *why, struct api_error *err) {
    const char *text = why->message;
    size_t length = strlen(path);
    if (strncmp(text, path, length) == 0)
        text += length;
    while (*text == '/' || *text == ':' || *text == ' ')
        text++;
    return bad_request(err, "unsupported_value", "lora_path", "lora_path: %s", text);
}

/* The path below the folder, without links that lead out of it. */
static int resolve(const struct adapter_loader *loader, const char *path, char out[PATH_MAX],
                   struct api_error *err) {
    char joined[PATH_MAX], folder[PATH_MAX];
    bool is_whole = path[0] == '/';
    if (loader->folder == NULL)
        return bad_request(err, "unsupported_value", "lora_path",
                           "this server loads no adapters while it runs: start it with --lora-dir");
    int length = snprintf(joined, sizeof(joined), "%s%s%s", is_whole ? "" : loader->folder,
                          is_whole ? "" : "/", path);
    if (length < 0 || (size_t)length >= sizeof(joined) ||
        realpath(loader->folder, folder) == NULL || realpath(joined, out) == NULL)
        return api_error_set(err, 404, "invalid_request_error", "adapter_not_found", "lora_path",
                             "lora_path \"%.100s\" does not exist in the folder of --lora-dir",
                             path);
    length = (int)strlen(folder);
    if (strncmp(out, folder, (size_t)length) == 0 && out[length] == '/')
        return 0;
    return bad_request(err, "unsupported_value", "lora_path",
                       "lora_path \"%.100s\" is not in the folder of --lora-dir", path);
}

static int unload_named(struct adapter_loader *loader, const char *name, struct api_error *err) {
    struct adapter *adapter = served_adapters_remove(loader->served, name);
    if (adapter == NULL)
        return api_error_set(err, 404, "invalid_request_error", "adapter_not_found", "lora_name",
                             "no adapter is called \"%.64s\"", name);
    engine_unload_adapter(loader->engine, adapter);
    log_info("adapter    %s unloaded", name);
    adapter_unref(adapter);
    return 0;
}

static int check_load(struct adapter_loader *loader, const char *name, bool replaces,
                      struct api_error *err) {
    struct adapter *others[LORA_MAX_SLOTS], *same = served_adapters_find(loader->served, name);
    int count = served_adapters_list(loader->served, others);
    bool exists = same != NULL;
    for (int i = 0; i < count; i++)
        adapter_unref(others[i]);
    adapter_unref(same);
    if (exists && !replaces)
        return bad_request(err, "unsupported_value", "lora_name",
                           "an adapter is called \"%.64s\" already; unload it, or set load_inplace",
                           name);
    if (!exists && count >= loader->shape.num_slots)
        return bad_request(err, "unsupported_value", NULL,
                           "%d adapters are loaded, as many as --max-loras allows; unload one",
                           count);
    if (engine_get_rest(loader->engine).rest != ENGINE_AWAKE)
        return api_error_set(err, 503, "server_error", "sleeping", NULL,
                             "the server sleeps; wake it up first");
    return 0;
}

static int load_path(struct adapter_loader *loader, const char *name, const char *path,
                     bool replaces, struct api_error *err) {
    char whole[PATH_MAX];
    struct lora_adapter *lora;
    struct error why = {0};
    if (resolve(loader, path, whole, err) != 0 || check_load(loader, name, replaces, err) != 0)
        return -1;
    if (lora_adapter_open(whole, loader->model, &loader->shape, &lora, &why) != 0)
        return refuse_file(whole, &why, err);
    struct api_error unused;
    if (replaces)
        unload_named(loader, name, &unused);
    if (serve_adapter(loader, name, lora, &why) != 0)
        return api_error_set(err, 503, "server_error", "adapter_not_loaded", NULL, "%s",
                             why.message);
    log_info("adapter    %s loaded", name);
    return 0;
}

static int load(void *context, const char *name, const char *path, bool replaces,
                struct api_error *err) {
    struct adapter_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    int status = load_path(loader, name, path, replaces, err);
    pthread_mutex_unlock(&loader->lock);
    return status;
}

static int unload(void *context, const char *name, struct api_error *err) {
    struct adapter_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    int status = unload_named(loader, name, err);
    pthread_mutex_unlock(&loader->lock);
    return status;
}

/* --- Start and end --- */

int adapter_loader_start(struct adapter_loader *loader, const struct options *options,
                         const struct model *model, const struct lora_shape *shape,
                         struct engine *engine, struct error *err) {
    if (shape->num_slots == 0)
        return 0;
    pthread_mutex_init(&loader->lock, NULL);
    loader->folder = options->lora_dir;
    loader->model = model;
    loader->shape = *shape;
    loader->engine = engine;
    loader->actions = (struct adapter_actions){loader, load, unload};
    loader->served = served_adapters_create();
    if (loader->served == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for adapters");
    for (int i = 0; i < loader->num_modules; i++)
        if (load_module(loader, &loader->modules[i], err) != 0)
            return -1;
    return 0;
}

struct adapter *adapter_loader_open(const struct adapter_loader *loader, const char *name,
                                    const struct model *model, const struct lora_shape *shape,
                                    struct error *err) {
    for (int i = 0; i < loader->num_modules; i++) {
        struct lora_adapter *lora;
        if (strcmp(loader->modules[i].name, name) != 0)
            continue;
        if (open_module(&loader->modules[i], model, shape, &lora, err) != 0)
            return NULL;
        struct adapter *adapter = adapter_create(name, lora);
        if (adapter == NULL)
            error_set(err, ERROR_MEMORY, "no memory for an adapter");
        return adapter;
    }
    error_set(err, ERROR_CONFIG,
              "the adapter '%.64s' of the recording is missing: name it by --lora-modules", name);
    return NULL;
}

void adapter_loader_finish(struct adapter_loader *loader) {
    served_adapters_destroy(loader->served);
    for (int i = 0; i < loader->num_modules; i++)
        free(loader->modules[i].path);
    *loader = (struct adapter_loader){0};
}
