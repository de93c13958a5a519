/* One label and value a line, so that people and grep can both read it. */
#include "models/config/model.h"

#include "config/base/numbers.h"
#include "config/base/utf8.h"
#include "kernels/kv_type.h"
#include "models/config/sampling_fields.h"
#include "models/config/tensor_names.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static void print_bytes(FILE *out, const char *label, double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024.0 && unit < 4) {
        bytes /= 1024.0;
        unit++;
    }
    fprintf(out, "%-24s%.*f %s\n", label, unit == 0 ? 0 : 1, bytes, units[unit]);
}

/* --- Ropes and layers --- */

/* Returns whether the rope of short contexts differs from that of long ones. */
static bool begins_somewhere(const struct rope_config *rope) {
    if (rope->scaling == ROPE_SCALING_LONGROPE)
        return memcmp(rope->short_factors, rope->long_factors, sizeof(rope->short_factors)) != 0;
    return rope->scaling != ROPE_SCALING_LINEAR;
}

static void print_scaling(const struct rope_config *rope, const char *label, FILE *out) {
    static const char *const names[] = {
        [ROPE_SCALING_NONE] = "none",       [ROPE_SCALING_LINEAR] = "linear",
        [ROPE_SCALING_DYNAMIC] = "dynamic", [ROPE_SCALING_YARN] = "yarn",
        [ROPE_SCALING_LLAMA3] = "llama3",   [ROPE_SCALING_LONGROPE] = "divisor per frequency",
    };
    if (rope->scaling == ROPE_SCALING_NONE)
        return;
    fprintf(out, "%-24s%s", label, names[rope->scaling]);
    if (rope->scaling != ROPE_SCALING_LONGROPE)
        fprintf(out, ", factor %g", (double)rope->factor);
    if (begins_somewhere(rope))
        fprintf(out, ", from %d tokens", rope->original_max_position);
    if (rope->attention_factor != 1.0F)
        fprintf(out, ", attention factor %g", (double)rope->attention_factor);
    fputc('\n', out);
}

/* Says which form contexts get that are shorter than what the model is good for, see rope.h. */
static void print_long_form(const struct model_config *config, FILE *out) {
    const struct rope_config *rope = &config->ropes[0];
    bool dynamic = rope->scaling == ROPE_SCALING_DYNAMIC;
    if ((!dynamic && rope->scaling != ROPE_SCALING_LONGROPE) || !begins_somewhere(rope) ||
        rope->original_max_position >= config->max_position)
        return;
    fprintf(out, "%-24sall contexts use the %s unless --max-model-len is at most %d\n",
            dynamic ? "  dynamic" : "  longrope", dynamic ? "stretched theta" : "long factors",
            rope->original_max_position);
}

static void print_ropes(const struct model_config *config, FILE *out) {
    fprintf(out, "%-24stheta %g, %d of %d dimensions%s\n", "rope", (double)config->ropes[0].theta,
            config->rotary_dim, model_config_query_dim(config),
            config->rope_interleaved ? ", neighbours in pairs" : "");
    print_scaling(&config->ropes[0], "rope scaling", out);
    print_long_form(config, out);
    if (config->num_ropes < 2)
        return;
    fprintf(out, "%-24stheta %g\n", "rope within windows", (double)config->ropes[1].theta);
    print_scaling(&config->ropes[1], "  scaling", out);
}

static void print_layers(const struct model_config *config, FILE *out) {
    int32_t num_windowed = 0, num_still = 0, window = 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        num_windowed += config->layers[i].window > 0;
        num_still += config->layers[i].rope < 0;
        if (config->layers[i].window > 0)
            window = config->layers[i].window;
    }
    if (num_windowed > 0)
        fprintf(out, "%-24s%d of %d layers see %d tokens\n", "windows", num_windowed,
                config->num_layers, window);
    if (num_still > 0)
        fprintf(out, "%-24s%d of %d layers\n", "no rotation in", num_still, config->num_layers);
}

/* --- Experts --- */

static void print_experts(const struct model_config *config, FILE *out) {
    static const char *const scorings[] = {
        [ROUTE_SOFTMAX] = "softmax",
        [ROUTE_SOFTMAX_OF_CHOSEN] = "softmax of the chosen",
        [ROUTE_SIGMOID] = "sigmoid",
        [ROUTE_SPARSEMIXER] = "sparsemixer",
    };
    const struct moe_config *moe = &config->moe;
    int32_t num_sparse = 0;
    if (moe->num_experts == 0)
        return;
    for (int32_t i = 0; i < config->num_layers; i++)
        num_sparse += config->layers[i].is_sparse;
    fprintf(out, "%-24s%d, %d per token, inner %d", "experts", moe->num_experts, moe->num_chosen,
            moe->expert_size);
    if (moe->shared_size > 0)
        fprintf(out, ", shared %d%s", moe->shared_size, moe->shared_gate ? " with a gate" : "");
    if (num_sparse < config->num_layers)
        fprintf(out, ", in %d of %d layers", num_sparse, config->num_layers);
    fprintf(out, "\n%-24s%s%s%s", "routing", scorings[moe->scoring],
            moe->selection_bias ? ", a bias for the choice" : "",
            moe->renormalise ? ", weights sum to 1" : "");
    if (moe->num_groups > 1)
        fprintf(out, ", %d of %d groups", moe->num_chosen_groups, moe->num_groups);
    if (moe->scale != 1.0F)
        fprintf(out, ", times %g", (double)moe->scale);
    fputc('\n', out);
}

/* --- Switches that are not as in a Llama --- */

static void print_factor(const char *label, float value, float neutral, FILE *out) {
    if (value != neutral)
        fprintf(out, "%-24s%g\n", label, (double)value);
}

static void print_norms(const struct model_config *config, FILE *out) {
    if (config->norm == NORM_LAYER)
        fprintf(out, "%-24sLayerNorm%s\n", "norm", config->norm_bias ? " with biases" : "");
    if (config->post_norm)
        fprintf(out, "%-24s%s attention and feed-forward\n", "norms are",
                config->pre_norm ? "before and after" : "after");
    if (config->norm_plus_one)
        fprintf(out, "%-24sstored less 1\n", "norm weights");
    if (config->qk_norm != QK_NORM_NONE)
        fprintf(out, "%-24s%s\n", "norm of q and k",
                config->qk_norm == QK_NORM_HEAD ? "each head" : "all heads together");
}

/* Biases are not a setting; the tensors show them. */
static bool has_bias(const struct model *model, enum tensor_role role) {
    return tensor_names_find(model, (struct tensor_place){role, 0}, "bias") != NULL;
}

static void print_biases(const struct model *model, FILE *out) {
    static const struct {
        enum tensor_role roles[2]; /* either */
        const char *name;
    } parts[] = {
        {{TENSOR_Q, TENSOR_QKV}, "q, k and v"},
        {{TENSOR_ATTENTION_OUT, TENSOR_ATTENTION_OUT}, "attention's result"},
        {{TENSOR_UP, TENSOR_GATE_UP}, "gate and up"},
        {{TENSOR_DOWN, TENSOR_DOWN}, "down"},
    };
    const char *separator = "bias of                 ";
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!has_bias(model, parts[i].roles[0]) && !has_bias(model, parts[i].roles[1]))
            continue;
        fprintf(out, "%s%s", separator, parts[i].name);
        separator = "; ";
    }
    if (separator[0] == ';')
        fputc('\n', out);
}

static void print_switches(const struct model *model, FILE *out) {
    const struct model_config *config = &model->config;
    print_norms(config, out);
    print_biases(model, out);
    if (config->parallel_residual)
        fprintf(out, "%-24sbeside each other\n", "attention, feed-forward");
    if (config->activation == ACTIVATION_GELU_TANH)
        fprintf(out, "%-24sGELU (tanh)\n", "activation");
    if (config->activation == ACTIVATION_CLAMPED_SWIGLU)
        fprintf(out, "%-24sclamped SwiGLU\n", "activation");
    if (config->attention_sinks)
        fprintf(out, "%-24sone score per head\n", "attention sinks");
    float scale = (float)(1.0 / sqrt(model_config_query_dim(config)));
    print_factor("attention scale", config->attention_scale, scale, out);
    print_factor("attention soft cap", config->attention_soft_cap, 0.0F, out);
    print_factor("final soft cap", config->final_soft_cap, 0.0F, out);
    print_factor("embedding scale", config->embedding_scale, 1.0F, out);
    print_factor("residual scale", config->residual_scale, 1.0F, out);
    print_factor("logit scale", config->logit_scale, 1.0F, out);
}

/* Whoever made a file may have written what a terminal would obey. */
static void print_name(const char *label, const char *text, FILE *out) {
    char shown[PATH_MAX];
    snprintf(shown, sizeof(shown), "%s", text);
    utf8_hide_controls(shown, strlen(shown));
    fprintf(out, "%-24s%s\n", label, shown);
}

static void print_heads(const struct model_config *config, FILE *out) {
    if (config->latent.kv_rank == 0) {
        fprintf(out, "%-24s%d x %d, %d for keys and values\n", "attention heads", config->num_heads,
                config->head_dim, config->num_kv_heads);
        return;
    }
    fprintf(out, "%-24s%d x %d, values of %d\n", "attention heads", config->num_heads,
            model_config_query_dim(config), config->latent.value_dim);
    fprintf(out, "%-24s%d elements per layer, %d of them rotated, for all heads\n",
            "latent keys and values", config->head_dim, config->rotary_dim);
}

/* Names of labels can be many. */
static void print_classifier(const struct classifier *classifier, FILE *out) {
    enum { MAX_SHOWN = 16 };
    char label[CLASSIFIER_MAX_LABEL_BYTES + 1];
    if (classifier->num_labels == 0)
        return;
    fprintf(out, "%-24s%d label%s:", "classifier", classifier->num_labels,
            classifier->num_labels > 1 ? "s" : "");
    for (int32_t i = 0; i < classifier->num_labels && i < MAX_SHOWN; i++) {
        classifier_label(classifier, i, label);
        utf8_hide_controls(label, strlen(label));
        fprintf(out, "%s %s", i > 0 ? "," : "", label);
    }
    fprintf(out, "%s\n", classifier->num_labels > MAX_SHOWN ? ", ..." : "");
}

static void print_head(const struct model *model, FILE *out) {
    static const char *const poolings[] = {[MODEL_POOLING_LAST] = "the last token's state",
                                           [MODEL_POOLING_MEAN] = "the mean of all states"};
    const struct model_config *config = &model->config;
    const char *head = config->tied_embeddings ? "the embedding" : "its own";
    fprintf(out, "%-24s%s%s\n", "output head", model->generates ? head : "none",
            config->head_bias ? ", with a bias" : "");
    print_classifier(&model->classifier, out);
    if (model->pooling != MODEL_POOLING_UNSTATED)
        fprintf(out, "%-24s%s%s\n", "embeddings", poolings[model->pooling],
                model->has_raw_embeddings ? ", of any length" : "");
}

static void print_config(const struct model *model, FILE *out) {
    const struct model_config *config = &model->config;
    print_name("name", config->name[0] != '\0' ? config->name : "-", out);
    print_name("architecture", config->architecture, out);
    fprintf(out, "%-24s%d\n", "layers", config->num_layers);
    fprintf(out, "%-24s%d\n", "hidden size", config->hidden_size);
    fprintf(out, "%-24s%d\n", "feed-forward size", config->intermediate_size);
    print_heads(config, out);
    print_experts(config, out);
    print_ropes(config, out);
    print_layers(config, out);
    fprintf(out, "%-24s%g\n", "norm epsilon", (double)config->norm_eps);
    print_switches(model, out);
    print_head(model, out);
    fprintf(out, "%-24s%d tokens\n", "vocabulary", config->vocab_size);
    fprintf(out, "%-24s%d tokens\n", "context length", config->max_position);
}

/* --- Text --- */

static void print_generation(const struct sampling_settings *defaults, FILE *out) {
    const char *separator = "";
    int num_fields;
    const struct sampling_field *fields = sampling_fields(&num_fields);
    fprintf(out, "%-24s", "sampling defaults");
    for (int i = 0; i < num_fields; i++) {
        if (sampling_field_is_absent(&fields[i], defaults))
            continue;
        fprintf(out, "%s%s %g", separator, fields[i].name,
                sampling_field_value(&fields[i], defaults));
        separator = ", ";
    }
    fputs(separator[0] == '\0' ? "-\n" : "\n", out);
}

static void print_text(const struct model *model, FILE *out) {
    if (model->chat_template != NULL)
        fprintf(out, "%-24s%zu bytes\n", "chat template", strlen(model->chat_template));
    else
        fprintf(out, "%-24s-\n", "chat template");
    if (model->tool_chat_template != NULL)
        fprintf(out, "%-24s%zu bytes\n", "chat template for tools",
                strlen(model->tool_chat_template));
    if (model->num_eos_tokens > 0) {
        fprintf(out, "%-24s", "ids that end a text");
        for (int i = 0; i < model->num_eos_tokens; i++)
            fprintf(out, "%s%d", i > 0 ? ", " : "", model->eos_tokens[i]);
        fputc('\n', out);
    }
    print_generation(&model->generation, out);
}

/* --- Sizes --- */

static void print_tensors(const struct model *model, FILE *out) {
    uint64_t counts[DTYPE_NONE + 1] = {0}; /* unsupported types last */
    size_t bytes[DTYPE_NONE + 1] = {0};
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        counts[tensor->dtype]++;
        bytes[tensor->dtype] += tensor->bytes;
    }
    fprintf(out, "%-24s%s\n", "quantisation", model_quantisation(model));
    fprintf(out, "%-24s%.1f million\n", "parameters", (double)model_num_parameters(model) / 1e6);
    fprintf(out, "%-24s%zu\n", "tensors", tensor_file_num_tensors(model->file));
    for (int i = 0; i <= DTYPE_NONE; i++) {
        char label[32];
        if (counts[i] == 0)
            continue;
        const char *name = i < DTYPE_NONE ? dtype_name((enum dtype)i) : "other";
        snprintf(label, sizeof(label), "  %-5s x %" PRIu64, name, counts[i]);
        print_bytes(out, label, (double)bytes[i]);
    }
}

static double kv_token_bytes(const struct model_config *config, enum kv_type type) {
    const struct kv_layout layout = {.num_layers = config->num_layers,
                                     .num_kv_heads = config->num_kv_heads,
                                     .head_dim = config->head_dim,
                                     .latent_dim = config->latent.kv_rank,
                                     .block_size = KV_TOKEN_STEP,
                                     .type = type};
    return (double)kv_block_bytes(&layout) / KV_TOKEN_STEP;
}

/* Tokens that a context keeps, as an average over the layers. */
static double kept_tokens(const struct model_config *config) {
    double sum = 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        int32_t window = config->layers[i].window;
        sum += window > 0 ? min_int32(window, config->max_position) : config->max_position;
    }
    return sum / config->num_layers;
}

static void print_kv(const struct model_config *config, FILE *out) {
    for (enum kv_type type = 0; type < NUM_KV_TYPES; type++) {
        char label[32];
        snprintf(label, sizeof(label), "KV per token, %s", kv_type_name(type));
        print_bytes(out, label, kv_token_bytes(config, type));
    }
    print_bytes(out, "KV of a context, f16", kv_token_bytes(config, KV_F16) * kept_tokens(config));
}

void model_print(const struct model *model, FILE *out) {
    const struct model_config *config = &model->config;
    print_name("file", tensor_file_path(model->file), out);
    print_bytes(out, "file size", (double)tensor_file_bytes(model->file));
    fprintf(out, "%-24s%s\n", "format", tensor_file_format(model->file));
    print_config(model, out);
    print_text(model, out);
    print_tensors(model, out);
    print_kv(config, out);
}
