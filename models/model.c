#include "models/model.h"

#include "models/model_config.h"

#include <stdlib.h>

static int open_parts(struct model *model, const char *path, struct error *err) {
    if (tensor_file_open(path, &model->file, err) != 0)
        return -1;
    return config_gguf_read(model->file, &model->config, err);
}

int model_open(const char *path, struct model **out, struct error *err) {
    struct model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    if (open_parts(model, path, err) != 0) {
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
    free(model);
}

enum dtype model_main_dtype(const struct model *model) {
    size_t bytes[DTYPE_COUNT] = {0};
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        bytes[tensor->dtype] += tensor->bytes;
    }
    int best = 0;
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return (enum dtype)best;
}

enum dtype model_default_kv_dtype(const struct model *model) {
    enum dtype main = model_main_dtype(model);
    return main == DTYPE_F32 || main == DTYPE_BF16 ? main : DTYPE_F16;
}

enum dtype model_default_activation_dtype(const struct model *model) {
    return model_main_dtype(model) == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
}
