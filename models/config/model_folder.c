#include "models/config/model_folder.h"

#include "models/config/config_field.h"
#include "models/config/config_hf.h"
#include "models/config/folder_head.h"
#include "models/config/architecture.h"
#include "models/config/model_parts.h"
#include "models/files/input_file.h"
#include "models/files/json_file.h"
#include "models/config/sampling_fields.h"
#include "models/config/tensor_names.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)4 << 20)
#define MAX_TOKENIZER_CONFIG_BYTES ((size_t)16 << 20)

enum { COMPARED_BYTES = 64 * 1024 };

/* --- Ids that end a text --- */

/* An id the vocabulary does not have is never sampled: real files name the defaults of a class. */
static int add_eos(struct model *model, const struct config_object *o, const cJSON *item) {
    static const char key[] = "eos_token_id";
    if (!config_field_is_int(item, -1, INT32_MAX))
        return config_field_refuse(o, key, "is not a token id");
    int32_t token = (int32_t)item->valuedouble;
    if (token == -1) /* none */
        return 0;
    for (int i = 0; i < model->num_eos_tokens; i++)
        if (model->eos_tokens[i] == token)
            return 0;
    if (token >= model->config.vocab_size)
        return 0;
    if (model->num_eos_tokens == MODEL_MAX_EOS_TOKENS)
        return config_field_refuse(o, key, "more than %d ids that end a text",
                                   MODEL_MAX_EOS_TOKENS);
    model->eos_tokens[model->num_eos_tokens++] = token;
    return 0;
}

static int read_eos(struct model *model, const struct config_object *o) {
    const cJSON *value = config_field_find(o, "eos_token_id"), *item;
    if (value == NULL)
        return 0;
    if (!cJSON_IsArray(value))
        return add_eos(model, o, value);
    cJSON_ArrayForEach(item, value) {
        if (add_eos(model, o, item) != 0)
            return -1;
    }
    return 0;
}

/* --- Embeddings that may be cut --- */

/* The two keys are those that vLLM reads (vllm/config/model.py). A list takes precedence over
 * is_matryoshka, as there; sizes that are larger than the embedding are left out. */
static int read_embedding_sizes(struct model *model, const struct config_object *o) {
    static const char key[] = "matryoshka_dimensions";
    struct embedding_sizes *out = &model->embedding_sizes;
    const cJSON *list, *item;
    if (config_field_bool(o, "is_matryoshka", &out->any) != 0 ||
        config_field_array(o, key, &list) != 0)
        return -1;
    cJSON_ArrayForEach(item, list) {
        if (!config_field_is_int(item, 1, INT32_MAX))
            return config_field_refuse(o, key, "has an element that is not a size");
        if (item->valuedouble > model->config.hidden_size)
            continue;
        if (out->num_sizes == EMBEDDING_MAX_SIZES)
            return config_field_refuse(o, key, "more than %d sizes", EMBEDDING_MAX_SIZES);
        out->sizes[out->num_sizes++] = (int32_t)item->valuedouble;
    }
    out->any = out->any && out->num_sizes == 0;
    return 0;
}

/* --- config.json --- */

/* Names the model for people: the last part of the folder's path. */
static void name_model(struct model_config *config, const char *folder) {
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/')
        begin--;
    snprintf(config->name, sizeof(config->name), "%.*s", (int)(end - begin), folder + begin);
}

/* Reads a JSON file of the folder; *out is NULL if it does not exist. */
static int read_json(const struct model *model, const char *name, size_t max_bytes,
                     char out_path[static PATH_MAX], cJSON **out, struct error *err) {
    *out = NULL;
    if (input_file_join_path(model->folder, name, out_path, err) != 0)
        return -1;
    if (input_file_is_missing(out_path))
        return 0;
    *out = json_file_read(out_path, max_bytes, err);
    return *out != NULL ? 0 : -1;
}

static int read_config(struct model *model, struct error *err) {
    char path[PATH_MAX];
    cJSON *root;
    struct config_object text;
    if (read_json(model, "config.json", MAX_CONFIG_BYTES, path, &root, err) != 0)
        return -1;
    if (root == NULL)
        return error_set(err, ERROR_MODEL,
                         "%s: is a folder without config.json; name a Hugging Face folder, or the "
                         "GGUF file in it",
                         model->folder);
    const struct config_object object = {.json = root, .file = path, .err = err};
    int status = config_hf_read(root, path, &model->config, err);
    if (status == 0)
        status = read_embedding_sizes(model, &object);
    if (status == 0)
        status = folder_head_read_labels(model, &object);
    if (status == 0 &&
        (read_eos(model, &object) != 0 || config_field_object(&object, "text_config", &text) != 0 ||
         read_eos(model, &text) != 0))
        status = -1;
    cJSON_Delete(root);
    name_model(&model->config, model->folder);
    return status;
}

/* --- What only the tensors say --- */

/* A model with more parts than its language model has that below another name. */
static void find_prefix(const struct tensor_file *file, struct model_config *config) {
    static const char *const prefixes[] = {"model.", "model.language_model.",
                                           "language_model.model.", ""};
    char name[TENSOR_NAME_BYTES];
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        snprintf(config->tensor_prefix, sizeof(config->tensor_prefix), "%s", prefixes[i]);
        tensor_names_write(config, (struct tensor_place){TENSOR_EMBEDDING}, "weight", name);
        if (tensor_file_find(file, name) != NULL)
            return;
    }
    snprintf(config->tensor_prefix, sizeof(config->tensor_prefix), "%s", prefixes[0]);
}

/* A model that was saved without its head, as for embeddings, has no logits. The embedding is then
 * where a head would be, which takes no memory. */
static void find_head(struct model *model) {
    char name[TENSOR_NAME_BYTES];
    struct model_config *config = &model->config;
    tensor_names_write(config, (struct tensor_place){TENSOR_HEAD}, "weight", name);
    bool is_bare = config->tensor_prefix[0] == '\0' && tensor_file_find(model->file, name) == NULL;
    model->generates = architecture_head_of(config->architecture, NULL) == ARCHITECTURE_WORDS &&
                       (config->tied_embeddings || !is_bare);
    if (!model->generates)
        config->tied_embeddings = true;
}

/* A head that exists and differs from the embedding is used regardless of the settings, as by
 * Transformers 5 (PreTrainedModel.tie_weights): fine-tuning leaves such files. */
static int check_tied(const struct tensor_file *file, struct model_config *config,
                      struct error *err) {
    char names[2][TENSOR_NAME_BYTES];
    tensor_names_write(config, (struct tensor_place){TENSOR_EMBEDDING}, "weight", names[0]);
    tensor_names_write(config, (struct tensor_place){TENSOR_HEAD}, "weight", names[1]);
    const struct tensor_info *embedding = tensor_file_find(file, names[0]);
    const struct tensor_info *head = tensor_file_find(file, names[1]);
    if (!config->tied_embeddings || embedding == NULL || head == NULL)
        return 0;
    uint8_t chunks[2][COMPARED_BYTES];
    bool same = embedding->dtype == head->dtype && embedding->bytes == head->bytes;
    for (size_t done = 0; done < head->bytes && same; done += COMPARED_BYTES) {
        size_t left = head->bytes - done, bytes = left < COMPARED_BYTES ? left : COMPARED_BYTES;
        if (tensor_read(file, embedding, done, bytes, chunks[0], err) != 0 ||
            tensor_read(file, head, done, bytes, chunks[1], err) != 0)
            return -1;
        same = memcmp(chunks[0], chunks[1], bytes) == 0;
    }
    config->tied_embeddings = same;
    return 0;
}

/* --- generation_config.json --- */

static void read_sampling_default(const struct config_object *o, const struct sampling_field *field,
                                  struct sampling_settings *out) {
    struct error err = {0};
    struct config_object object = *o;
    void *at = sampling_field_at(field, out);
    object.err = &err;
    int status =
        field->type == SAMPLING_FIELD_INT32
            ? config_field_int(&object, field->name, (int64_t)field->least, (int64_t)field->max, at)
            : config_field_float(&object, field->name, field->least, field->max, at);
    model_parts_warn_unusable_default(status, &err);
}

static int read_generation(struct model *model, struct error *err) {
    char path[PATH_MAX];
    cJSON *root;
    if (read_json(model, "generation_config.json", MAX_CONFIG_BYTES, path, &root, err) != 0)
        return -1;
    if (root == NULL)
        return 0;
    const struct config_object object = {.json = root, .file = path, .err = err};
    int num_fields;
    const struct sampling_field *fields = sampling_fields(&num_fields);
    for (int i = 0; i < num_fields; i++)
        if (fields[i].gguf_key != NULL)
            read_sampling_default(&object, &fields[i], &model->generation);
    int status = read_eos(model, &object);
    cJSON_Delete(root);
    return status;
}

/* --- The chat template --- */

/* Reads one of a list: { name, template }, of which "default" and "tool_use" are taken. */
static int read_named_template(struct model *model, const struct config_object *o,
                               const cJSON *item, const char *where) {
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(item, "template");
    if (!cJSON_IsString(name) || !cJSON_IsString(source))
        return config_field_refuse(o, "chat_template",
                                   "an entry of the list has no name or no template");
    struct text text = {source->valuestring, strlen(source->valuestring)};
    if (strcmp(name->valuestring, "default") == 0)
        return model_parts_set_chat_template(&model->chat_template, text, where, o->err);
    if (strcmp(name->valuestring, "tool_use") == 0)
        return model_parts_set_chat_template(&model->tool_chat_template, text, where, o->err);
    return 0;
}

/* Reads a string, or a list. */
static int read_template_field(struct model *model, const struct config_object *o) {
    static const char key[] = "chat_template";
    const cJSON *value = config_field_find(o, key), *item;
    char where[PATH_MAX + 32];
    snprintf(where, sizeof(where), "%s: %s", o->file, key);
    if (value == NULL)
        return 0;
    if (cJSON_IsString(value)) {
        struct text source = {value->valuestring, strlen(value->valuestring)};
        return model_parts_set_chat_template(&model->chat_template, source, where, o->err);
    }
    if (!cJSON_IsArray(value))
        return config_field_refuse(o, key, "is neither a string nor a list of templates");
    cJSON_ArrayForEach(item, value) {
        if (read_named_template(model, o, item, where) != 0)
            return -1;
    }
    return 0;
}

static int read_template_json(struct model *model, const char *name, struct error *err) {
    char path[PATH_MAX];
    cJSON *root;
    if (read_json(model, name, MAX_TOKENIZER_CONFIG_BYTES, path, &root, err) != 0)
        return -1;
    if (root == NULL)
        return 0;
    const struct config_object object = {.json = root, .file = path, .err = err};
    int status = read_template_field(model, &object);
    cJSON_Delete(root);
    return status;
}

static int read_template_file(struct model *model, const char *name, char **out,
                              struct error *err) {
    char path[PATH_MAX];
    struct text source = {0};
    if (input_file_join_path(model->folder, name, path, err) != 0)
        return -1;
    if (input_file_is_missing(path))
        return 0;
    char *data = input_file_read_all(path, MODEL_MAX_TEMPLATE_BYTES, &source.length, err);
    if (data == NULL)
        return -1;
    source.data = data;
    int status = model_parts_set_chat_template(out, source, path, err);
    free(data);
    return status;
}

static int read_templates(struct model *model, struct error *err) {
    if (read_template_file(model, "chat_template.jinja", &model->chat_template, err) != 0)
        return -1;
    if (model->chat_template != NULL)
        return read_template_file(model, "additional_chat_templates/tool_use.jinja",
                                  &model->tool_chat_template, err);
    if (read_template_json(model, "tokenizer_config.json", err) != 0)
        return -1;
    return model->chat_template != NULL ? 0 : read_template_json(model, "chat_template.json", err);
}

int model_folder_read(struct model *model, const char *path, struct error *err) {
    model->folder = strdup(path);
    if (model->folder == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    if (read_config(model, err) != 0 || tensor_file_open(path, &model->file, err) != 0)
        return -1;
    find_prefix(model->file, &model->config);
    find_head(model);
    if ((model->generates && check_tied(model->file, &model->config, err) != 0) ||
        read_generation(model, err) != 0 || folder_head_read_modules(model, err) != 0)
        return -1;
    return read_templates(model, err);
}
