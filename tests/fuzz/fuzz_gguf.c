/* Any bytes as a GGUF file: parsed, every value and every tensor read, then taken as a
 * model's configuration. */
#include "models/config/config_gguf.h"
#include "tests/fuzz/tensor_touch.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void touch_array(const struct metadata *entry) {
    for (uint64_t i = 0; i < entry->as_array.count; i++) {
        if (entry->as_array.element_type == METADATA_STRING) {
            struct text text = metadata_array_string(entry, i);
            touch(text.data, text.length);
        } else {
            sink += metadata_array_number(entry, i) > 0.0;
        }
    }
}

static void touch_everything(const struct tensor_file *file) {
    for (size_t i = 0; i < tensor_file_num_metadata(file); i++) {
        const struct metadata *entry = tensor_file_metadata(file, i);
        touch(entry->key.data, entry->key.length);
        if (entry->type == METADATA_STRING)
            touch(entry->as_string.data, entry->as_string.length);
        if (entry->type == METADATA_ARRAY)
            touch_array(entry);
    }
    touch_tensors(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct tensor_file *file;
    struct error err = {0};
    struct model_config config;
    if (tensor_file_open_memory(data, bytes, "fuzz", &file, &err) != 0) {
        check_refusal(&err, "fuzz");
        return 0;
    }
    touch_everything(file);
    if (config_gguf_read(file, &config, &err) == 0)
        sink += (uint64_t)(config.num_heads / config.num_kv_heads);
    tensor_file_close(file);
    return 0;
}
