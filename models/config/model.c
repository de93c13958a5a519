#include "models/config/model.h"

#include "models/config/config_gguf.h"
#include "models/config/metadata_field.h"
#include "models/config/model_folder.h"
#include "models/config/model_parts.h"
#include "models/config/sampling_fields.h"
#include "models/files/input_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- A model out of one GGUF file, or one split into several ---
 * Everything is metadata:
 *
 *   ARCHITECTURE.*                    switches and sizes (config_gguf.h)
 *   general.sampling.*                optional: recommended sampling, which converters copy from
 *                                     generation_config.json
 *   ARCHITECTURE.pooling_type         optional: what an embedding is, or that the model scores
 *   ARCHITECTURE.classifier.output_labels  optional: the labels of its scores
 *   tokenizer.chat_template.rerank    optional: the text of a pair, with {query} and {document}
 *   tokenizer.chat_template           optional; tokenizer.chat_template.tool_use is that for
 *                                     conversations with tools
 *
 * The ids that end a text are the tokenizer's to read, from the same file. */

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

/* llama.cpp's enum llama_pooling_type: none, mean, cls, last, rank. */
static int read_pooling(const struct metadata_source *s, struct model *model) {
    static const char key[] = ".pooling_type";
    enum { POOLING_IS_MEAN = 1, POOLING_IS_CLS, POOLING_IS_LAST, POOLING_IS_RANK };
    int32_t type = 0;
    if (metadata_field_int(s, key, 0, POOLING_IS_RANK, &type) != 0)
        return -1;
    if (type == POOLING_IS_CLS)
        return metadata_field_refuse(s, key,
                                     "is 2, the first token's state, which sees no other token");
    if (type == POOLING_IS_RANK && !model->config.has_score)
        return metadata_field_refuse(s, key, "is 4, a classifier, without cls.output.weight");
    model->pooling = type == POOLING_IS_MEAN   ? MODEL_POOLING_MEAN
                     : type == POOLING_IS_LAST ? MODEL_POOLING_LAST
                                               : MODEL_POOLING_UNSTATED;
    return 0;
}

static int read_labels(const struct metadata_source *s, struct classifier *out) {
    static const char key[] = ".classifier.output_labels";
    const struct metadata *entry = metadata_field_find(s, key);
    if (entry == NULL)
        return 0;
    if (entry->type != METADATA_ARRAY || entry->as_array.element_type != METADATA_STRING ||
        entry->as_array.count < 1 || entry->as_array.count > CLASSIFIER_MAX_LABELS)
        return metadata_field_refuse(s, key, "is not a list of 1 to 4096 strings");
    out->num_labels = (int32_t)entry->as_array.count;
    for (int32_t i = 0; i < out->num_labels; i++) {
        struct text label = metadata_array_string(entry, (uint64_t)i);
        if (!classifier_is_label(label))
            return metadata_field_refuse(s, key, "has a label that is too long or not UTF-8");
        if (classifier_set_label(out, i, label, s->err) != 0)
            return -1;
    }
    return 0;
}

/* What becomes of hidden states besides logits. */
static int read_head(struct metadata_source *s, struct model *model) {
    char architecture[sizeof(model->config.architecture)];
    memcpy(architecture, model->config.architecture, sizeof(architecture));
    s->architecture = architecture;
    model->generates = !model->config.has_score;
    if (read_pooling(s, model) != 0 ||
        (model->config.has_score && read_labels(s, &model->classifier) != 0))
        return -1;
    return read_template(s, "tokenizer.chat_template.rerank", &model->score_template);
}

static int read_gguf(struct model *model, const char *path, struct error *err) {
    if (tensor_file_open(path, &model->file, err) != 0 ||
        config_gguf_read(model->file, &model->config, err) != 0)
        return -1;
    struct metadata_source source = {.file = model->file, .err = err};
    read_generation(model->file, &model->generation);
    if (read_head(&source, model) != 0)
        return -1;
    return read_template(&source, "tokenizer.chat_template", &model->chat_template) != 0
               ? -1
               : read_template(&source, "tokenizer.chat_template.tool_use",
                               &model->tool_chat_template);
}

/* --- Any model --- */

int model_open(const char *path, struct model **out, struct error *err) {
    struct model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    sampling_fields_clear(&model->generation);
    int status = input_file_is_folder(path) ? model_folder_read(model, path, err)
                                            : read_gguf(model, path, err);
    if (status == 0)
        status = classifier_read(model, err);
    if (status != 0) {
        model_close(model);
        return -1;
    }
    *out = model;
    return 0;
}

void model_close(struct model *model) {
    if (model == NULL)
        return;
    tensor_file_close(model->file);
    free(model->chat_template);
    free(model->tool_chat_template);
    free(model->score_template);
    classifier_finish(&model->classifier);
    free(model->folder);
    free(model);
}

enum dtype model_main_dtype(const struct model *model) {
    size_t bytes[DTYPE_COUNT] = {0};
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        if (tensor->unsupported == NULL)
            bytes[tensor->dtype] += tensor->bytes;
    }
    int best = 0;
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return (enum dtype)best;
}

/* llama.cpp's file types (enum llama_ftype), which say of which types a mixed file is. */
static const char *const file_types[] = {
    [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
    [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
    [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
    [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
    [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
    [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
    [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",
};

#define NUM_FILE_TYPES ((int32_t)(sizeof(file_types) / sizeof(file_types[0])))

const char *model_quantisation(const struct model *model) {
    struct error err;
    int32_t type = -1;
    if (model->config.quantization.name != NULL)
        return model->config.quantization.name;
    const struct metadata_source s = {.file = model->file, .err = &err};
    if (metadata_field_int(&s, "general.file_type", 0, NUM_FILE_TYPES - 1, &type) == 0 &&
        type >= 0 && file_types[type] != NULL)
        return file_types[type];
    return dtype_name(model_main_dtype(model));
}

uint64_t model_num_parameters(const struct model *model) {
    uint64_t parameters = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        uint64_t elements = 1;
        for (int d = 0; d < tensor->num_dims; d++)
            elements *= (uint64_t)tensor->shape[d];
        parameters += elements;
    }
    return parameters;
}

enum kv_type model_default_kv_type(const struct model *model) {
    enum dtype main = model_main_dtype(model);
    return main == DTYPE_F32 ? KV_F32 : main == DTYPE_BF16 ? KV_BF16 : KV_F16;
}

enum dtype model_default_activation_dtype(const struct model *model) {
    bool half = model_main_dtype(model) == DTYPE_F16 && !model->config.overflows_f16;
    return half ? DTYPE_F16 : DTYPE_BF16;
}

enum dtype model_held_dtype(enum dtype quantization, enum dtype stored, int64_t cols) {
    if (quantization == DTYPE_NONE || dtype_is_quantised(stored) ||
        cols % dtype_block_elements(quantization) != 0)
        return stored;
    return quantization;
}

int32_t model_window(const struct model_config *config) {
    int32_t largest = 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        int32_t window = config->layers[i].window;
        if (window == 0)
            return 0;
        largest = window > largest ? window : largest;
    }
    return largest;
}
