/* A Hugging Face folder: its tensors by their roles in the forward pass, named and arranged like
 * llama.cpp's converter does. */
#include "models/convert/conversion_private.h"

#include "models/config/architecture.h"
#include "models/config/tensor_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Names --- */

static bool is_norm(enum tensor_role role) {
    switch (role) {
    case TENSOR_OUTPUT_NORM:
    case TENSOR_ATTENTION_NORM:
    case TENSOR_ATTENTION_POST_NORM:
    case TENSOR_FFN_NORM:
    case TENSOR_FFN_POST_NORM:
    case TENSOR_Q_NORM:
    case TENSOR_K_NORM:
    case TENSOR_Q_A_NORM:
    case TENSOR_KV_A_NORM:
    case TENSOR_MTP_EMBEDDING_NORM:
    case TENSOR_MTP_HIDDEN_NORM:
    case TENSOR_MTP_OUTPUT_NORM:
        return true;
    default:
        return false;
    }
}

static bool is_vector(enum tensor_role role) {
    return is_norm(role) || role == TENSOR_SINKS || role == TENSOR_SELECTION_BIAS;
}

/* Returns whether a role is of all experts, or all heads, in one. */
static bool is_of_many(enum tensor_role role) {
    return (role >= TENSOR_EXPERT_GATE && role <= TENSOR_EXPERT_DOWN) || role == TENSOR_K_B ||
           role == TENSOR_V_B;
}

/* One name in folders has two meanings (tensor_names.h). */
static bool has_role(const struct model_config *config, enum tensor_role role) {
    bool is_post_norm = role == TENSOR_ATTENTION_POST_NORM || role == TENSOR_FFN_POST_NORM;
    return is_post_norm ? config->post_norm : role != TENSOR_HEAD || !config->tied_embeddings;
}

/* These families' norm before the FFN is called after its place in the folder. */
static bool calls_ffn_norm_post(const struct conversion *c) {
    return strcmp(c->architecture, "glm4moe") == 0 || strcmp(c->architecture, "gpt-oss") == 0;
}

/* Adds a tensor with the new file's name of a place. */
static struct planned_tensor *add_named(struct conversion *c, struct tensor_place place,
                                        const char *suffix, const struct tensor_info *source,
                                        struct error *err) {
    struct model_config renamed = c->model->config;
    char name[TENSOR_NAME_BYTES];
    renamed.naming = TENSOR_NAMING_GGUF;
    renamed.tensor_prefix[0] = '\0';
    place.expert = is_of_many(place.role) ? TENSOR_ALL_EXPERTS : 0;
    if (place.role == TENSOR_FFN_NORM && calls_ffn_norm_post(c))
        place.role = TENSOR_ATTENTION_POST_NORM;
    tensor_names_write(&renamed, place, suffix, name);
    return conversion_add(c, name, source, err);
}

/* --- Tensors --- */

/* What is known while the folder's tensors are gone through. */
struct listing {
    struct conversion *c;
    bool *taken; /* by the tensor's number */
    struct error *err;
};

static void take(struct listing *l, const struct tensor_info *tensor) {
    l->taken[tensor - tensor_file_tensor(l->c->file, 0)] = true;
}

/* Heads whose rows are rearranged; 0: none. */
static int32_t interleaved_heads(const struct conversion *c, enum tensor_role role) {
    const struct model_config *config = &c->model->config;
    if (!c->interleaves)
        return 0;
    return role == TENSOR_Q ? config->num_heads : role == TENSOR_K ? config->num_kv_heads : 0;
}

/* Adds a tensor that stays as it is, but for its type, if the folder has it. */
static int add_vector(struct listing *l, struct tensor_place place, const char *suffix) {
    struct conversion *c = l->c;
    const struct tensor_info *source = tensor_names_find(c->model, place, suffix);
    if (source == NULL)
        return 0;
    struct planned_tensor *planned = add_named(c, place, suffix, source, l->err);
    if (planned == NULL)
        return -1;
    take(l, source);
    planned->interleaved_heads = interleaved_heads(c, place.role);
    planned->plus_one = is_norm(place.role) && c->model->config.norm_plus_one;
    return 0;
}

/* --- Matrices --- */

static int refuse(struct listing *l, const struct tensor_info *tensor, const char *why) {
    return error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': %s", l->c->path,
                     text_print_length(tensor->name), tensor->name.data, why);
}

static int check_matrix(struct listing *l, const struct tensor_source *source) {
    const struct tensor_info *first = source->tensors[0];
    if (source->wrong != NULL)
        return refuse(l, source->tensors[source->wrong_tensor], source->wrong);
    if (source->dtype == DTYPE_NONE)
        return error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': type %s is not supported",
                         l->c->path, text_print_length(first->name), first->name.data,
                         first->unsupported != NULL ? first->unsupported->name : "of its rows");
    return source->rows > 0 && source->cols > 0
               ? 0
               : refuse(l, first, "is not a matrix of the settings' sizes");
}

/* Experts are taken apart by the settings' sizes, so the tensors must have those. */
static int check_experts(struct listing *l, struct tensor_place place,
                         const struct tensor_source *source) {
    const struct model_config *config = &l->c->model->config;
    const struct tensor_info *first = source->tensors[0];
    int32_t inner = config->moe.expert_size, count = source->num_experts;
    bool is_down = place.role == TENSOR_EXPERT_DOWN;
    if (place.role == TENSOR_EXPERT_GATE_UP)
        inner *= 2;
    int32_t rows = is_down ? config->hidden_size : inner;
    int32_t cols = is_down ? inner : config->hidden_size;
    bool is_part_of_all = place.expert != TENSOR_ALL_EXPERTS;
    if (place.role < TENSOR_EXPERT_GATE || place.role > TENSOR_EXPERT_DOWN ||
        ((is_part_of_all || count == config->moe.num_experts) && source->rows == rows &&
         source->cols == cols))
        return 0;
    return error_set(l->err, ERROR_MODEL,
                     "%s: tensor '%.*s': %d experts of %d x %d; the settings say %d of %d x %d",
                     l->c->path, text_print_length(first->name), first->name.data, count,
                     source->rows, source->cols, is_part_of_all ? 1 : config->moe.num_experts, rows,
                     cols);
}

/* The tensors of a matrix, which the new file has in another form. */
static void take_all(struct listing *l, const struct tensor_source *source) {
    for (int i = 0; i < source->num_tensors; i++)
        if (source->tensors[i] != NULL)
            take(l, source->tensors[i]);
}

/* Rows [first_row, first_row + rows) of a source become the matrices of a role. */
static struct planned_tensor *add_rows(struct listing *l, struct tensor_place place,
                                       enum tensor_role role, const struct tensor_source *source,
                                       int32_t first_row, int32_t rows) {
    const struct tensor_place named = {role, place.layer, 0};
    struct planned_tensor *planned = add_named(l->c, named, "weight", NULL, l->err);
    if (planned == NULL)
        return NULL;
    planned->place = place;
    planned->first_row = first_row;
    planned->interleaved_heads = interleaved_heads(l->c, role);
    planned->tensor.from = source->dtype;
    struct tensor_info *info = &planned->tensor.info;
    info->dtype = source->dtype;
    if (is_of_many(role))
        info->shape[info->num_dims++] = source->num_experts;
    if (role != TENSOR_SHARED_ROUTER || rows != 1)
        info->shape[info->num_dims++] = rows;
    info->shape[info->num_dims++] = source->cols;
    return planned;
}

/* A role that the new file has as two, if it has. */
static bool is_split(enum tensor_role role, enum tensor_role out[2]) {
    if (role != TENSOR_EXPERT_GATE_UP && role != TENSOR_SHARED_GATE_UP)
        return false;
    bool is_shared = role == TENSOR_SHARED_GATE_UP;
    out[0] = is_shared ? TENSOR_SHARED_GATE : TENSOR_EXPERT_GATE;
    out[1] = is_shared ? TENSOR_SHARED_UP : TENSOR_EXPERT_UP;
    return true;
}

/* Biases [experts, rows] of gate and up. */
static int add_split_bias(struct listing *l, struct tensor_place place,
                          const struct tensor_source *source, const enum tensor_role roles[2]) {
    const struct tensor_info *bias = source->bias;
    if (bias == NULL)
        return 0;
    if (bias->num_dims != 2 || bias->shape[0] != source->num_experts ||
        bias->shape[1] != source->rows)
        return refuse(l, bias, "its shape is not that of a bias for each row of each expert");
    for (int i = 0; i < 2; i++) {
        const struct tensor_place named = {roles[i], place.layer, 0};
        struct planned_tensor *planned = add_named(l->c, named, "bias", bias, l->err);
        if (planned == NULL)
            return -1;
        planned->tensor.info.shape[1] = source->rows / 2;
        planned->source_cols = source->rows;
        planned->first_col = source->alternates ? i : i * source->rows / 2;
        planned->col_step = source->alternates ? 2 : 1;
    }
    take(l, bias);
    return 0;
}

/* Adds the matrix or matrices of a place, if the folder has them. */
static int add_matrix(struct listing *l, struct tensor_place place) {
    struct tensor_source source;
    enum tensor_role roles[2];
    if (!tensor_source_find(l->c->model, place, &source))
        return 0;
    if (check_matrix(l, &source) != 0 || check_experts(l, place, &source) != 0)
        return -1;
    take_all(l, &source);
    if (!is_split(place.role, roles))
        return add_rows(l, place, place.role, &source, 0, source.rows) == NULL
                   ? -1
                   : add_vector(l, place, "bias");
    int32_t half = source.rows / 2;
    if (source.rows % 2 != 0)
        return refuse(l, source.tensors[0], "has an odd number of rows for gate and up");
    if (add_rows(l, place, roles[0], &source, 0, half) == NULL ||
        add_rows(l, place, roles[1], &source, half, half) == NULL)
        return -1;
    return add_split_bias(l, place, &source, roles);
}

/* Adds the matrices of experts that are tensors of their own, which must be alike. */
static int add_experts_apart(struct listing *l, struct tensor_place place) {
    int32_t count = l->c->model->config.moe.num_experts;
    struct tensor_source first, expert;
    if (!tensor_source_find(l->c->model, place, &first))
        return 0;
    if (check_matrix(l, &first) != 0 || check_experts(l, place, &first) != 0)
        return -1;
    struct planned_tensor *planned = add_rows(l, place, place.role, &first, 0, first.rows);
    if (planned == NULL)
        return -1;
    planned->has_experts_apart = true;
    planned->tensor.info.shape[0] = count;
    for (place.expert = 0; place.expert < count; place.expert++) {
        if (!tensor_source_find(l->c->model, place, &expert) || expert.wrong != NULL ||
            expert.dtype != first.dtype || expert.rows != first.rows || expert.cols != first.cols)
            return error_set(l->err, ERROR_MODEL,
                             "%s: tensor '%s': expert %d is missing or of another "
                             "type or shape than the first",
                             l->c->path, planned->tensor.name, place.expert);
        take_all(l, &expert);
    }
    return 0;
}

static int add_role(struct listing *l, enum tensor_role role, int32_t layer) {
    struct tensor_place place = {role, layer, is_of_many(role) ? TENSOR_ALL_EXPERTS : 0};
    bool is_head_part = role == TENSOR_K_B || role == TENSOR_V_B;
    if (role == TENSOR_KV_B || !has_role(&l->c->model->config, role))
        return 0;
    if (is_vector(role))
        return add_vector(l, place, "weight") != 0 ? -1 : add_vector(l, place, "bias");
    if (add_matrix(l, place) != 0)
        return -1;
    place.expert = 0;
    return is_of_many(role) && !is_head_part ? add_experts_apart(l, place) : 0;
}

/* --- Layers that predict further tokens --- */

/* llama.cpp's files have those of GLM-4.5, and not those of DeepSeek-V3. */
static int32_t count_extra_layers(const struct conversion *c) {
    const struct model_config *config = &c->model->config;
    int32_t count = 0;
    if (config->latent.kv_rank > 0)
        return 0;
    while (count < config->num_extra_layers &&
           tensor_names_find(
               c->model,
               (struct tensor_place){TENSOR_MTP_PROJECTION, config->num_layers + count, 0},
               "weight") != NULL)
        count++;
    return count;
}

/* --- All tensors --- */

static int add_tensors(struct listing *l) {
    const struct conversion *c = l->c;
    int32_t num_layers = c->model->config.num_layers;
    for (int role = 0; role < NUM_TENSOR_ROLES; role++) {
        int32_t layers = role < TENSOR_ATTENTION_NORM ? 1 : num_layers + c->num_extra_layers;
        for (int32_t layer = 0; layer < layers; layer++)
            if (add_role(l, (enum tensor_role)role, layer) != 0)
                return -1;
    }
    for (size_t i = 0; i < tensor_file_num_tensors(c->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(c->file, i);
        if (!l->taken[i] && !tensor_names_is_ignorable(&c->model->config, tensor->name))
            return refuse(l, tensor, "no GGUF file has such a tensor");
    }
    return 0;
}

/* --- Divisors of rope frequencies --- */

/* The divisor of a frequency under Llama 3's rule. */
static double llama3_divisor(const struct rope_config *rope, double frequency) {
    double turns = (double)rope->original_max_position * frequency / (2.0 * 3.14159265358979323846);
    double low = (double)rope->low_freq_factor, high = (double)rope->high_freq_factor;
    double smooth = fmin(fmax((turns - low) / (high - low), 0.0), 1.0);
    return 1.0 / ((1.0 - smooth) / (double)rope->factor + smooth);
}

static int add_divisors(struct conversion *c, const char *name, const float *values, int32_t count,
                        struct error *err) {
    const struct tensor_info info = {.dtype = DTYPE_F32, .num_dims = 1, .shape = {count}};
    struct planned_tensor *planned = conversion_add(c, name, NULL, err);
    if (planned == NULL)
        return -1;
    planned->tensor.info = info;
    planned->tensor.from = DTYPE_F32;
    planned->values = values;
    return 0;
}

static int add_rope_tensors(struct conversion *c, struct error *err) {
    const struct rope_config *rope = &c->model->config.ropes[0];
    int32_t dim = c->model->config.rotary_dim, count = dim / 2;
    if (rope->scaling == ROPE_SCALING_LONGROPE)
        return add_divisors(c, "rope_factors_long.weight", rope->long_factors, count, err) != 0
                   ? -1
                   : add_divisors(c, "rope_factors_short.weight", rope->short_factors, count, err);
    if (rope->scaling != ROPE_SCALING_LLAMA3)
        return 0;
    c->values = calloc((size_t)count, sizeof(*c->values));
    if (c->values == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for its rope", c->path);
    for (int32_t i = 0; i < count; i++)
        c->values[i] =
            (float)llama3_divisor(rope, pow((double)rope->theta, -2.0 * (double)i / (double)dim));
    return add_divisors(c, "rope_freqs.weight", c->values, count, err);
}

/* --- Opening --- */

/* The names in GGUF files of families that share one with another. */
static const char *find_shared_name(const struct architecture *architecture) {
    static const char *const names[][2] = {{"LlamaForCausalLM", "llama"},
                                           {"MixtralForCausalLM", "llama"},
                                           {"DeepseekV2ForCausalLM", "deepseek2"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(architecture->classes[0], names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

static int find_architecture(struct conversion *c, struct error *err) {
    const char *name = c->model->config.architecture;
    struct error why = {0};
    const struct architecture *found = architecture_find_hf(name, NULL, c->path, &why);
    if (found == NULL)
        found = architecture_find_hf(NULL, name, c->path, err);
    if (found == NULL)
        return -1;
    c->architecture = found->gguf_names[0] != NULL ? found->gguf_names[0] : find_shared_name(found);
    if (c->architecture == NULL)
        return error_set(err, ERROR_MODEL, "%s: %s: folders of this family are not converted",
                         c->path, name);
    const struct text gguf_name = {c->architecture, strlen(c->architecture)};
    found = architecture_find_gguf(gguf_name, c->path, err);
    if (found == NULL)
        return -1;
    c->interleaves = found->gguf_interleaved && !c->model->config.rope_interleaved;
    return 0;
}

int folder_source_open(struct conversion *c, struct error *err) {
    if (model_open(c->path, &c->model, err) != 0)
        return -1;
    const struct model_config *config = &c->model->config;
    c->file = c->model->file;
    if (find_architecture(c, err) != 0)
        return -1;
    c->num_extra_layers = count_extra_layers(c);
    c->mixture.num_experts = config->moe.num_experts;
    c->mixture.is_llama = strcmp(c->architecture, "llama") == 0;
    c->mixture.num_layers = config->num_layers;
    c->mixture.num_heads = config->num_heads;
    c->mixture.num_kv_heads = config->num_kv_heads;
    struct listing listing = {c, calloc(tensor_file_num_tensors(c->file) + 1, sizeof(bool)), err};
    if (listing.taken == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for its tensors", c->path);
    int status = add_tensors(&listing);
    free(listing.taken);
    return status == 0 ? add_rope_tensors(c, err) : -1;
}
