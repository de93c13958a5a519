#include "models/model_config.h"

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
    {"llama.rope.freq_base", GGUF_FLOAT64, .real = 500000.0},
    {"llama.rope.dimension_count", GGUF_UINT64, 8},
    {"llama.vocab_size", GGUF_UINT64, 3},
    {"tokenizer.ggml.tokens", GGUF_ARRAY, 3},
};

enum { NUM_BASE = sizeof(base) / sizeof(base[0]) };

static void put_entry(struct gguf_writer *w, const struct entry *entry) {
    if (entry->type == GGUF_ARRAY) {
        gguf_put_key_array(w, entry->key, GGUF_STRING, entry->number);
        gguf_put_zeros(w, entry->number * 8);
        return;
    }
    gguf_put_key(w, entry->key, entry->type);
    if (entry->type == GGUF_STRING)
        gguf_put_string(w, entry->text);
    else if (entry->type == GGUF_FLOAT64)
        gguf_put(w, &entry->real, 8);
    else
        gguf_put_u64(w, entry->number);
}

/* change->key replaces that entry, or joins the others; `without` leaves one out; both may be NULL.
 */
static int read_config(const struct entry *change, const char *without, struct model_config *out,
                       struct error *err) {
    struct gguf_writer w = {0}, entries = {0};
    uint64_t count = 0;
    for (size_t i = 0; i < NUM_BASE; i++) {
        bool replaced = change != NULL && strcmp(change->key, base[i].key) == 0;
        if (replaced || (without != NULL && strcmp(without, base[i].key) == 0))
            continue;
        put_entry(&entries, &base[i]);
        count++;
    }
    if (change != NULL) {
        put_entry(&entries, change);
        count++;
    }
    gguf_put_header(&w, 3, 0, count);
    gguf_put(&w, entries.data, entries.bytes);
    struct tensor_file *file;
    assert_int_equal(tensor_file_open_memory(w.data, w.bytes, "m.gguf", &file, err), 0);
    int status = model_config_read(file, out, err);
    tensor_file_close(file);
    gguf_finish(&w);
    gguf_finish(&entries);
    return status;
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
    assert_refused(&change, NULL, "into heads of at most 256");
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

static void test_architectures(void **state) {
    struct entry change = string("general.architecture", "mamba\n");
    assert_refused(&change, NULL, "'mamba?' is not supported (known: llama)");
    change =
        string("general.architecture", "a-very-long-architecture-name-that-does-not-fit-anywhere");
    assert_refused(&change, NULL, "is not supported (known: llama)");
    change = integer("general.architecture", 3);
    assert_refused(&change, NULL, "is not a string");
}

/* Whatever could change results and is not implemented is named, not ignored. */
static void test_settings_that_change_results(void **state) {
    static const char *const reals[] = {
        "llama.rope.scaling.factor", "llama.rope.scaling.attn_factor", "llama.rope.scale_linear",
        "llama.logit_scale",         "llama.residual_scale",           "llama.attention.clamp_kqv",
        "llama.attention.scale",     "llama.final_logit_softcapping",
    };
    static const char *const integers[] = {
        "llama.expert_count",
        "llama.attention.sliding_window",
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
    struct entry change = string("llama.rope.scaling.type", "yarn");
    assert_refused(&change, NULL, "'yarn' is not supported");
    change = integer("llama.rope.scaling.type", 1);
    assert_refused(&change, NULL, "is not a string");
}

static void test_settings_that_are_off(void **state) {
    struct entry change = integer("llama.expert_count", 0);
    accepted(&change, NULL);
    change = real("llama.rope.scaling.factor", 1.0);
    accepted(&change, NULL);
    change = string("llama.rope.scaling.type", "none");
    accepted(&change, NULL);
    change = string("llama.tensor_data_layout", "Meta AI original pth");
    accepted(&change, NULL);
    change = integer("other.expert_count", 8);
    accepted(&change, NULL);
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
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_settings_that_change_results),
        cmocka_unit_test(test_settings_that_are_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
