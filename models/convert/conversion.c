#include "models/convert/conversion_private.h"

#include "config/base/check.h"
#include "models/files/input_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUANTISATION_VERSION 2 /* of ggml's block layouts */

/* llama.cpp refuses this file type without a matrix: its answers would be useless. */
static int check_imatrix(const struct conversion *c, struct error *err) {
    const struct quant_mixture *mixture = c->settings->types.mixture;
    if (strcmp(mixture->name, "Q2_K_S") != 0 || c->imatrix != NULL)
        return 0;
    return error_set(err, ERROR_CONFIG, "--type Q2_K_S: needs --imatrix (Q2_K does not)");
}

/* --- The header --- */

static void add_imatrix_metadata(struct conversion *c) {
    struct text dataset = imatrix_dataset(c->imatrix);
    const char *path = c->settings->imatrix_path;
    gguf_writer_string(&c->header, "quantize.imatrix.file", (struct text){path, strlen(path)});
    if (dataset.length > 0)
        gguf_writer_string(&c->header, "quantize.imatrix.dataset", dataset);
    gguf_writer_u32(&c->header, "quantize.imatrix.entries_count",
                    (uint32_t)imatrix_num_entries(c->imatrix));
    if (imatrix_num_chunks(c->imatrix) > 0)
        gguf_writer_u32(&c->header, "quantize.imatrix.chunks_count",
                        (uint32_t)imatrix_num_chunks(c->imatrix));
}

static int plan_header(struct conversion *c, struct error *err) {
    int status = c->model != NULL ? folder_source_metadata(c, err) : gguf_source_metadata(c, err);
    if (status != 0)
        return -1;
    gguf_writer_u32(&c->header, "general.quantization_version", QUANTISATION_VERSION);
    gguf_writer_u32(&c->header, "general.file_type", c->settings->types.mixture->file_type);
    if (c->imatrix != NULL)
        add_imatrix_metadata(c);
    for (size_t i = 0; i < c->num_tensors; i++)
        c->tensors[i].offset = gguf_writer_tensor(&c->header, &c->tensors[i].tensor.info);
    return 0;
}

/* --- Opening --- */

static void count_tensors(struct conversion *c) {
    for (size_t i = 0; i < c->num_tensors; i++) {
        const char *name = c->tensors[i].tensor.name;
        c->mixture.num_attention_v += quant_mixture_is_attention_v(name);
        c->mixture.has_output = c->mixture.has_output || strcmp(name, "output.weight") == 0;
    }
}

static int open_all(struct conversion *c, struct error *err) {
    if (c->settings->imatrix_path != NULL &&
        imatrix_open(c->settings->imatrix_path, &c->imatrix, err) != 0)
        return -1;
    if (check_imatrix(c, err) != 0)
        return -1;
    int status =
        input_file_is_folder(c->path) ? folder_source_open(c, err) : gguf_source_open(c, err);
    if (status != 0)
        return -1;
    if (c->num_tensors == 0)
        return error_set(err, ERROR_MODEL, "%s: has no tensors", c->path);
    c->mixture.has_imatrix = c->imatrix != NULL;
    count_tensors(c);
    return conversion_plan_types(c, err) != 0 ? -1 : plan_header(c, err);
}

int conversion_open(const char *path, const struct conversion_settings *settings,
                    struct conversion **out, struct error *err) {
    struct conversion *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory to open it", path);
    c->path = path;
    c->settings = settings;
    if (open_all(c, err) != 0) {
        conversion_close(c);
        return -1;
    }
    *out = c;
    return 0;
}

void conversion_close(struct conversion *c) {
    if (c == NULL)
        return;
    if (c->model != NULL)
        model_close(c->model);
    else
        tensor_file_close(c->file);
    imatrix_close(c->imatrix);
    gguf_writer_finish(&c->header);
    free(c->tensors);
    free(c->values);
    free(c);
}

/* --- What is planned --- */

size_t conversion_num_tensors(const struct conversion *c) {
    return c->num_tensors;
}

const struct converted_tensor *conversion_tensor(const struct conversion *c, size_t i) {
    CHECK(i < c->num_tensors);
    return &c->tensors[i].tensor;
}

int conversion_num_fallbacks(const struct conversion *c) {
    return c->num_fallbacks;
}

static uint64_t num_elements(const struct tensor_info *info) {
    uint64_t elements = 1;
    for (int d = 0; d < info->num_dims; d++)
        elements *= (uint64_t)info->shape[d];
    return elements;
}

uint64_t conversion_bytes_from(const struct conversion *c) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->num_tensors; i++) {
        const struct planned_tensor *planned = &c->tensors[i];
        if (planned->values == NULL)
            bytes += dtype_row_bytes(planned->tensor.from, num_elements(&planned->tensor.info));
    }
    return bytes;
}

uint64_t conversion_bytes_to(const struct conversion *c) {
    return c->header.metadata.length + c->header.tensors.length + c->header.data_bytes;
}

uint64_t conversion_num_weights(const struct conversion *c) {
    uint64_t weights = 0;
    for (size_t i = 0; i < c->num_tensors; i++)
        weights += num_elements(&c->tensors[i].tensor.info);
    return weights;
}
