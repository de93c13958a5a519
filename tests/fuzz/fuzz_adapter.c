/* Any bytes as an adapter: a GGUF file, or else a PEFT folder's adapter_config.json, a NUL and its
 * adapter_model.safetensors; for a base model that is a folder and for one that is a file. What is
 * accepted has finite numbers, and fits into the slot that was planned for it. */
#include "models/lora/lora_adapter.h"
#include "tests/fuzz/tensor_touch.h"
#include "tests/unit/temporary_files.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const struct lora_shape shape = {.num_slots = 1, .max_rank = 8, .dtype = DTYPE_F16};

static void require(bool condition) {
    if (!condition)
        abort();
}

/* Two layers, of which the second is a mixture's. */
static void make_model(struct model *model, enum tensor_naming naming) {
    struct model_config *config = &model->config;
    *model = (struct model){0};
    snprintf(config->architecture, sizeof(config->architecture), "llama");
    config->naming = naming;
    config->permutes_heads = true;
    config->num_layers = 2;
    config->num_heads = 4;
    config->num_kv_heads = 2;
    config->head_dim = 8;
    config->hidden_size = 32;
    config->intermediate_size = 32;
    config->residual_scale = 1;
    config->layers[1].is_sparse = true;
}

static void check_adapter(const struct lora_adapter *adapter, const struct model_config *config) {
    struct lora_rows rows = {0};
    require(lora_adapter_rank(adapter) >= 1 && lora_adapter_rank(adapter) <= shape.max_rank);
    require(lora_adapter_bytes(adapter) <= lora_adapter_max_bytes(config, &shape));
    while (lora_rows_next(config, &shape, 300, &rows)) {
        size_t bytes = lora_rows_bytes(config, &shape, &rows);
        size_t count = bytes / dtype_row_bytes(shape.dtype, 1);
        void *data = malloc(bytes);
        float *values = malloc(count * sizeof(*values));
        require(data != NULL && values != NULL);
        lora_adapter_copy(adapter, &rows, data);
        dtype_to_f32(shape.dtype, data, values, count);
        for (size_t i = 0; i < count; i++)
            require(isfinite(values[i]));
        free(values);
        free(data);
    }
}

static void open_adapter(const char *path, enum tensor_naming naming) {
    static struct model model;
    struct lora_adapter *adapter = NULL;
    struct error err = {0};
    make_model(&model, naming);
    if (lora_adapter_open(path, &model, &shape, &adapter, &err) != 0)
        require(strchr(err.message, '\n') == NULL && strstr(err.message, "quire-test-") != NULL);
    else
        check_adapter(adapter, &model.config);
    lora_adapter_close(adapter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct temporary_folder folder;
    const uint8_t *end = bytes > 0 ? memchr(data, '\0', bytes) : NULL;
    bool is_file = bytes >= 4 && memcmp(data, "GGUF", 4) == 0;
    if (!is_file && end == NULL)
        return 0;
    temporary_folder_make(&folder);
    if (is_file) {
        temporary_write(&folder, "a.gguf", data, bytes);
    } else {
        temporary_write(&folder, "adapter_config.json", data, (size_t)(end - data));
        temporary_write(&folder, "adapter_model.safetensors", end + 1,
                        bytes - (size_t)(end - data) - 1);
    }
    char path[512];
    snprintf(path, sizeof(path), "%s", is_file ? temporary_file(&folder, "a.gguf") : folder.path);
    open_adapter(path, TENSOR_NAMING_HF);
    open_adapter(path, TENSOR_NAMING_GGUF);
    temporary_folder_remove(&folder);
    return 0;
}
