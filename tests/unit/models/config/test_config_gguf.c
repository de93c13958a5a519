#include "models/config/config_gguf.h"

#include "tests/unit/models/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* --- A file of metadata only, in which one key may be changed, added or left out ----------------
 */

struct entry {
    const char *key;
    uint32_t type; /* GGUF_UINT64, GGUF_INT64, GGUF_FLOAT64, GGUF_STRING; GGUF_ARRAY: of strings */
    uint64_t number;
    double real;
    const char *text;
};

static const struct entry base[] = {
    {"general.architecture", GGUF_STRING, .text = "llama"},
    {"general.name", GGUF_STRING, .text = "a\nname"},
    {"llama.block_count", GGUF_UINT64, 2},
    {"llama.context_length", GGUF_UINT64, 256},
    {"llama.embedding_length", GGUF_UINT64, 64},
    {"llama.feed_forward_length", GGUF_UINT64, 160},
    {"llama.attention.head_count", GGUF_UINT64, 4},
    {"llama.attention.head_count_kv", GGUF_INT64, 2},
    {"llama.attention.layer_norm_rms_epsilon", GGUF_FLOAT64, .real = 0x1p-16},
    {"llama.attention.layer_norm_epsilon", GGUF_FLOAT64, .real = 0x1p-15},
    {"llama.rope.freq_base", GGUF_FLOAT64, .real = 500000.0},
    {"llama.rope.dimension_count", GGUF_UINT64, 8},
    {"llama.vocab_size", GGUF_UINT64, 3},
    {"tokenizer.ggml.tokens", GGUF_ARRAY, 3},
};

enum { NUM_BASE = sizeof(base) / sizeof(base[0]) };

/* One file: the entries above under another architecture's name, some of them replaced or joined by
 * others, one left out, and tensors of floats [4]. */
struct variant {
    const char *architecture; /* NULL: llama */
    const struct entry *changes;
    size_t num_changes;
    const char *without;
    const char *const *tensors;
    uint64_t num_tensors;
    uint32_t tensor_type;
};

static const float factors[4] = {1.0F, 1.5F, 2.0F, 4.0F};

static void put_entry(struct gguf_writer *w, const struct entry *entry, const char *architecture) {
    char key[128];
    snprintf(key, sizeof(key), "%s", entry->key);
    if (architecture != NULL && strncmp(entry->key, "llama.", 6) == 0)
        snprintf(key, sizeof(key), "%s%s", architecture, entry->key + 5);
    if (entry->type == GGUF_ARRAY) {
        gguf_put_key_array(w, key, GGUF_STRING, entry->number);
        gguf_put_zeros(w, entry->number * 8);
        return;
    }
    if (entry->type == GGUF_BOOL) { /* text: one character a value */
        gguf_put_key_array(w, key, GGUF_BOOL, strlen(entry->text));
        for (const char *c = entry->text; *c != '\0'; c++)
            gguf_put(w, &(uint8_t){*c == '1'}, 1);
        return;
    }
    gguf_put_key(w, key, entry->type);
    if (entry->type == GGUF_STRING)
        gguf_put_string(w, entry->text);
    else if (entry->type == GGUF_FLOAT64)
        gguf_put(w, &entry->real, 8);
    else
        gguf_put_u64(w, entry->number);
}

static bool is_replaced(const struct variant *v, const char *key) {
    if (v->without != NULL && strcmp(v->without, key) == 0)
        return true;
    for (size_t i = 0; i < v->num_changes; i++)
        if (strcmp(v->changes[i].key, key) == 0)
            return true;
    return false;
}

static int read_variant(const struct variant *v, struct model_config *out, struct error *err) {
    struct gguf_writer w = {0}, entries = {0};
    uint64_t count = v->num_changes;
    for (size_t i = 0; i < NUM_BASE; i++) {
        struct entry entry = base[i];
        if (is_replaced(v, entry.key))
            continue;
        if (i == 0 && v->architecture != NULL)
            entry.text = v->architecture;
        put_entry(&entries, &entry, v->architecture);
        count++;
    }
    for (size_t i = 0; i < v->num_changes; i++)
        put_entry(&entries, &v->changes[i], v->architecture);
    gguf_put_header(&w, 3, v->num_tensors, count);
    gguf_put(&w, entries.data, entries.bytes);
    for (uint64_t i = 0; i < v->num_tensors; i++)
        gguf_put_tensor(&w, v->tensors[i], 1, &(uint64_t){4}, v->tensor_type, i * 32);
    gguf_pad(&w, 32);
    for (uint64_t i = 0; i < v->num_tensors; i++) {
        gguf_put(&w, factors, sizeof(factors));
        gguf_pad(&w, 32);
    }
    struct tensor_file *file;
    assert_int_equal(tensor_file_open_memory(w.data, w.bytes, "m.gguf", &file, err), 0);
    int status = config_gguf_read(file, out, err);
    tensor_file_close(file);
    gguf_finish(&w);
    gguf_finish(&entries);
    return status;
}

/* change->key replaces that entry, or joins the others; `without` leaves one out; both may be NULL.
 */
static int read_config(const struct entry *change, const char *without, struct model_config *out,
                       struct error *err) {
    const struct variant v = {.changes = change, .num_changes = change != NULL, .without = without};
    return read_variant(&v, out, err);
}

static struct model_config accepted_variant(const struct variant *v) {
    struct model_config config;
    struct error err = {0};
    if (read_variant(v, &config, &err) != 0)
        fail_msg("%s", err.message);
    return config;
}

static void assert_variant_refused(const struct variant *v, const char *reason) {
    struct model_config config = {.num_layers = 77};
    struct error err = {0};
    if (read_variant(v, &config, &err) != -1)
        fail_msg("accepted; expected '%s'", reason);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(config.num_layers, 77);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void assert_refused(const struct entry *change, const char *without, const char *reason) {
    struct model_config config = {.num_layers = 77};
    struct error err = {0};
    if (read_config(change, without, &config, &err) != -1)
        fail_msg("accepted %s", change != NULL ? change->key : without);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(config.num_layers, 77);
    const char *key = change != NULL ? change->key : without;
    if (strstr(err.message, key) == NULL || strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' and '%s' in '%s'", key, reason, err.message);
    assert_null(strchr(err.message, '\n'));
}

static struct model_config accepted(const struct entry *change, const char *without) {
    struct model_config config;
    struct error err = {0};
    if (read_config(change, without, &config, &err) != 0)
        fail_msg("%s", err.message);
    return config;
}

static struct entry integer(const char *key, uint64_t value) {
    return (struct entry){.key = key, .type = GGUF_UINT64, .number = value};
}

static struct entry real(const char *key, double value) {
    return (struct entry){.key = key, .type = GGUF_FLOAT64, .real = value};
}

static struct entry string(const char *key, const char *value) {
    return (struct entry){.key = key, .type = GGUF_STRING, .text = value};
}

/* ---------------------------------------------------------------------------------------------- */

static void test_reads_every_field(void **state) {
    struct model_config config = accepted(NULL, NULL);
    assert_string_equal(config.architecture, "llama");
    assert_string_equal(config.name, "a?name");
    assert_int_equal(config.vocab_size, 3);
    assert_int_equal(config.hidden_size, 64);
    assert_int_equal(config.intermediate_size, 160);
    assert_int_equal(config.num_layers, 2);
    assert_int_equal(config.num_heads, 4);
    assert_int_equal(config.num_kv_heads, 2);
    assert_int_equal(config.head_dim, 16);
    assert_int_equal(config.max_position, 256);
    assert_true(config.norm_eps == 0x1p-16F);
    assert_true(config.ropes[0].theta == 500000.0F);
    assert_int_equal(config.rotary_dim, 8);
    assert_true(config.rope_interleaved);
    assert_true(config.tied_embeddings);
}

static void test_defaults(void **state) {
    assert_int_equal(accepted(NULL, "llama.attention.head_count_kv").num_kv_heads, 4);
    assert_int_equal(accepted(NULL, "llama.rope.dimension_count").rotary_dim, 16);
    assert_true(accepted(NULL, "llama.rope.freq_base").ropes[0].theta == 10000.0F);
    assert_int_equal(accepted(NULL, "llama.vocab_size").vocab_size, 3);
    assert_string_equal(accepted(NULL, "general.name").name, "");
}

/* A head's size may differ from hidden / heads when the file says so. */
static void test_key_length(void **state) {
    struct entry change = integer("llama.attention.key_length", 24);
    assert_int_equal(accepted(&change, NULL).head_dim, 24);
    change = integer("llama.attention.value_length", 24);
    assert_refused(&change, NULL, "24 differs from the keys' 16");
}

/* What the attention of a backend cannot hold is refused here; there it would be a crash. */
static void test_head_sizes_without_kernels(void **state) {
    struct entry change = integer("llama.attention.key_length", 20);
    assert_refused(&change, NULL, "heads of 20 elements; must be a multiple of 8");
    change = integer("llama.attention.key_length", 256);
    assert_int_equal(accepted(&change, NULL).head_dim, 256);
    change = integer("llama.attention.key_length", 264);
    assert_refused(&change, NULL, "264 (allowed: 1 to 256)");
    change = integer("llama.embedding_length", 4 * 12);
    assert_refused(&change, NULL, "heads of 12 elements; must be a multiple of 8");
    change = integer("llama.embedding_length", 4 * 264);
    assert_refused(&change, NULL, "heads of 264 elements; must be a multiple of 8, at most 256");
}

static void test_missing_keys(void **state) {
    static const char *const required[] = {
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.tokens",
    };
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        assert_refused(NULL, required[i], "is missing");
}

static void test_integers_out_of_range(void **state) {
    static const struct {
        const char *key;
        uint64_t max;
    } keys[] = {
        {"llama.block_count", 1024},          {"llama.context_length", 1 << 24},
        {"llama.embedding_length", 1 << 17},  {"llama.feed_forward_length", 1 << 20},
        {"llama.attention.head_count", 1024}, {"llama.attention.head_count_kv", 4},
        {"llama.attention.key_length", 256},  {"llama.attention.value_length", 256},
        {"llama.rope.dimension_count", 16},   {"llama.vocab_size", 1 << 22},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const uint64_t bad[] = {0, keys[i].max + 1, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
        for (size_t j = 0; j < sizeof(bad) / sizeof(bad[0]); j++) {
            struct entry change = integer(keys[i].key, bad[j]);
            char found[48];
            snprintf(found, sizeof(found), "%" PRIu64 " (allowed: ", bad[j]);
            assert_refused(&change, NULL, found);
        }
        struct entry negative = {.key = keys[i].key, .type = GGUF_INT64, .number = UINT64_MAX};
        assert_refused(&negative, NULL, "-1 (allowed: ");
        struct entry wrong = string(keys[i].key, "4");
        assert_refused(&wrong, NULL, "is not an integer");
        wrong = real(keys[i].key, 4.0);
        assert_refused(&wrong, NULL, "is not an integer");
        wrong = (struct entry){.key = keys[i].key, .type = GGUF_ARRAY, .number = 2};
        assert_refused(&wrong, NULL, "is not an integer");
    }
}

static void test_reals_out_of_range(void **state) {
    static const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon",
                                       "llama.rope.freq_base"};
    const double bad[] = {0.0, -1.0, 1e300, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        for (size_t j = 0; j < sizeof(bad) / sizeof(bad[0]); j++) {
            struct entry change = real(keys[i], bad[j]);
            assert_refused(&change, NULL, "(allowed: ");
        }
        struct entry wrong = integer(keys[i], 1);
        assert_refused(&wrong, NULL, "is not a floating point number");
    }
}

static void test_one_is_never_a_crash(void **state) {
    for (size_t i = 0; i < NUM_BASE; i++) {
        struct model_config config;
        struct error err = {0};
        struct entry change = integer(base[i].key, 1);
        if (read_config(&change, NULL, &config, &err) != 0)
            assert_int_equal(err.code, ERROR_MODEL);
    }
}

static void test_sizes_that_do_not_fit_together(void **state) {
    struct entry change = integer("llama.attention.head_count", 6);
    assert_refused(&change, NULL, "6 does not divide llama.embedding_length 64");
    change = integer("llama.attention.head_count_kv", 3);
    assert_refused(&change, NULL, "3 does not divide llama.attention.head_count 4");
    change = integer("llama.rope.dimension_count", 7);
    assert_refused(&change, NULL, "7 is odd");
    change = integer("llama.vocab_size", 4);
    assert_refused(&change, NULL, "4, but tokenizer.ggml.tokens lists 3 tokens");
    change = (struct entry){.key = "tokenizer.ggml.tokens", .type = GGUF_ARRAY};
    assert_refused(&change, NULL, "0 tokens");
    change = string("tokenizer.ggml.tokens", "abc");
    assert_refused(&change, NULL, "is not an array");
}

static void test_unknown_architectures(void **state) {
    static const char known[] =
        "(known: llama, qwen2, qwen3, phi3, gemma, gemma2, gemma3, granite, olmo2, "
        "smollm3, command-r, cohere2, qwen2moe, qwen3moe, olmoe, granitemoe, phimoe, gpt-oss, "
        "glm4moe, dots1, deepseek2)";
    struct entry change = string("general.architecture", "mamba\n");
    assert_refused(&change, NULL, "'mamba?' is not supported");
    assert_refused(&change, NULL, known);
    change =
        string("general.architecture", "a-very-long-architecture-name-that-does-not-fit-anywhere");
    assert_refused(&change, NULL, known);
    change = string("general.architecture", "");
    assert_refused(&change, NULL, known);
    change = string("general.architecture", "mistral3"); /* attention scaled by position */
    assert_refused(&change, NULL, known);
    change = integer("general.architecture", 3);
    assert_refused(&change, NULL, "is not a string");
    change = string("general.architecture", "qwen3next");
    assert_refused(&change, NULL, "'qwen3next' is not supported (linear attention)");
}

/* Whatever could change results and is not implemented is named, not ignored. */
static void test_settings_that_change_results(void **state) {
    static const char *const reals[] = {
        "llama.logit_scale",        "llama.residual_scale",
        "llama.attention.scale",    "llama.attention.clamp_kqv",
        "llama.embedding_scale",    "llama.final_logit_softcapping",
        "llama.rope.freq_base_swa", "llama.rope.scaling.yarn_log_multiplier",
    };
    static const char *const integers[] = {
        "llama.expert_shared_count",
        "llama.attention.key_length_swa",
        "llama.some_new_switch",
    };
    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
        struct entry change = real(reals[i], 8.0);
        assert_refused(&change, NULL, "not supported");
    }
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        struct entry change = integer(integers[i], 8);
        assert_refused(&change, NULL, "not supported");
    }
    /* A key of one family means nothing to another. */
    const struct entry window = integer("llama.attention.sliding_window", 8);
    const struct variant v = {"granite", &window, 1};
    assert_variant_refused(&v, "granite.attention.sliding_window: this setting is not supported");
    const struct entry experts = integer("llama.expert_count", 8);
    const struct variant dense = {"granite", &experts, 1};
    assert_variant_refused(&dense, "granite.expert_count: this setting is not supported");
}

static void test_settings_that_are_off(void **state) {
    struct entry change = integer("llama.expert_count", 0);
    accepted(&change, NULL);
    change = real("llama.rope.scaling.factor", 1.0);
    assert_int_equal(accepted(&change, NULL).ropes[0].scaling, ROPE_SCALING_NONE);
    change = string("llama.rope.scaling.type", "none");
    accepted(&change, NULL);
    change = string("llama.tensor_data_layout", "Meta AI original pth");
    accepted(&change, NULL);
    /* Written for every architecture once, and read for others only. */
    change = (struct entry){"llama.use_parallel_residual", GGUF_UINT64, 1};
    accepted(&change, NULL);
    change = integer("other.expert_count", 8);
    accepted(&change, NULL);
    change = integer("llama2.expert_count", 8);
    accepted(&change, NULL);
}

/* --- Rope scaling ------------------------------------------------------------------------------
 */

static void test_linear_scaling(void **state) {
    struct entry change = real("llama.rope.scaling.factor", 4.0);
    struct model_config config = accepted(&change, NULL);
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_LINEAR);
    assert_true(config.ropes[0].factor == 4.0F);
    assert_int_equal(config.max_position, 256);
    change = real("llama.rope.scale_linear", 2.0);
    assert_true(accepted(&change, NULL).ropes[0].factor == 2.0F);
    const double bad[] = {0.0, -1.0, 0.5, 1e6, NAN, INFINITY};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        change = real("llama.rope.scaling.factor", bad[i]);
        assert_refused(&change, NULL, "(allowed: 1 to 100000)");
    }
    change = real("llama.rope.scaling.attn_factor", 1.5);
    assert_refused(&change, NULL, "is only supported for yarn and longrope");
    change = string("llama.rope.scaling.type", "dynamic");
    assert_refused(&change, NULL, "'dynamic' is not supported (supported: none, linear, yarn");
    change = integer("llama.rope.scaling.type", 1);
    assert_refused(&change, NULL, "is not a string");
}

static void test_yarn(void **state) {
    struct entry changes[] = {
        string("llama.rope.scaling.type", "yarn"),
        real("llama.rope.scaling.factor", 4.0),
        integer("llama.rope.scaling.original_context_length", 128),
        real("llama.rope.scaling.yarn_beta_fast", 16.0),
        real("llama.rope.scaling.attn_factor", 2.0),
    };
    struct variant v = {"qwen2", changes, 5};
    struct model_config config = accepted_variant(&v);
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_YARN);
    assert_int_equal(config.ropes[0].original_max_position, 128);
    assert_true(config.ropes[0].truncate);
    assert_true(config.ropes[0].beta_fast == 16.0F && config.ropes[0].beta_slow == 1.0F);
    assert_true(fabs((double)config.ropes[0].attention_factor - 2.0 * 1.13862944) < 1e-6);
    assert_int_equal(config.max_position, 512); /* what the rope is stretched to */
    v.num_changes = 2;
    config = accepted_variant(&v);
    assert_int_equal(config.ropes[0].original_max_position, 256);
    assert_true(config.ropes[0].beta_fast == 32.0F);
    assert_int_equal(config.max_position, 256);
}

/* Divisors of every frequency instead of a setting: Llama 3 and longrope. */
static void test_rope_tensors(void **state) {
    static const char *const freqs[] = {"rope_freqs.weight"};
    static const char *const lists[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    struct variant v = {.tensors = freqs, .num_tensors = 1};
    struct model_config config = accepted_variant(&v);
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_LONGROPE);
    assert_memory_equal(config.ropes[0].short_factors, factors, sizeof(factors));
    assert_memory_equal(config.ropes[0].long_factors, factors, sizeof(factors));
    assert_true(config.ropes[0].attention_factor == 1.0F);

    const struct entry changes[] = {
        integer("llama.rope.scaling.original_context_length", 64),
        real("llama.rope.scaling.attn_factor", 1.25),
    };
    v = (struct variant){"phi3", changes, 2, .tensors = lists, .num_tensors = 2};
    config = accepted_variant(&v);
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_LONGROPE);
    assert_int_equal(config.ropes[0].original_max_position, 64);
    assert_true(config.ropes[0].attention_factor == 1.25F);
    v.num_tensors = 1;
    assert_variant_refused(&v, "tensor 'rope_factors_long.weight' is missing");
}

static void test_bad_rope_tensors(void **state) {
    static const char *const freqs[] = {"rope_freqs.weight"};
    struct variant v = {.tensors = freqs, .num_tensors = 1, .tensor_type = 1};
    assert_variant_refused(&v, "tensor 'rope_freqs.weight': must be f32 [4]");
    struct entry change = integer("llama.rope.dimension_count", 16);
    v = (struct variant){NULL, &change, 1, .tensors = freqs, .num_tensors = 1};
    assert_variant_refused(&v, "tensor 'rope_freqs.weight': must be f32 [8]");
    change = string("llama.rope.scaling.type", "yarn");
    assert_variant_refused(&v, "is not supported together with rope factor tensors");
    v.num_tensors = 0;
    change = string("llama.rope.scaling.type", "longrope");
    assert_variant_refused(&v, "tensor 'rope_factors_long.weight' is missing");
}

/* --- Families ----------------------------------------------------------------------------------
 */

static void assert_windows(const struct model_config *config, const int32_t *windows,
                           const int32_t *ropes) {
    for (int32_t i = 0; i < config->num_layers; i++) {
        assert_int_equal(config->layers[i].window, windows[i]);
        assert_int_equal(config->layers[i].rope, ropes[i]);
    }
}

static void test_mistral_window(void **state) {
    struct entry change = integer("llama.attention.sliding_window", 100);
    struct model_config config = accepted(&change, NULL);
    assert_windows(&config, (int32_t[]){100, 100}, (int32_t[]){0, 0});
    change = integer("llama.attention.sliding_window", 0);
    config = accepted(&change, NULL);
    assert_windows(&config, (int32_t[]){0, 0}, (int32_t[]){0, 0});
}

static void test_qwen(void **state) {
    struct model_config config = accepted_variant(&(struct variant){"qwen2"});
    assert_false(config.rope_interleaved);
    assert_int_equal(config.qk_norm, QK_NORM_NONE);
    assert_int_equal(config.activation, ACTIVATION_SILU);
    config = accepted_variant(&(struct variant){"qwen3"});
    assert_false(config.rope_interleaved);
    assert_int_equal(config.qk_norm, QK_NORM_HEAD);
    assert_true(config.pre_norm && !config.post_norm);
}

static void test_gemma(void **state) {
    struct model_config config = accepted_variant(&(struct variant){"gemma"});
    assert_true(config.embedding_scale == 8.0F);
    assert_false(config.norm_plus_one); /* the converter has added it */
    assert_int_equal(config.activation, ACTIVATION_GELU_TANH);
    assert_false(config.rope_interleaved);
    assert_true(config.attention_soft_cap == 0.0F && config.final_soft_cap == 0.0F);
}

static void test_gemma2(void **state) {
    struct entry changes[] = {integer("llama.block_count", 4),
                              integer("llama.attention.sliding_window", 32),
                              real("llama.attn_logit_softcapping", 40.0)};
    struct variant v = {"gemma2", changes, 3};
    struct model_config config = accepted_variant(&v);
    assert_windows(&config, (int32_t[]){32, 0, 32, 0}, (int32_t[]){0, 0, 0, 0});
    assert_true(config.attention_soft_cap == 40.0F && config.final_soft_cap == 30.0F);
    assert_true(config.pre_norm && config.post_norm);
    assert_true(config.attention_scale == 0.25F);
    changes[0] = integer("llama.block_count", 46); /* 27B: by hidden_size / num_heads */
    changes[2] = integer("llama.attention.key_length", 64);
    assert_true(accepted_variant(&v).attention_scale == 0.25F);
    changes[0] = real("llama.attention.scale", 0.5);
    assert_true(accepted_variant(&v).attention_scale == 0.5F);
}

static void test_gemma3(void **state) {
    struct entry changes[] = {
        integer("llama.block_count", 7), integer("llama.attention.sliding_window", 16),
        real("llama.rope.freq_base", 1e6), real("llama.rope.scaling.factor", 8.0),
        string("llama.rope.scaling.type", "linear")};
    struct variant v = {"gemma3", changes, 5};
    struct model_config config = accepted_variant(&v);
    assert_windows(&config, (int32_t[]){16, 16, 16, 16, 16, 0, 16},
                   (int32_t[]){1, 1, 1, 1, 1, 0, 1});
    assert_int_equal(config.num_ropes, 2);
    assert_true(config.ropes[0].theta == 1e6F && config.ropes[0].factor == 8.0F);
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_LINEAR);
    assert_true(config.ropes[1].theta == 1e4F);
    assert_int_equal(config.ropes[1].scaling, ROPE_SCALING_NONE);
    assert_int_equal(config.qk_norm, QK_NORM_HEAD);
    assert_true(config.attention_soft_cap == 0.0F);
    changes[4] = real("llama.rope.freq_base_swa", 2e4);
    assert_true(accepted_variant(&v).ropes[1].theta == 2e4F);
    changes[0] = integer("llama.attention.sliding_window_pattern", 2);
    config = accepted_variant(&v);
    assert_windows(&config, (int32_t[]){16, 0}, (int32_t[]){1, 0});
    changes[0] = (struct entry){"llama.attention.sliding_window_pattern", GGUF_BOOL, .text = "01"};
    config = accepted_variant(&v);
    assert_windows(&config, (int32_t[]){0, 16}, (int32_t[]){0, 1});
    changes[0].text = "011";
    assert_variant_refused(&v, "is not one flag for every layer");
    changes[0] = integer("llama.attention.sliding_window", 0);
    v.num_changes = 1;
    config = accepted_variant(&v);
    assert_int_equal(config.num_ropes, 1);
}

/* A language model's file may keep settings of the model's other parts. */
static void test_settings_of_other_parts(void **state) {
    const struct entry changes[] = {
        integer("llama.mm.tokens_per_image", 256),
        integer("llama.vision.block_count", 27),
        real("llama.vision.attention.layer_norm_epsilon", 1e-6),
    };
    struct variant v = {"gemma3", changes, 3};
    accepted_variant(&v);
    const struct entry other = integer("llama.visions", 1);
    v.changes = &other;
    v.num_changes = 1;
    assert_variant_refused(&v, "gemma3.visions: this setting is not supported");
}

static void test_half_precision(void **state) {
    assert_true(accepted_variant(&(struct variant){"gemma2"}).overflows_f16);
    assert_true(accepted_variant(&(struct variant){"gemma3"}).overflows_f16);
    assert_false(accepted_variant(&(struct variant){"gemma"}).overflows_f16);
    assert_false(accepted_variant(&(struct variant){"qwen3"}).overflows_f16);
}

/* The first files of the 4k models state no window. */
static void test_phi3_window(void **state) {
    struct entry changes[] = {
        integer("llama.block_count", 32),
        integer("llama.context_length", 4096),
        integer("llama.attention.sliding_window", 1000),
    };
    struct variant v = {"phi3", changes, 2};
    struct model_config config = accepted_variant(&v);
    for (int32_t i = 0; i < 32; i++)
        assert_int_equal(config.layers[i].window, 2047);
    changes[0].number = 40;
    assert_int_equal(accepted_variant(&v).layers[39].window, 2047);
    v.num_changes = 3;
    assert_int_equal(accepted_variant(&v).layers[0].window, 1000);
    v.num_changes = 2;
    changes[0].number = 31;
    assert_int_equal(accepted_variant(&v).layers[0].window, 0);
    changes[0].number = 32;
    changes[1].number = 131072;
    assert_int_equal(accepted_variant(&v).layers[0].window, 0);
    v.architecture = "llama";
    changes[1].number = 4096;
    assert_int_equal(accepted_variant(&v).layers[0].window, 0);
}

static void test_granite(void **state) {
    struct entry changes[] = {
        real("llama.embedding_scale", 12.0), real("llama.residual_scale", 0.25),
        real("llama.attention.scale", 0.015625), real("llama.logit_scale", 8.0)};
    struct variant v = {"granite", changes, 4};
    struct model_config config = accepted_variant(&v);
    assert_true(config.embedding_scale == 12.0F && config.residual_scale == 0.25F);
    assert_true(config.attention_scale == 0.015625F);
    assert_true(config.logit_scale == 0.125F); /* the file's divides */
    assert_true(config.rope_interleaved);
    const double bad[] = {-1.0, 1e9, NAN, INFINITY};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        changes[3].real = bad[i];
        assert_variant_refused(&v, "granite.logit_scale: ");
    }
    for (size_t i = 0; i < 4; i++)
        changes[i].real = 0.0; /* not there */
    config = accepted_variant(&v);
    assert_true(config.embedding_scale == 1.0F && config.logit_scale == 1.0F);
    assert_true(config.attention_scale == 0.25F);
}

static void test_olmo(void **state) {
    struct entry changes[] = {
        integer("llama.block_count", 4), integer("llama.attention.sliding_window", 32),
        real("llama.rope.scaling.factor", 8.0), string("llama.rope.scaling.type", "yarn"),
        real("llama.rope.scaling.attn_factor", 1.2079441541679836)};
    struct variant v = {"olmo2", changes, 1};
    struct model_config config = accepted_variant(&v);
    assert_true(!config.pre_norm && config.post_norm);
    assert_int_equal(config.qk_norm, QK_NORM_FULL);
    assert_windows(&config, (int32_t[]){0, 0, 0, 0}, (int32_t[]){0, 0, 0, 0});
    v.num_changes = 4; /* an OLMo 3 */
    config = accepted_variant(&v);
    assert_windows(&config, (int32_t[]){32, 32, 32, 0}, (int32_t[]){1, 1, 1, 0});
    assert_int_equal(config.ropes[0].scaling, ROPE_SCALING_YARN);
    assert_int_equal(config.ropes[1].scaling, ROPE_SCALING_NONE);
    assert_true(config.ropes[1].theta == 500000.0F);
    assert_true(fabs((double)config.ropes[0].attention_factor - 1.2079441541679836) < 1e-6);
    v.num_changes = 5; /* as a whole, not to be multiplied again */
    config = accepted_variant(&v);
    assert_true(fabs((double)config.ropes[0].attention_factor - 1.2079441541679836) < 1e-6);
}

static void test_smollm3(void **state) {
    struct entry change = integer("llama.block_count", 5);
    struct model_config config = accepted_variant(&(struct variant){"smollm3", &change, 1});
    assert_windows(&config, (int32_t[]){0, 0, 0, 0, 0}, (int32_t[]){0, 0, 0, -1, 0});
    assert_true(config.rope_interleaved);
}

static void test_cohere(void **state) {
    struct entry changes[] = {real("llama.logit_scale", 0.0625), integer("llama.block_count", 4),
                              integer("llama.attention.sliding_window", 32)};
    struct variant v = {"command-r", changes, 1};
    struct model_config config = accepted_variant(&v);
    assert_int_equal(config.norm, NORM_LAYER);
    assert_true(config.norm_eps == 0x1p-15F);
    assert_true(config.parallel_residual && config.pre_norm);
    assert_true(config.rope_interleaved);
    assert_true(config.logit_scale == 0.0625F);
    v.architecture = "cohere2";
    v.num_changes = 3;
    config = accepted_variant(&v);
    assert_windows(&config, (int32_t[]){32, 32, 32, 0}, (int32_t[]){0, 0, 0, -1});
    v.without = "llama.attention.layer_norm_epsilon";
    assert_variant_refused(&v, "cohere2.attention.layer_norm_epsilon: is missing");
}

/* --- Mixtures of experts ------------------------------------------------------------------------
 */

/* A file of this architecture with a mixture of experts, and one more key or another value. */
static struct variant with_experts(const char *architecture, const struct entry *change,
                                   struct entry out[static 6]) {
    const struct entry entries[] = {
        integer("llama.expert_count", 8),
        integer("llama.expert_used_count", 2),
        integer("llama.expert_feed_forward_length", 32),
    };
    struct variant v = {architecture, out, 0};
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (change == NULL || strcmp(change->key, entries[i].key) != 0)
            out[v.num_changes++] = entries[i];
    if (change != NULL)
        out[v.num_changes++] = *change;
    if (strcmp(architecture, "glm4moe") == 0 &&
        (change == NULL || strcmp(change->key, "llama.expert_shared_count") != 0))
        out[v.num_changes++] = integer("llama.expert_shared_count", 2);
    return v;
}

static struct model_config experts_of(const char *architecture, const struct entry *change) {
    struct entry entries[6];
    const struct variant v = with_experts(architecture, change, entries);
    return accepted_variant(&v);
}

static void assert_experts_refused(const char *architecture, struct entry change,
                                   const char *reason) {
    struct entry entries[6];
    const struct variant v = with_experts(architecture, &change, entries);
    assert_variant_refused(&v, reason);
}

static void test_experts(void **state) {
    (void)state;
    struct model_config config = experts_of("llama", NULL);
    const struct moe_config *moe = &config.moe;
    assert_int_equal(moe->num_experts, 8);
    assert_int_equal(moe->num_chosen, 2);
    assert_int_equal(moe->expert_size, 32);
    assert_int_equal(moe->shared_size, 0);
    assert_true(moe->renormalise && config.layers[0].is_sparse && config.layers[1].is_sparse);
    config = accepted(NULL, NULL);
    assert_int_equal(config.moe.num_experts, 0);
    config = experts_of("qwen2moe", NULL);
    assert_int_equal(moe->shared_size, 160); /* feed_forward_length */
    assert_true(moe->shared_gate && !moe->renormalise);
    struct entry change = integer("llama.expert_shared_feed_forward_length", 96);
    config = experts_of("qwen2moe", &change);
    assert_int_equal(moe->shared_size, 96);
    config = experts_of("qwen3moe", NULL);
    assert_true(moe->renormalise);
    config = experts_of("olmoe", NULL);
    assert_false(moe->renormalise);
    change = integer("llama.expert_weights_norm", 1);
    config = experts_of("olmoe", &change);
    assert_true(moe->renormalise);
    config = experts_of("granitemoe", NULL);
    assert_int_equal(moe->scoring, ROUTE_SOFTMAX_OF_CHOSEN);
    config = experts_of("phimoe", NULL);
    assert_int_equal(moe->scoring, ROUTE_SPARSEMIXER);
    assert_true(fabs((double)moe->jitter - 0.01) < 1e-6);
    assert_true(config.norm_bias && config.norm == NORM_LAYER && !config.head_bias);
    config = experts_of("gpt-oss", NULL);
    assert_true(config.attention_sinks && !moe->is_transposed);
    assert_int_equal(config.layers[0].window, 128);
    assert_int_equal(config.layers[1].window, 0);
}

static void test_glm4moe(void **state) {
    (void)state;
    struct entry change = real("llama.expert_weights_scale", 2.5);
    struct model_config config = experts_of("glm4moe", &change);
    assert_true(config.moe.scale == 2.5F);
    assert_int_equal(config.moe.shared_size, 64);
    assert_int_equal(config.moe.scoring, ROUTE_SIGMOID);
    assert_true(config.moe.selection_bias && !config.moe.renormalise);
    assert_int_equal(config.qk_norm, QK_NORM_NONE);
    change = integer("llama.leading_dense_block_count", 1);
    config = experts_of("glm4moe", &change);
    assert_true(!config.layers[0].is_sparse && config.layers[1].is_sparse);
    change = integer("llama.nextn_predict_layers", 1);
    config = experts_of("glm4moe", &change);
    assert_int_equal(config.num_layers, 1);
    assert_int_equal(config.num_extra_layers, 1);
    change = integer("llama.expert_group_count", 2);
    config = experts_of("glm4moe", &change);
    assert_int_equal(config.moe.num_groups, 2);
}

/* Entries of a file with latent attention: a new one, with lengths that end in _mla, or an old one.
 * An entry of the same key replaces one of them. */
static struct model_config latent_of(bool is_new, const struct entry *change, const char *reason) {
    const struct entry entries[] = {
        integer("llama.expert_count", 8),
        integer("llama.expert_used_count", 2),
        integer("llama.expert_feed_forward_length", 32),
        integer("llama.expert_shared_count", 2),
        integer("llama.attention.kv_lora_rank", 32),
        integer("llama.attention.key_length", is_new ? 40 : 24),
        integer("llama.attention.value_length", is_new ? 32 : 16),
        integer("llama.rope.dimension_count", 8),
        string("llama.rope.scaling.type", "yarn"),
        real("llama.rope.scaling.factor", 4.0),
        integer("llama.attention.key_length_mla", 24),
        integer("llama.attention.value_length_mla", 16),
        integer("llama.attention.q_lora_rank", 48),
    };
    enum { NUM_NEW = 3, NUM = sizeof(entries) / sizeof(entries[0]) };
    struct entry used[NUM + 1];
    struct variant v = {"deepseek2", used, 0};
    for (int i = 0; i < NUM - (is_new ? 0 : NUM_NEW); i++)
        if (change == NULL || strcmp(change->key, entries[i].key) != 0)
            used[v.num_changes++] = entries[i];
    if (change != NULL)
        used[v.num_changes++] = *change;
    if (reason == NULL)
        return accepted_variant(&v);
    assert_variant_refused(&v, reason);
    return (struct model_config){0};
}

static void test_deepseek2(void **state) {
    (void)state;
    for (int is_new = 0; is_new < 2; is_new++) {
        struct model_config config = latent_of(is_new, NULL, NULL);
        assert_int_equal(config.latent.kv_rank, 32);
        assert_int_equal(config.latent.q_rank, is_new ? 48 : 0);
        assert_int_equal(config.latent.nope_dim, 16);
        assert_int_equal(config.latent.value_dim, 16);
        assert_true(config.latent.norm_eps == config.norm_eps);
        assert_int_equal(config.rotary_dim, 8);
        assert_int_equal(config.head_dim, 40);
        assert_int_equal(config.num_kv_heads, 1);
        assert_true(config.rope_interleaved);
        assert_true(fabs((double)config.attention_scale - 1.0 / sqrt(24.0)) < 1e-6);
        assert_true(fabs((double)config.ropes[0].attention_factor - 1.13862944) < 1e-6);
        assert_int_equal(config.moe.scoring, ROUTE_SOFTMAX);
        assert_int_equal(config.moe.group_score, ROUTE_GROUP_MAX);
        assert_true(!config.moe.selection_bias && !config.moe.renormalise);
    }
    struct entry change = real("llama.rope.scaling.yarn_log_multiplier", 0.0707);
    struct model_config config = latent_of(true, &change, NULL);
    double scale = 1.0 + 0.0707 * log(4.0);
    assert_true(config.ropes[0].attention_factor == 1.0F);
    assert_true(fabs((double)config.attention_scale - scale * scale / sqrt(24.0)) < 1e-6);
    change = integer("llama.expert_gating_func", 2); /* V3 */
    config = latent_of(true, &change, NULL);
    assert_int_equal(config.moe.scoring, ROUTE_SIGMOID);
    assert_int_equal(config.moe.group_score, ROUTE_GROUP_TOP2);
    assert_true(config.moe.selection_bias);
}

static void test_bad_latent_attention(void **state) {
    static const struct {
        const char *key;
        uint64_t value;
        const char *reason;
    } cases[] = {
        {"llama.attention.kv_lora_rank", 577, "(allowed: 1 to 576)"},
        {"llama.attention.kv_lora_rank", 36, "kv_lora_rank 36,"},
        {"llama.attention.kv_lora_rank", 576, "together at most 576"},
        {"llama.attention.key_length_mla", 8, "key_length 8,"},
        {"llama.attention.key_length_mla", 257, "(allowed: 1 to 256)"},
        {"llama.attention.value_length_mla", 20, "value_length 20:"},
        {"llama.rope.dimension_count", 4, "rope.dimension_count 4,"},
        {"llama.attention.q_lora_rank", 131073, "(allowed: 0 to 131072)"},
        {"llama.expert_gating_func", 3, "3 is not supported for this architecture"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct entry change = integer(cases[i].key, cases[i].value);
        latent_of(true, &change, cases[i].reason);
    }
}

static void test_bad_experts(void **state) {
    (void)state;
    assert_experts_refused("llama", integer("llama.expert_count", 1025), "(allowed: 0 to 1024)");
    assert_experts_refused("olmoe", integer("llama.expert_count", 1), "(allowed: 2 to 1024)");
    assert_experts_refused("llama", integer("llama.expert_used_count", 9), "(allowed: 1 to 8)");
    assert_experts_refused("llama", integer("llama.expert_used_count", 0), "(allowed: 1 to 8)");
    assert_experts_refused("llama", integer("llama.expert_feed_forward_length", 0),
                           "(allowed: 1 to 1048576)");
    assert_experts_refused("qwen2moe", integer("llama.expert_shared_feed_forward_length", 0),
                           "(allowed: 1 to 1048576)");
    assert_experts_refused("phimoe", integer("llama.expert_used_count", 3),
                           "phimoe.expert_used_count: 3; only 2 is supported");
    assert_experts_refused("llama", integer("llama.expert_gating_func", 2),
                           "llama.expert_gating_func: 2 is not supported for this architecture");
    assert_experts_refused("llama", integer("llama.expert_weights_norm", 2), "(allowed: 0 to 1)");
    assert_experts_refused("glm4moe", integer("llama.expert_shared_count", 32769),
                           "(allowed: 0 to 32768)");
    assert_experts_refused("glm4moe", integer("llama.expert_group_count", 3), "does not divide");
    assert_experts_refused("glm4moe", integer("llama.expert_group_count", 8),
                           "glm4moe.expert_group_count: 8 groups of 1 experts");
    assert_experts_refused("glm4moe", integer("llama.expert_group_used_count", 2),
                           "(allowed: 1 to 1)");
    assert_experts_refused("glm4moe", integer("llama.leading_dense_block_count", 2),
                           "(allowed: 0 to 1)");
    assert_experts_refused("glm4moe", integer("llama.nextn_predict_layers", 2),
                           "(allowed: 0 to 1)");
    const struct variant without_count = {"olmoe"};
    assert_variant_refused(&without_count, "olmoe.expert_count: is missing");
}

/* Every key of every architecture at values no honest file has: an answer, never a crash. */
static void test_matrix(void **state) {
    static const char *const architectures[] = {
        "llama",   "qwen2",      "qwen3",   "phi3",      "gemma",   "gemma2",   "gemma3",
        "granite", "olmo2",      "smollm3", "command-r", "cohere2", "qwen2moe", "qwen3moe",
        "olmoe",   "granitemoe", "phimoe",  "gpt-oss",   "glm4moe", "dots1",    "deepseek2"};
    static const char *const keys[] = {
        "llama.vocab_size",
        "llama.context_length",
        "llama.embedding_length",
        "llama.block_count",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.attention.key_length",
        "llama.attention.value_length",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.attention.layer_norm_epsilon",
        "llama.attention.scale",
        "llama.attention.sliding_window",
        "llama.attention.sliding_window_pattern",
        "llama.rope.dimension_count",
        "llama.rope.freq_base",
        "llama.rope.freq_base_swa",
        "llama.rope.scaling.type",
        "llama.rope.scaling.factor",
        "llama.rope.scaling.attn_factor",
        "llama.rope.scaling.original_context_length",
        "llama.rope.scaling.yarn_beta_fast",
        "llama.rope.scaling.yarn_beta_slow",
        "llama.attn_logit_softcapping",
        "llama.final_logit_softcapping",
        "llama.embedding_scale",
        "llama.residual_scale",
        "llama.logit_scale",
        "llama.expert_count",
        "llama.expert_used_count",
        "llama.expert_feed_forward_length",
        "llama.expert_shared_feed_forward_length",
        "llama.expert_shared_count",
        "llama.expert_gating_func",
        "llama.expert_weights_norm",
        "llama.expert_weights_scale",
        "llama.expert_group_count",
        "llama.expert_group_used_count",
        "llama.leading_dense_block_count",
        "llama.nextn_predict_layers",
        "llama.attention.kv_lora_rank",
        "llama.attention.q_lora_rank",
        "llama.attention.key_length_mla",
        "llama.attention.value_length_mla",
        "llama.rope.scaling.yarn_log_multiplier",
    };
    struct entry values[] = {
        integer("", 0),
        integer("", 1),
        integer("", INT32_MAX),
        integer("", (uint64_t)1 << 32),
        integer("", (uint64_t)1 << 63),
        integer("", UINT64_MAX),
        {.type = GGUF_INT64, .number = UINT64_MAX},
        {.type = GGUF_INT64, .number = (uint64_t)1 << 63},
        real("", 0.0),
        real("", -1.0),
        real("", 1e300),
        real("", NAN),
        real("", INFINITY),
        string("", "yarn"),
        string("", ""),
        {.type = GGUF_ARRAY, .number = 2},
        {.type = GGUF_BOOL, .text = "10"},
        {.type = GGUF_BOOL, .text = ""},
    };
    enum { NUM_DENSE = 12 };
    int num_refused = 0;
    for (size_t a = 0; a < sizeof(architectures) / sizeof(architectures[0]); a++) {
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
                struct model_config config = {.num_layers = 77};
                struct error err = {0};
                struct entry entries[6];
                values[i].key = keys[k];
                bool dense = a < NUM_DENSE;
                const struct variant v = dense
                                             ? (struct variant){architectures[a], &values[i], 1}
                                             : with_experts(architectures[a], &values[i], entries);
                if (read_variant(&v, &config, &err) == 0)
                    continue;
                assert_int_equal(err.code, ERROR_MODEL);
                assert_int_equal(config.num_layers, 77);
                assert_null(strchr(err.message, '\n'));
                num_refused++;
            }
        }
    }
    assert_true(num_refused > 4000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_field),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_key_length),
        cmocka_unit_test(test_head_sizes_without_kernels),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_integers_out_of_range),
        cmocka_unit_test(test_reals_out_of_range),
        cmocka_unit_test(test_one_is_never_a_crash),
        cmocka_unit_test(test_sizes_that_do_not_fit_together),
        cmocka_unit_test(test_unknown_architectures),
        cmocka_unit_test(test_settings_that_change_results),
        cmocka_unit_test(test_settings_that_are_off),
        cmocka_unit_test(test_linear_scaling),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_rope_tensors),
        cmocka_unit_test(test_bad_rope_tensors),
        cmocka_unit_test(test_mistral_window),
        cmocka_unit_test(test_qwen),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_gemma2),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_settings_of_other_parts),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_phi3_window),
        cmocka_unit_test(test_granite),
        cmocka_unit_test(test_olmo),
        cmocka_unit_test(test_smollm3),
        cmocka_unit_test(test_cohere),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_glm4moe),
        cmocka_unit_test(test_deepseek2),
        cmocka_unit_test(test_bad_latent_attention),
        cmocka_unit_test(test_bad_experts),
        cmocka_unit_test(test_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
