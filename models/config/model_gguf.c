#include "models/config/model_gguf.h"

#include "models/config/config_gguf.h"
#include "models/config/metadata_field.h"
#include "models/config/model_parts.h"
#include "models/config/sampling_fields.h"

#include <stdio.h>

static void read_generation(const struct tensor_file *file, struct sampling_settings *out) {
    struct error err = {0};
    const struct metadata_source s = {.file = file, .err = &err};
    int num_fields;
    const struct sampling_field *fields = sampling_fields(&num_fields);
    for (int i = 0; i < num_fields; i++) {
        const struct sampling_field *field = &fields[i];
        void *at = sampling_field_at(field, out);
        if (field->gguf_key == NULL)
            continue;
        int status = field->type == SAMPLING_FIELD_INT32
                         ? metadata_field_int(&s, field->gguf_key, (int64_t)field->least,
                                              (int64_t)field->max, at)
                         : metadata_field_float(&s, field->gguf_key, field->least, field->max, at);
        model_parts_warn_unusable_default(status, &err);
    }
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
