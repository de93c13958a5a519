/* The tensors of a planned conversion, and the type of each. */
#include "models/convert/conversion_private.h"

#include "config/base/array.h"
#include "models/files/gguf.h"
#include "models/files/tensor_parts.h"
#include "models/tokenizer/pretokenizer_regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planned_tensor *conversion_add(struct conversion *c, const char *name,
                                      const struct tensor_info *source, struct error *err) {
    if (!array_reserve(&c->tensors, &c->capacity, c->num_tensors + 1, sizeof(*c->tensors))) {
        error_set(err, ERROR_MEMORY, "%s: no memory for its tensors", c->path);
        return NULL;
    }
    struct planned_tensor *added = &c->tensors[c->num_tensors++];
    *added = (struct planned_tensor){.source = source};
    snprintf(added->tensor.name, sizeof(added->tensor.name), "%s", name);
    if (source != NULL) {
        added->tensor.info = *source;
        added->tensor.from = source->dtype;
    }
    return added;
}

/* --- Order --- llama.cpp asks its rules in this one: some count the tensors before. */

static int layer_of(const char *name) {
    int layer = -1;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

static int compare(const void *a, const void *b) {
    const struct planned_tensor *first = a, *second = b;
    int a_layer = layer_of(first->tensor.name), b_layer = layer_of(second->tensor.name);
    if (a_layer != b_layer)
        return a_layer < b_layer ? -1 : 1;
    return strcmp(first->tensor.name, second->tensor.name);
}

/* --- Types --- */

struct pattern {
    struct split_regex *regex;
    struct split_matcher *matcher;
};

static void finish_patterns(struct pattern *patterns, int count) {
    for (int i = 0; i < count; i++) {
        split_matcher_destroy(patterns[i].matcher);
        split_regex_destroy(patterns[i].regex);
    }
}

static int compile_patterns(const struct conversion_settings *settings, struct pattern *out,
                            struct error *err) {
    for (int i = 0; i < settings->num_overrides; i++) {
        const char *pattern = settings->overrides[i].pattern;
        struct error why = {0};
        if (split_regex_create((struct text){pattern, strlen(pattern)}, true, &out[i].regex,
                               &why) != 0)
            return error_set(err, ERROR_CONFIG, "--tensor-type %.100s: %.300s", pattern,
                             why.message);
        out[i].matcher = split_matcher_create(out[i].regex);
        if (out[i].matcher == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for --tensor-type");
    }
    return 0;
}

/* DTYPE_NONE: none matches. */
static enum dtype find_override(const struct conversion_settings *settings,
                                const struct pattern *patterns, const char *name) {
    size_t range[2];
    for (int i = 0; i < settings->num_overrides; i++)
        if (split_matcher_find(patterns[i].matcher, name, strlen(name), 0, NULL, range) == 1)
            return settings->overrides[i].dtype;
    return DTYPE_NONE;
}

/* The type that a tensor keeps: a folder's small ones become F32, like in llama.cpp's converter. */
static enum dtype kept_dtype(const struct conversion *c, const struct planned_tensor *planned) {
    const struct tensor_info *info = &planned->tensor.info;
    bool is_matrix = quant_mixture_applies(planned->tensor.name, info);
    return c->model != NULL && !is_matrix ? DTYPE_F32 : planned->tensor.from;
}

/* What a checkpoint has quantised in a type that GGUF files have, too, like gpt-oss' experts. */
static bool is_kept_packed(const struct conversion *c, enum dtype from) {
    return c->model != NULL && dtype_is_quantised(from) && !c->settings->allow_requantize &&
           gguf_has_type(from);
}

static enum dtype choose_dtype(struct conversion *c, struct mixture_state *state,
                               const struct pattern *patterns, struct planned_tensor *planned) {
    struct converted_tensor *tensor = &planned->tensor;
    if (planned->values != NULL || !quant_mixture_applies(tensor->name, &tensor->info))
        return kept_dtype(c, planned);
    enum dtype dtype = find_override(c->settings, patterns, tensor->name);
    if (dtype == DTYPE_NONE && is_kept_packed(c, tensor->from))
        return tensor->from;
    if (dtype == DTYPE_NONE)
        dtype = quant_mixture_choose(state, tensor->name, &tensor->info);
    enum dtype fitting = quant_mixture_fit(dtype, tensor->info.shape[tensor->info.num_dims - 1]);
    c->num_fallbacks += fitting != dtype;
    return fitting;
}

static int check_source(const struct conversion *c, const struct planned_tensor *planned,
                        struct error *err) {
    const struct converted_tensor *tensor = &planned->tensor;
    if (planned->source != NULL && planned->source->unsupported != NULL)
        return error_set(err, ERROR_MODEL, "%s: tensor '%s': type %s is not supported", c->path,
                         tensor->name, planned->source->unsupported->name);
    bool is_float = !dtype_is_quantised(tensor->from) || tensor->from == DTYPE_E4M3_128;
    if (is_float || tensor->from == tensor->info.dtype || c->settings->allow_requantize)
        return 0;
    return error_set(err, ERROR_MODEL,
                     "%s: tensor '%s' is %s already: quantising it again loses more than "
                     "quantising the float model does (--allow-requantize does it)",
                     c->path, tensor->name, dtype_name(tensor->from));
}

int conversion_plan_types(struct conversion *c, struct error *err) {
    struct pattern patterns[CONVERSION_MAX_OVERRIDES] = {0};
    struct mixture_state state = {.model = c->mixture, .options = &c->settings->types};
    int status = compile_patterns(c->settings, patterns, err);
    qsort(c->tensors, c->num_tensors, sizeof(*c->tensors), compare);
    for (size_t i = 0; i < c->num_tensors && status == 0; i++) {
        struct planned_tensor *planned = &c->tensors[i];
        struct tensor_info *info = &planned->tensor.info;
        info->name = (struct text){planned->tensor.name, strlen(planned->tensor.name)};
        info->dtype = choose_dtype(c, &state, patterns, planned);
        status = check_source(c, planned, err);
        if (status == 0)
            status = tensor_table_size(c->path, info, err);
    }
    finish_patterns(patterns, c->settings->num_overrides);
    return status;
}
