/* A Hugging Face folder: its tensors by their roles in the forward pass, named and arranged like
 * llama.cpp's converter does. */
#include "models/convert/conversion_private.h"

#include "models/config/architecture.h"
#include "models/config/tensor_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_norm(enum tensor_role role) {
    switch (role) {
    case TENSOR_OUTPUT_NORM:
    case TENSOR_ATTENTION_NORM:
    case TENSOR_ATTENTION_POST_NORM:
    case TENSOR_FFN_NORM:
    case TENSOR_FFN_POST_NORM:
    case TENSOR_Q_NORM:
    case TENSOR_K_NORM:
        return true;
    default:
        return false;
    }
}

/* Heads whose rows are rearranged; 0: none. */
static int32_t interleaved_heads(const struct conversion *c, enum tensor_role role) {
    const struct model_config *config = &c->model->config;
    if (!c->interleaves)
        return 0;
    return role == TENSOR_Q ? config->num_heads : role == TENSOR_K ? config->num_kv_heads : 0;
}

/* One name in folders has two meanings (tensor_names.h). */
static bool has_role(const struct model_config *config, enum tensor_role role) {
    bool is_post_norm = role == TENSOR_ATTENTION_POST_NORM || role == TENSOR_FFN_POST_NORM;
    return is_post_norm ? config->post_norm : role != TENSOR_HEAD || !config->tied_embeddings;
}

/* Adds one of the tensors that the folder has; marks it as taken. */
static int add_tensor(struct conversion *c, struct tensor_place place, const char *suffix,
                      bool *taken, struct error *err) {
    const struct tensor_info *source = tensor_names_find(c->model, place, suffix);
    struct model_config renamed = c->model->config;
    char name[TENSOR_NAME_BYTES];
    if (source == NULL || taken[source - tensor_file_tensor(c->file, 0)] ||
        !has_role(&renamed, place.role))
        return 0;
    renamed.naming = TENSOR_NAMING_GGUF;
    renamed.tensor_prefix[0] = '\0';
    tensor_names_write(&renamed, place, suffix, name);
    struct planned_tensor *planned = conversion_add(c, name, source, err);
    if (planned == NULL)
        return -1;
    taken[source - tensor_file_tensor(c->file, 0)] = true;
    planned->interleaved_heads = interleaved_heads(c, place.role);
    planned->plus_one = is_norm(place.role) && renamed.norm_plus_one;
    if (place.role == TENSOR_SHARED_ROUTER && source->num_dims == 2 && source->shape[0] == 1) {
        planned->tensor.info.num_dims = 1;
        planned->tensor.info.shape[0] = source->shape[1];
        planned->tensor.info.shape[1] = 0;
    }
    return 0;
}

static const struct tensor_info *find_expert(const struct conversion *c, struct tensor_place place,
                                             int32_t expert) {
    place.expert = expert;
    return tensor_names_find(c->model, place, "weight");
}

/* Lists the tensors of all experts of a layer, which must be alike. */
static int list_experts(struct conversion *c, struct tensor_place place,
                        struct planned_tensor *planned, bool *taken, struct error *err) {
    int32_t count = c->model->config.moe.num_experts;
    for (int32_t i = 0; i < count; i++) {
        const struct tensor_info *expert = find_expert(c, place, i);
        if (expert == NULL || expert->dtype != planned->source->dtype || expert->num_dims != 2 ||
            expert->shape[0] != planned->source->shape[0] ||
            expert->shape[1] != planned->source->shape[1])
            return error_set(err, ERROR_MODEL,
                             "%s: tensor '%s': expert %d is missing or of another "
                             "type or shape than the first",
                             c->path, planned->tensor.name, i);
        planned->experts[i] = expert;
        taken[expert - tensor_file_tensor(c->file, 0)] = true;
    }
    planned->tensor.info.num_dims = 3;
    memmove(planned->tensor.info.shape + 1, planned->tensor.info.shape,
            2 * sizeof(planned->tensor.info.shape[0]));
    planned->tensor.info.shape[0] = count;
    return 0;
}

/* Adds the experts' matrices of a role as one tensor, if the layer has them. */
static int add_experts(struct conversion *c, struct tensor_place place, bool *taken,
                       struct error *err) {
    const struct tensor_info *first = find_expert(c, place, 0);
    struct model_config renamed = c->model->config;
    char name[TENSOR_NAME_BYTES];
    if (first == NULL)
        return 0;
    renamed.naming = TENSOR_NAMING_GGUF;
    renamed.tensor_prefix[0] = '\0';
    place.expert = TENSOR_ALL_EXPERTS;
    tensor_names_write(&renamed, place, "weight", name);
    struct planned_tensor *planned = conversion_add(c, name, first, err);
    if (planned == NULL)
        return -1;
    planned->experts = calloc((size_t)renamed.moe.num_experts, sizeof(*planned->experts));
    if (planned->experts == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for its experts", c->path);
    return list_experts(c, place, planned, taken, err);
}

static bool is_expert_role(int role) {
    return role >= TENSOR_EXPERT_GATE && role <= TENSOR_EXPERT_DOWN;
}

static int add_tensors(struct conversion *c, bool *taken, struct error *err) {
    static const char *const suffixes[] = {"weight", "bias"};
    for (int role = 0; role < NUM_TENSOR_ROLES; role++) {
        int32_t layers = role < TENSOR_ATTENTION_NORM ? 1 : c->model->config.num_layers;
        for (int32_t layer = 0; layer < layers; layer++) {
            const struct tensor_place place = {(enum tensor_role)role, layer, 0};
            if (is_expert_role(role) && add_experts(c, place, taken, err) != 0)
                return -1;
            for (int s = 0; s < 2 && !is_expert_role(role); s++)
                if (add_tensor(c, place, suffixes[s], taken, err) != 0)
                    return -1;
        }
    }
    for (size_t i = 0; i < tensor_file_num_tensors(c->file); i++) {
        struct text name = tensor_file_tensor(c->file, i)->name;
        if (!taken[i] && !tensor_names_is_ignorable(&c->model->config, name))
            return error_set(err, ERROR_MODEL, "%s: tensor '%.*s': no GGUF file has such a tensor",
                             c->path, text_print_length(name), name.data);
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

/* The name of the folder's family in GGUF files. Llama's is that of Mistral's, too. */
static int find_architecture(struct conversion *c, struct error *err) {
    const char *name = c->model->config.architecture;
    struct error why = {0};
    const struct architecture *found = architecture_find_hf(name, NULL, c->path, &why);
    if (found == NULL)
        found = architecture_find_hf(NULL, name, c->path, err);
    if (found == NULL)
        return -1;
    c->architecture = found->gguf_names[0];
    if (c->architecture == NULL && (strcmp(found->classes[0], "LlamaForCausalLM") == 0 ||
                                    strcmp(found->classes[0], "MixtralForCausalLM") == 0))
        c->architecture = "llama";
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

/* The other families with experts have fused or transposed tensors, or more settings than
 * folder_metadata.c writes. */
static int check_experts(const struct conversion *c, struct error *err) {
    static const char *const known[] = {"llama", "qwen2moe", "qwen3moe", "olmoe"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(c->architecture, known[i]) == 0)
            return 0;
    if (c->model->config.moe.num_experts == 0)
        return 0;
    return error_set(
        err, ERROR_MODEL,
        "%s: %s: folders of this mixture of experts are not converted; quantise a GGUF "
        "file of the model",
        c->path, c->model->config.architecture);
}

int folder_source_open(struct conversion *c, struct error *err) {
    if (model_open(c->path, &c->model, err) != 0)
        return -1;
    const struct model_config *config = &c->model->config;
    c->file = c->model->file;
    if (find_architecture(c, err) != 0 || check_experts(c, err) != 0)
        return -1;
    c->mixture.num_experts = config->moe.num_experts;
    c->mixture.is_llama = strcmp(c->architecture, "llama") == 0;
    c->mixture.num_layers = config->num_layers;
    c->mixture.num_heads = config->num_heads;
    c->mixture.num_kv_heads = config->num_kv_heads;
    bool *taken = calloc(tensor_file_num_tensors(c->file) + 1, sizeof(*taken));
    if (taken == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for its tensors", c->path);
    int status = add_tensors(c, taken, err);
    free(taken);
    return status == 0 ? add_rope_tensors(c, err) : -1;
}
