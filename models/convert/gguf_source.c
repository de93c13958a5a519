/* A GGUF file, of any architecture: its tensors keep their names, its metadata is copied. */
#include "models/convert/conversion_private.h"

#include <stdio.h>
#include <string.h>

/* Reads the number of a key "ARCHITECTURE.name", or the first of its list; 0 if there is none. */
static int32_t number_of(const struct tensor_file *file, struct text architecture,
                         const char *name) {
    char key[128];
    double value = 0.0;
    snprintf(key, sizeof(key), "%.*s.%s", text_print_length(architecture), architecture.data, name);
    const struct metadata *entry = tensor_file_find_metadata(file, key);
    if (entry == NULL)
        return 0;
    if (entry->type == METADATA_UINT)
        value = (double)entry->as_uint;
    else if (entry->type == METADATA_INT)
        value = (double)entry->as_int;
    else if (entry->type == METADATA_ARRAY && entry->as_array.count > 0 &&
             entry->as_array.element_type != METADATA_STRING)
        value = metadata_array_number(entry, 0);
    return value > 0.0 && value < 1e9 ? (int32_t)value : 0;
}

static int read_mixture(struct conversion *c, struct error *err) {
    static const char key[] = "general.architecture";
    const struct metadata *entry = tensor_file_find_metadata(c->file, key);
    if (entry == NULL || entry->type != METADATA_STRING)
        return error_set(err, ERROR_MODEL, "%s: %s: is missing: not a model", c->path, key);
    struct text name = entry->as_string;
    c->mixture.is_llama = text_is(name, "llama");
    c->mixture.num_layers = number_of(c->file, name, "block_count");
    c->mixture.num_heads = number_of(c->file, name, "attention.head_count");
    c->mixture.num_kv_heads = number_of(c->file, name, "attention.head_count_kv");
    c->mixture.num_experts = number_of(c->file, name, "expert_count");
    return 0;
}

int gguf_source_open(struct conversion *c, struct error *err) {
    if (tensor_file_open(c->path, &c->file, err) != 0 || read_mixture(c, err) != 0)
        return -1;
    for (size_t i = 0; i < tensor_file_num_tensors(c->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(c->file, i);
        char name[sizeof(((struct converted_tensor *)0)->name)];
        snprintf(name, sizeof(name), "%.*s", (int)tensor->name.length, tensor->name.data);
        if (conversion_add(c, name, tensor, err) == NULL)
            return -1;
    }
    return 0;
}

static bool is_replaced(struct text key) {
    static const char *const keys[] = {
        "general.alignment", "general.file_type", "general.quantization_version",
        "split.no",          "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (text_is(key, keys[i]))
            return true;
    return key.length > 9 && memcmp(key.data, "quantize.", 9) == 0;
}

int gguf_source_metadata(struct conversion *c, struct error *err) {
    for (size_t i = 0; i < tensor_file_num_metadata(c->file); i++) {
        const struct metadata *entry = tensor_file_metadata(c->file, i);
        if (!is_replaced(entry->key))
            gguf_writer_copy(&c->header, entry);
    }
    return 0;
}
