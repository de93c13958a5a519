/* Keys and values: quantization_config of Transformers' classes GPTQConfig, AwqConfig and
 * FineGrainedFP8Config, and of compressed-tensors. */
#include "models/config/config_hf.h"

#include "config/base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_GROUP MODEL_MAX_INTERMEDIATE

/* Reads a string that must be one of a list of names, as they are or in capitals. */
static int read_choice(const struct config_object *o, const char *key, const char *const *names,
                       int *out) {
    const char *name = NULL;
    char shown[UTF8_PRINTABLE_BYTES], known[96] = "";
    if (config_field_string(o, key, &name) != 0)
        return -1;
    if (name == NULL)
        return 0;
    for (int i = 0; names[i] != NULL; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            *out = i;
            return 0;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    utf8_printable((struct text){name, strlen(name)}, shown);
    return config_field_refuse(o, key, "'%s' is not supported (supported: %s)", shown, known);
}

/* -1 means one group for a whole row. */
static int read_group_size(const struct config_object *o, int32_t *out) {
    int32_t size = -1;
    if (config_field_int(o, "group_size", -1, MAX_GROUP, &size) != 0)
        return -1;
    if (size != -1 && (size == 0 || size % 32 != 0))
        return config_field_refuse(o, "group_size", "%d: must be -1 or a multiple of 32", size);
    *out = size == -1 ? 0 : size;
    return 0;
}

static int refuse_bits(const struct config_object *o, const char *key, int32_t bits) {
    return config_field_refuse(o, key, "%d is not supported (supported: 4, 8)", bits);
}

static int read_gptq(const struct config_object *o, struct quantization_config *out) {
    static const char *const formats[] = {"gptq", "gptq_v2", NULL};
    const cJSON *dynamic = config_field_find(o, "dynamic");
    bool desc_act = false, is_marlin = false;
    int format = 0;
    if (config_field_bool(o, "desc_act", &desc_act) != 0 || config_field_require(o, "bits") != 0 ||
        config_field_int(o, "bits", 1, 32, &out->bits) != 0 ||
        read_choice(o, "checkpoint_format", formats, &format) != 0)
        return -1;
    if (out->bits != 4 && out->bits != 8)
        return refuse_bits(o, "bits", out->bits);
    if (config_field_bool(o, "is_marlin_format", &is_marlin) != 0)
        return -1;
    if (is_marlin)
        return config_field_refuse(o, "is_marlin_format", "is not supported");
    if (dynamic != NULL && dynamic->child != NULL)
        return config_field_refuse(o, "dynamic", "settings of single modules are not supported");
    out->zeros_less_one = format == 0;
    out->is_in_order = !desc_act;
    return read_group_size(o, &out->group_size);
}

static int read_awq(const struct config_object *o, struct quantization_config *out) {
    static const char *const versions[] = {"gemm", NULL};
    int version = 0;
    out->bits = 4;
    if (config_field_int(o, "bits", 1, 32, &out->bits) != 0 ||
        config_field_int(o, "w_bit", 1, 32, &out->bits) != 0 ||
        read_choice(o, "version", versions, &version) != 0)
        return -1;
    if (out->bits != 4)
        return config_field_refuse(o, "bits", "%d is not supported (supported: 4)", out->bits);
    return read_group_size(o, &out->group_size);
}

/* Of several rows, and of columns that are whole blocks of the row type. */
static int read_block(const struct config_object *o, const char *key,
                      struct quantization_config *out) {
    const cJSON *block;
    if (config_field_array(o, key, &block) != 0)
        return -1;
    if (block == NULL)
        return 0;
    const cJSON *rows = block->child, *cols = rows != NULL ? rows->next : NULL;
    if (cols == NULL || cols->next != NULL || !config_field_is_int(rows, 1, MAX_GROUP) ||
        !config_field_is_int(cols, 1, MAX_GROUP) || (int)cols->valuedouble % 128 != 0)
        return config_field_refuse(o, key,
                                   "is not a list of two sizes, [rows, columns], with a "
                                   "multiple of 128 columns");
    out->block_rows = (int32_t)rows->valuedouble;
    out->block_cols = (int32_t)cols->valuedouble;
    return 0;
}

static int read_fp8(const struct config_object *o, struct quantization_config *out) {
    static const char *const formats[] = {"e4m3", "float8_e4m3fn", NULL};
    int format = 0;
    out->bits = 8;
    if (read_choice(o, "fmt", formats, &format) != 0)
        return -1;
    return read_block(o, "weight_block_size", out);
}

/* The weights of one group of modules, {"num_bits", "type", "strategy", ..}. */
static int read_weights(const struct config_object *o, bool is_float,
                        struct quantization_config *out) {
    static const char *const types[] = {"int", "float", NULL};
    static const char *const strategies[] = {"tensor", "channel", "group", "block", NULL};
    int type = is_float, strategy = 0;
    out->bits = 8;
    if (config_field_int(o, "num_bits", 1, 32, &out->bits) != 0 ||
        read_choice(o, "type", types, &type) != 0 ||
        read_choice(o, "strategy", strategies, &strategy) != 0)
        return -1;
    if (type != is_float)
        return config_field_refuse(o, "type", "'%s' does not fit the format", types[type]);
    if (out->bits != 8 && (is_float || out->bits != 4))
        return refuse_bits(o, "num_bits", out->bits);
    if (strategy == 3)
        return read_block(o, "block_structure", out);
    if (strategy != 2)
        return 0;
    if (read_group_size(o, &out->group_size) != 0)
        return -1;
    if (is_float && (out->group_size == 0 || out->group_size % 128 != 0))
        return config_field_refuse(o, "group_size", "must be a multiple of 128 for FP8");
    return 0;
}

static int read_compressed(const struct config_object *o, struct quantization_config *out) {
    static const char *const formats[] = {"pack-quantized", "int-quantized", "float-quantized",
                                          NULL};
    static const char *const dense[] = {"dense", NULL};
    struct config_object groups, weights, sparsity;
    const cJSON *transforms = config_field_find(o, "transform_config");
    int format = 0, is_dense = 0;
    if (config_field_object(o, "sparsity_config", &sparsity) != 0 ||
        read_choice(&sparsity, "format", dense, &is_dense) != 0)
        return -1;
    if (transforms != NULL && transforms->child != NULL)
        return config_field_refuse(o, "transform_config", "transforms are not supported");
    if (config_field_require(o, "format") != 0 || read_choice(o, "format", formats, &format) != 0 ||
        config_field_require(o, "config_groups") != 0 ||
        config_field_object(o, "config_groups", &groups) != 0)
        return -1;
    const cJSON *item;
    struct quantization_config first = {0};
    int count = 0;
    cJSON_ArrayForEach(item, groups.json) {
        const struct config_object group = {
            .json = item, .file = o->file, .prefix = "config_groups.", .err = o->err};
        struct quantization_config found = {.method = out->method, .name = out->name};
        if (config_field_require(&group, "weights") != 0 ||
            config_field_object(&group, "weights", &weights) != 0 ||
            read_weights(&weights, format == 2, &found) != 0)
            return -1;
        if (count++ > 0 &&
            (found.bits != first.bits || found.group_size != first.group_size ||
             found.block_rows != first.block_rows || found.block_cols != first.block_cols))
            return config_field_refuse(o, "config_groups",
                                       "groups whose weights differ are not supported");
        first = found;
    }
    if (count == 0)
        return config_field_refuse(o, "config_groups", "is empty");
    *out = first;
    return 0;
}

static int read_mxfp4(const struct config_object *o, struct quantization_config *out) {
    out->bits = 4;
    return 0;
}

static const struct {
    const char *name;
    enum quantization_method method;
    int (*read)(const struct config_object *o, struct quantization_config *out);
} methods[] = {
    {"gptq", QUANTIZATION_GPTQ, read_gptq},
    {"awq", QUANTIZATION_AWQ, read_awq},
    {"fp8", QUANTIZATION_FP8, read_fp8},
    {"compressed-tensors", QUANTIZATION_COMPRESSED, read_compressed},
    {"mxfp4", QUANTIZATION_MXFP4, read_mxfp4},
};

#define NUM_METHODS (sizeof(methods) / sizeof(methods[0]))

int config_hf_read_quantization(const struct config_object *o, struct quantization_config *out) {
    struct config_object object;
    const char *name = NULL;
    char shown[UTF8_PRINTABLE_BYTES];
    if (config_field_find(o, "quantization_config") == NULL)
        return 0;
    if (config_field_object(o, "quantization_config", &object) != 0)
        return -1;
    if (object.json->child == NULL)
        return 0;
    if (config_field_require(&object, "quant_method") != 0 ||
        config_field_string(&object, "quant_method", &name) != 0)
        return -1;
    for (size_t i = 0; i < NUM_METHODS; i++)
        if (strcmp(name, methods[i].name) == 0) {
            *out =
                (struct quantization_config){.method = methods[i].method, .name = methods[i].name};
            return methods[i].read(&object, out);
        }
    utf8_printable((struct text){name, strlen(name)}, shown);
    return config_field_refuse(&object, "quant_method",
                               "'%s' is not supported (supported: gptq, awq, fp8, "
                               "compressed-tensors, mxfp4; and GGUF files)",
                               shown);
}
