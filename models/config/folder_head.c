#include "models/config/folder_head.h"

#include "config/base/utf8.h"
#include "models/files/input_file.h"
#include "models/files/json_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODULES_BYTES ((size_t)1 << 20)
#define MAX_MODULES 16

static struct text text_of(const char *string) {
    return (struct text){string, strlen(string)};
}

/* --- Classifiers --- */

/* {"0": "LABEL", ...}, each index once. */
static int read_names(const struct config_object *o, const cJSON *names, struct classifier *out) {
    static const char key[] = "id2label";
    const cJSON *item;
    int32_t count = cJSON_GetArraySize(names);
    if (!cJSON_IsObject(names) || count < 1 || count > CLASSIFIER_MAX_LABELS)
        return config_field_refuse(o, key, "is not an object of 1 to %d labels",
                                   CLASSIFIER_MAX_LABELS);
    out->num_labels = count;
    cJSON_ArrayForEach(item, names) {
        char name[16];
        long index = strtol(item->string, NULL, 10);
        snprintf(name, sizeof(name), "%ld", index);
        if (strcmp(name, item->string) != 0 || index < 0 || index >= count)
            return config_field_refuse(o, key, "has an index that is not one of 0 to %d",
                                       count - 1);
        if (!cJSON_IsString(item) || !classifier_is_label(text_of(item->valuestring)))
            return config_field_refuse(o, key, "%ld: is not a string of 1 to %d bytes", index,
                                       CLASSIFIER_MAX_LABEL_BYTES);
        if (classifier_set_label(out, (int32_t)index, text_of(item->valuestring), o->err) != 0)
            return -1;
    }
    return 0;
}

/* As vLLM (get_act_fn in pooler/activations.py): problem_type, then what sentence-transformers
 * wrote, which names a class of torch. */
static int read_activation(const struct config_object *o, struct classifier *out) {
    static const struct {
        const char *name;
        enum classifier_activation activation;
    } problems[] = {{"regression", CLASSIFIER_IDENTITY},
                    {"single_label_classification", CLASSIFIER_BY_COUNT},
                    {"multi_label_classification", CLASSIFIER_SIGMOID}},
      classes[] = {{"torch.nn.modules.linear.Identity", CLASSIFIER_IDENTITY},
                   {"torch.nn.modules.activation.Sigmoid", CLASSIFIER_SIGMOID}};
    const char *problem = NULL, *class_name = NULL,
               old_key[] = "sbert_ce_default_activation_function";
    struct config_object own;
    char shown[UTF8_PRINTABLE_BYTES];
    if (config_field_string(o, "problem_type", &problem) != 0 ||
        config_field_object(o, "sentence_transformers", &own) != 0 ||
        config_field_string(o, old_key, &class_name) != 0 ||
        config_field_string(&own, "activation_fn", &class_name) != 0)
        return -1;
    for (size_t i = 0; problem != NULL && i < sizeof(problems) / sizeof(problems[0]); i++)
        if (strcmp(problem, problems[i].name) == 0) {
            out->activation = problems[i].activation;
            return 0;
        }
    if (problem != NULL) {
        utf8_printable(text_of(problem), shown);
        return config_field_refuse(o, "problem_type", "'%s' is not supported", shown);
    }
    for (size_t i = 0; class_name != NULL && i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(class_name, classes[i].name) == 0) {
            out->activation = classes[i].activation;
            return 0;
        }
    if (class_name == NULL)
        return 0;
    utf8_printable(text_of(class_name), shown);
    return config_field_refuse(o, "activation_fn",
                               "'%s' is not supported (supported: Identity, Sigmoid)", shown);
}

int folder_head_read_labels(struct model *model, const struct config_object *config) {
    struct classifier *out = &model->classifier;
    const cJSON *names = config_field_find(config, "id2label");
    int32_t stated = 0;
    if (!model->config.has_score)
        return 0;
    if ((names != NULL && read_names(config, names, out) != 0) ||
        config_field_int(config, "num_labels", 1, CLASSIFIER_MAX_LABELS, &stated) != 0)
        return -1;
    if (names == NULL)
        out->num_labels = stated;
    else if (stated != 0 && stated != out->num_labels)
        return config_field_refuse(config, "num_labels", "%d, and id2label has %d", stated,
                                   out->num_labels);
    return read_activation(config, out);
}

/* --- The steps of sentence-transformers --- */

/* Reads the config.json of a step, in its own folder. */
static int open_step(const struct model *model, const cJSON *step, char out_path[static PATH_MAX],
                     cJSON **out, struct error *err) {
    const cJSON *folder = cJSON_GetObjectItemCaseSensitive(step, "path");
    char name[PATH_MAX];
    const char *path = cJSON_IsString(folder) ? folder->valuestring : "";
    if (path[0] == '/' || strstr(path, "..") != NULL ||
        snprintf(name, sizeof(name), "%s/config.json", path) >= (int)sizeof(name))
        return error_set(err, ERROR_MODEL, "%s/modules.json: a path is not inside the folder",
                         model->folder);
    if (input_file_join_path(model->folder, name, out_path, err) != 0)
        return -1;
    *out = json_file_read(out_path, MAX_MODULES_BYTES, err);
    return *out != NULL ? 0 : -1;
}

/* Old files have a flag for each way; new ones name one, or several to be joined. */
static int read_pooling(struct model *model, const struct config_object *o) {
    static const struct {
        const char *flag, *name;
        enum model_pooling pooling; /* UNSTATED: not supported */
    } modes[] = {
        {"pooling_mode_lasttoken", "lasttoken", MODEL_POOLING_LAST},
        {"pooling_mode_mean_tokens", "mean", MODEL_POOLING_MEAN},
        {"pooling_mode_cls_token", "cls", MODEL_POOLING_UNSTATED},
        {"pooling_mode_max_tokens", "max", MODEL_POOLING_UNSTATED},
        {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", MODEL_POOLING_UNSTATED},
        {"pooling_mode_weightedmean_tokens", "weightedmean", MODEL_POOLING_UNSTATED},
    };
    static const char key[] = "pooling_mode";
    const cJSON *named = config_field_find(o, key);
    bool has_prompt = true;
    const char *name = cJSON_GetStringValue(named), *chosen = NULL;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        bool is_set = name != NULL && strcmp(name, modes[i].name) == 0;
        if (named == NULL && config_field_bool(o, modes[i].flag, &is_set) != 0)
            return -1;
        if (!is_set)
            continue;
        if (chosen != NULL || modes[i].pooling == MODEL_POOLING_UNSTATED)
            return config_field_refuse(o, named != NULL ? key : modes[i].flag,
                                       "only the last token or the mean alone is supported");
        chosen = modes[i].flag;
        model->pooling = modes[i].pooling;
    }
    if (chosen == NULL)
        return config_field_refuse(o, key, "names no way that is supported: lasttoken, mean");
    if (config_field_bool(o, "include_prompt", &has_prompt) != 0)
        return -1;
    if (!has_prompt && model->pooling == MODEL_POOLING_MEAN)
        return config_field_refuse(o, "include_prompt",
                                   "a mean without the prompt is not supported");
    return 0;
}

static int read_words(struct model *model, const struct config_object *o) {
    int32_t tokens[] = {-1, -1}, max = model->config.vocab_size - 1;
    if (config_field_require(o, "true_token_id") != 0 ||
        config_field_int(o, "false_token_id", 0, max, &tokens[0]) != 0 ||
        config_field_int(o, "true_token_id", 0, max, &tokens[1]) != 0)
        return -1;
    bool has_both = tokens[0] >= 0;
    model->chat_is_of_pairs = true;
    return classifier_from_tokens(model, has_both ? tokens : tokens + 1, has_both ? 2 : 1, NULL,
                                  o->err);
}

/* The name of the class of a step: the end of "sentence_transformers.models.Pooling". */
static const char *class_of(const cJSON *step) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(step, "type");
    if (!cJSON_IsString(type))
        return "";
    const char *dot = strrchr(type->valuestring, '.');
    return dot != NULL ? dot + 1 : type->valuestring;
}

static int read_step(struct model *model, const struct config_object *list, const cJSON *step) {
    static const struct {
        const char *name;
        int (*read)(struct model *model, const struct config_object *o);
    } steps[] = {
        {"Transformer"}, {"Normalize"}, {"Pooling", read_pooling}, {"LogitScore", read_words}};
    const char *name = class_of(step);
    char path[PATH_MAX], shown[UTF8_PRINTABLE_BYTES];
    cJSON *root = NULL;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (strcmp(name, steps[i].name) != 0)
            continue;
        if (strcmp(name, "Normalize") == 0)
            model->has_raw_embeddings = false;
        if (steps[i].read == NULL)
            return 0;
        if (open_step(model, step, path, &root, list->err) != 0)
            return -1;
        const struct config_object object = {.json = root, .file = path, .err = list->err};
        int status = steps[i].read(model, &object);
        cJSON_Delete(root);
        return status;
    }
    utf8_printable(text_of(name), shown);
    return config_field_refuse(
        list, "type",
        "'%s' is not supported (supported: Transformer, Pooling, Normalize, LogitScore)", shown);
}

/* Reads the list as a member of an object, which is what JSON files are elsewhere. */
static cJSON *read_list(const char *path, struct error *err) {
    static const char begin[] = "{\"modules\":";
    size_t length, prefix = sizeof(begin) - 1;
    char *data = input_file_read_all(path, MAX_MODULES_BYTES, &length, err);
    char *whole = data != NULL ? malloc(prefix + length + 1) : NULL;
    cJSON *root = NULL;
    if (whole != NULL) {
        memcpy(whole, begin, prefix);
        memcpy(whole + prefix, data, length);
        whole[prefix + length] = '}';
        root = json_memory_read(whole, prefix + length + 1, path, err);
    } else if (data != NULL) {
        error_set(err, ERROR_MEMORY, "%s: no memory to read it", path);
    }
    free(data);
    free(whole);
    return root;
}

static int read_steps(struct model *model, const struct config_object *o) {
    static const char key[] = "modules";
    const cJSON *list, *step;
    bool is_embedding = false;
    if (config_field_array(o, key, &list) != 0)
        return -1;
    if (cJSON_GetArraySize(list) > MAX_MODULES)
        return config_field_refuse(o, key, "more than %d steps", MAX_MODULES);
    model->has_raw_embeddings = true;
    cJSON_ArrayForEach(step, list) {
        is_embedding = is_embedding || strcmp(class_of(step), "Pooling") == 0;
        if (read_step(model, o, step) != 0)
            return -1;
    }
    model->has_raw_embeddings = model->has_raw_embeddings && is_embedding;
    return 0;
}

int folder_head_read_modules(struct model *model, struct error *err) {
    char path[PATH_MAX];
    if (input_file_join_path(model->folder, "modules.json", path, err) != 0)
        return -1;
    if (input_file_is_missing(path))
        return 0;
    cJSON *root = read_list(path, err);
    const struct config_object object = {.json = root, .file = path, .err = err};
    int status = root != NULL ? read_steps(model, &object) : -1;
    cJSON_Delete(root);
    return status;
}
