/* What --model and `models:` say of models. The settings come before the environment and the flags
 * are read, so they are checked at once and kept as text. */
#include "config/base/array.h"
#include "config/options_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct error *err) {
    return error_set(err, ERROR_MEMORY, "out of memory while reading the options");
}

static int refuse_more(struct error *err, const char *path, size_t line) {
    return error_set(err, ERROR_CONFIG,
                     "configuration file %.200s line %zu: a server has at most %d models", path,
                     line, MODEL_OPTIONS_MAX);
}

int model_source_add_path(struct model_source *source, const struct option_spec *spec,
                          const char *path, const struct option_origin *origin, struct error *err) {
    char what[64];
    if (option_list_has(&source->paths, path)) /* MODEL --model MODEL */
        return 0;
    if (source->paths.count < MODEL_OPTIONS_MAX)
        return option_list_append(&source->paths, path, err);
    snprintf(what, sizeof(what), "a server has at most %d models", MODEL_OPTIONS_MAX);
    return options_error(spec, path, origin, err, what);
}

static int begin_model(struct model_source *source, const struct option_origin *origin,
                       struct error *err) {
    for (int i = 0; i < source->names.count; i++)
        if (strcmp(source->names.items[i], origin->model) == 0)
            return error_set(err, ERROR_CONFIG,
                             "configuration file %.200s line %zu: model %s is given twice, first "
                             "in line %zu",
                             origin->path, origin->line, origin->model, source->lines[i]);
    if (source->names.count == MODEL_OPTIONS_MAX)
        return refuse_more(err, origin->path, origin->line);
    source->lines[source->names.count] = origin->line;
    return option_list_append(&source->names, origin->model, err);
}

int model_source_apply(const struct model_source *source, size_t index,
                       const struct option_origin *origin, struct model_options *model,
                       struct error *err) {
    const struct model_setting *setting = &source->settings[index];
    const struct model_setting *before = index > 0 ? setting - 1 : NULL;
    const struct option_spec *spec = options_spec(setting->option);
    bool is_first =
        before == NULL || before->model != setting->model || before->option != setting->option;
    if (is_first && spec->type == OPTION_LIST)
        options_clear_list(spec, &model->options);
    return options_set(spec, setting->text, origin, &model->options, err);
}

int model_source_add(struct model_source *source, int option, const char *text,
                     const struct option_origin *origin, struct error *err) {
    if (option < 0)
        return begin_model(source, origin, err);
    if (!array_reserve(&source->settings, &source->capacity, source->num_settings + 1,
                       sizeof(*source->settings)))
        return no_memory(err);
    char *copy = strdup(text);
    if (copy == NULL)
        return no_memory(err);
    source->settings[source->num_settings++] =
        (struct model_setting){.model = source->names.count - 1, .option = option, .text = copy};
    return model_source_apply(source, source->num_settings - 1, origin, &source->checked, err);
}

void model_source_finish(struct model_source *source) {
    option_list_clear(&source->paths);
    option_list_clear(&source->names);
    for (size_t i = 0; i < source->num_settings; i++)
        free(source->settings[i].text);
    free(source->settings);
    options_finish(&source->checked.options);
    *source = (struct model_source){0};
}
