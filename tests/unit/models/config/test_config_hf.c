/* test_config_hf FOLDER: FOLDER holds config.json of published models, as NAME.json. What is
 * expected of each was compared with what Transformers 5.23 makes of the same file. */
#include "models/config/config_hf.h"
#include "models/files/json_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static cJSON *read_fixture(const char *folder, const char *name) {
    char path[4096];
    struct error err = {0};
    snprintf(path, sizeof(path), "%s/%s.json", folder, name);
    cJSON *root = json_file_read(path, 1 << 20, &err);
    if (root == NULL)
        fail_msg("%s", err.message);
    return root;
}

static struct model_config accepted(const cJSON *root) {
    struct model_config config;
    struct error err = {0};
    if (config_hf_read(root, "config.json", &config, &err) != 0)
        fail_msg("%s", err.message);
    return config;
}

static struct model_config read_model(const char *folder, const char *name) {
    cJSON *root = read_fixture(folder, name);
    struct model_config config = accepted(root);
    cJSON_Delete(root);
    return config;
}

static void assert_near(float found, double expected) {
    if (!(fabs((double)found - expected) <= 1e-6 * fabs(expected)))
        fail_msg("%.9g is not %.9g", (double)found, expected);
}

/* --- Published models --------------------------------------------------------------------------
 */

static const struct {
    const char *name, *architecture;
    int32_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_position;
    bool tied;
    enum qk_norm qk_norm;
    enum activation activation;
    double theta;
    enum rope_scaling scaling;
} models[] = {
    {"llama-2-7b", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 32, 128, 4096, false, 0, 0, 1e4,
     ROPE_SCALING_NONE},
    {"llama-3.1-8b", "LlamaForCausalLM", 128256, 4096, 14336, 32, 32, 8, 128, 131072, false, 0, 0,
     5e5, ROPE_SCALING_LLAMA3},
    {"llama-3.2-1b", "LlamaForCausalLM", 128256, 2048, 8192, 16, 32, 8, 64, 131072, true, 0, 0, 5e5,
     ROPE_SCALING_LLAMA3},
    {"deepseek-coder-6.7b", "LlamaForCausalLM", 32256, 4096, 11008, 32, 32, 32, 128, 16384, false,
     0, 0, 1e5, ROPE_SCALING_LINEAR},
    {"smollm2-135m", "LlamaForCausalLM", 49152, 576, 1536, 30, 9, 3, 64, 8192, true, 0, 0, 1e5,
     ROPE_SCALING_NONE},
    {"mistral-7b-v0.1", "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 128, 32768, false, 0,
     0, 1e4, ROPE_SCALING_NONE},
    {"mistral-nemo-12b", "MistralForCausalLM", 131072, 5120, 14336, 40, 32, 8, 128, 131072, false,
     0, 0, 1e6, ROPE_SCALING_NONE},
    {"mistral-small-3.1-24b", "Mistral3ForConditionalGeneration", 131072, 5120, 32768, 40, 32, 8,
     128, 131072, true, 0, 0, 1e9, ROPE_SCALING_NONE},
    {"qwen2.5-0.5b", "Qwen2ForCausalLM", 151936, 896, 4864, 24, 14, 2, 64, 32768, true, 0, 0, 1e6,
     ROPE_SCALING_NONE},
    {"qwen2.5-7b-yarn", "Qwen2ForCausalLM", 152064, 3584, 18944, 28, 28, 4, 128, 131072, false, 0,
     0, 1e6, ROPE_SCALING_YARN},
    {"r1-distill-qwen-1.5b", "Qwen2ForCausalLM", 151936, 1536, 8960, 28, 12, 2, 128, 131072, false,
     0, 0, 1e4, ROPE_SCALING_NONE},
    {"qwen3-0.6b", "Qwen3ForCausalLM", 151936, 1024, 3072, 28, 16, 8, 128, 40960, true,
     QK_NORM_HEAD, 0, 1e6, ROPE_SCALING_NONE},
    {"phi-3-mini-4k", "Phi3ForCausalLM", 32064, 3072, 8192, 32, 32, 32, 96, 4096, false, 0, 0, 1e4,
     ROPE_SCALING_NONE},
    {"phi-3-mini-128k", "Phi3ForCausalLM", 32064, 3072, 8192, 32, 32, 32, 96, 131072, false, 0, 0,
     1e4, ROPE_SCALING_LONGROPE},
    {"phi-4-mini", "Phi3ForCausalLM", 200064, 3072, 8192, 32, 24, 8, 128, 131072, true, 0, 0, 1e4,
     ROPE_SCALING_LONGROPE},
    {"gemma-2b", "GemmaForCausalLM", 256000, 2048, 16384, 18, 8, 1, 256, 8192, true, 0,
     ACTIVATION_GELU_TANH, 1e4, ROPE_SCALING_NONE},
    {"gemma-2-2b", "Gemma2ForCausalLM", 256000, 2304, 9216, 26, 8, 4, 256, 8192, true, 0,
     ACTIVATION_GELU_TANH, 1e4, ROPE_SCALING_NONE},
    {"gemma-3-270m", "Gemma3ForCausalLM", 262144, 640, 2048, 18, 4, 1, 256, 32768, true,
     QK_NORM_HEAD, ACTIVATION_GELU_TANH, 1e6, ROPE_SCALING_NONE},
    {"gemma-3-1b", "Gemma3ForCausalLM", 262144, 1152, 6912, 26, 4, 1, 256, 32768, true,
     QK_NORM_HEAD, ACTIVATION_GELU_TANH, 1e6, ROPE_SCALING_NONE},
    {"gemma-3-4b", "Gemma3ForConditionalGeneration", 262208, 2560, 10240, 34, 8, 4, 256, 131072,
     true, QK_NORM_HEAD, ACTIVATION_GELU_TANH, 1e6, ROPE_SCALING_LINEAR},
    {"granite-3.1-2b", "GraniteForCausalLM", 49155, 2048, 8192, 40, 32, 8, 64, 131072, true, 0, 0,
     5e6, ROPE_SCALING_NONE},
    {"olmo-2-1b", "Olmo2ForCausalLM", 100352, 2048, 8192, 16, 16, 16, 128, 4096, false,
     QK_NORM_FULL, 0, 5e5, ROPE_SCALING_NONE},
    {"olmo-3-7b", "Olmo3ForCausalLM", 100278, 4096, 11008, 32, 32, 32, 128, 65536, false,
     QK_NORM_FULL, 0, 5e5, ROPE_SCALING_YARN},
    {"smollm3-3b", "SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 4, 128, 65536, true, 0, 0,
     5e6, ROPE_SCALING_NONE},
    {"command-r-35b", "CohereForCausalLM", 256000, 8192, 22528, 40, 64, 64, 128, 8192, true, 0, 0,
     8e6, ROPE_SCALING_NONE},
    {"command-r7b", "Cohere2ForCausalLM", 256000, 4096, 14336, 32, 32, 8, 128, 132096, true, 0, 0,
     5e4, ROPE_SCALING_NONE},
    {"mixtral-8x7b", "MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 128, 32768, false, 0, 0,
     1e6, ROPE_SCALING_NONE},
    {"qwen1.5-moe-a2.7b", "Qwen2MoeForCausalLM", 151936, 2048, 5632, 24, 16, 16, 128, 8192, false,
     0, 0, 1e6, ROPE_SCALING_NONE},
    {"qwen3-30b-a3b", "Qwen3MoeForCausalLM", 151936, 2048, 6144, 48, 32, 4, 128, 40960, false,
     QK_NORM_HEAD, 0, 1e6, ROPE_SCALING_NONE},
    {"olmoe-1b-7b", "OlmoeForCausalLM", 50304, 2048, 1024, 16, 16, 16, 128, 4096, false,
     QK_NORM_FULL, 0, 1e4, ROPE_SCALING_NONE},
    {"granite-3.1-3b-a800m", "GraniteMoeForCausalLM", 49155, 1536, 512, 32, 24, 8, 64, 131072, true,
     0, 0, 1e7, ROPE_SCALING_NONE},
    {"gpt-oss-20b-bf16", "GptOssForCausalLM", 201088, 2880, 2880, 24, 64, 8, 64, 131072, false, 0,
     ACTIVATION_CLAMPED_SWIGLU, 1.5e5, ROPE_SCALING_YARN},
    {"glm-4.5-air", "Glm4MoeForCausalLM", 151552, 4096, 10944, 46, 96, 8, 128, 131072, false, 0, 0,
     1e6, ROPE_SCALING_NONE},
};

enum { NUM_MODELS = sizeof(models) / sizeof(models[0]) };

static void test_published_models(void **state) {
    for (size_t i = 0; i < NUM_MODELS; i++) {
        const struct model_config config = read_model(*state, models[i].name);
        assert_string_equal(config.architecture, models[i].architecture);
        assert_int_equal(config.vocab_size, models[i].vocab);
        assert_int_equal(config.hidden_size, models[i].hidden);
        assert_int_equal(config.intermediate_size, models[i].intermediate);
        assert_int_equal(config.num_layers, models[i].layers);
        assert_int_equal(config.num_heads, models[i].heads);
        assert_int_equal(config.num_kv_heads, models[i].kv_heads);
        assert_int_equal(config.head_dim, models[i].head_dim);
        assert_int_equal(config.max_position, models[i].max_position);
        assert_int_equal(config.tied_embeddings, models[i].tied);
        assert_int_equal(config.qk_norm, models[i].qk_norm);
        assert_int_equal(config.activation, models[i].activation);
        assert_near(config.ropes[0].theta, models[i].theta);
        assert_int_equal(config.ropes[0].scaling, models[i].scaling);
        assert_int_equal(config.naming, TENSOR_NAMING_HF);
        bool cohere = strncmp(models[i].architecture, "Cohere", 6) == 0;
        bool gemma = strncmp(models[i].architecture, "Gemma", 5) == 0;
        assert_int_equal(config.norm, cohere ? NORM_LAYER : NORM_RMS);
        assert_int_equal(config.parallel_residual, cohere);
        assert_int_equal(config.rope_interleaved, cohere);
        assert_int_equal(config.norm_plus_one, gemma);
        assert_int_equal(config.pre_norm, strncmp(models[i].architecture, "Olmo", 4) != 0 ||
                                              config.moe.num_experts > 0);
    }
}

/* The layers whose bit is set have the window and the first rope given, the others the second. */
static void assert_layers(const struct model_config *config, int32_t period, int32_t window,
                          int32_t rope, int32_t full_window, int32_t full_rope) {
    for (int32_t i = 0; i < config->num_layers; i++) {
        bool full = period > 0 && (i + 1) % period == 0;
        assert_int_equal(config->layers[i].window, full ? full_window : window);
        assert_int_equal(config->layers[i].rope, full ? full_rope : rope);
    }
}

static void test_layers(void **state) {
    struct model_config config = read_model(*state, "llama-3.1-8b");
    assert_layers(&config, 0, 0, 0, 0, 0);
    config = read_model(*state, "mistral-7b-v0.1");
    assert_layers(&config, 0, 4096, 0, 0, 0);
    config = read_model(*state, "mistral-nemo-12b");
    assert_layers(&config, 0, 0, 0, 0, 0);
    config = read_model(*state, "qwen2.5-0.5b");
    assert_layers(&config, 0, 0, 0, 0, 0);
    config = read_model(*state, "phi-3-mini-4k");
    assert_layers(&config, 0, 2047, 0, 0, 0);
    config = read_model(*state, "gemma-2-2b");
    assert_layers(&config, 2, 4096, 0, 0, 0);
    config = read_model(*state, "gemma-3-1b");
    assert_layers(&config, 6, 512, 1, 0, 0);
    config = read_model(*state, "gemma-3-270m");
    assert_layers(&config, 6, 512, 1, 0, 0);
    config = read_model(*state, "olmo-3-7b");
    assert_layers(&config, 4, 4096, 1, 0, 0);
    config = read_model(*state, "smollm3-3b");
    assert_layers(&config, 4, 0, 0, 0, -1);
    config = read_model(*state, "command-r7b");
    assert_layers(&config, 4, 4096, 0, 0, -1);
}

static void test_scales(void **state) {
    struct model_config config = read_model(*state, "gemma-2-2b");
    assert_near(config.embedding_scale, 48.0);
    assert_near(config.attention_scale, 0.0625);
    assert_near(config.attention_soft_cap, 50.0);
    assert_near(config.final_soft_cap, 30.0);
    assert_true(config.post_norm);
    config = read_model(*state, "gemma-3-4b");
    assert_true(config.attention_soft_cap == 0.0F && config.final_soft_cap == 0.0F);
    config = read_model(*state, "granite-3.1-2b");
    assert_near(config.embedding_scale, 12.0);
    assert_near(config.residual_scale, 0.22);
    assert_near(config.attention_scale, 0.015625);
    assert_near(config.logit_scale, 0.125);
    config = read_model(*state, "command-r-35b");
    assert_near(config.logit_scale, 0.0625);
    config = read_model(*state, "phi-3-mini-4k");
    assert_near(config.attention_scale, 1.0 / sqrt(96.0));
}

static void test_ropes(void **state) {
    struct model_config config = read_model(*state, "llama-3.2-1b");
    const struct rope_config *rope = &config.ropes[0];
    assert_near(rope->factor, 32.0);
    assert_near(rope->low_freq_factor, 1.0);
    assert_near(rope->high_freq_factor, 4.0);
    assert_int_equal(rope->original_max_position, 8192);
    config = read_model(*state, "qwen2.5-7b-yarn");
    assert_near(rope->factor, 4.0);
    assert_near(rope->attention_factor, 1.138629436);
    assert_near(rope->beta_fast, 32.0);
    assert_near(rope->beta_slow, 1.0);
    assert_true(rope->truncate);
    config = read_model(*state, "phi-4-mini");
    assert_int_equal(config.rotary_dim, 96);
    assert_int_equal(rope->original_max_position, 4096);
    assert_near(rope->attention_factor, 1.190238);
    assert_near(rope->short_factors[47], 1.0);
    assert_near(rope->long_factors[47], 62.15);
    config = read_model(*state, "gemma-3-4b");
    assert_int_equal(config.num_ropes, 2);
    assert_near(rope->factor, 8.0);
    assert_near(config.ropes[1].theta, 1e4);
    assert_int_equal(config.ropes[1].scaling, ROPE_SCALING_NONE);
    config = read_model(*state, "olmo-3-7b");
    assert_near(config.ropes[1].theta, 5e5);
    assert_near(rope->attention_factor, 1.2079441541679836);
}

/* --- Variations of one file --------------------------------------------------------------------
 */

/* Parses a value and puts it where the key points: "a.b" is key b of the object a. */
static void set_key(cJSON *root, const char *key, const char *value) {
    char name[64];
    const char *dot = strchr(key, '.');
    if (dot != NULL) {
        snprintf(name, sizeof(name), "%.*s", (int)(dot - key), key);
        cJSON *inner = cJSON_GetObjectItemCaseSensitive(root, name);
        if (inner == NULL)
            inner = cJSON_AddObjectToObject(root, name);
        set_key(inner, dot + 1, value);
        return;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(root, key);
    if (value[0] == '\0') /* left out */
        return;
    cJSON *item = cJSON_Parse(value);
    assert_non_null(item);
    cJSON_AddItemToObject(root, key, item);
}

struct change {
    const char *key, *value;
};

#define MAX_CHANGES 6

static cJSON *varied(const char *folder, const char *name, const struct change *changes) {
    cJSON *root = read_fixture(folder, name);
    for (size_t i = 0; i < MAX_CHANGES && changes[i].key != NULL; i++)
        set_key(root, changes[i].key, changes[i].value);
    return root;
}

static struct model_config accepted_variant(const char *folder, const char *name,
                                            const struct change *changes) {
    cJSON *root = varied(folder, name, changes);
    struct model_config config = accepted(root);
    cJSON_Delete(root);
    return config;
}

#define ACCEPTED(name, ...)                                                                        \
    accepted_variant(*state, name, (const struct change[MAX_CHANGES]){__VA_ARGS__})

static void assert_tree_refused(const cJSON *root, const char *reason) {
    struct model_config config = {.num_layers = 77};
    struct error err = {0};
    if (config_hf_read(root, "config.json", &config, &err) != -1)
        fail_msg("accepted; expected '%s'", reason);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(config.num_layers, 77);
    assert_null(strchr(err.message, '\n'));
    if (strstr(err.message, reason) == NULL || strncmp(err.message, "config.json: ", 13) != 0)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void assert_refused(const char *folder, const char *name, const char *key, const char *value,
                           const char *reason) {
    cJSON *root = varied(folder, name, (const struct change[MAX_CHANGES]){{key, value}});
    assert_tree_refused(root, reason);
    cJSON_Delete(root);
}

static void test_class_defaults(void **state) {
    assert_int_equal(ACCEPTED("llama-2-7b", {"num_key_value_heads", ""}).num_kv_heads, 32);
    assert_int_equal(ACCEPTED("mistral-7b-v0.1", {"num_key_value_heads", ""}).num_kv_heads, 8);
    assert_int_equal(ACCEPTED("mistral-7b-v0.1", {"num_key_value_heads", "null"}).num_kv_heads, 32);
    assert_int_equal(ACCEPTED("mistral-7b-v0.1", {"sliding_window", ""}).layers[0].window, 4096);
    assert_int_equal(ACCEPTED("qwen3-0.6b", {"head_dim", ""}).head_dim, 128);
    assert_int_equal(ACCEPTED("llama-3.2-1b", {"head_dim", "null"}).head_dim, 64);
    assert_int_equal(ACCEPTED("llama-2-7b", {"max_position_embeddings", ""}).max_position, 2048);
    assert_near(ACCEPTED("llama-2-7b", {"rms_norm_eps", ""}).norm_eps, 1e-6);
    assert_near(ACCEPTED("smollm3-3b", {"rope_theta", ""}).ropes[0].theta, 2e6);
    assert_false(ACCEPTED("llama-3.2-1b", {"tie_word_embeddings", ""}).tied_embeddings);
    assert_false(ACCEPTED("gemma-2b", {"tie_word_embeddings", "false"}).tied_embeddings);
    assert_true(ACCEPTED("gemma-2-2b", {"final_logit_softcapping", "null"}).final_soft_cap == 0.0F);
    assert_near(ACCEPTED("gemma-2-2b", {"final_logit_softcapping", ""}).final_soft_cap, 30.0);
    assert_near(ACCEPTED("granite-3.1-2b", {"attention_multiplier", ""}).attention_scale, 1.0);
    assert_string_equal(ACCEPTED("llama-2-7b", {"architectures", "[]"}).architecture, "llama");
    assert_string_equal(ACCEPTED("llama-2-7b", {"model_type", ""}).architecture,
                        "LlamaForCausalLM");
}

/* The same settings in the three styles of describing ropes. */
static void test_styles_of_ropes(void **state) {
    struct model_config config =
        ACCEPTED("llama-3.1-8b", {"rope_theta", ""}, {"rope_scaling", ""},
                 {"rope_parameters", "{\"rope_type\": \"llama3\", \"rope_theta\": 400000, "
                                     "\"factor\": 8, \"low_freq_factor\": 1, "
                                     "\"high_freq_factor\": 4, "
                                     "\"original_max_position_embeddings\": 8192}"});
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_LLAMA3);
    assert_near(config.ropes[0].theta, 4e5);
    config = ACCEPTED("gemma-3-270m", {"rope_parameters.sliding_attention.rope_theta", "20000"},
                      {"rope_parameters.full_attention",
                       "{\"rope_type\": \"linear\", \"factor\": 8, \"rope_theta\": 2e6}"});
    assert_near(config.ropes[0].theta, 2e6);
    assert_near(config.ropes[0].factor, 8.0);
    assert_near(config.ropes[1].theta, 2e4);
    config = ACCEPTED("gemma-3-270m", {"rope_parameters", "null"});
    assert_near(config.ropes[0].theta, 1e6);
    assert_near(config.ropes[1].theta, 1e4);
    assert_refused(*state, "llama-3.1-8b", "rope_parameters",
                   "{\"sliding_attention\": {}, \"full_attention\": {}}",
                   "rope_parameters: a rope for each kind of layer is not supported");
}

static void test_rope_scalings(void **state) {
    struct model_config config =
        ACCEPTED("llama-2-7b", {"rope_scaling", "{\"type\": \"dynamic\", \"factor\": 2}"});
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_DYNAMIC);
    assert_int_equal(config.ropes[0].original_max_position, 4096);
    assert_int_equal(config.max_position, 8192);
    config = ACCEPTED("llama-2-7b",
                      {"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 0.707,"
                                       " \"mscale_all_dim\": 1.5, \"truncate\": false}"});
    assert_near(config.ropes[0].attention_factor,
                (0.0707 * log(4) + 1.0) / (0.15 * log(4.0) + 1.0));
    assert_false(config.ropes[0].truncate);
    assert_int_equal(config.ropes[0].original_max_position, 4096);
    assert_int_equal(config.max_position, 4096); /* nobody said what it was trained for */
    config = ACCEPTED("phi-4-mini", {"rope_scaling.attention_factor", "1.5"});
    assert_near(config.ropes[0].attention_factor, 1.5);
    config = ACCEPTED("llama-2-7b", {"rope_scaling", "{}"});
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_NONE);
}

static void test_bad_ropes(void **state) {
    const char *folder = *state;
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.rope_type", "\"ntk\"",
                   "rope_scaling.rope_type: 'ntk' is not supported (supported: default, linear");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.rope_type", "3", "is not a string");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.factor", "0",
                   "rope_scaling.factor: 0 (allowed: 1 to 100000)");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.factor", "", "is missing");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.high_freq_factor", "1",
                   "must be above low_freq_factor");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.low_freq_factor", "", "is missing");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling.mrope_section", "[1, 2]",
                   "rope_scaling.mrope_section: this setting is not supported");
    assert_refused(folder, "llama-3.1-8b", "rope_scaling", "\"llama3\"", "is not an object");
    assert_refused(folder, "llama-3.1-8b", "rope_theta", "0", "rope_theta: 0 (allowed: 1 to");
    assert_refused(folder, "phi-4-mini", "rope_scaling.short_factor", "[1, 2]",
                   "has 2 elements; must have 48");
    assert_refused(folder, "phi-4-mini", "rope_scaling.long_factor", "", "is missing");
    assert_refused(folder, "phi-4-mini", "rope_scaling.long_factor", "[0]", "element 0 is no");
    assert_refused(folder, "phi-4-mini", "partial_rotary_factor", "1", "has 48 elements");
    assert_refused(folder, "phi-4-mini", "partial_rotary_factor", "0.001", "must be even");
    assert_refused(folder, "llama-3.1-8b", "partial_rotary_factor", "0.5",
                   "only 1 is supported for this architecture");
}

/* Values that say "none". */
static void test_values_without_effect(void **state) {
    struct model_config config = ACCEPTED("mistral-7b-v0.1", {"sliding_window", "0"});
    assert_layers(&config, 0, 0, 0, 0, 0);
    ACCEPTED("llama-2-7b", {"sliding_window", "0"});
    ACCEPTED("qwen2.5-0.5b", {"sliding_window", "0"});
    config = ACCEPTED("gemma-2-2b", {"sliding_window", "0"});
    assert_layers(&config, 0, 0, 0, 0, 0);
    assert_refused(*state, "mistral-7b-v0.1", "sliding_window", "-1",
                   "sliding_window: -1 (allowed: 0 to ");
    ACCEPTED("llama-2-7b", {"num_local_experts", "1"});
    ACCEPTED("llama-2-7b", {"num_experts", "1"});
    config = ACCEPTED("qwen2.5-7b-yarn", {"rope_scaling.attn_factor", "3"});
    assert_near(config.ropes[0].attention_factor, 1.138629436);
}

static void test_layer_lists(void **state) {
    const char *folder = *state;
    struct model_config config =
        ACCEPTED("qwen2.5-0.5b", {"use_sliding_window", "true"}, {"num_hidden_layers", "24"});
    for (int32_t i = 0; i < 24; i++)
        assert_int_equal(config.layers[i].window, i >= 21 ? 32768 : 0);
    config = ACCEPTED("smollm3-3b", {"use_sliding_window", "true"}, {"sliding_window", "100"},
                      {"layer_types", ""}, {"no_rope_layers", ""}, {"num_hidden_layers", "5"});
    for (int32_t i = 0; i < 5; i++) {
        assert_int_equal(config.layers[i].rope, i == 3 ? -1 : 0);
        assert_int_equal(config.layers[i].window, i == 3 ? 100 : 0);
    }
    config = ACCEPTED("gemma-3-1b", {"sliding_window_pattern", "2"});
    assert_layers(&config, 2, 512, 1, 0, 0);
    assert_refused(folder, "gemma-3-270m", "layer_types", "[\"full_attention\"]",
                   "layer_types: has 1 elements, and there are 18 layers");
    assert_refused(folder, "gemma-3-270m", "num_hidden_layers", "17", "has more elements");
    assert_refused(folder, "gemma-3-270m", "layer_types", "[\"chunked_attention\"]",
                   "layer_types: 'chunked_attention' is not supported");
    assert_refused(folder, "gemma-3-270m", "layer_types", "[1]", "'' is not supported");
    assert_refused(folder, "mistral-7b-v0.1", "layer_types", "[\"full_attention\"]",
                   "layer_types: has 1 elements");
    const char *two = "[\"full_attention\", \"sliding_attention\"]";
    config =
        ACCEPTED("mistral-7b-v0.1", {"architectures", "[\"MinistralForCausalLM\"]"},
                 {"model_type", "\"ministral\""}, {"num_hidden_layers", "2"}, {"layer_types", two});
    assert_int_equal(config.layers[0].window, 0);
    assert_int_equal(config.layers[1].window, 4096);
    config = ACCEPTED("mistral-7b-v0.1", {"architectures", "[\"MinistralForCausalLM\"]"},
                      {"model_type", "\"ministral\""});
    assert_layers(&config, 0, 4096, 0, 0, 0);
    /* A class that knows no list: no difference as long as the window holds every context. */
    config = ACCEPTED("mistral-7b-v0.1", {"sliding_window", "32768"}, {"num_hidden_layers", "2"},
                      {"layer_types", two});
    assert_layers(&config, 0, 32768, 0, 0, 0);
    cJSON *root =
        varied(folder, "mistral-7b-v0.1",
               (const struct change[MAX_CHANGES]){
                   {"sliding_window", "32767"}, {"num_hidden_layers", "2"}, {"layer_types", two}});
    assert_tree_refused(root, "layer_types: layers of different kinds are not supported");
    cJSON_Delete(root);
    assert_refused(folder, "smollm3-3b", "no_rope_layers", "[1, 0]", "has 2 elements");
    assert_refused(folder, "smollm3-3b", "no_rope_layers", "[2]", "element 0 is neither 0 nor 1");
    assert_refused(folder, "llama-2-7b", "no_rope_layers", "[1]", "is not supported for this");
    assert_refused(folder, "gemma-3-1b", "sliding_window_pattern", "0", "(allowed: 1 to 512)");
    assert_refused(folder, "smollm3-3b", "no_rope_layer_interval", "0", "(allowed: 1 to 512)");
}

static void test_architectures(void **state) {
    static const char known[] =
        "(known model types: mistral, ministral, llama, qwen2, qwen3, phi3, gemma, gemma2, "
        "gemma3_text, granite, olmo2, olmo3, smollm3, cohere, cohere2, mixtral, qwen2_moe, "
        "qwen3_moe, olmoe, granitemoe, granitemoeshared, phimoe, gpt_oss, glm4_moe, dots1, "
        "deepseek_v2, deepseek_v3, kimi_k2)";
    const char *folder = *state;
    assert_refused(folder, "llama-2-7b", "architectures", "[\"MambaForCausalLM\\n\"]",
                   "architectures: 'MambaForCausalLM?' is not supported");
    assert_refused(folder, "llama-2-7b", "architectures", "[\"MambaForCausalLM\"]", known);
    assert_refused(folder, "llama-2-7b", "architectures", "[7]", "is not a list of strings");
    assert_refused(folder, "llama-2-7b", "architectures", "\"LlamaForCausalLM\"",
                   "is not an array");
    assert_refused(folder, "llama-2-7b", "model_type", "\"mllama\"",
                   "model_type: 'mllama' does not go with LlamaForCausalLM (expected: llama)");
    assert_refused(folder, "gemma-3-4b", "text_config", "", "text_config: is missing");
    assert_refused(folder, "gemma-3-4b", "text_config", "[]", "text_config: is not an object");
    assert_refused(folder, "mistral-small-3.1-24b", "text_config.model_type", "\"ministral3\"",
                   "model_type: 'ministral3' does not go with Mistral3ForConditionalGeneration");
    cJSON *root =
        varied(folder, "llama-2-7b",
               (const struct change[MAX_CHANGES]){{"architectures", ""}, {"model_type", ""}});
    assert_tree_refused(root, "architectures: is missing");
    set_key(root, "model_type", "\"mamba\"");
    assert_tree_refused(root, "model_type: 'mamba' is not supported");
    cJSON_Delete(root);
}

/* --- Quantised checkpoints --- */

#define QUANTIZED(value) ACCEPTED("llama-2-7b", {"quantization_config", value}).quantization
#define COMPRESSED(format, weights)                                                                \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"" format                             \
    "\", \"config_groups\": {\"group_0\": {\"weights\": {" weights "}}}}"

static void test_quantisations(void **state) {
    struct quantization_config q = QUANTIZED("{}");
    assert_int_equal(q.method, QUANTIZATION_NONE);
    q = QUANTIZED("{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64}");
    assert_int_equal(q.method, QUANTIZATION_GPTQ);
    assert_string_equal(q.name, "gptq");
    assert_int_equal(q.bits, 4);
    assert_int_equal(q.group_size, 64);
    assert_true(q.zeros_less_one && q.is_in_order);
    q = QUANTIZED(
        "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": -1, \"desc_act\": true,"
        " \"checkpoint_format\": \"gptq_v2\"}");
    assert_int_equal(q.group_size, 0);
    assert_false(q.zeros_less_one || q.is_in_order);
    q = QUANTIZED("{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"GEMM\","
                  " \"group_size\": 128}");
    assert_int_equal(q.method, QUANTIZATION_AWQ);
    q = QUANTIZED("{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}");
    assert_int_equal(q.block_rows, 64);
    assert_int_equal(q.block_cols, 128);
    q = QUANTIZED(COMPRESSED("pack-quantized", "\"num_bits\": 4, \"type\": \"int\", \"strategy\":"
                                               " \"group\", \"group_size\": 32"));
    assert_int_equal(q.method, QUANTIZATION_COMPRESSED);
    assert_int_equal(q.group_size, 32);
    q = QUANTIZED("{\"quant_method\": \"mxfp4\"}");
    assert_int_equal(q.method, QUANTIZATION_MXFP4);
}

/* By the names that their makers gave them. */
static void test_other_quantisations(void **state) {
    static const struct change cases[] = {
        {"3", "quantization_config: is not an object"},
        {"{\"bits\": 4}", "quantization_config.quant_method: is missing"},
        {"{\"quant_method\": \"bitsandbytes\"}", "quant_method: 'bitsandbytes' is not supported"},
        {"{\"quant_method\": \"modelopt\"}", "quant_method: 'modelopt' is not supported"},
        {"{\"quant_method\": \"gptq\"}", "quantization_config.bits: is missing"},
        {"{\"quant_method\": \"gptq\", \"bits\": 3}", "bits: 3 is not supported"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 48}",
         "group_size: 48: must be"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}", "group_size: 0: must be"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"}",
         "checkpoint_format: 'marlin' is not supported (supported: gptq, gptq_v2)"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"a\": 1}}", "dynamic: settings"},
        {"{\"quant_method\": \"awq\", \"version\": \"gemv\"}", "version: 'gemv' is not supported"},
        {"{\"quant_method\": \"awq\", \"bits\": 8}", "bits: 8 is not supported"},
        {"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", "fmt: 'e5m2' is not supported"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", "is not a list of two sizes"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [1, 64]}", "multiple of 128 columns"},
        {COMPRESSED("nvfp4-pack-quantized", ""), "format: 'nvfp4-pack-quantized' is not supported"},
        {COMPRESSED("int-quantized", "\"type\": \"float\""), "type: 'float' does not fit"},
        {COMPRESSED("pack-quantized", "\"num_bits\": 2"), "weights.num_bits: 2 is not supported"},
        {COMPRESSED("pack-quantized", "\"strategy\": \"token\""), "strategy: 'token' is not"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": 3}",
         "weight_block_size: is not an array"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"is_marlin_format\": true}",
         "is_marlin_format"},
        {"{\"quant_method\": \"compressed-tensors\", \"sparsity_config\": {\"format\":"
         " \"sparse-24-bitmask\"}}",
         "sparsity_config.format: 'sparse-24-bitmask' is not supported"},
        {"{\"quant_method\": \"compressed-tensors\", \"transform_config\": {\"a\": {}}}",
         "transform_config: transforms are not"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\","
         " \"config_groups\": {}}",
         "config_groups: is empty"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\","
         " \"config_groups\": {\"a\": {\"weights\": {\"num_bits\": 4}}, \"b\": {\"weights\": {}}}}",
         "groups whose weights differ"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(*state, "llama-2-7b", "quantization_config", cases[i].key, cases[i].value);
}

/* Families that many ask for are refused with what is missing. */
static void test_unsupported_families(void **state) {
    static const struct change families[] = {
        {"\"Llama4ForCausalLM\"", "(chunked attention"},
        {"\"Gemma3nForCausalLM\"", "(embeddings of every layer)"},
        {"\"Qwen3NextForCausalLM\"", "(linear attention)"},
        {"\"Qwen3_5MoeForCausalLM\"", "(linear attention)"},
        {"\"GraniteMoeHybridForCausalLM\"", "(state-space layers)"},
        {"\"JambaForCausalLM\"", "(state-space layers)"},
        {"\"DeepseekV32ForCausalLM\"", "(attention to tokens that an indexer chooses)"},
    };
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        char list[64];
        snprintf(list, sizeof(list), "[%s]", families[i].key);
        assert_refused(*state, "mixtral-8x7b", "architectures", list, families[i].value);
    }
}

/* --- Mixtures of experts ------------------------------------------------------------------------
 */

static void test_experts(void **state) {
    struct model_config config = read_model(*state, "mixtral-8x7b");
    const struct moe_config *moe = &config.moe;
    assert_int_equal(moe->num_experts, 8);
    assert_int_equal(moe->num_chosen, 2);
    assert_int_equal(moe->expert_size, 14336);
    assert_int_equal(moe->scoring, ROUTE_SOFTMAX);
    assert_true(moe->renormalise && config.layers[0].is_sparse && config.layers[31].is_sparse);
    assert_int_equal(ACCEPTED("mixtral-8x7b", {"num_local_experts", ""}).moe.num_experts, 8);
    config = read_model(*state, "qwen1.5-moe-a2.7b");
    assert_int_equal(moe->num_experts, 60);
    assert_int_equal(moe->num_chosen, 4);
    assert_int_equal(moe->expert_size, 1408);
    assert_int_equal(moe->shared_size, 5632);
    assert_true(moe->shared_gate && !moe->renormalise);
    config = read_model(*state, "qwen3-30b-a3b");
    assert_int_equal(moe->expert_size, 768);
    assert_int_equal(moe->shared_size, 0);
    assert_true(moe->renormalise);
    assert_false(ACCEPTED("qwen3-30b-a3b", {"norm_topk_prob", ""}).moe.renormalise);
    config = read_model(*state, "olmoe-1b-7b");
    assert_int_equal(moe->num_experts, 64);
    assert_int_equal(moe->expert_size, 1024);
    assert_false(moe->renormalise);
    config = read_model(*state, "granite-3.1-3b-a800m");
    assert_int_equal(moe->num_experts, 40);
    assert_int_equal(moe->scoring, ROUTE_SOFTMAX_OF_CHOSEN);
    assert_int_equal(
        ACCEPTED("granite-3.1-3b-a800m", {"architectures", "[\"GraniteMoeSharedForCausalLM\"]"},
                 {"model_type", "\"granitemoeshared\""}, {"shared_intermediate_size", "1024"})
            .moe.shared_size,
        1024);
    config = read_model(*state, "gpt-oss-20b-bf16");
    assert_int_equal(moe->num_experts, 32);
    assert_true(moe->is_transposed && config.attention_sinks && !config.ropes[0].truncate);
    assert_layers(&config, 2, 128, 0, 0, 0);
    config = read_model(*state, "glm-4.5-air");
    assert_int_equal(moe->num_experts, 128);
    assert_int_equal(moe->shared_size, 1408);
    assert_int_equal(moe->scoring, ROUTE_SIGMOID);
    assert_true(moe->selection_bias && moe->renormalise && !moe->shared_gate);
    assert_true(!config.layers[0].is_sparse && config.layers[1].is_sparse);
    assert_int_equal(config.num_extra_layers, 1);
    assert_int_equal(config.rotary_dim, 64);
    assert_int_equal(ACCEPTED("glm-4.5-air", {"partial_rotary_factor", ""}).rotary_dim, 64);
    config = ACCEPTED("glm-4.5-air", {"use_qk_norm", "true"}, {"n_shared_experts", "2"},
                      {"routed_scaling_factor", "2.5"}, {"n_group", "8"}, {"topk_group", "4"});
    assert_int_equal(config.qk_norm, QK_NORM_HEAD);
    assert_int_equal(moe->shared_size, 2816);
    assert_int_equal(moe->num_groups, 8);
    assert_int_equal(moe->num_chosen_groups, 4);
    assert_near(moe->scale, 2.5);
}

static void test_sparse_layers(void **state) {
    struct model_config config =
        ACCEPTED("qwen3-30b-a3b", {"decoder_sparse_step", "3"}, {"mlp_only_layers", "[5, 400]"});
    for (int32_t i = 0; i < config.num_layers; i++)
        assert_int_equal(config.layers[i].is_sparse, i % 3 == 2 && i != 5);
    config = ACCEPTED("qwen3-30b-a3b", {"decoder_sparse_step", "100"}); /* none */
    assert_int_equal(config.moe.num_experts, 0);
    config = ACCEPTED("glm-4.5-air", {"first_k_dense_replace", "3"});
    assert_true(!config.layers[2].is_sparse && config.layers[3].is_sparse);
    assert_refused(*state, "qwen3-30b-a3b", "mlp_only_layers", "[-1]",
                   "mlp_only_layers: an element is not the number of a layer");
    assert_refused(*state, "qwen3-30b-a3b", "decoder_sparse_step", "0", "(allowed: 1 to 512)");
    assert_refused(*state, "qwen3-30b-a3b", "use_sliding_window", "true",
                   "use_sliding_window: windows are not supported for this architecture");
}

/* Phi-3.5-MoE's switches, on the file of the small model in tests/golden/families. */
static void test_phi_moe(void **state) {
    static const char name[] = "../../../../golden/families/phi3.5-moe/config";
    struct model_config config = read_model(*state, name);
    assert_int_equal(config.norm, NORM_LAYER);
    assert_true(config.norm_bias && config.head_bias);
    assert_int_equal(config.moe.scoring, ROUTE_SPARSEMIXER);
    assert_near(config.moe.jitter, 0.01);
    assert_near(config.ropes[0].attention_factor, 1.3);
    assert_near(config.ropes[0].short_attention_factor, 1.1);
    assert_false(ACCEPTED(name, {"lm_head_bias", ""}).head_bias);
    assert_near(ACCEPTED(name, {"router_jitter_noise", "0.5"}).moe.jitter, 0.5);
    assert_refused(*state, name, "rope_scaling.long_mscale", "", "long_mscale: is missing");
    assert_refused(*state, "phi-4-mini", "rope_scaling.long_mscale", "1.2",
                   "rope_scaling.long_mscale: this setting is not supported");
    assert_refused(*state, name, "num_experts_per_tok", "3", "3; only 2 is supported");
}

/* DeepSeek's, on the files of the small models in tests/golden/families. */
static void test_latent_attention(void **state) {
    static const char v2[] = "../../../../golden/families/deepseek-v2/config",
                      lite[] = "../../../../golden/families/deepseek-v2-lite/config",
                      v3[] = "../../../../golden/families/deepseek-v3/config";
    struct model_config config = read_model(*state, v3);
    double scale = 1.0 + 0.1 * log(4.0);
    assert_int_equal(config.latent.kv_rank, 40);
    assert_int_equal(config.latent.q_rank, 32);
    assert_int_equal(config.latent.nope_dim, 16);
    assert_int_equal(config.latent.value_dim, 16);
    assert_int_equal(config.head_dim, 48);
    assert_int_equal(config.rotary_dim, 8);
    assert_int_equal(config.num_kv_heads, 1);
    assert_near(config.attention_scale, scale * scale / sqrt(24.0));
    assert_near(config.ropes[0].attention_factor, 1.0);
    assert_int_equal(config.moe.group_score, ROUTE_GROUP_TOP2);
    assert_int_equal(config.num_extra_layers, 1);
    assert_true(config.rope_interleaved && config.moe.renormalise);
    assert_false(ACCEPTED(v3, {"rope_interleave", "false"}).rope_interleaved);
    config =
        ACCEPTED(v3, {"model_type", "\"kimi_k2\""}, {"kv_lora_rank", ""}, {"qk_nope_head_dim", ""},
                 {"qk_rope_head_dim", ""}, {"v_head_dim", ""}, {"q_lora_rank", ""});
    assert_int_equal(config.head_dim, 576);
    assert_int_equal(config.latent.q_rank, 1536);
    assert_int_equal(config.latent.nope_dim, 128);
    config = read_model(*state, lite);
    assert_int_equal(config.latent.q_rank, 0);
    assert_int_equal(config.moe.num_groups, 1);
    assert_int_equal(config.moe.shared_size, 64);
    assert_int_equal(config.moe.scoring, ROUTE_SOFTMAX);
    config = read_model(*state, v2);
    assert_int_equal(config.moe.num_groups, 4);
    assert_int_equal(config.moe.group_score, ROUTE_GROUP_MAX);
    assert_false(ACCEPTED(v2, {"norm_topk_prob", "true"}).moe.renormalise);
    assert_refused(*state, v3, "kv_lora_rank", "576", "together at most 576");
    assert_refused(*state, v3, "v_head_dim", "12", "v_head_dim 12: must be multiples of 8");
    assert_refused(*state, v2, "topk_method", "\"noaux_tc\"", "(supported: group_limited_greedy)");
    assert_refused(*state, v2, "num_experts_per_tok", "", "num_experts_per_tok: is missing");
    assert_refused(*state, v2, "moe_layer_freq", "2", "moe_layer_freq: dense layers among");
}

static void test_bad_experts(void **state) {
    static const struct {
        const char *name, *key, *value, *reason;
    } cases[] = {
        {"mixtral-8x7b", "num_local_experts", "1", "num_local_experts: 1 (allowed: 2 to 1024)"},
        {"mixtral-8x7b", "num_local_experts", "1025", "(allowed: 2 to 1024)"},
        {"mixtral-8x7b", "num_local_experts", "\"8\"", "is not an integer"},
        {"mixtral-8x7b", "num_experts_per_tok", "0", "(allowed: 1 to 8)"},
        {"mixtral-8x7b", "num_experts_per_tok", "9", "num_experts_per_tok: 9 (allowed: 1 to 8)"},
        {"qwen3-30b-a3b", "num_experts_per_tok", "33", "(allowed: 1 to 32)"},
        {"qwen3-30b-a3b", "moe_intermediate_size", "0", "(allowed: 1 to 1048576)"},
        {"qwen1.5-moe-a2.7b", "shared_expert_intermediate_size", "0", "(allowed: 1 to 1048576)"},
        {"glm-4.5-air", "n_shared_experts", "745", "n_shared_experts: 745 (allowed: 0 to 744)"},
        {"glm-4.5-air", "n_group", "3", "n_group: 3 does not divide the number of experts, 128"},
        {"glm-4.5-air", "n_group", "128", "128 groups of 1 experts; must be of 2 or more"},
        {"glm-4.5-air", "n_group", "32", "1 groups of 4 experts are fewer than the 8 chosen"},
        {"glm-4.5-air", "topk_group", "2", "topk_group: 2 (allowed: 1 to 1)"},
        {"glm-4.5-air", "routed_scaling_factor", "0", "(allowed: 1e-06 to 1e+06)"},
        {"glm-4.5-air", "scoring_func", "\"softmax\"", "scoring_func: 'softmax' is not supported"},
        {"glm-4.5-air", "topk_method", "\"greedy\"", "(supported: noaux_tc)"},
        {"glm-4.5-air", "num_nextn_predict_layers", "513", "(allowed: 0 to 512)"},
        {"gpt-oss-20b-bf16", "swiglu_limit", "6", "swiglu_limit: 6; only 7 is supported"},
        {"gpt-oss-20b-bf16", "hidden_act", "\"gelu\"", "'gelu' is not supported"},
        {"olmoe-1b-7b", "clip_qkv", "8.0", "clip_qkv: clipping of q, k and v is not supported"},
        {"olmoe-1b-7b", "use_qk_norm", "true", "use_qk_norm: LayerNorm of q and k"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(*state, cases[i].name, cases[i].key, cases[i].value, cases[i].reason);
    cJSON *root = varied(
        *state, "qwen3-30b-a3b",
        (const struct change[MAX_CHANGES]){{"num_experts", "4"}, {"num_experts_per_tok", ""}});
    assert_tree_refused(root, "num_experts_per_tok: is missing"); /* its default is 8 */
    cJSON_Delete(root);
}

static void test_features_without_support(void **state) {
    static const struct change features[] = {
        {"num_experts", "8"},
        {"num_local_experts", "8"},
        {"n_routed_experts", "64"},
        {"clip_qkv", "8.0"},
        {"use_qk_norm", "true"},
        {"cross_attention_layers", "[3, 8]"},
        {"is_encoder_decoder", "true"},
        {"use_bidirectional_attention", "true"},
        {"attention_chunk_size", "8192"},
        {"use_mrope", "true"},
    };
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        char reason[96];
        snprintf(reason, sizeof(reason), "%s: ", features[i].key);
        assert_refused(*state, "llama-2-7b", features[i].key, features[i].value, reason);
        assert_refused(*state, "llama-2-7b", features[i].key, features[i].value,
                       "is not supported");
        ACCEPTED("llama-2-7b", {features[i].key, "null"});
        ACCEPTED("llama-2-7b", {features[i].key, "0"});
    }
    assert_refused(*state, "llama-2-7b", "hidden_act", "\"gelu\"", "hidden_act: 'gelu' is not");
    assert_refused(*state, "gemma-2-2b", "hidden_activation", "\"relu\"", "'relu' is not");
}

static void test_sizes_that_do_not_fit_together(void **state) {
    const char *folder = *state;
    assert_refused(folder, "llama-2-7b", "num_attention_heads", "33",
                   "num_key_value_heads: 32 does not divide num_attention_heads 33");
    assert_refused(folder, "llama-2-7b", "hidden_size", "4097",
                   "num_attention_heads: 32 does not divide hidden_size 4097");
    assert_refused(folder, "llama-2-7b", "head_dim", "20",
                   "heads of 20 elements; must be a multiple of 8, at most 256");
    assert_refused(folder, "llama-2-7b", "hidden_size", "16384", "heads of 512 elements");
    assert_refused(folder, "gemma-3-4b", "text_config.num_key_value_heads", "3",
                   "text_config.num_key_value_heads: 3 does not divide "
                   "text_config.num_attention_heads 8");
}

/* Every size at values no honest file has is named with its range. */
static void test_integers_out_of_range(void **state) {
    static const char *const keys[] = {"vocab_size",
                                       "hidden_size",
                                       "intermediate_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "num_key_value_heads",
                                       "max_position_embeddings",
                                       "head_dim"};
    static const char *const bad[] = {"0", "-1", "9223372036854775808", "1e300", "4294967297"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char reason[96];
        snprintf(reason, sizeof(reason), "config.json: %s: ", keys[i]);
        for (size_t j = 0; j < sizeof(bad) / sizeof(bad[0]); j++)
            assert_refused(*state, "mistral-nemo-12b", keys[i], bad[j], "(allowed: 1 to ");
        assert_refused(*state, "mistral-nemo-12b", keys[i], "\"4\"", "is not an integer");
        assert_refused(*state, "mistral-nemo-12b", keys[i], "1.5", "is not an integer");
        assert_refused(*state, "mistral-nemo-12b", keys[i], "[1]", reason);
        assert_refused(*state, "mistral-nemo-12b", keys[i], "true", reason);
    }
}

/* One key of root, or of the object `inner` in it, at values no honest file has. */
static int vary_key(const cJSON *root, const char *inner, const char *key) {
    static const char *const values[] = {
        "0",    "1",    "-1",     "9223372036854775808",  "1e300", "1.5", "\"x\"",
        "true", "null", "[1, 0]", "[\"full_attention\"]", "{}"};
    int num_refused = 0;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct model_config config = {.num_layers = 77};
        struct error err = {0};
        cJSON *copy = cJSON_Duplicate(root, true);
        set_key(inner != NULL ? cJSON_GetObjectItemCaseSensitive(copy, inner) : copy, key,
                values[i]);
        if (config_hf_read(copy, "config.json", &config, &err) != 0) {
            assert_int_equal(err.code, ERROR_MODEL);
            assert_int_equal(config.num_layers, 77);
            num_refused++;
        }
        cJSON_Delete(copy);
    }
    return num_refused;
}

/* Every key of every published model: an answer, never a crash. */
static void test_matrix(void **state) {
    static const char *const inner[] = {"text_config", "rope_scaling", "rope_parameters"};
    int num_refused = 0;
    const cJSON *item;
    for (size_t i = 0; i < NUM_MODELS; i++) {
        cJSON *root = read_fixture(*state, models[i].name);
        cJSON_ArrayForEach(item, root) {
            if (strchr(item->string, '.') == NULL)
                num_refused += vary_key(root, NULL, item->string);
        }
        for (size_t j = 0; j < sizeof(inner) / sizeof(inner[0]); j++) {
            const cJSON *object = cJSON_GetObjectItemCaseSensitive(root, inner[j]);
            cJSON_ArrayForEach(item, object) {
                num_refused += vary_key(root, inner[j], item->string);
            }
        }
        cJSON_Delete(root);
    }
    assert_true(num_refused > 2000);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_published_models, argv[1]),
        cmocka_unit_test_prestate(test_layers, argv[1]),
        cmocka_unit_test_prestate(test_scales, argv[1]),
        cmocka_unit_test_prestate(test_ropes, argv[1]),
        cmocka_unit_test_prestate(test_class_defaults, argv[1]),
        cmocka_unit_test_prestate(test_styles_of_ropes, argv[1]),
        cmocka_unit_test_prestate(test_rope_scalings, argv[1]),
        cmocka_unit_test_prestate(test_values_without_effect, argv[1]),
        cmocka_unit_test_prestate(test_bad_ropes, argv[1]),
        cmocka_unit_test_prestate(test_layer_lists, argv[1]),
        cmocka_unit_test_prestate(test_architectures, argv[1]),
        cmocka_unit_test_prestate(test_features_without_support, argv[1]),
        cmocka_unit_test_prestate(test_quantisations, argv[1]),
        cmocka_unit_test_prestate(test_other_quantisations, argv[1]),
        cmocka_unit_test_prestate(test_unsupported_families, argv[1]),
        cmocka_unit_test_prestate(test_experts, argv[1]),
        cmocka_unit_test_prestate(test_sparse_layers, argv[1]),
        cmocka_unit_test_prestate(test_quantisations, argv[1]),
        cmocka_unit_test_prestate(test_other_quantisations, argv[1]),
        cmocka_unit_test_prestate(test_phi_moe, argv[1]),
        cmocka_unit_test_prestate(test_latent_attention, argv[1]),
        cmocka_unit_test_prestate(test_bad_experts, argv[1]),
        cmocka_unit_test_prestate(test_sizes_that_do_not_fit_together, argv[1]),
        cmocka_unit_test_prestate(test_integers_out_of_range, argv[1]),
        cmocka_unit_test_prestate(test_matrix, argv[1]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
