#include "server/program/model_loader.h"

#include "config/base/check.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "engine/executor/step_turns.h"
#include "kernels/cpu/memory/cpu_memory.h"
#include "server/http/http_server.h"
#include "server/program/engine_options.h"
#include "server/program/memory_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MIN_KV_BYTES ((size_t)64 << 20) /* of a model whose share is small */

/* --- Jobs --- */

static int run_steps(struct served_model *served, served_model_step *const *steps,
                     struct error *err) {
    for (; *steps != NULL; steps++)
        if ((*steps)(served, err) != 0)
            return -1;
    return 0;
}

static size_t engine_bytes(const struct served_model *served) {
    struct engine_config engine =
        engine_options_read(served->options, served->model, &served->info);
    return engine_memory_bytes(&engine, served->tokenizer);
}

/* What a GPU's ranks take is known once they have it: of that, their share alone is planned. */
static void set_memory(struct served_model *served) {
    const bool has_gpu = served->info.limits.num_blocks == 0;
    size_t rank_bytes =
        memory_table_rank_bytes(&served->info) + (has_gpu ? 0 : engine_bytes(served));
    served->needs = (struct http_model_memory){
        .bytes = rank_bytes + memory_table_vocabulary_bytes(&served->info),
        .rank_bytes = rank_bytes,
        .kv_bytes = has_gpu ? 0 : served->info.memory.kv_bytes,
        .gpu_share = has_gpu ? served->options->gpu_memory_utilization : 0,
    };
}

/* A KV cache whose size is not given gets what its model's share leaves. */
static int fit_share(struct served_model *served, size_t share_bytes, struct error *err) {
    const struct http_model_memory *memory = &served->needs;
    size_t fixed = memory->bytes - memory->kv_bytes;
    size_t most = share_bytes > fixed + MIN_KV_BYTES ? share_bytes - fixed : MIN_KV_BYTES;
    if (served->options->kv_cache_memory_bytes != 0 || memory->kv_bytes <= most)
        return 0;
    served->executor_config.kv_memory_bytes = most;
    if (served_model_plan(served, err) != 0)
        return -1;
    set_memory(served);
    return 0;
}

static int plan(struct model_loader *loader, struct served_model *served, struct error *err) {
    static served_model_step *const steps[] = {
        served_model_read_options, served_model_open_kv_events,
        served_model_check_record, served_model_find,
        served_model_open,         served_model_open_tokenizer,
        served_model_plan,         NULL};
    if (run_steps(served, steps, err) != 0)
        return -1;
    set_memory(served);
    if (fit_share(served, loader->share_bytes, err) != 0)
        return -1;
    log_info("model      %s needs %.0f MiB, %.0f of them for its KV cache", served->http.names[0],
             mib(served->needs.bytes), mib(served->needs.kv_bytes));
    return 0;
}

static int load(struct served_model *served, struct error *err) {
    static served_model_step *const before[] = {
        served_model_open_scores,      served_model_open_chat,     served_model_start_verify,
        served_model_start_vocabulary, served_model_open_executor, NULL};
    static served_model_step *const after[] = {served_model_await_vocabulary,
                                               served_model_await_verify,
                                               served_model_open_kv_store,
                                               served_model_start_engine,
                                               served_model_test,
                                               served_model_load_adapters,
                                               served_model_show,
                                               NULL};
    if (run_steps(served, before, err) != 0)
        return -1;
    served_model_set_context(served);
    return run_steps(served, after, err);
}

/* What failed leaves nothing. */
static int run_job(struct model_loader *loader, struct served_model *served,
                   enum http_model_job job, struct error *err) {
    int status = job == HTTP_MODEL_PLAN   ? plan(loader, served, err)
                 : job == HTTP_MODEL_LOAD ? load(served, err)
                                          : -1;
    if (status == 0)
        return 0;
    bool is_closed = served_model_close(served, NULL);
    if (!is_closed)
        log_error("model %s: its device hangs: what it holds is not given back",
                  served->http.names[0]);
    return job == HTTP_MODEL_CLOSE ? 0 : -1;
}

static void *run(void *context) {
    struct model_loader *loader = context;
    const uint64_t one = 1;
    pthread_mutex_lock(&loader->lock);
    while (!loader->ends) {
        if (loader->model == NULL || loader->is_done) {
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        struct error err = {0};
        pthread_mutex_unlock(&loader->lock);
        run_job(loader, loader->model, loader->job, &err);
        pthread_mutex_lock(&loader->lock);
        loader->error = err;
        loader->is_done = true;
        pthread_cond_broadcast(&loader->changed);
        CHECK(write(loader->fd, &one, sizeof(one)) == sizeof(one));
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static void start_job(void *context, struct http_model *model, enum http_model_job job) {
    struct model_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    CHECK(loader->model == NULL);
    loader->model = model->owner;
    loader->job = job;
    loader->is_done = false;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

static bool take_job(void *context, struct error *err) {
    struct model_loader *loader = context;
    uint64_t count;
    pthread_mutex_lock(&loader->lock);
    bool is_done = loader->is_done;
    if (is_done) {
        *err = loader->error;
        if (err->code == ERROR_NONE && loader->job == HTTP_MODEL_PLAN)
            loader->model->http.memory = loader->model->needs;
        if (err->code == ERROR_NONE && loader->job == HTTP_MODEL_LOAD)
            loader->model->http.parts = loader->model->parts;
        loader->model = NULL;
        loader->is_done = false;
        CHECK(read(loader->fd, &count, sizeof(count)) == sizeof(count));
    }
    pthread_mutex_unlock(&loader->lock);
    return is_done;
}

/* --- Models --- */

struct owned {
    struct served_model served;
    struct model_options options;
    char *description; /* of the options as they were given */
};

/* Writes all options that concern a model: two models with the same text are the same. */
static char *describe(const struct model_options *options) {
    struct byte_buffer text = {0};
    struct option_value value;
    for (size_t i = 0; options_get(&options->options, i, &value); i++) {
        if (!options_are_per_model(i))
            continue;
        byte_buffer_printf(&text, "%s=%s|%lld|%.17g|%d", value.name,
                           value.text != NULL ? value.text : "", (long long)value.integer,
                           value.decimal, value.flag);
        for (int k = 0; value.list != NULL && k < value.list->count; k++)
            byte_buffer_printf(&text, ",%s", value.list->items[k]);
        byte_buffer_append(&text, "\n", 1);
    }
    byte_buffer_printf(&text, "%s %d", options->name, options->is_pinned);
    byte_buffer_append(&text, "", 1);
    if (text.failed)
        byte_buffer_finish(&text);
    return text.data;
}

struct served_model *model_loader_add(struct model_loader *loader, struct model_options *options,
                                      struct response_store *responses, struct error *err) {
    struct owned *owned = calloc(1, sizeof(*owned));
    if (owned == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a model");
        return NULL;
    }
    struct served_model *served = &owned->served;
    owned->description = describe(options);
    if (owned->description == NULL) {
        free(owned);
        error_set(err, ERROR_MEMORY, "no memory for a model");
        return NULL;
    }
    owned->options = *options;
    memset(&options->options, 0, sizeof(options->options));
    served->options = &owned->options.options;
    served->responses = responses;
    served->is_one_of_several = true;
    served->turns = loader->turns;
    served->gives_up = &loader->gives_up;
    served->wake_fd = -1;
    snprintf(served->model_name, sizeof(served->model_name), "%s", options->name);
    served_model_set_names(served);
    served->http.created = time(NULL);
    served->http.is_pinned = options->is_pinned;
    served->http.parts.wake_fd = -1;
    loader->models[loader->count++] = served;
    return served;
}

int model_loader_find(struct served_model *served, struct error *err) {
    struct adapter_loader *adapters = &served->adapters;
    int status = served_model_find(served, err);
    for (int i = 0; i < adapters->num_modules && status == 0; i++) {
        served->adapter_names[i] = strdup(adapters->modules[i].name);
        if (served->adapter_names[i] == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for the names of adapters");
        served->http.num_adapter_names = i + 1;
    }
    served->http.adapter_names = served->adapter_names;
    adapter_loader_finish(adapters);
    return status;
}

static void free_owned(struct served_model *served) {
    struct owned *owned = (struct owned *)served; /* its first member */
    for (int i = 0; i < served->http.num_adapter_names; i++)
        free(served->adapter_names[i]);
    options_finish(&owned->options.options);
    free(owned->description);
    free(owned);
}

static void free_model(void *context, struct http_model *model) {
    struct model_loader *loader = context;
    int at = 0;
    while (loader->models[at] != model->owner)
        at++;
    memmove(&loader->models[at], &loader->models[at + 1],
            (size_t)(loader->count - at - 1) * sizeof(loader->models[0]));
    loader->count--;
    free_owned(model->owner);
}

struct http_model_loader model_loader_ops(struct model_loader *loader) {
    return (struct http_model_loader){.fd = loader->fd,
                                      .start = start_job,
                                      .take = take_job,
                                      .free = free_model,
                                      .context = loader};
}

static int run_and_wait(struct model_loader *loader, struct served_model *served,
                        enum http_model_job job, struct error *err) {
    start_job(loader, &served->http, job);
    pthread_mutex_lock(&loader->lock);
    while (!loader->is_done)
        pthread_cond_wait(&loader->changed, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    take_job(loader, err);
    return err->code == ERROR_NONE ? 0 : -1;
}

int model_loader_load(struct model_loader *loader, struct served_model *served, struct error *err) {
    if (run_and_wait(loader, served, HTTP_MODEL_PLAN, err) != 0)
        return -1;
    size_t needed = served->http.memory.bytes;
    if (needed > loader->memory_bytes)
        return error_set(err, ERROR_CONFIG,
                         "the model %s needs %.0f MiB, more than all models may have: %.0f MiB "
                         "(--memory)",
                         served->http.names[0], mib(needed), mib(loader->memory_bytes));
    served->http.is_planned = true;
    return run_and_wait(loader, served, HTTP_MODEL_LOAD, err);
}

/* --- A new list --- */

/* Returns the served model with the same options, or NULL. */
static struct served_model *find_same(const struct model_loader *loader, const char *description) {
    for (int i = 0; i < loader->count; i++) {
        const struct owned *owned = (const struct owned *)loader->models[i];
        if (!loader->models[i]->http.is_removed && strcmp(owned->description, description) == 0)
            return loader->models[i];
    }
    return NULL;
}

static bool is_listed(const struct served_model *served, struct served_model *const *kept,
                      size_t count) {
    for (size_t i = 0; i < count; i++)
        if (kept[i] == served)
            return true;
    return false;
}

int model_loader_reload(struct model_loader *loader, struct model_list *list,
                        struct response_store *responses, struct http_server *http,
                        struct error *err) {
    struct served_model *listed[HTTP_MAX_MODELS];
    size_t num_new = 0;
    for (size_t i = 0; i < list->count; i++) {
        char *description = describe(&list->models[i]);
        if (description == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for a list of models");
        listed[i] = find_same(loader, description);
        num_new += listed[i] == NULL;
        free(description);
    }
    if ((size_t)loader->count + num_new > HTTP_MAX_MODELS)
        return error_set(err, ERROR_CONFIG,
                         "%zu models are new, and %d are served or being closed: more than %d in "
                         "all",
                         num_new, loader->count, HTTP_MAX_MODELS);
    for (int i = loader->count - 1; i >= 0; i--)
        if (!loader->models[i]->http.is_removed &&
            !is_listed(loader->models[i], listed, list->count))
            http_server_remove_model(http, &loader->models[i]->http);
    for (size_t i = 0; i < list->count; i++) {
        if (listed[i] != NULL)
            continue;
        listed[i] = model_loader_add(loader, &list->models[i], responses, err);
        if (listed[i] == NULL)
            return -1;
        http_server_add_model(http, &listed[i]->http);
        log_info("model      %s is served from now on", listed[i]->http.names[0]);
    }
    http_server_set_default_model(http, &listed[0]->http);
    return 0;
}

/* --- Start and end --- */

int model_loader_start(struct model_loader *loader, size_t memory_bytes, int num_shares,
                       struct error *err) {
    size_t free_bytes, total_bytes;
    cpu_memory_info("", &free_bytes, &total_bytes);
    *loader = (struct model_loader){.fd = -1};
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->memory_bytes = memory_bytes > 0 ? memory_bytes : free_bytes / 4 * 3;
    loader->share_bytes = loader->memory_bytes / 10 * 9 / (size_t)num_shares; /* some stay asleep */
    loader->turns = step_turns_create(err);
    if (loader->turns == NULL)
        return -1;
    loader->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loader->fd < 0)
        return error_set(err, ERROR_IO, "eventfd: %s", strerror(errno));
    int status = pthread_create(&loader->thread, NULL, run, loader);
    loader->has_thread = status == 0;
    if (status != 0) {
        close(loader->fd);
        return error_set(err, ERROR_IO, "cannot start the thread that loads models: %s",
                         strerror(status));
    }
    return 0;
}

void model_loader_stop(struct model_loader *loader) {
    if (!loader->has_thread)
        return;
    atomic_store(&loader->gives_up, true);
    pthread_mutex_lock(&loader->lock);
    while (loader->model != NULL && !loader->is_done)
        pthread_cond_wait(&loader->changed, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
}

void model_loader_finish(struct model_loader *loader) {
    if (loader->has_thread) {
        pthread_mutex_lock(&loader->lock);
        loader->ends = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
        CHECK(pthread_join(loader->thread, NULL) == 0);
        close(loader->fd);
    }
    while (loader->count > 0)
        free_owned(loader->models[--loader->count]);
    step_turns_destroy(loader->turns);
}
