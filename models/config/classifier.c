#include "models/config/classifier.h"

#include "config/base/check.h"
#include "config/base/utf8.h"
#include "kernels/dtype.h"
#include "models/config/model.h"
#include "models/config/tensor_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Reading --- */

static int refuse(const struct model *model, const char *tensor, const char *why,
                  struct error *err) {
    return error_set(err, ERROR_MODEL, "%s: tensor '%s': %s", tensor_file_path(model->file), tensor,
                     why);
}

static int32_t num_rows(const struct classifier *classifier) {
    return classifier->is_contrast ? 2 : classifier->num_labels;
}

/* Reads row `row` of a matrix, or a bias as one row. */
static int read_row(const struct model *model, const struct tensor_info *tensor, const char *name,
                    int64_t row, int32_t count, float *out, struct error *err) {
    if (tensor->dtype == DTYPE_NONE || count % dtype_block_elements(tensor->dtype) != 0)
        return refuse(model, name, "this type of elements is not supported here", err);
    size_t bytes = dtype_row_bytes(tensor->dtype, (size_t)count);
    void *raw = malloc(bytes);
    if (raw == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a classifier");
    int status = tensor_read(model->file, tensor, (size_t)row * bytes, bytes, raw, err);
    if (status == 0)
        dtype_to_f32(tensor->dtype, raw, out, (size_t)count);
    free(raw);
    for (int32_t i = 0; status == 0 && i < count; i++)
        if (!isfinite(out[i]))
            return refuse(model, name, "has a number that is not finite", err);
    return status;
}

static int allocate(struct classifier *classifier, bool has_bias, struct error *err) {
    size_t rows = (size_t)num_rows(classifier);
    classifier->rows = calloc(rows * (size_t)classifier->hidden_size, sizeof(float));
    classifier->bias = has_bias ? calloc(rows, sizeof(float)) : NULL;
    if (classifier->rows == NULL || (has_bias && classifier->bias == NULL))
        return error_set(err, ERROR_MEMORY, "no memory for a classifier");
    return 0;
}

static int check_matrix(const struct model *model, const struct tensor_info *tensor,
                        const char *name, int32_t *out_rows, struct error *err) {
    const struct model_config *config = &model->config;
    char why[160];
    int64_t rows = tensor->num_dims == 2 ? tensor->shape[0] : 1;
    int64_t cols = tensor->num_dims == 0 ? 0 : tensor->shape[tensor->num_dims - 1];
    snprintf(why, sizeof(why),
             "must be a matrix of 1 to %d rows, of %d numbers each, and %d in all",
             CLASSIFIER_MAX_LABELS, config->hidden_size, CLASSIFIER_MAX_NUMBERS);
    if (tensor->num_dims > 2 || cols != config->hidden_size || rows < 1 ||
        rows > CLASSIFIER_MAX_LABELS || rows * cols > CLASSIFIER_MAX_NUMBERS)
        return refuse(model, name, why, err);
    *out_rows = (int32_t)rows;
    return 0;
}

/* Makes one label of two whose names are an answer and its opposite. */
static void find_contrast(struct classifier *classifier) {
    if (classifier->num_labels != 2 || classifier->labels == NULL ||
        strcmp(classifier->labels[0], "yes") != 0 || strcmp(classifier->labels[1], "no") != 0)
        return;
    free(classifier->labels[1]);
    classifier->labels[1] = NULL;
    classifier->num_labels = 1;
    classifier->is_contrast = true;
}

static int read_rows(const struct model *model, const struct tensor_info *matrix,
                     const struct tensor_info *bias, const char *names[2],
                     struct classifier *classifier, struct error *err) {
    int32_t count = num_rows(classifier), width = classifier->hidden_size;
    for (int32_t i = 0; i < count; i++)
        if (read_row(model, matrix, names[0], i, width,
                     classifier->rows + (size_t)i * (size_t)width, err) != 0)
            return -1;
    if (bias == NULL)
        return 0;
    if (bias->num_dims != 1 || bias->shape[0] != count)
        return refuse(model, names[1], "must have one number for each row of the matrix", err);
    return read_row(model, bias, names[1], 0, count, classifier->bias, err);
}

int classifier_read(struct model *model, struct error *err) {
    const struct tensor_place place = {TENSOR_SCORE, 0, 0};
    struct classifier *classifier = &model->classifier;
    char matrix_name[TENSOR_NAME_BYTES], bias_name[TENSOR_NAME_BYTES];
    const char *names[] = {matrix_name, bias_name};
    if (!model->config.has_score)
        return 0;
    tensor_names_write(&model->config, place, "weight", matrix_name);
    tensor_names_write(&model->config, place, "bias", bias_name);
    const struct tensor_info *matrix = tensor_names_find(model, place, "weight"),
                             *bias = tensor_names_find(model, place, "bias");
    int32_t rows = 0, stated = classifier->num_labels;
    if (matrix == NULL)
        return refuse(model, matrix_name, "is missing", err);
    if (check_matrix(model, matrix, matrix_name, &rows, err) != 0)
        return -1;
    if (stated != 0 && stated != rows)
        return error_set(err, ERROR_MODEL, "%s: tensor '%s': has %d rows for %d labels",
                         tensor_file_path(model->file), matrix_name, rows, stated);
    classifier->num_labels = rows;
    classifier->hidden_size = model->config.hidden_size;
    classifier->scale = 1.0F;
    if (model->config.naming == TENSOR_NAMING_GGUF)
        find_contrast(classifier);
    if (allocate(classifier, bias != NULL, err) != 0)
        return -1;
    return read_rows(model, matrix, bias, names, classifier, err);
}

/* --- Words of a language model --- */

static int read_words(const struct model *model, const int32_t *tokens,
                      struct classifier *classifier, struct error *err) {
    enum tensor_role role = model->config.tied_embeddings ? TENSOR_EMBEDDING : TENSOR_HEAD;
    const struct tensor_place place = {role, 0, 0};
    const struct tensor_info *head = tensor_names_find(model, place, "weight"), *bias = NULL;
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&model->config, place, "weight", name);
    if (head == NULL || head->num_dims != 2 || head->shape[1] != model->config.hidden_size)
        return refuse(model, name, "no rows of words can be read from it", err);
    if (model->config.head_bias)
        bias = tensor_names_find(model, place, "bias");
    if (allocate(classifier, bias != NULL, err) != 0)
        return -1;
    size_t width = (size_t)classifier->hidden_size;
    for (int32_t i = 0; i < num_rows(classifier); i++) {
        if (tokens[i] < 0 || tokens[i] >= head->shape[0])
            return refuse(model, name, "has no row for that token", err);
        if (read_row(model, head, name, tokens[i], (int32_t)width,
                     classifier->rows + (size_t)i * width, err) != 0)
            return -1;
        if (bias != NULL &&
            read_row(model, bias, name, tokens[i], 1, &classifier->bias[i], err) != 0)
            return -1;
    }
    return 0;
}

int classifier_from_tokens(struct model *model, const int32_t *tokens, int num_tokens,
                           const char *label, struct error *err) {
    const struct text name = {label, label != NULL ? strlen(label) : 0};
    struct classifier made = {
        .num_labels = 1,
        .hidden_size = model->config.hidden_size,
        .is_contrast = num_tokens == 2,
        .scale = model->config.logit_scale,
        .soft_cap = model->config.final_soft_cap,
    };
    int32_t rows[2] = {tokens[num_tokens - 1], tokens[0]}; /* the label's comes first */
    CHECK(num_tokens == 1 || num_tokens == 2);
    if (model->config.has_score || !model->generates)
        return error_set(err, ERROR_MODEL,
                         "%s: has no head for words, of which a classifier could be made",
                         tensor_file_path(model->file));
    if ((label != NULL && classifier_set_label(&made, 0, name, err) != 0) ||
        read_words(model, rows, &made, err) != 0) {
        classifier_finish(&made);
        return -1;
    }
    classifier_finish(&model->classifier);
    model->classifier = made;
    return 0;
}

/* --- Labels --- */

bool classifier_is_label(struct text label) {
    return label.length > 0 && label.length <= CLASSIFIER_MAX_LABEL_BYTES &&
           memchr(label.data, '\0', label.length) == NULL &&
           utf8_valid_prefix(label.data, label.length) == label.length;
}

int classifier_set_label(struct classifier *classifier, int32_t index, struct text label,
                         struct error *err) {
    CHECK(index >= 0 && index < classifier->num_labels);
    if (classifier->labels == NULL)
        classifier->labels = calloc((size_t)classifier->num_labels, sizeof(*classifier->labels));
    char *copy = classifier->labels != NULL ? strndup(label.data, label.length) : NULL;
    if (copy == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a classifier's labels");
    free(classifier->labels[index]);
    classifier->labels[index] = copy;
    return 0;
}

void classifier_label(const struct classifier *classifier, int32_t index,
                      char out[static CLASSIFIER_MAX_LABEL_BYTES + 1]) {
    CHECK(index >= 0 && index < classifier->num_labels);
    if (classifier->labels != NULL && classifier->labels[index] != NULL)
        snprintf(out, CLASSIFIER_MAX_LABEL_BYTES + 1, "%s", classifier->labels[index]);
    else
        snprintf(out, CLASSIFIER_MAX_LABEL_BYTES + 1, "LABEL_%d", index);
}

void classifier_finish(struct classifier *classifier) {
    for (int32_t i = 0; classifier->labels != NULL && i < classifier->num_labels; i++)
        free(classifier->labels[i]);
    free(classifier->labels);
    free(classifier->rows);
    free(classifier->bias);
    *classifier = (struct classifier){0};
}

/* --- Scores --- */

static double number_of(const struct classifier *classifier, int32_t row, const float *hidden) {
    const float *weights = classifier->rows + (size_t)row * (size_t)classifier->hidden_size;
    double sum = 0.0, cap = (double)classifier->soft_cap;
    for (int32_t i = 0; i < classifier->hidden_size; i++)
        sum += (double)weights[i] * (double)hidden[i];
    sum += classifier->bias != NULL ? (double)classifier->bias[row] : 0.0;
    sum *= (double)classifier->scale;
    return cap > 0.0 ? cap * tanh(sum / cap) : sum;
}

/* Scaled by the largest, so that nothing overflows. */
static void softmax(float *values, int32_t count) {
    double largest = -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < count; i++)
        largest = fmax(largest, (double)values[i]);
    for (int32_t i = 0; i < count; i++)
        sum += exp((double)values[i] - largest);
    for (int32_t i = 0; i < count; i++)
        values[i] = (float)(exp((double)values[i] - largest) / sum);
}

void classifier_scores(const struct classifier *classifier, const float *hidden, bool activate,
                       float *out) {
    int32_t count = classifier->num_labels;
    for (int32_t i = 0; i < count; i++)
        out[i] = (float)(number_of(classifier, i, hidden) -
                         (classifier->is_contrast ? number_of(classifier, 1, hidden) : 0.0));
    if (!activate || classifier->activation == CLASSIFIER_IDENTITY)
        return;
    if (classifier->activation == CLASSIFIER_BY_COUNT && count > 1) {
        softmax(out, count);
        return;
    }
    for (int32_t i = 0; i < count; i++)
        out[i] = (float)(1.0 / (1.0 + exp(-(double)out[i])));
}
