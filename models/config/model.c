#include "models/config/model.h"

#include "models/config/model_folder.h"
#include "models/config/model_gguf.h"
#include "models/files/input_file.h"
#include "models/config/sampling_fields.h"

#include <stdlib.h>

int model_open(const char *path, struct model **out, struct error *err) {
    struct model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    sampling_fields_clear(&model->generation);
    int status = input_file_is_folder(path) ? model_folder_read(model, path, err)
                                            : model_gguf_read(model, path, err);
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
