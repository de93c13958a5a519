#include "models/lora/lora_adapter_private.h"

#include "config/base/check.h"
#include "models/config/metadata_field.h"
#include "models/config/tensor_names.h"
#include "models/files/input_file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const struct model *model;
    struct lora_adapter *adapter;
    struct tensor_file *file;
    enum tensor_naming naming; /* of the modules */
    struct lora_settings settings;
    int num_modules;
    struct error *err;
};

/* Consecutive parts of a projection that one module of the file adapts. */
struct module {
    int32_t layer;
    enum projection_role role;
    int32_t first_part, num_parts;
    const struct tensor_info *a, *b;
};

static int refuse(const struct reader *r, const struct tensor_info *tensor, const char *reason) {
    return error_set(r->err, ERROR_MODEL, "%s: tensor '%.*s': %s", tensor_file_path(r->file),
                     text_print_length(tensor->name), tensor->name.data, reason);
}

/* --- Names --- */

/* Of "STEM.lora_A.weight", "STEM.lora_A.NAME.weight" or "STEM.weight.lora_a"; false: it is not such
 * a name. */
static bool split_name(enum tensor_naming naming, struct text name, struct text *out_stem,
                       bool *out_is_b) {
    if (naming == TENSOR_NAMING_GGUF) {
        *out_is_b = text_ends_with(name, ".weight.lora_b");
        *out_stem = (struct text){name.data, name.length - strlen(".weight.lora_b")};
        return *out_is_b || text_ends_with(name, ".weight.lora_a");
    }
    static const char a[] = ".lora_A.", b[] = ".lora_B.";
    const size_t length = sizeof(a) - 1;
    for (size_t i = 0; text_ends_with(name, ".weight") && i + length <= name.length; i++) {
        *out_is_b = memcmp(name.data + i, b, length) == 0;
        *out_stem = (struct text){name.data, i};
        if (*out_is_b || memcmp(name.data + i, a, length) == 0)
            return true;
    }
    return false;
}

static bool starts_with(struct text text, const char *start) {
    return text.length >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

/* Whether the words before "layers." are those of a language model: other parts of a model, as an
 * image encoder, have layers too. */
static bool is_of_language_model(enum tensor_naming naming, struct text words) {
    static const char *const known[] = {"base_model.", "model.", "language_model."};
    const size_t num_known = naming == TENSOR_NAMING_HF ? sizeof(known) / sizeof(known[0]) : 0;
    while (words.length > 0) {
        size_t i = 0;
        while (i < num_known && !starts_with(words, known[i]))
            i++;
        if (i == num_known)
            return false;
        words.data += strlen(known[i]);
        words.length -= strlen(known[i]);
    }
    return true;
}

/* Of "...layers.3.self_attn.q_proj" or "blk.3.attn_q": the layer and the module in it. */
static bool split_stem(enum tensor_naming naming, struct text stem, int32_t *out_layer,
                       struct text *out_module) {
    const char *start = naming == TENSOR_NAMING_GGUF ? "blk." : "layers.";
    const size_t length = strlen(start);
    for (size_t i = 0; i + length < stem.length; i++) {
        size_t at = i + length;
        int64_t layer = 0;
        if ((i > 0 && stem.data[i - 1] != '.') || memcmp(stem.data + i, start, length) != 0)
            continue;
        for (;
             at < stem.length && stem.data[at] >= '0' && stem.data[at] <= '9' && layer < INT16_MAX;
             at++)
            layer = layer * 10 + (stem.data[at] - '0');
        if (at == i + length || at + 1 >= stem.length || stem.data[at] != '.' ||
            !is_of_language_model(naming, (struct text){stem.data, i}))
            return false;
        *out_layer = (int32_t)layer;
        *out_module = (struct text){stem.data + at + 1, stem.length - at - 1};
        return true;
    }
    return false;
}

/* Which parts of which projection a tensor of the model makes. */
static bool parts_of(enum tensor_role role, struct module *out) {
    static const struct {
        enum tensor_role role;
        enum projection_role projection;
        int32_t first_part, num_parts;
    } known[] = {{TENSOR_Q, PROJECTION_QKV, 0, 1},
                 {TENSOR_K, PROJECTION_QKV, 1, 1},
                 {TENSOR_V, PROJECTION_QKV, 2, 1},
                 {TENSOR_QKV, PROJECTION_QKV, 0, 3},
                 {TENSOR_GATE, PROJECTION_GATE_UP, 0, 1},
                 {TENSOR_UP, PROJECTION_GATE_UP, 1, 1},
                 {TENSOR_GATE_UP, PROJECTION_GATE_UP, 0, 2},
                 {TENSOR_DOWN, PROJECTION_DOWN, 0, 1},
                 {TENSOR_ATTENTION_OUT, PROJECTION_ATTENTION_OUT, 0, 1}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].role == role) {
            out->role = known[i].projection;
            out->first_part = known[i].first_part;
            out->num_parts = known[i].num_parts;
            return true;
        }
    return false;
}

static int64_t rows_of_parts(const struct reader *r, const struct module *m) {
    int64_t rows = 0;
    for (int32_t p = m->first_part; p < m->first_part + m->num_parts; p++)
        rows += lora_part_rows(&r->model->config, m->layer, m->role, p);
    return rows;
}

/* GGUF files have one name for the upper part of gate and up and for both in one. */
static void widen_if_fused(const struct reader *r, struct module *m) {
    struct module both = *m;
    both.first_part = 0;
    both.num_parts = 2;
    if (r->naming == TENSOR_NAMING_GGUF && m->role == PROJECTION_GATE_UP && m->b->num_dims == 2 &&
        m->b->shape[0] == rows_of_parts(r, &both))
        *m = both;
}

/* Finds the module of a tensor of the file. */
static int find_module(const struct reader *r, const struct tensor_info *tensor, struct module *out,
                       bool *out_is_b) {
    const struct model_config *config = &r->model->config;
    struct text stem, name;
    enum tensor_role role;
    *out = (struct module){0};
    if (!split_name(r->naming, tensor->name, &stem, out_is_b))
        return refuse(r, tensor, "is not one of a LoRA's two matrices; only these are supported");
    if (!split_stem(r->naming, stem, &out->layer, &name) ||
        !tensor_names_find_role(r->naming, name, &role) || !parts_of(role, out))
        return refuse(
            r, tensor,
            "an adapter of this module is not supported (supported: a layer's q, k, v, o, "
            "gate, up and down projections)");
    if (out->layer >= config->num_layers)
        return refuse(r, tensor, "the model has no such layer");
    if (lora_num_parts(config, out->layer, out->role) == 0)
        return refuse(r, tensor, "adapters of experts and of latent attention are not supported");
    return 0;
}

/* The other matrix of the same module. */
static const struct tensor_info *find_other(const struct reader *r,
                                            const struct tensor_info *tensor) {
    char name[512];
    const size_t length = tensor->name.length;
    if (length >= sizeof(name))
        return NULL;
    memcpy(name, tensor->name.data, length);
    name[length] = '\0';
    char *at = NULL;
    const char *a = r->naming == TENSOR_NAMING_GGUF ? ".lora_a" : ".lora_A.";
    for (char *next = strstr(name, a); next != NULL; next = strstr(next + 1, a))
        at = next;
    if (at == NULL)
        return NULL;
    at[6] = (char)(at[6] + 1);
    return tensor_file_find(r->file, name);
}

/* --- Numbers --- */

/* The tensor's as float; the caller frees. */
static float *read_floats(const struct reader *r, const struct tensor_info *tensor, size_t count) {
    float *values = malloc(count * sizeof(*values));
    void *raw = malloc(tensor->bytes);
    int status = values == NULL || raw == NULL
                     ? error_set(r->err, ERROR_MEMORY, "no memory for an adapter")
                     : tensor_read(r->file, tensor, 0, tensor->bytes, raw, r->err);
    if (status == 0) {
        dtype_to_f32(tensor->dtype, raw, values, count);
        for (size_t i = 0; i < count && status == 0; i++)
            if (!isfinite(values[i]))
                status = refuse(r, tensor, "a number in it is not finite");
    }
    free(raw);
    if (status == 0)
        return values;
    free(values);
    return NULL;
}

static bool is_infinite(enum dtype dtype, const void *values, size_t i) {
    if (dtype == DTYPE_F32)
        return isinf(((const float *)values)[i]);
    const uint16_t infinity = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
    return (((const uint16_t *)values)[i] & 0x7fff) == infinity;
}

/* As the slots hold them; the caller frees. */
static void *convert(const struct reader *r, const struct tensor_info *tensor, const float *values,
                     size_t count) {
    enum dtype dtype = r->adapter->shape.dtype;
    size_t bytes = dtype_row_bytes(dtype, count);
    void *out = malloc(bytes);
    if (out == NULL) {
        error_set(r->err, ERROR_MEMORY, "no memory for an adapter");
        return NULL;
    }
    dtype_from_f32(dtype, values, out, count);
    for (size_t i = 0; i < count; i++)
        if (is_infinite(dtype, out, i)) {
            refuse(r, tensor,
                   dtype == DTYPE_F16 ? "a number exceeds 65504, the largest of f16 (--lora-dtype)"
                                      : "a number is too large once it is scaled");
            free(out);
            return NULL;
        }
    r->adapter->bytes += bytes;
    return out;
}

/* Returns whether heads' rows are in another order in the adapter than in the model: of a head of d
 * rows, a GGUF file has the rows i and i + d/2 of a folder at 2i and 2i + 1. */
static bool is_permuted(const struct reader *r, const struct module *m, int32_t part) {
    const struct model_config *config = &r->model->config;
    return m->role == PROJECTION_QKV && part < 2 && config->permutes_heads &&
           config->naming != r->naming;
}

static int32_t source_row(const struct reader *r, int32_t row) {
    const int32_t d = r->model->config.head_dim, head = row / d * d, at = row % d;
    if (r->naming == TENSOR_NAMING_HF)
        return head + at / 2 + at % 2 * (d / 2);
    return head + at % (d / 2) * 2 + at / (d / 2);
}

static float scale_of(const struct reader *r, const struct module *m, int32_t rank) {
    const struct model_config *config = &r->model->config;
    const float alpha = r->settings.alpha;
    bool is_added = m->role == PROJECTION_ATTENTION_OUT || m->role == PROJECTION_DOWN;
    float scale = alpha == 0                ? 1
                  : r->settings.square_root ? alpha / sqrtf((float)rank)
                                            : alpha / (float)rank;
    return scale * (is_added && !config->post_norm ? config->residual_scale : 1);
}

/* One part of B, whose rows begin at first_row of the file's. */
static void *part_of_b(const struct reader *r, const struct module *m, int32_t part,
                       const float *values, int32_t first_row, int32_t rank) {
    const int32_t rows = lora_part_rows(&r->model->config, m->layer, m->role, part);
    const size_t width = (size_t)rank, count = (size_t)rows * width;
    const float scale = scale_of(r, m, rank);
    float *scaled = malloc(count * sizeof(*scaled));
    if (scaled == NULL) {
        error_set(r->err, ERROR_MEMORY, "no memory for an adapter");
        return NULL;
    }
    for (int32_t row = 0; row < rows; row++) {
        int32_t from = first_row + (is_permuted(r, m, part) ? source_row(r, row) : row);
        for (size_t c = 0; c < width; c++)
            scaled[(size_t)row * width + c] = scale * values[(size_t)from * width + c];
    }
    void *out = convert(r, m->b, scaled, count);
    free(scaled);
    return out;
}

static int store(struct reader *r, const struct module *m, const float *a, const float *b,
                 int32_t rank) {
    int32_t first_row = 0;
    for (int32_t p = m->first_part; p < m->first_part + m->num_parts; p++) {
        struct lora_matrices *to = lora_matrices_at(r->adapter, m->layer, m->role, p);
        if (to->rank != 0)
            return refuse(r, m->a, "its module is adapted by another tensor, too");
        to->rank = rank;
        to->a = convert(r, m->a, a, (size_t)rank * (size_t)lora_inputs(&r->model->config, m->role));
        to->b = part_of_b(r, m, p, b, first_row, rank);
        if (to->a == NULL || to->b == NULL)
            return -1;
        first_row += lora_part_rows(&r->model->config, m->layer, m->role, p);
    }
    r->adapter->rank = rank > r->adapter->rank ? rank : r->adapter->rank;
    r->num_modules++;
    return 0;
}

/* --- Modules --- */

static int check_matrix(const struct reader *r, const struct tensor_info *tensor, int64_t rows,
                        int64_t cols) {
    char reason[128];
    if (tensor->unsupported != NULL)
        return refuse(r, tensor, "is not of a supported type (supported: F32, F16, BF16)");
    if (tensor->num_dims == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols)
        return 0;
    snprintf(reason, sizeof(reason), "is not of shape [%lld, %lld], as the model's module wants",
             (long long)rows, (long long)cols);
    return refuse(r, tensor, reason);
}

static int read_module(struct reader *r, struct module *m) {
    const struct model_config *config = &r->model->config;
    const int64_t rank = m->a->num_dims == 2 ? m->a->shape[0] : 0;
    const int32_t inputs = lora_inputs(config, m->role);
    char reason[128];
    widen_if_fused(r, m);
    if (rank < 1 || rank > r->adapter->shape.max_rank) {
        snprintf(reason, sizeof(reason), "its rank is %lld (allowed: 1 to %d, by max-lora-rank)",
                 (long long)rank, r->adapter->shape.max_rank);
        return refuse(r, m->a, reason);
    }
    if (check_matrix(r, m->a, rank, inputs) != 0 ||
        check_matrix(r, m->b, rows_of_parts(r, m), rank) != 0)
        return -1;
    float *a = read_floats(r, m->a, (size_t)rank * (size_t)inputs);
    float *b = a != NULL ? read_floats(r, m->b, (size_t)rows_of_parts(r, m) * (size_t)rank) : NULL;
    int status = b != NULL ? store(r, m, a, b, (int32_t)rank) : -1;
    free(a);
    free(b);
    return status;
}

static int read_tensors(struct reader *r) {
    for (size_t i = 0; i < tensor_file_num_tensors(r->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(r->file, i);
        struct module m;
        bool is_b;
        if (find_module(r, tensor, &m, &is_b) != 0)
            return -1;
        if (is_b)
            continue;
        m.a = tensor;
        m.b = find_other(r, tensor);
        if (m.b == NULL)
            return refuse(r, tensor, "its module has no B");
        if (read_module(r, &m) != 0)
            return -1;
    }
    if ((size_t)r->num_modules * 2 == tensor_file_num_tensors(r->file) && r->num_modules > 0)
        return 0;
    return error_set(r->err, ERROR_MODEL, "%s: %s", tensor_file_path(r->file),
                     r->num_modules == 0 ? "has no matrices of a LoRA" : "a module has no A");
}

/* --- Files --- */

static int check_word(const struct metadata_source *s, const char *key, const char *wanted) {
    const struct metadata *entry = metadata_field_find(s, key);
    char reason[64];
    if (entry != NULL && entry->type == METADATA_STRING && text_is(entry->as_string, wanted))
        return 0;
    snprintf(reason, sizeof(reason), "is not '%s'", wanted);
    return metadata_field_refuse(s, key, reason);
}

static int read_metadata(struct reader *r) {
    const struct metadata_source s = {.file = r->file, .architecture = "", .err = r->err};
    const struct model_config *config = &r->model->config;
    if (check_word(&s, "general.type", "adapter") != 0 ||
        check_word(&s, "adapter.type", "lora") != 0 ||
        metadata_field_require(&s, "adapter.lora.alpha") != 0 ||
        metadata_field_float(&s, "adapter.lora.alpha", 0, 1e6, &r->settings.alpha) != 0)
        return -1;
    return config->naming == TENSOR_NAMING_GGUF
               ? check_word(&s, "general.architecture", config->architecture)
               : 0;
}

static int open_files(struct reader *r, const char *path) {
    char weights[PATH_MAX];
    r->naming = input_file_is_folder(path) ? TENSOR_NAMING_HF : TENSOR_NAMING_GGUF;
    if (r->naming == TENSOR_NAMING_GGUF) {
        if (tensor_file_open(path, &r->file, r->err) != 0)
            return -1;
        return read_metadata(r);
    }
    if (lora_read_settings(path, &r->settings, r->err) != 0)
        return -1;
    if ((size_t)snprintf(weights, sizeof(weights), "%s/adapter_model.safetensors", path) >=
        sizeof(weights))
        return error_set(r->err, ERROR_MODEL, "%.200s...: the path is too long", path);
    return tensor_file_open_safetensors(weights, &r->file, r->err);
}

static int read_files(const char *path, const struct model *model, struct lora_adapter *adapter,
                      struct error *err) {
    struct reader r = {.model = model, .adapter = adapter, .err = err};
    int status = open_files(&r, path);
    if (status == 0)
        status = read_tensors(&r);
    tensor_file_close(r.file);
    return status;
}

int lora_adapter_open(const char *path, const struct model *model, const struct lora_shape *shape,
                      struct lora_adapter **out, struct error *err) {
    CHECK(shape->max_rank % LORA_RANK_STEP == 0);
    struct lora_adapter *adapter = calloc(1, sizeof(*adapter));
    size_t count = (size_t)model->config.num_layers * LORA_NUM_ROLES * LORA_MAX_PARTS;
    if (adapter != NULL) {
        adapter->config = &model->config;
        adapter->shape = *shape;
        adapter->matrices = calloc(count, sizeof(*adapter->matrices));
        adapter->bytes = sizeof(*adapter) + count * sizeof(*adapter->matrices);
    }
    if (adapter == NULL || adapter->matrices == NULL) {
        lora_adapter_close(adapter);
        return error_set(err, ERROR_MEMORY, "no memory for an adapter");
    }
    if (read_files(path, model, adapter, err) != 0 || lora_set_digest(adapter, err) != 0) {
        lora_adapter_close(adapter);
        return -1;
    }
    *out = adapter;
    return 0;
}
