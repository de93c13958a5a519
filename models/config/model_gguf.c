#include "models/config/model_gguf.h"

#include "models/config/config_gguf.h"
#include "models/config/metadata_field.h"
#include "models/config/model_parts.h"

#include <stdio.h>

static void read_generation(const struct tensor_file *file, struct generation_defaults *out) {
    struct error err = {0};
    const struct metadata_source s = {.file = file, .err = &err};
    model_parts_warn_unusable_default(metadata_field_float(&s, "general.sampling.temp", 0.0,
                                                           GENERATION_MAX_TEMPERATURE,
                                                           &out->temperature),
                                      &err);
    model_parts_warn_unusable_default(
        metadata_field_int(&s, "general.sampling.top_k", -1, INT32_MAX, &out->top_k), &err);
    model_parts_warn_unusable_default(
        metadata_field_float(&s, "general.sampling.top_p", GENERATION_MIN_TOP_P, 1.0, &out->top_p),
        &err);
    model_parts_warn_unusable_default(
        metadata_field_float(&s, "general.sampling.min_p", 0.0, 1.0, &out->min_p), &err);
    model_parts_warn_unusable_default(
        metadata_field_float(&s, "general.sampling.penalty_repeat", GENERATION_MIN_REPETITION,
                             GENERATION_MAX_REPETITION, &out->repetition_penalty),
        &err);
}

static int read_template(const struct metadata_source *s, const char *key, char **out) {
    char where[256];
    const struct metadata *entry = metadata_field_find(s, key);
    if (entry == NULL)
        return 0;
    if (entry->type != METADATA_STRING)
        return metadata_field_refuse(s, key, "is not a string");
    snprintf(where, sizeof(where), "%.200s: %s", tensor_file_path(s->file), key);
    return model_parts_set_chat_template(out, entry->as_string, where, s->err);
}

int model_gguf_read(struct model *model, const char *path, struct error *err) {
    if (tensor_file_open(path, &model->file, err) != 0 ||
        config_gguf_read(model->file, &model->config, err) != 0)
        return -1;
    const struct metadata_source source = {.file = model->file, .err = err};
    read_generation(model->file, &model->generation);
    return read_template(&source, "tokenizer.chat_template", &model->chat_template) != 0
               ? -1
               : read_template(&source, "tokenizer.chat_template.tool_use",
                               &model->tool_chat_template);
}
