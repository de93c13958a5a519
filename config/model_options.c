/* Each model's options: a copy of those of all, and its settings on top. */
#include "config/model_options.h"

#include "config/base/array.h"
#include "config/options_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct error *err) {
    return error_set(err, ERROR_MEMORY, "out of memory while reading the options");
}

/* --- The list --- */

/* Copies what the options own, or fails with nothing to free in *to. */
static int copy_options(const struct options *from, struct options *to, struct error *err) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    bool has_all = true;
    *to = *from;
    for (size_t i = 0; i < count; i++) {
        char *const *text = (char *const *)((const char *)from + table[i].offset);
        const struct option_list *list = (const void *)text;
        struct option_list *list_copy = (void *)((char *)to + table[i].offset);
        if (table[i].type == OPTION_LIST) {
            *list_copy = (struct option_list){0};
            for (int k = 0; k < list->count; k++)
                has_all = has_all && option_list_append(list_copy, list->items[k], err) == 0;
        } else if (table[i].type == OPTION_STRING || table[i].type == OPTION_CHOICE) {
            char *copy = has_all && *text != NULL ? strdup(*text) : NULL;
            *(char **)((char *)to + table[i].offset) = copy;
            has_all = has_all && (copy != NULL || *text == NULL);
        }
    }
    if (has_all)
        return 0;
    options_finish(to);
    return no_memory(err);
}

/* Names that are given for all models are those of the first. */
static void clear_names(struct options *options) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    for (size_t i = 0; i < count; i++)
        if ((table[i].flags & OPTION_FIRST_MODEL) != 0)
            options_clear_list(&table[i], options);
}

static int set_path(struct options *options, const char *path, struct error *err) {
    char *copy = path != NULL ? strdup(path) : NULL;
    if (copy == NULL && path != NULL)
        return no_memory(err);
    free(options->model);
    options->model = copy;
    return 0;
}

/* Puts the name before the aliases, unless it is among them. */
static int put_name(struct model_options *model, struct error *err) {
    struct option_list *names = &model->options.served_model_names;
    if (option_list_has(names, model->name))
        return 0;
    if (names->count == OPTIONS_MAX_LIST)
        return error_set(err, ERROR_CONFIG, "model %.200s: has at most %d aliases", model->name,
                         OPTIONS_MAX_LIST - 1);
    if (option_list_append(names, model->name, err) != 0)
        return -1;
    char *name = names->items[names->count - 1];
    memmove(names->items + 1, names->items, (size_t)(names->count - 1) * sizeof(*names->items));
    names->items[0] = name;
    return 0;
}

/* The model is in the list with its name and path, either possibly NULL, and all options. */
static int append_model(struct model_list *list, const char *name, const char *path,
                        struct error *err) {
    if (list->count == MODEL_OPTIONS_MAX)
        return error_set(err, ERROR_CONFIG,
                         "more than %d models are given or found: a server has at most %d",
                         MODEL_OPTIONS_MAX, MODEL_OPTIONS_MAX);
    if (!array_reserve(&list->models, &list->capacity, list->count + 1, sizeof(*list->models)))
        return no_memory(err);
    struct model_options *model = &list->models[list->count];
    *model = (struct model_options){.is_preloaded = list->count == 0};
    if (copy_options(&list->all, &model->options, err) != 0)
        return -1;
    list->count++;
    if (list->count > 1)
        clear_names(&model->options);
    snprintf(model->name, sizeof(model->name), "%s", name != NULL ? name : "");
    return set_path(&model->options, path, err);
}

int model_options_add(struct model_list *list, const char *name, const char *path,
                      struct error *err) {
    return append_model(list, name, path, err) == 0 ? put_name(&list->models[list->count - 1], err)
                                                    : -1;
}

/* A name that --served-model-name gives, or NULL. */
static const char *first_name(const struct option_list *names) {
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i], "*") != 0)
            return names->items[i];
    return NULL;
}

static int append_given(struct model_list *list, const struct model_source *source,
                        struct error *err) {
    static const struct option_origin checked = {.level = OPTION_LEVEL_FILE, .path = ""};
    for (int i = 0; i < source->paths.count; i++) {
        const char *name = i == 0 ? first_name(&list->all.served_model_names) : NULL;
        if (append_model(list, name, source->paths.items[i], err) != 0)
            return -1;
    }
    size_t num_before = list->count;
    for (int i = 0; i < source->names.count; i++)
        if (append_model(list, source->names.items[i], NULL, err) != 0)
            return -1;
    for (size_t i = 0; i < source->num_settings; i++) {
        struct model_options *model = &list->models[num_before + (size_t)source->settings[i].model];
        if (model_source_apply(source, i, &checked, model, err) != 0)
            return -1;
    }
    for (size_t i = num_before; i < list->count; i++)
        if (put_name(&list->models[i], err) != 0)
            return -1;
    return 0;
}

int model_options_load(int argc, char *const *argv, char *const *environ, struct model_list *out,
                       struct error *err) {
    struct model_list list = {0};
    struct model_source source;
    if (options_read(argc, argv, environ, &list.all, &source, err) != 0)
        return -1;
    int status = append_given(&list, &source, err);
    model_source_finish(&source);
    if (status == 0)
        *out = list;
    else
        model_options_finish(&list);
    return status;
}

/* --- Checks of all of them --- */

static int refuse_name(const struct model_options *a, const struct model_options *b,
                       const char *name, struct error *err) {
    return error_set(err, ERROR_CONFIG,
                     "the name %.100s is that of model %.100s (%.100s) and of model %.100s "
                     "(%.100s): give one of them another, in models: of the configuration file",
                     name, a->name, a->options.model, b->name, b->options.model);
}

static int check_names(const struct model_options *a, const struct model_options *b,
                       struct error *err) {
    const struct option_list *names = &a->options.served_model_names;
    for (int i = 0; i < names->count; i++)
        if (option_list_has(&b->options.served_model_names, names->items[i]))
            return refuse_name(a, b, names->items[i], err);
    return 0;
}

/* What one engine writes to, no other may. */
static int check_outputs(const struct model_options *a, const struct model_options *b,
                         struct error *err) {
    static const char *const outputs[] = {"record", "kv-events", "kv-events-config"};
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        const struct option_spec *spec = options_spec(options_find(outputs[i], strlen(outputs[i])));
        const char *one = *(char *const *)((const char *)&a->options + spec->offset);
        const char *other = *(char *const *)((const char *)&b->options + spec->offset);
        if (one != NULL && other != NULL && strcmp(one, other) == 0)
            return error_set(err, ERROR_CONFIG,
                             "option %s \"%.100s\" is that of model %.100s and of model %.100s: "
                             "give each its own, in models: of the configuration file",
                             spec->name, one, a->name, b->name);
    }
    return 0;
}

static int check_pairs(const struct model_list *list, struct error *err) {
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < i; k++)
            if (check_names(&list->models[k], &list->models[i], err) != 0 ||
                check_outputs(&list->models[k], &list->models[i], err) != 0)
                return -1;
    return 0;
}

int model_options_complete(struct model_list *list, struct error *err) {
    if (list->count == 0)
        return options_refuse_without_model(err);
    for (size_t i = 0; i < list->count; i++) {
        if (list->models[i].options.model == NULL)
            return error_set(err, ERROR_CONFIG,
                             "model %.128s of the configuration file: has no model: PATH, and no "
                             "model of that name was found",
                             list->models[i].name);
        if (list->count > 1 && put_name(&list->models[i], err) != 0)
            return -1;
    }
    return check_pairs(list, err) != 0 ? -1
                                       : set_path(&list->all, list->models[0].options.model, err);
}

void model_options_finish(struct model_list *list) {
    for (size_t i = 0; i < list->count; i++)
        options_finish(&list->models[i].options);
    free(list->models);
    options_finish(&list->all);
    *list = (struct model_list){0};
}
