#include "server/api/call/api_context.h"

#include "engine/request/request.h"
#include "server/api/call/served_adapters.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_model_name(const struct api_context *context, const char *name) {
    for (int i = 0; i < context->num_model_names; i++)
        if (strcmp(context->model_names[i], name) == 0)
            return true;
    return false;
}

bool api_context_allows(const struct api_context *context, const char *name) {
    for (int i = 0; i < context->num_allowed_names; i++)
        if (strcmp(context->allowed_names[i], name) == 0)
            return true;
    return context->allowed_names == NULL;
}

static int refuse_model(const struct api_context *context, const char *name,
                        struct api_error *err) {
    if (context->num_model_names == 0)
        return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                             "The model \"%.64s\" may not be used with this API key", name);
    return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                         "The model \"%.64s\" does not exist; this server has \"%.64s\"", name,
                         context->model_names[0]);
}

/* *out: a reference to the adapter of that name, or NULL if it is the model's. */
static int find(const struct api_context *context, const char *name, struct adapter **out,
                struct api_error *err) {
    *out = NULL;
    if (is_model_name(context, name))
        return 0;
    if (context->adapters != NULL && api_context_allows(context, name))
        *out = served_adapters_find(context->adapters, name);
    return *out != NULL || context->takes_any_model ? 0 : refuse_model(context, name, err);
}

int api_context_check_model(const struct api_context *context, const char *name,
                            struct api_error *err) {
    struct adapter *adapter;
    int status = find(context, name, &adapter, err);
    adapter_unref(adapter);
    return status;
}

int api_context_set_model(const struct api_context *context, const char *name,
                          struct request *request, struct api_error *err) {
    struct adapter *adapter = NULL;
    if (name == NULL && context->num_model_names == 0)
        return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                             "this API key may use adapters alone: name one as the model");
    if (name != NULL && find(context, name, &adapter, err) != 0)
        return -1;
    if (adapter != NULL)
        request_set_adapter(request, adapter);
    adapter_unref(adapter);
    return 0;
}

/* Copies the last component of path, without the slashes after it. */
static void copy_last_component(const char *path, char *out, size_t capacity) {
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, capacity, "%.*s", (int)(end - begin), path + begin);
}

static bool ends_with(const char *text, size_t length, const char *suffix) {
    size_t n = strlen(suffix);
    return length > n && memcmp(text + length - n, suffix, n) == 0;
}

/* Cuts "-00001-of-00003" off. */
static void cut_split_number(char *name) {
    static const char pattern[] = "-ddddd-of-ddddd";
    size_t length = strlen(name), n = strlen(pattern);
    if (length <= n)
        return;
    char *tail = name + length - n;
    for (size_t i = 0; i < n; i++)
        if (pattern[i] == 'd' ? tail[i] < '0' || tail[i] > '9' : tail[i] != pattern[i])
            return;
    *tail = '\0';
}

void api_context_model_name(const char *path, char *out, size_t capacity) {
    char real[PATH_MAX];
    copy_last_component(path, out, capacity);
    if ((strcmp(out, ".") == 0 || strcmp(out, "..") == 0) && realpath(path, real) != NULL)
        copy_last_component(real, out, capacity);
    size_t length = strlen(out);
    if (ends_with(out, length, ".gguf")) {
        out[length - strlen(".gguf")] = '\0';
        cut_split_number(out);
    }
    if (out[0] == '\0')
        snprintf(out, capacity, "model");
}
