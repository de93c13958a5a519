#include "models/config/architecture.h"

#include "config/base/utf8.h"

#include <stdio.h>
#include <string.h>

static const struct architecture table[] = {
    {
        /* GGUF files of Llama, Mistral and Mixtral are all called llama. */
        .gguf_names = {"llama"},
        .classes = {"MistralForCausalLM", "Mistral3ForConditionalGeneration"},
        .model_types = {"mistral"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .flags = ARCHITECTURE_EXPERTS,
        .window_rule = WINDOW_ALL_LAYERS,
        .experts = {.gguf_renormalise = true, .hf_renormalise = true, .num_chosen = 2},
        .defaults = {.num_kv_heads = 8,
                     .max_position = 131072,
                     .window = 4096,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        /* The 8B of October 2024. */
        .classes = {"MinistralForCausalLM"},
        .model_types = {"ministral"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .window_rule = WINDOW_LISTED_LAYERS,
        .defaults = {.num_kv_heads = 8,
                     .max_position = 131072,
                     .window = 4096,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        .classes = {"LlamaForCausalLM"},
        .model_types = {"llama"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .defaults = {.max_position = 2048, .norm_eps = 1e-6F, .theta = 1e4F},
    },
    {
        .gguf_names = {"qwen2"},
        .classes = {"Qwen2ForCausalLM"},
        .model_types = {"qwen2"},
        .pre_norm = true,
        .window_rule = WINDOW_FROM_LAYER,
        .defaults = {.num_kv_heads = 32,
                     .max_position = 32768,
                     .window = 4096,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        .gguf_names = {"qwen3"},
        .classes = {"Qwen3ForCausalLM"},
        .model_types = {"qwen3"},
        .pre_norm = true,
        .qk_norm = QK_NORM_HEAD,
        .window_rule = WINDOW_FROM_LAYER,
        .defaults = {.num_kv_heads = 32,
                     .head_dim = 128,
                     .max_position = 32768,
                     .window = 4096,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        .gguf_names = {"phi3"},
        .classes = {"Phi3ForCausalLM"},
        .model_types = {"phi3"},
        .pre_norm = true,
        .flags = ARCHITECTURE_PARTIAL_ROTARY | ARCHITECTURE_LONGROPE_ONLY,
        .window_rule = WINDOW_ALL_LAYERS,
        .gguf_window_4k = 2047,
        .defaults =
            {.max_position = 4096, .original_max_position = 4096, .norm_eps = 1e-5F, .theta = 1e4F},
    },
    {
        .gguf_names = {"gemma"},
        .classes = {"GemmaForCausalLM"},
        .model_types = {"gemma"},
        .pre_norm = true,
        .activation = ACTIVATION_GELU_TANH,
        .flags = ARCHITECTURE_PLUS_ONE | ARCHITECTURE_SCALED_EMBEDDING | ARCHITECTURE_GELU_IS_TANH,
        .defaults = {.num_kv_heads = 16,
                     .head_dim = 256,
                     .max_position = 8192,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F,
                     .tied_embeddings = true},
    },
    {
        .gguf_names = {"gemma2"},
        .classes = {"Gemma2ForCausalLM"},
        .model_types = {"gemma2"},
        .pre_norm = true,
        .post_norm = true,
        .activation = ACTIVATION_GELU_TANH,
        .flags = ARCHITECTURE_PLUS_ONE | ARCHITECTURE_SCALED_EMBEDDING | ARCHITECTURE_QUERY_SCALAR |
                 ARCHITECTURE_SOFT_CAPS | ARCHITECTURE_HIDDEN_ACTIVATION |
                 ARCHITECTURE_OVERFLOWS_F16,
        .window_rule = WINDOW_PERIODIC,
        .window_period = 2,
        .attention_soft_cap = 50.0F,
        .final_soft_cap = 30.0F,
        .gguf_query_scalar_layers = 46, /* 27B */
        .defaults = {.num_kv_heads = 4,
                     .head_dim = 256,
                     .max_position = 8192,
                     .window = 4096,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F,
                     .tied_embeddings = true},
    },
    {
        .gguf_names = {"gemma3"},
        .classes = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
        .model_types = {"gemma3_text"},
        .pre_norm = true,
        .post_norm = true,
        .qk_norm = QK_NORM_HEAD,
        .activation = ACTIVATION_GELU_TANH,
        .flags = ARCHITECTURE_PLUS_ONE | ARCHITECTURE_SCALED_EMBEDDING | ARCHITECTURE_QUERY_SCALAR |
                 ARCHITECTURE_SOFT_CAPS | ARCHITECTURE_LOCAL_ROPE | ARCHITECTURE_HIDDEN_ACTIVATION |
                 ARCHITECTURE_OVERFLOWS_F16,
        .window_rule = WINDOW_PERIODIC,
        .window_period = 6,
        .local_theta = 1e4F,
        .gguf_query_scalar_layers = 62, /* 27B */
        .defaults = {.vocab_size = 262208,
                     .hidden_size = 2304,
                     .intermediate_size = 9216,
                     .num_layers = 26,
                     .num_heads = 8,
                     .num_kv_heads = 4,
                     .head_dim = 256,
                     .max_position = 131072,
                     .window = 4096,
                     .norm_eps = 1e-6F,
                     .theta = 1e6F,
                     .tied_embeddings = true},
    },
    {
        .gguf_names = {"granite"},
        .classes = {"GraniteForCausalLM"},
        .model_types = {"granite"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .flags = ARCHITECTURE_MULTIPLIERS,
        .defaults = {.max_position = 2048, .norm_eps = 1e-6F, .theta = 1e4F},
    },
    {
        /* A model with windows is an OLMo 3; GGUF files have one name for both. */
        .gguf_names = {"olmo2"},
        .classes = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"},
        .model_types = {"olmo2", "olmo3"},
        .post_norm = true,
        .qk_norm = QK_NORM_FULL,
        .flags = ARCHITECTURE_LOCAL_ROPE | ARCHITECTURE_WHOLE_ATTENTION_FACTOR,
        .window_rule = WINDOW_PERIODIC,
        .window_period = 4,
        .defaults = {.max_position = 2048, .norm_eps = 1e-5F, .theta = 1e4F},
    },
    {
        .gguf_names = {"smollm3"},
        .classes = {"SmolLM3ForCausalLM"},
        .model_types = {"smollm3"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .window_rule = WINDOW_WITHOUT_ROPE,
        .nope_interval = 4,
        .defaults = {.num_kv_heads = 4,
                     .max_position = 32768,
                     .norm_eps = 1e-6F,
                     .theta = 2e6F,
                     .tied_embeddings = true},
    },
    {
        .gguf_names = {"command-r"},
        .classes = {"CohereForCausalLM"},
        .model_types = {"cohere"},
        .norm = NORM_LAYER,
        .pre_norm = true,
        .parallel_residual = true,
        .gguf_interleaved = true,
        .hf_interleaved = true,
        .flags = ARCHITECTURE_LOGIT_SCALE,
        .defaults = {.max_position = 8192,
                     .norm_eps = 1e-5F,
                     .theta = 5e5F,
                     .logit_scale = 0.0625F,
                     .tied_embeddings = true},
    },
    {
        .gguf_names = {"cohere2"},
        .classes = {"Cohere2ForCausalLM"},
        .model_types = {"cohere2"},
        .norm = NORM_LAYER,
        .pre_norm = true,
        .parallel_residual = true,
        .gguf_interleaved = true,
        .hf_interleaved = true,
        .flags = ARCHITECTURE_LOGIT_SCALE | ARCHITECTURE_ROPE_NEEDS_WINDOW,
        .window_rule = WINDOW_PERIODIC,
        .window_period = 4,
        .defaults = {.max_position = 8192,
                     .window = 4096,
                     .norm_eps = 1e-5F,
                     .theta = 1e4F,
                     .logit_scale = 0.0625F,
                     .tied_embeddings = true},
    },
    {
        .classes = {"MixtralForCausalLM"},
        .model_types = {"mixtral"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .flags = ARCHITECTURE_EXPERTS,
        .window_rule = WINDOW_ALL_LAYERS,
        .experts = {.hf_renormalise = true, .num_experts = 8, .num_chosen = 2},
        .defaults = {.num_kv_heads = 8, .max_position = 131072, .norm_eps = 1e-5F, .theta = 1e6F},
    },
    {
        .gguf_names = {"qwen2moe"},
        .classes = {"Qwen2MoeForCausalLM"},
        .model_types = {"qwen2_moe"},
        .pre_norm = true,
        .flags = ARCHITECTURE_EXPERTS,
        .window_rule = WINDOW_REFUSED,
        .experts = {.shared = SHARED_GATED,
                    .sparse_rule = SPARSE_STEP,
                    .own_size = true,
                    .says_renormalise = true,
                    .num_experts = 60,
                    .num_chosen = 4,
                    .expert_size = 1408,
                    .shared_size = 5632},
        .defaults = {.intermediate_size = 5632,
                     .num_kv_heads = 16,
                     .max_position = 32768,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        /* The default of a folder's norm_topk_prob is false, and all published models say true. */
        .gguf_names = {"qwen3moe"},
        .classes = {"Qwen3MoeForCausalLM"},
        .model_types = {"qwen3_moe"},
        .pre_norm = true,
        .qk_norm = QK_NORM_HEAD,
        .flags = ARCHITECTURE_EXPERTS,
        .window_rule = WINDOW_REFUSED,
        .experts = {.sparse_rule = SPARSE_STEP,
                    .own_size = true,
                    .gguf_renormalise = true,
                    .says_renormalise = true,
                    .num_experts = 128,
                    .num_chosen = 8,
                    .expert_size = 768},
        .defaults = {.intermediate_size = 6144,
                     .num_kv_heads = 4,
                     .max_position = 32768,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        .gguf_names = {"olmoe"},
        .classes = {"OlmoeForCausalLM"},
        .model_types = {"olmoe"},
        .pre_norm = true,
        .qk_norm = QK_NORM_FULL,
        .flags = ARCHITECTURE_EXPERTS,
        .experts = {.says_renormalise = true, .num_experts = 64, .num_chosen = 8},
        .defaults = {.max_position = 4096, .norm_eps = 1e-5F, .theta = 1e4F},
    },
    {
        .gguf_names = {"granitemoe"},
        .classes = {"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"},
        .model_types = {"granitemoe", "granitemoeshared"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .flags = ARCHITECTURE_MULTIPLIERS | ARCHITECTURE_EXPERTS,
        .experts = {.scoring = ROUTE_SOFTMAX_OF_CHOSEN,
                    .shared = SHARED_SIZED,
                    .num_experts = 8,
                    .num_chosen = 2},
        .defaults = {.max_position = 2048, .norm_eps = 1e-6F, .theta = 1e4F},
    },
    {
        .gguf_names = {"phimoe"},
        .classes = {"PhiMoEForCausalLM", "PhimoeForCausalLM"},
        .model_types = {"phimoe"},
        .norm = NORM_LAYER,
        .pre_norm = true,
        .flags = ARCHITECTURE_EXPERTS | ARCHITECTURE_BIASED_NORMS | ARCHITECTURE_HEAD_BIAS |
                 ARCHITECTURE_LONGROPE_ONLY | ARCHITECTURE_MSCALES,
        .window_rule = WINDOW_ALL_LAYERS,
        .experts =
            {.scoring = ROUTE_SPARSEMIXER, .jitter = 0.01F, .num_experts = 16, .num_chosen = 2},
        .defaults = {.num_kv_heads = 8, .max_position = 131072, .norm_eps = 1e-5F, .theta = 1e6F},
    },
    {
        .gguf_names = {"gpt-oss"},
        .classes = {"GptOssForCausalLM"},
        .model_types = {"gpt_oss"},
        .pre_norm = true,
        .activation = ACTIVATION_CLAMPED_SWIGLU,
        .flags = ARCHITECTURE_EXPERTS | ARCHITECTURE_SINKS | ARCHITECTURE_EXACT_YARN,
        .window_rule = WINDOW_PERIODIC,
        .window_period = 2,
        .experts = {.scoring = ROUTE_SOFTMAX_OF_CHOSEN,
                    .is_transposed = true,
                    .num_experts = 128,
                    .num_chosen = 4},
        .defaults = {.num_kv_heads = 8,
                     .head_dim = 64,
                     .max_position = 131072,
                     .window = 128,
                     .norm_eps = 1e-5F,
                     .theta = 1.5e5F},
    },
    {
        .gguf_names = {"glm4moe"},
        .classes = {"Glm4MoeForCausalLM"},
        .model_types = {"glm4_moe"},
        .pre_norm = true,
        .flags = ARCHITECTURE_EXPERTS | ARCHITECTURE_PARTIAL_ROTARY |
                 ARCHITECTURE_OPTIONAL_QK_NORM | ARCHITECTURE_EXTRA_LAYERS,
        .experts = {.scoring = ROUTE_SIGMOID,
                    .shared = SHARED_COUNTED,
                    .sparse_rule = SPARSE_AFTER_DENSE,
                    .own_size = true,
                    .hf_renormalise = true,
                    .says_renormalise = true,
                    .is_grouped = true,
                    .is_biased = true,
                    .num_experts = 128,
                    .num_chosen = 8,
                    .expert_size = 1408,
                    .num_dense = 1},
        .defaults = {.intermediate_size = 10944,
                     .num_kv_heads = 8,
                     .max_position = 131072,
                     .norm_eps = 1e-5F,
                     .theta = 1e4F,
                     .partial_rotary = 0.5F},
    },
    {
        .gguf_names = {"dots1"},
        .classes = {"Dots1ForCausalLM"},
        .model_types = {"dots1"},
        .pre_norm = true,
        .qk_norm = QK_NORM_HEAD,
        .flags = ARCHITECTURE_EXPERTS,
        .window_rule = WINDOW_FROM_LAYER,
        .experts = {.scoring = ROUTE_SIGMOID,
                    .shared = SHARED_COUNTED,
                    .sparse_rule = SPARSE_AFTER_DENSE,
                    .own_size = true,
                    .says_renormalise = true,
                    .is_grouped = true,
                    .is_biased = true,
                    .expert_size = 1408},
        .defaults = {.vocab_size = 152064,
                     .hidden_size = 4608,
                     .intermediate_size = 10944,
                     .num_layers = 62,
                     .num_heads = 32,
                     .num_kv_heads = 32,
                     .max_position = 2048,
                     .norm_eps = 1e-6F,
                     .theta = 1e4F},
    },
    {
        /* Like Transformers, renormalises never, whatever norm_topk_prob says. */
        .classes = {"DeepseekV2ForCausalLM"},
        .model_types = {"deepseek_v2"},
        .pre_norm = true,
        .hf_interleaved = true,
        .flags = ARCHITECTURE_EXPERTS | ARCHITECTURE_LATENT,
        .experts = {.shared = SHARED_COUNTED,
                    .sparse_rule = SPARSE_AFTER_DENSE,
                    .own_size = true,
                    .is_grouped = true,
                    .num_experts = 64,
                    .num_chosen = EXPERTS_MAX_CHOSEN + 1,
                    .expert_size = 1407},
        .defaults = {.max_position = 2048, .norm_eps = 1e-6F, .theta = 1e4F},
    },
    {
        /* Also Kimi-K2; GGUF files have one name for all of them. */
        .gguf_names = {"deepseek2"},
        .classes = {"DeepseekV3ForCausalLM"},
        .model_types = {"deepseek_v3", "kimi_k2"},
        .pre_norm = true,
        .gguf_interleaved = true,
        .hf_interleaved = true,
        .flags = ARCHITECTURE_EXPERTS | ARCHITECTURE_LATENT | ARCHITECTURE_EXTRA_LAYERS,
        .experts = {.scoring = ROUTE_SIGMOID,
                    .shared = SHARED_COUNTED,
                    .sparse_rule = SPARSE_AFTER_DENSE,
                    .own_size = true,
                    .hf_renormalise = true,
                    .says_renormalise = true,
                    .is_grouped = true,
                    .is_biased = true,
                    .num_experts = 256,
                    .num_chosen = 8,
                    .expert_size = 2048,
                    .num_dense = 3},
        .defaults = {.max_position = 4096, .norm_eps = 1e-6F, .theta = 1e4F},
    },
};

/* What many ask for and is not there, by what their names begin with in either kind of file. */
static const struct {
    const char *name, *reason;
} unsupported[] = {
    {"Llama4", "chunked attention and attention tuned by position"},
    {"llama4", "chunked attention and attention tuned by position"},
    {"Gemma3n", "embeddings of every layer"},
    {"gemma3n", "embeddings of every layer"},
    {"Qwen3Next", "linear attention"},
    {"qwen3next", "linear attention"},
    {"qwen3_next", "linear attention"},
    {"Qwen3_5", "linear attention"},
    {"qwen3_5", "linear attention"},
    {"qwen35", "linear attention"},
    {"GraniteMoeHybrid", "state-space layers"},
    {"granitemoehybrid", "state-space layers"},
    {"granitehybrid", "state-space layers"},
    {"Jamba", "state-space layers"},
    {"jamba", "state-space layers"},
    {"DeepseekV32", "attention to tokens that an indexer chooses"},
    {"deepseek_v32", "attention to tokens that an indexer chooses"},
};

/* Encoders, by a part of their names: BertModel, XLMRobertaForSequenceClassification, ModernBert.
 */
static bool is_encoder(const char *name) {
    static const char *const parts[] = {"bert", "electra", "mpnet", "gemma-embedding"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcasestr(name, parts[i]) != NULL)
            return true;
    return false;
}

enum { NUM_ARCHITECTURES = sizeof(table) / sizeof(table[0]) };

typedef const char *name_list[ARCHITECTURE_MAX_NAMES];

static bool list_has(const name_list names, const char *name, size_t length) {
    for (int i = 0; i < ARCHITECTURE_MAX_NAMES && names[i] != NULL; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return true;
    return false;
}

/* Appends a name, ", " between; leaves out what does not fit. */
static void append_names(const name_list names, char *out, size_t capacity) {
    for (int i = 0; i < ARCHITECTURE_MAX_NAMES && names[i] != NULL; i++) {
        size_t used = strlen(out);
        snprintf(out + used, capacity - used, "%s%s", used > 0 ? ", " : "", names[i]);
    }
}

/* Says why, or what is known: names of GGUF files, or the shorter ones of folders. */
static const struct architecture *refuse(const char *key, struct text name, bool is_gguf,
                                         const char *path, struct error *err) {
    char known[400] = "", shown[UTF8_PRINTABLE_BYTES];
    utf8_printable(name, shown);
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
        if (strncmp(shown, unsupported[i].name, strlen(unsupported[i].name)) == 0) {
            error_set(err, ERROR_MODEL, "%s: %s: '%s' is not supported (%s)", path, key, shown,
                      unsupported[i].reason);
            return NULL;
        }
    if (is_encoder(shown)) {
        error_set(err, ERROR_MODEL,
                  "%s: %s: '%s' is not supported (an encoder, whose tokens see later ones)", path,
                  key, shown);
        return NULL;
    }
    for (int i = 0; i < NUM_ARCHITECTURES; i++)
        append_names(is_gguf ? table[i].gguf_names : table[i].model_types, known, sizeof(known));
    error_set(err, ERROR_MODEL, "%s: %s: '%s' is not supported (known%s: %s)", path, key, shown,
              is_gguf ? "" : " model types", known);
    return NULL;
}

const struct architecture *architecture_find_gguf(struct text name, const char *path,
                                                  struct error *err) {
    for (int i = 0; i < NUM_ARCHITECTURES; i++)
        if (list_has(table[i].gguf_names, name.data, name.length))
            return &table[i];
    return refuse("general.architecture", name, true, path, err);
}

static const struct architecture *refuse_class(const char *key, const char *name, const char *path,
                                               struct error *err) {
    return refuse(key, (struct text){name, strlen(name)}, false, path, err);
}

static const struct architecture *find_model_type(const char *model_type) {
    for (int i = 0; i < NUM_ARCHITECTURES; i++)
        if (list_has(table[i].model_types, model_type, strlen(model_type)))
            return &table[i];
    return NULL;
}

static const struct architecture *find_class(const char *class_name, size_t length) {
    for (int i = 0; i < NUM_ARCHITECTURES; i++)
        if (list_has(table[i].classes, class_name, length))
            return &table[i];
    return NULL;
}

/* Finds the language model of a class without a head for words, by the rest of its name:
 * Qwen3ForSequenceClassification, Gemma3TextModel. */
static const struct architecture *find_headless(const char *class_name, size_t length) {
    static const char language[] = "ForCausalLM", text[] = "Text";
    char name[80];
    if (length + sizeof(language) > sizeof(name))
        return NULL;
    if (text_ends_with((struct text){class_name, length}, text))
        length -= sizeof(text) - 1;
    snprintf(name, sizeof(name), "%.*s%s", (int)length, class_name, language);
    return find_class(name, strlen(name));
}

enum architecture_head architecture_head_of(const char *class_name, size_t *out_length) {
    static const struct {
        const char *suffix;
        enum architecture_head head;
    } kinds[] = {{"ForSequenceClassification", ARCHITECTURE_SCORES},
                 {"Model", ARCHITECTURE_HEADLESS}};
    struct text name = {class_name, class_name != NULL ? strlen(class_name) : 0};
    enum architecture_head head = ARCHITECTURE_WORDS;
    size_t end = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && end == 0; i++)
        if (text_ends_with(name, kinds[i].suffix)) {
            end = strlen(kinds[i].suffix);
            head = kinds[i].head;
        }
    if (out_length != NULL)
        *out_length = name.length - end;
    return head;
}

const struct architecture *architecture_find_hf(const char *class_name, const char *model_type,
                                                const char *path, struct error *err) {
    const struct architecture *found = NULL;
    if (class_name == NULL && model_type == NULL) {
        error_set(err, ERROR_MODEL, "%s: architectures: is missing", path);
        return NULL;
    }
    if (class_name == NULL) {
        found = find_model_type(model_type);
        return found != NULL ? found : refuse_class("model_type", model_type, path, err);
    }
    size_t length;
    bool is_headless = architecture_head_of(class_name, &length) != ARCHITECTURE_WORDS;
    found = is_headless ? find_headless(class_name, length) : find_class(class_name, length);
    if (found == NULL)
        return refuse_class("architectures", class_name, path, err);
    if (model_type == NULL || list_has(found->model_types, model_type, strlen(model_type)))
        return found;
    char shown[UTF8_PRINTABLE_BYTES];
    utf8_printable((struct text){model_type, strlen(model_type)}, shown);
    error_set(err, ERROR_MODEL, "%s: model_type: '%s' does not go with %s (expected: %s)", path,
              shown, class_name, found->model_types[0]);
    return NULL;
}
