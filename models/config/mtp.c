#include "models/config/mtp.h"

#include "config/base/numbers.h"
#include "models/config/tensor_names.h"

#include <string.h>

#define NUM_SAMPLES 64
#define SAMPLE_BYTES 4096

/* Copies are equal everywhere; a matrix of the layer's own differs everywhere. */
static int compare_samples(const struct model *model, const struct tensor_info *a,
                           const struct tensor_info *b, bool *out_differs, struct error *err) {
    unsigned char of_a[SAMPLE_BYTES], of_b[SAMPLE_BYTES];
    size_t bytes = min_size(a->bytes, SAMPLE_BYTES), last = a->bytes - bytes;
    *out_differs = a->dtype != b->dtype || a->bytes != b->bytes;
    for (size_t i = 0; !*out_differs && i < NUM_SAMPLES; i++) {
        size_t offset = last / (NUM_SAMPLES - 1) * i;
        if (tensor_read(model->file, a, offset, bytes, of_a, err) != 0 ||
            tensor_read(model->file, b, offset, bytes, of_b, err) != 0)
            return -1;
        *out_differs = memcmp(of_a, of_b, bytes) != 0;
    }
    return 0;
}

/* *out: the layer has a matrix of that role, which is not the model's. */
static int find_own(const struct model *model, enum tensor_role role, enum tensor_role shared,
                    bool *out, struct error *err) {
    const struct tensor_place place = {role, model->config.num_layers - 1, 0};
    const struct tensor_info *own = tensor_names_find(model, place, "weight");
    const struct tensor_info *other =
        tensor_names_find(model, (struct tensor_place){shared, 0, 0}, "weight");
    *out = own != NULL;
    if (own == NULL || other == NULL || own->unsupported != NULL || other->unsupported != NULL)
        return 0;
    return compare_samples(model, own, other, out, err);
}

int mtp_select(struct model *model, struct error *err) {
    struct model_config *config = &model->config;
    const struct tensor_place place = {TENSOR_MTP_PROJECTION, config->num_layers, 0};
    if (config->num_extra_layers == 0 || config->num_layers == MODEL_MAX_LAYERS ||
        tensor_names_find(model, place, "weight") == NULL)
        return error_set(err, ERROR_CONFIG,
                         "%s: the model has no layer that predicts further tokens (MTP)",
                         tensor_file_path(model->file));
    config->layers[config->num_layers] = config->layers[config->num_layers - 1];
    config->num_layers++;
    config->num_extra_layers--;
    config->is_mtp = true;
    enum tensor_role head = config->tied_embeddings ? TENSOR_EMBEDDING : TENSOR_HEAD;
    return find_own(model, TENSOR_MTP_EMBEDDING, TENSOR_EMBEDDING, &config->has_own_embedding,
                    err) != 0
               ? -1
               : find_own(model, TENSOR_MTP_HEAD, head, &config->has_own_head, err);
}
