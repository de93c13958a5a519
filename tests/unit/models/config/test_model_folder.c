#include "models/config/model.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- A folder whose files may be replaced or left out -------------------------------------------
 */

#define CONFIG                                                                                     \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":4,"         \
    "\"hidden_size\":16,\"intermediate_size\":8,\"num_hidden_layers\":1,"                          \
    "\"num_attention_heads\":2,\"tie_word_embeddings\":true,\"eos_token_id\":2}"

static int make_folder(void **state) {
    *state = calloc(1, sizeof(struct temporary_folder));
    temporary_folder_make(*state);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(*state);
    free(*state);
    return 0;
}

static void write_text(void **state, const char *name, const char *text) {
    temporary_write(*state, name, text, strlen(text));
}

/* One or two tensors f32 [4, 16]: the embedding below the prefix, and a head; the head's elements
 * differ from the embedding's in the last one where `differs`. */
static void write_tensors(void **state, const char *prefix, const char *head, bool differs) {
    char header[512];
    int length = snprintf(header, sizeof(header),
                          "{\"%sembed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[4,16],"
                          "\"data_offsets\":[0,256]}",
                          prefix);
    if (head != NULL)
        length += snprintf(header + length, sizeof(header) - (size_t)length,
                           ",\"%s\":{\"dtype\":\"F32\",\"shape\":[4,16],"
                           "\"data_offsets\":[256,512]}",
                           head);
    length += snprintf(header + length, sizeof(header) - (size_t)length, "}");
    uint8_t image[8 + sizeof(header) + 512] = {0};
    size_t bytes = 8 + (size_t)length + (head != NULL ? 512 : 256);
    memcpy(image, &(uint64_t){(uint64_t)length}, 8);
    memcpy(image + 8, header, (size_t)length);
    image[bytes - 1] = differs;
    temporary_write(*state, "model.safetensors", image, bytes);
}

static void write_model(void **state) {
    write_text(state, "config.json", CONFIG);
    write_tensors(state, "model.", NULL, false);
}

static struct model *open_model(void **state) {
    const struct temporary_folder *folder = *state;
    struct model *model = NULL;
    struct error err = {0};
    if (model_open(folder->path, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static void assert_refused(void **state, const char *reason) {
    const struct temporary_folder *folder = *state;
    struct model *model = NULL;
    struct error err = {0};
    if (model_open(folder->path, &model, &err) == 0)
        fail_msg("opened; expected '%s'", reason);
    assert_null(model);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_null(strchr(err.message, '\n'));
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

/* ---------------------------------------------------------------------------------------------- */

static void test_config_and_tensors_are_enough(void **state) {
    const struct temporary_folder *folder = *state;
    write_model(state);
    struct model *model = open_model(state);
    assert_string_equal(model->folder, folder->path);
    assert_string_equal(model->config.name, strrchr(folder->path, '/') + 1);
    assert_string_equal(model->config.tensor_prefix, "model.");
    assert_int_equal(model->config.num_heads, 2);
    assert_int_equal(tensor_file_num_tensors(model->file), 1);
    assert_true(isnan(model->generation.temperature) && isnan(model->generation.top_p));
    assert_true(isnan(model->generation.min_p) && isnan(model->generation.repetition_penalty));
    assert_int_equal(model->generation.top_k, -1);
    assert_int_equal(model->num_eos_tokens, 1);
    assert_int_equal(model->eos_tokens[0], 2);
    assert_null(model->chat_template);
    model_close(model);
}

static void test_missing_files(void **state) {
    assert_refused(state, "is a folder without config.json");
    write_text(state, "config.json", CONFIG);
    assert_refused(state, "safetensors");
    write_text(state, "config.json", "{\"architectures\": [\"MambaForCausalLM\"]}");
    assert_refused(state, "config.json: architectures: 'MambaForCausalLM' is not supported");
    write_text(state, "config.json", "{\"architectures\": [}");
    assert_refused(state, "config.json: ");
    write_text(state, "config.json", "");
    assert_refused(state, "config.json: ");
}

/* Where a language model is one part of several, its tensors have a longer name. */
static void test_prefixes(void **state) {
    static const char *const prefixes[] = {"model.", "model.language_model.",
                                           "language_model.model."};
    write_text(state, "config.json", CONFIG);
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        write_tensors(state, prefixes[i], NULL, false);
        struct model *model = open_model(state);
        assert_string_equal(model->config.tensor_prefix, prefixes[i]);
        assert_true(model->config.tied_embeddings);
        model_close(model);
    }
}

/* A head of its own is used though the settings say there is none. */
static void test_head_beside_tied_embedding(void **state) {
    static const struct {
        const char *prefix, *head;
        bool differs;
    } cases[] = {
        {"model.", "lm_head.weight", false},
        {"model.", "lm_head.weight", true},
        {"language_model.model.", "language_model.lm_head.weight", true},
    };
    write_text(state, "config.json", CONFIG);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_tensors(state, cases[i].prefix, cases[i].head, cases[i].differs);
        struct model *model = open_model(state);
        assert_int_equal(model->config.tied_embeddings, !cases[i].differs);
        model_close(model);
    }
}

static void test_generation_config(void **state) {
    write_model(state);
    write_text(state, "generation_config.json",
               "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20,"
               "\"min_p\": 0, \"repetition_penalty\": 1.05, \"eos_token_id\": [2, 3, 128009]}");
    struct model *model = open_model(state);
    assert_true(model->generation.temperature == 0.6F && model->generation.top_p == 0.95F);
    assert_true(model->generation.min_p == 0.0F);
    assert_true(model->generation.repetition_penalty == 1.05F);
    assert_int_equal(model->generation.top_k, 20);
    assert_int_equal(model->num_eos_tokens, 2); /* no id twice, none beyond the vocabulary */
    assert_int_equal(model->eos_tokens[0], 2);
    assert_int_equal(model->eos_tokens[1], 3);
    model_close(model);
    write_text(state, "generation_config.json", "{\"temperature\": null, \"top_k\": null}");
    model = open_model(state);
    assert_true(isnan(model->generation.temperature));
    assert_int_equal(model->generation.top_k, -1);
    model_close(model);
}

static void test_bad_generation_config(void **state) {
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"[1]", "generation_config.json: "},
        {"{\"eos_token_id\": -2}", "eos_token_id: is not a token id"},
        {"{\"eos_token_id\": [\"a\"]}", "eos_token_id: is not a token id"},
        {"{\"eos_token_id\": 9223372036854775808}", "eos_token_id: is not a token id"},
    };
    write_model(state);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text(state, "generation_config.json", cases[i].text);
        assert_refused(state, cases[i].reason);
    }
}

/* Only defaults: what cannot be used is dropped, the others stay. */
static void test_unusable_generation_defaults(void **state) {
    static const char *const texts[] = {
        "\"temperature\": -1", "\"temperature\": 3", "\"temperature\": \"hot\"",
        "\"top_p\": 0",        "\"top_p\": 1.5",     "\"top_k\": -2",
        "\"top_k\": 1.5",      "\"min_p\": 2",       "\"repetition_penalty\": 0",
    };
    write_model(state);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{%s, \"eos_token_id\": [-1, 3]}", texts[i]);
        write_text(state, "generation_config.json", text);
        struct model *model = open_model(state);
        assert_true(isnan(model->generation.temperature) && isnan(model->generation.top_p));
        assert_true(isnan(model->generation.min_p) && isnan(model->generation.repetition_penalty));
        assert_int_equal(model->generation.top_k, -1);
        assert_int_equal(model->num_eos_tokens, 2); /* -1: none */
        assert_int_equal(model->eos_tokens[1], 3);
        model_close(model);
    }
    write_text(state, "generation_config.json", "{\"top_p\": 0, \"temperature\": 0.5}");
    struct model *model = open_model(state);
    assert_true(isnan(model->generation.top_p) && model->generation.temperature == 0.5F);
    model_close(model);
}

/* The model's embeddings have 16 numbers. */
static void test_embedding_sizes(void **state) {
    static const char list[] = "\"matryoshka_dimensions\":[16,8,4,32]";
    char config[sizeof(CONFIG) + 128];
    write_model(state);
    struct model *model = open_model(state);
    assert_true(embedding_sizes_allow(&model->embedding_sizes, 16, 16));
    assert_false(embedding_sizes_allow(&model->embedding_sizes, 16, 8));
    model_close(model);
    snprintf(config, sizeof(config), "{\"is_matryoshka\":true,%s", &CONFIG[1]);
    write_text(state, "config.json", config);
    model = open_model(state);
    for (int64_t size = 0; size <= 17; size++)
        assert_int_equal(embedding_sizes_allow(&model->embedding_sizes, 16, size),
                         size >= 1 && size <= 16);
    model_close(model);
    snprintf(config, sizeof(config), "{\"is_matryoshka\":true,%s,%s", list, &CONFIG[1]);
    write_text(state, "config.json", config);
    model = open_model(state);
    for (int64_t size = 0; size <= 33; size++)
        assert_int_equal(embedding_sizes_allow(&model->embedding_sizes, 16, size),
                         size == 4 || size == 8 || size == 16);
    model_close(model);
    static const char *const bad[] = {"[0]", "[\"a\"]", "[1.5]", "8"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(config, sizeof(config), "{\"matryoshka_dimensions\":%s,%s", bad[i], &CONFIG[1]);
        write_text(state, "config.json", config);
        assert_refused(state, "matryoshka_dimensions");
    }
}

static void test_too_many_eos(void **state) {
    char text[256] = "{\"eos_token_id\": [0";
    for (int i = 1; i < MODEL_MAX_EOS_TOKENS + 1; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ",%d", i);
    strcat(text, "]}");
    write_model(state);
    write_text(state, "generation_config.json", text);
    model_close(open_model(state)); /* the vocabulary has but four */
    write_text(state, "config.json",
               "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":400,\"hidden_size\":16,"
               "\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2}");
    assert_refused(state, "generation_config.json: eos_token_id: more than 16 ids that end a text");
}

static void assert_template(void **state, const char *expected) {
    struct model *model = open_model(state);
    if (expected == NULL)
        assert_null(model->chat_template);
    else
        assert_string_equal(model->chat_template, expected);
    model_close(model);
}

static void test_chat_template(void **state) {
    write_model(state);
    write_text(state, "tokenizer_config.json", "{\"chat_template\": null}");
    assert_template(state, NULL);
    write_text(state, "tokenizer_config.json", "{\"chat_template\": \"{{ a }}\\n\"}");
    assert_template(state, "{{ a }}\n");
    write_text(state, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"},"
               "{\"name\": \"default\", \"template\": \"d\"}]}");
    assert_template(state, "d");
    write_text(state, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}");
    assert_template(state, NULL);
    write_text(state, "chat_template.json", "{\"chat_template\": \"{{ c }}\"}"); /* goes last */
    assert_template(state, "{{ c }}");
    write_text(state, "tokenizer_config.json", "{\"chat_template\": \"{{ a }}\"}");
    assert_template(state, "{{ a }}");
    write_text(state, "chat_template.jinja", "{{ b }}"); /* goes first */
    assert_template(state, "{{ b }}");
}

static void assert_tool_template(void **state, const char *expected) {
    struct model *model = open_model(state);
    assert_non_null(model->chat_template);
    if (expected == NULL)
        assert_null(model->tool_chat_template);
    else
        assert_string_equal(model->tool_chat_template, expected);
    model_close(model);
}

static void test_tool_chat_template(void **state) {
    write_model(state);
    write_text(state, "tokenizer_config.json", "{\"chat_template\": \"a\"}");
    assert_tool_template(state, NULL);
    write_text(state, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"},"
               "{\"name\": \"default\", \"template\": \"d\"}]}");
    assert_tool_template(state, "t");
    assert_template(state, "d");
    write_text(state, "chat_template.jinja", "{{ b }}");
    assert_tool_template(state, NULL);
    char path[512];
    snprintf(path, sizeof(path), "%s", temporary_file(*state, "additional_chat_templates"));
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(state, "additional_chat_templates/tool_use.jinja", "{{ t }}");
    assert_tool_template(state, "{{ t }}");
    assert_int_equal(unlink(temporary_file(*state, "additional_chat_templates/tool_use.jinja")), 0);
    assert_int_equal(rmdir(path), 0);
}

static void test_bad_chat_template(void **state) {
    write_model(state);
    write_text(state, "tokenizer_config.json", "{\"chat_template\": 3}");
    assert_refused(state, "chat_template: is neither a string nor a list of templates");
    write_text(state, "tokenizer_config.json", "{\"chat_template\": [3]}");
    assert_refused(state, "an entry of the list has no name or no template");
    write_text(state, "tokenizer_config.json", "{");
    assert_refused(state, "tokenizer_config.json: ");
    write_text(state, "tokenizer_config.json", "{}");
    write_text(state, "chat_template.json", "{\"chat_template\": 3}");
    assert_refused(state, "chat_template.json: chat_template: is neither a string nor a list");
    temporary_write(*state, "chat_template.jinja", "a\0b", 3);
    assert_refused(state, "chat_template.jinja: the template is not UTF-8");
    temporary_write(*state, "chat_template.jinja", "\xff", 1);
    assert_refused(state, "chat_template.jinja: the template is not UTF-8");
    size_t bytes = (1 << 20) + 1;
    char *large = malloc(bytes);
    assert_non_null(large);
    memset(large, 'a', bytes);
    temporary_write(*state, "chat_template.jinja", large, bytes);
    assert_refused(state, "chat_template.jinja: ");
    temporary_write(*state, "chat_template.jinja", large, bytes - 1);
    struct model *model = open_model(state);
    assert_int_equal(strlen(model->chat_template), bytes - 1);
    model_close(model);
    free(large);
}

/* --- quire inspect -----------------------------------------------------------------------------
 */

static void assert_printed(void **state, const char *config, const char *const *lines,
                           size_t num_lines) {
    char *text = NULL;
    size_t bytes;
    write_text(state, "config.json", config);
    struct model *model = open_model(state);
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    model_print(model, stream);
    assert_int_equal(fclose(stream), 0);
    for (size_t i = 0; i < num_lines; i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("expected '%s' in '%s'", lines[i], text);
    free(text);
    model_close(model);
}

#define SIZES                                                                                      \
    "\"vocab_size\":4,\"hidden_size\":16,\"intermediate_size\":8,\"num_hidden_layers\":6,"         \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"                          \
    "\"max_position_embeddings\":2048,"

static void test_print_switches(void **state) {
    static const char *const gemma3[] = {
        "\narchitecture            Gemma3ForCausalLM\n",
        "\nattention heads         2 x 8, 1 for keys and values\n",
        "\nrope                    theta 1e+06, 8 of 8 dimensions\n",
        "\nrope scaling            linear, factor 8\n",
        "\nrope within windows     theta 10000\n",
        "\nwindows                 5 of 6 layers see 512 tokens\n",
        "\nnorms are               before and after attention and feed-forward\n",
        "\nnorm weights            stored less 1\n",
        "\nnorm of q and k         each head\n",
        "\nactivation              GELU (tanh)\n",
        "\nattention scale         0.0625\n",
        "\nembedding scale         4\n",
        "\nfinal soft cap          30\n",
        "\nchat template           7 bytes\n",
        "\nids that end a text     1, 3\n",
        "\nsampling defaults       temperature 0.6, top_k 20\n",
    };
    write_tensors(state, "model.", NULL, false);
    write_text(state, "chat_template.jinja", "{{ b }}");
    write_text(state, "generation_config.json", "{\"temperature\": 0.6, \"top_k\": 20}");
    assert_printed(state,
                   "{\"architectures\":[\"Gemma3ForCausalLM\"]," SIZES
                   "\"sliding_window\":512,\"final_logit_softcapping\":30,\"eos_token_id\":[1,3],"
                   "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}",
                   gemma3, sizeof(gemma3) / sizeof(gemma3[0]));
}

static void test_print_other_switches(void **state) {
    static const char *const cohere2[] = {
        "\nrope                    theta 10000, 8 of 8 dimensions, neighbours in pairs\n",
        "\nwindows                 5 of 6 layers see 512 tokens\n",
        "\nno rotation in          1 of 6 layers\n",
        "\nnorm                    LayerNorm\n",
        "\nattention, feed-forward beside each other\n",
        "\nlogit scale             0.25\n",
        "\nchat template           -\n",
        "\nsampling defaults       -\n",
    };
    static const char *const yarn[] = {
        "\nrope scaling            yarn, factor 4, from 1024 tokens, attention factor 1.13863\n",
        "\ncontext length          4096 tokens\n",
    };
    write_tensors(state, "model.", NULL, false);
    assert_printed(state,
                   "{\"architectures\":[\"Cohere2ForCausalLM\"]," SIZES
                   "\"sliding_window\":512,\"sliding_window_pattern\":6,\"logit_scale\":0.25}",
                   cohere2, sizeof(cohere2) / sizeof(cohere2[0]));
    assert_printed(state,
                   "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES
                   "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                   "\"original_max_position_embeddings\":1024}}",
                   yarn, sizeof(yarn) / sizeof(yarn[0]));
}

/* One line for what only the tensors say. */
static void test_print_biases(void **state) {
    static const struct {
        const char *tensor, *line;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj.bias", "\nbias of                 q, k and v\n"},
        {"model.layers.0.self_attn.qkv_proj.bias", "\nbias of                 q, k and v\n"},
        {"model.layers.0.self_attn.o_proj.bias", "\nbias of                 attention's result\n"},
        {"model.layers.0.mlp.up_proj.bias", "\nbias of                 gate and up\n"},
        {"model.layers.0.mlp.gate_up_proj.bias", "\nbias of                 gate and up\n"},
        {"model.layers.0.mlp.down_proj.bias", "\nbias of                 down\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_tensors(state, "model.", cases[i].tensor, false);
        assert_printed(state, CONFIG, &cases[i].line, 1);
    }
}

/* Short contexts are served otherwise than by Transformers, so it is said. */
static void test_print_long_form(void **state) {
    static const char *const dynamic[] = {
        "\n  dynamic               all contexts use the stretched theta unless --max-model-len is "
        "at "
        "most 2048\n",
    };
    static const char *const longrope[] = {
        "\n  longrope              all contexts use the long factors unless --max-model-len is at "
        "most 1024\n",
    };
    write_tensors(state, "model.", NULL, false);
    assert_printed(state,
                   "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES
                   "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}",
                   dynamic, 1);
    assert_printed(state,
                   "{\"architectures\":[\"Phi3ForCausalLM\"]," SIZES
                   "\"original_max_position_embeddings\":1024,\"sliding_window\":null,"
                   "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1],"
                   "\"long_factor\":[1,2,3,4]}}",
                   longrope, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_config_and_tensors_are_enough),
        TEST(test_missing_files),
        TEST(test_prefixes),
        TEST(test_head_beside_tied_embedding),
        TEST(test_generation_config),
        TEST(test_bad_generation_config),
        TEST(test_unusable_generation_defaults),
        TEST(test_embedding_sizes),
        TEST(test_too_many_eos),
        TEST(test_chat_template),
        TEST(test_tool_chat_template),
        TEST(test_bad_chat_template),
        TEST(test_print_switches),
        TEST(test_print_other_switches),
        TEST(test_print_biases),
        TEST(test_print_long_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
