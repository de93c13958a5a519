/* The option table through its public door: flags, environment, file, their order, every kind of
 * mistake and its one-line message. */
#include "config/options_table.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Loads from a NULL-terminated list of arguments and of variables; *err is filled on failure. */
static int load(char *const *arguments, char *const *variables, struct options *out,
                struct error *err) {
    int argc = 0;
    while (arguments[argc] != NULL)
        argc++;
    return options_load(argc, arguments, variables, out, err);
}

#define WORDS(...) ((char *const[]){__VA_ARGS__, NULL})
#define NO_WORDS ((char *const[]){NULL})
#define MODEL "--model", "m.gguf"

/* Expects a refusal whose one line holds every given piece. */
static void assert_refused(char *const *arguments, char *const *variables, char *const *pieces) {
    struct options options;
    struct error err = {0};
    memset(&options, 0x5a, sizeof(options));
    struct options untouched = options;
    assert_int_equal(load(arguments, variables, &options, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_null(strchr(err.message, '\n'));
    for (; *pieces != NULL; pieces++)
        if (strstr(err.message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.message, *pieces);
    assert_memory_equal(&options, &untouched, sizeof(options));
}

/* A file in the test's folder with this content; the caller unlinks and frees. */
static char *write_file(const char *content, size_t length) {
    char *path = strdup("options_test_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, length), (ssize_t)length);
    close(fd);
    return path;
}

static int load_yaml(const char *content, size_t length, struct options *out, struct error *err) {
    char *path = write_file(content, length);
    int rc = load(WORDS(MODEL, "--config", path), NO_WORDS, out, err);
    unlink(path);
    free(path);
    return rc;
}

static void assert_yaml_refused(const char *content, char *const *pieces) {
    struct options options = {0};
    struct error err = {0};
    assert_int_equal(load_yaml(content, strlen(content), &options, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_null(strchr(err.message, '\n'));
    for (; *pieces != NULL; pieces++)
        if (strstr(err.message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.message, *pieces);
}

static void test_defaults(void **state) {
    struct options options;
    assert_int_equal(load(WORDS(MODEL), NO_WORDS, &options, NULL), 0);
    assert_string_equal(options.model, "m.gguf");
    assert_string_equal(options.host, "127.0.0.1");
    assert_int_equal(options.port, 8000);
    assert_null(options.uds);
    assert_null(options.config);
    assert_int_equal(options.api_keys.count, 0);
    assert_null(options.admin_socket);
    assert_null(options.root_path);
    assert_null(options.ssl_certfile);
    assert_null(options.ssl_keyfile);
    assert_null(options.ssl_ca_certs);
    assert_int_equal(options.allowed_hosts.count, 0);
    assert_int_equal(options.allowed_origins.count, 0);
    assert_int_equal(options.served_model_names.count, 0);
    assert_null(options.chat_template);
    assert_string_equal(options.tool_call_parser, "auto");
    assert_string_equal(options.reasoning_parser, "auto");
    assert_int_equal(options.max_connections, 4096);
    assert_int_equal(options.max_body_bytes, 16 << 20);
    assert_int_equal(options.shutdown_timeout, 30);
    assert_int_equal(options.drain_delay, 0);
    assert_int_equal(options.watchdog_sec, 0);
    assert_string_equal(options.metrics_prefix, "quire:");
    assert_string_equal(options.log_level, "info");
    assert_string_equal(options.device, "auto");
    assert_int_equal(options.threads, 0);
    assert_string_equal(options.cpu_isa, "auto");
    assert_string_equal(options.gpu_isa, "auto");
    assert_int_equal(options.tensor_parallel_size, 1);
    assert_int_equal(options.pipeline_parallel_size, 1);
    assert_int_equal(options.max_model_len, 0);
    assert_string_equal(options.dtype, "auto");
    assert_true(options.gpu_memory_utilization == 0.9);
    assert_int_equal(options.device_timeout, 60);
    assert_string_equal(options.rank_process, "auto");
    assert_false(options.batch_invariant);
    assert_false(options.enforce_eager);
    assert_int_equal(options.max_num_seqs, 0);
    assert_int_equal(options.max_num_batched_tokens, 0);
    assert_true(options.max_inter_token_ms == OPTIONS_AUTO);
    assert_int_equal(options.block_size, 16);
    assert_int_equal(options.kv_cache_memory_bytes, 0);
    assert_string_equal(options.kv_cache_dtype, "auto");
    assert_true(options.async_scheduling);
    assert_null(options.speculative_config);
    assert_int_equal(options.max_queued_requests, 2048);
    assert_int_equal(options.max_queued_tokens, 1000000);
    assert_int_equal(options.queue_timeout, 60);
    assert_int_equal(options.max_n, 1024);
    assert_int_equal(options.max_logprobs, 20);
    assert_int_equal(options.seed, 0);
    assert_null(options.models_dir);
    assert_false(options.models_hub);
    assert_int_equal(options.memory, 0);
    assert_int_equal(options.models_max, 0);
    assert_int_equal(options.model_turn_seconds, 10);
    options_finish(&options);
    options_finish(&options); /* accepts a zeroed struct */
}

static void test_flag_forms(void **state) {
    struct options options;
    assert_int_equal(load(WORDS("--model=a=b.gguf", "--port", "1", "--port=65535", "--max_num_seqs",
                                "3", "--api-key", "one", "--api-key=--two", "--metrics-prefix="),
                          NO_WORDS, &options, NULL),
                     0);
    assert_string_equal(options.model, "a=b.gguf");
    assert_int_equal(options.port, 65535); /* the later flag wins */
    assert_int_equal(options.max_num_seqs, 3);
    assert_int_equal(options.api_keys.count, 2);
    assert_string_equal(options.api_keys.items[0], "one");
    assert_string_equal(options.api_keys.items[1], "--two");
    assert_string_equal(options.metrics_prefix, "");
    options_finish(&options);
}

static void test_sizes(void **state) {
    static const struct {
        char *text;
        int64_t bytes;
    } sizes[] = {{"0", 0},
                 {"4096", 4096},
                 {"1K", 1024},
                 {"3M", 3 << 20},
                 {"2G", INT64_C(2) << 30},
                 {"1T", INT64_C(1) << 40},
                 {"5MiB", 5 << 20},
                 {"1k", 1024},
                 {"8g", INT64_C(8) << 30},
                 {"2miB", 2 << 20}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct options options;
        assert_int_equal(
            load(WORDS(MODEL, "--kv-cache-memory-bytes", sizes[i].text), NO_WORDS, &options, NULL),
            0);
        assert_int_equal(options.kv_cache_memory_bytes, sizes[i].bytes);
        options_finish(&options);
    }
    static char *const bad[] = {"1KB",
                                "K",
                                "",
                                "-1",
                                "1.5M",
                                "9223372036854775807K",
                                "1 M",
                                "0x10",
                                "+1",
                                " 1",
                                "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(WORDS(MODEL, "--kv-cache-memory-bytes", bad[i]), NO_WORDS,
                       WORDS("kv-cache-memory-bytes", "command line", "K, M, G"));
}

static void test_fractions(void **state) {
    static const struct {
        char *text;
        double value;
    } good[] = {{"0.1", 0.1},     {"1", 1},     {"1.0", 1},       {".5", 0.5},
                {"0.875", 0.875}, {"90%", 0.9}, {"87.5%", 0.875}, {"100%", 1}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct options options;
        assert_int_equal(
            load(WORDS(MODEL, "--gpu-memory-utilization", good[i].text), NO_WORDS, &options, NULL),
            0);
        assert_true(options.gpu_memory_utilization == good[i].value);
        options_finish(&options);
    }
    static char *const bad[] = {"0",
                                "0.099",
                                "1.01",
                                "-0.5",
                                "",
                                ".",
                                "1.",
                                "0x1",
                                "nan",
                                "5e-1",
                                "0,5",
                                "5%",
                                "90%%",
                                "%",
                                "101%",
                                "90 %",
                                " 1",
                                "0.5 ",
                                "0.50000000000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(WORDS(MODEL, "--gpu-memory-utilization", bad[i]), NO_WORDS,
                       WORDS("gpu-memory-utilization", "0.1 to 1"));
}

static void test_integer_or_auto(void **state) {
    static const struct {
        char *text;
        int64_t value;
        const char *printed;
    } good[] = {{"auto", 0, "auto"},
                {"0", 0, "auto"},
                {"4096", 4096, "4096"},
                {"32K", 32768, "32768"},
                {"32k", 32768, "32768"}};
    char printed[32];
    struct options options;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(
            load(WORDS(MODEL, "--max-model-len", good[i].text), NO_WORDS, &options, NULL), 0);
        assert_int_equal(options.max_model_len, good[i].value);
        assert_true(options_print(&options, "max-model-len", printed, sizeof(printed)));
        assert_string_equal(printed, good[i].printed);
        options_finish(&options);
    }
    static char *const bad[] = {"-2", "Auto", "17m", "17M", "4KB", "4kk", "k", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(
            WORDS(MODEL, "--max-model-len", bad[i]), NO_WORDS,
            WORDS("max-model-len", "0 to 16777216, suffix K, M, G or T allowed, or auto"));
    assert_refused(WORDS(MODEL, "--max-num-seqs", "auto"), NO_WORDS, WORDS("0 to 1024"));
    assert_refused(WORDS(MODEL, "--max-num-seqs", "1K"), NO_WORDS, WORDS("0 to 1024"));
}

static void test_decimal_or_auto(void **state) {
    static const struct {
        char *text;
        double value;
    } good[] = {{"auto", OPTIONS_AUTO}, {"0", 0}, {"0.5", 0.5}, {"4", 4}, {"16384", 16384}};
    struct options options;
    assert_int_equal(load(WORDS(MODEL), NO_WORDS, &options, NULL), 0);
    assert_true(options.swap_space == OPTIONS_AUTO);
    options_finish(&options);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(load(WORDS(MODEL, "--swap-space", good[i].text), NO_WORDS, &options, NULL),
                         0);
        assert_true(options.swap_space == good[i].value);
        options_finish(&options);
    }
    assert_int_equal(load(WORDS(MODEL, "--max-inter-token-ms", "33.5"), NO_WORDS, &options, NULL),
                     0);
    assert_true(options.max_inter_token_ms == 33.5);
    options_finish(&options);
    assert_refused(WORDS(MODEL, "--max-inter-token-ms", "60000.5"), NO_WORDS,
                   WORDS("max-inter-token-ms", "60000"));
    static char *const bad[] = {"-1", "16384.01", "Auto", "auto ", "4G", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(WORDS(MODEL, "--swap-space", bad[i]), NO_WORDS,
                       WORDS("swap-space", "0 to 16384, or auto"));
    assert_refused(WORDS(MODEL, "--gpu-memory-utilization", "auto"), NO_WORDS,
                   WORDS("must be a number from 0.1 to 1"));
}

static void test_flags_without_a_value(void **state) {
    static char *const on[] = {"true", "on", "yes", "1", "True", "ON"};
    static char *const off[] = {"false", "off", "no", "0", "False"};
    char word[64];
    struct options options;
    assert_int_equal(load(WORDS("--batch-invariant", MODEL), NO_WORDS, &options, NULL), 0);
    assert_true(options.batch_invariant);
    options_finish(&options);
    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        assert_int_equal(load(WORDS("--batch-invariant", on[i], MODEL), NO_WORDS, &options, NULL),
                         0);
        assert_true(options.batch_invariant);
        options_finish(&options);
    }
    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        snprintf(word, sizeof(word), "--batch-invariant=%s", off[i]);
        assert_int_equal(
            load(WORDS(MODEL, word), WORDS("QUIRE_BATCH_INVARIANT=on"), &options, NULL), 0);
        assert_false(options.batch_invariant);
        options_finish(&options);
    }
    assert_refused(WORDS(MODEL, "--batch-invariant=2"), NO_WORDS,
                   WORDS("batch-invariant", "true or false", "on, off"));
    assert_refused(WORDS(MODEL, "--batch-invariant", "maybe"), NO_WORDS, WORDS("unexpected"));
}

static void test_negated_flags(void **state) {
    struct options options;
    assert_int_equal(load(WORDS(MODEL), NO_WORDS, &options, NULL), 0);
    assert_true(options.enable_prefix_caching);
    options_finish(&options);
    assert_int_equal(load(WORDS("--no-enable-prefix-caching", MODEL),
                          WORDS("QUIRE_ENABLE_PREFIX_CACHING=true"), &options, NULL),
                     0);
    assert_false(options.enable_prefix_caching);
    options_finish(&options);
    assert_int_equal(load(WORDS("--no-enable_prefix_caching", "--enable-prefix-caching", MODEL),
                          NO_WORDS, &options, NULL),
                     0);
    assert_true(options.enable_prefix_caching);
    options_finish(&options);
    assert_int_equal(load(WORDS(MODEL), WORDS("QUIRE_ENABLE_PREFIX_CACHING=false"), &options, NULL),
                     0);
    assert_false(options.enable_prefix_caching);
    options_finish(&options);
    assert_int_equal(load(WORDS("--no-async-scheduling", MODEL), NO_WORDS, &options, NULL), 0);
    assert_false(options.async_scheduling);
    options_finish(&options);
    assert_refused(WORDS(MODEL, "--no-async-scheduling=true"), NO_WORDS, WORDS("unknown"));
    assert_refused(WORDS(MODEL, "--no-port"), NO_WORDS, WORDS("unknown option --no-port"));
    assert_refused(WORDS(MODEL, "--no-"), NO_WORDS, WORDS("unknown"));
}

static void test_precedence(void **state) {
    static const char yaml[] = "port: 1\nmax_num_seqs: 2\nhost: file\nlog-level: debug\n"
                               "api-key: [f1, f2]\nserved-model-name: one\n";
    char *path = write_file(yaml, strlen(yaml));
    char config[64];
    snprintf(config, sizeof(config), "QUIRE_CONFIG=%s", path);
    struct options options;
    assert_int_equal(load(WORDS(MODEL, "--port", "9", "--api-key", "c1"),
                          WORDS(config, "QUIRE_PORT=5", "QUIRE_HOST=env", "QUIRE_API_KEY=e1,e2,e3",
                                "HOME=/", "QUIRE_TEST_MODEL=x", "QUIRE_SERVED_MODEL_NAME=a,b"),
                          &options, NULL),
                     0);
    assert_int_equal(options.port, 9);
    assert_string_equal(options.host, "env");
    assert_int_equal(options.max_num_seqs, 2);
    assert_string_equal(options.log_level, "debug");
    assert_int_equal(options.api_keys.count, 1); /* a higher level replaces the list */
    assert_string_equal(options.api_keys.items[0], "c1");
    assert_int_equal(options.served_model_names.count, 2);
    assert_string_equal(options.served_model_names.items[1], "b");
    assert_string_equal(options.config, path);
    options_finish(&options);
    unlink(path);
    free(path);
}

static void test_bad_flags(void **state) {
    assert_refused(NO_WORDS, NO_WORDS, WORDS("no model", "quire serve MODEL", "--model"));
    assert_refused(WORDS(MODEL, "--max-connections", "0"), NO_WORDS,
                   WORDS("option max-connections", "\"0\"", "command line", "1 to 65536"));
    assert_refused(WORDS(MODEL, "--port", "65536"), NO_WORDS, WORDS("port", "0 to 65535"));
    assert_refused(WORDS(MODEL, "--port", "80x"), NO_WORDS, WORDS("port", "\"80x\""));
    assert_refused(WORDS(MODEL, "--port", "1K"), NO_WORDS, WORDS("port", "whole number"));
    assert_refused(WORDS(MODEL, "--block-size", "24"), NO_WORDS, WORDS("16 32 64"));
    assert_refused(WORDS(MODEL, "--device", "tpu"), NO_WORDS, WORDS("device", "auto cuda cpu"));
    assert_refused(WORDS(MODEL, "--device", "auto cpu"), NO_WORDS, WORDS("device"));
    assert_refused(WORDS(MODEL, "--port"), NO_WORDS, WORDS("port", "needs a value"));
    assert_refused(WORDS("--model", "--port", "1"), NO_WORDS, WORDS("model", "needs a value"));
    assert_refused(WORDS(MODEL, "n.gguf"), NO_WORDS, WORDS("unexpected argument", "n.gguf"));
    assert_refused(WORDS(MODEL, "--"), NO_WORDS, WORDS("unknown option"));
    assert_refused(WORDS(MODEL, "--max-num-seq", "1"), NO_WORDS,
                   WORDS("unknown option --max-num-seq", "did you mean --max-num-seqs?"));
    assert_refused(WORDS(MODEL, "--frobnicate=1"), NO_WORDS, WORDS("--frobnicate", "--help"));
    assert_refused(WORDS(MODEL, "--metrics-prefix", "9x"), NO_WORDS, WORDS("metrics-prefix"));
    assert_refused(WORDS(MODEL, "--metrics-prefix", "a b"), NO_WORDS, WORDS("letters"));
    assert_refused(WORDS(MODEL, "--host", ""), NO_WORDS, WORDS("host", "1 to 255"));
    assert_refused(WORDS(MODEL, "--host", "a\nb"), NO_WORDS, WORDS("control characters", "a?b"));
    assert_refused(WORDS(MODEL, "--config", "absent.yaml"), NO_WORDS,
                   WORDS("absent.yaml", "No such file"));
    assert_refused(WORDS(MODEL, "--config", "."), NO_WORDS, WORDS("cannot be read"));
}

static void test_overridden_value_is_checked_too(void **state) {
    assert_refused(WORDS(MODEL, "--port", "x", "--port", "1"), NO_WORDS, WORDS("port", "\"x\""));
    char *path = write_file("port: x\n", 8);
    assert_refused(WORDS(MODEL, "--config", path, "--port", "1"), NO_WORDS, WORDS("port", "\"x\""));
    unlink(path);
    free(path);
}

/* The environment may have been made for others. */
static void test_variable_behind_a_flag_is_not_read(void **state) {
    struct options options;
    assert_int_equal(load(WORDS(MODEL, "--port=1", "--no-batch-invariant", "--api-key", "k"),
                          WORDS("QUIRE_PORT=x", "QUIRE_BATCH_INVARIANT=perhaps", "QUIRE_API_KEY=,"),
                          &options, NULL),
                     0);
    assert_int_equal(options.port, 1);
    assert_int_equal(options.api_keys.count, 1);
    options_finish(&options);
    assert_refused(WORDS(MODEL, "--host", "a"), WORDS("QUIRE_PORT=x"),
                   WORDS("port", "environment", "\"x\""));
}

static void test_secrets_leave_the_command_line(void **state) {
    char model[] = "--model", file[] = "m.gguf", flag[] = "--api-key", secret[] = "sk-1",
         joined[] = "--api-key=sk-22", port[] = "--port", number[] = "1";
    char *words[] = {model, file, flag, secret, joined, port, number};
    options_hide_secrets(7, words);
    assert_string_equal(secret, "****");
    assert_string_equal(joined, "--api-key=*****");
    assert_string_equal(flag, "--api-key");
    assert_string_equal(file, "m.gguf");
    assert_string_equal(number, "1");
    char first[] = "sk-333", second[] = "sk-4444", name[] = "--api-key";
    options_hide_secrets(4,
                         (char *[]){file, name, first, second}); /* several, as vLLM takes them */
    assert_string_equal(first, "******");
    assert_string_equal(second, "*******");
    assert_string_equal(file, "m.gguf");
}

static void test_secrets_stay_hidden(void **state) {
    struct options options;
    struct error err = {0};
    char secret[300];
    memset(secret, 's', sizeof(secret) - 1);
    secret[sizeof(secret) - 1] = '\0';
    assert_int_equal(load(WORDS(MODEL, "--api-key", secret), NO_WORDS, &options, &err), -1);
    assert_null(strstr(err.message, "sss"));
    assert_non_null(strstr(err.message, "api-key"));
    assert_int_equal(load(WORDS(MODEL), WORDS("QUIRE_API_KEY=ok,"), &options, &err), -1);
    assert_non_null(strstr(err.message, "environment"));
}

static void test_long_value_is_cut(void **state) {
    char value[5000];
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    assert_refused(WORDS("--model", value), NO_WORDS, WORDS("vvv...", "1 to 4095", "4999"));
}

static void test_list_is_bounded(void **state) {
    char *words[2 * OPTIONS_MAX_LIST + 5] = {MODEL};
    for (int i = 0; i < OPTIONS_MAX_LIST + 1; i++) {
        words[2 + 2 * i] = "--api-key";
        words[3 + 2 * i] = "k";
    }
    assert_refused(words, NO_WORDS, WORDS("api-key", "at most 64"));
}

static void assert_words(const struct option_list *list, char *const *words) {
    for (int i = 0; i < list->count; i++) {
        assert_non_null(words[i]);
        assert_string_equal(list->items[i], words[i]);
    }
    assert_null(words[list->count]);
}

/* Repeated, with commas, as a JSON array: from every source. */
static void test_lists_of_words(void **state) {
    static char *const same[] = {"a,b.c,[::1]", " a , b.c,[::1] ", "[\"a\",\"b.c\",\"[::1]\"]",
                                 "[ \"a\" , \"b.c\", \"[::1]\" ]"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        struct options options;
        char variable[80];
        assert_int_equal(load(WORDS(MODEL, "--allowed-hosts", same[i]), NO_WORDS, &options, NULL),
                         0);
        assert_words(&options.allowed_hosts, WORDS("a", "b.c", "[::1]"));
        options_finish(&options);
        snprintf(variable, sizeof(variable), "QUIRE_ALLOWED_HOSTS=%s", same[i]);
        assert_int_equal(load(WORDS(MODEL), WORDS(variable), &options, NULL), 0);
        assert_words(&options.allowed_hosts, WORDS("a", "b.c", "[::1]"));
        options_finish(&options);
    }
    struct options options;
    assert_int_equal(load(WORDS(MODEL, "--allowed-hosts", "a", "--allowed-hosts", "[::1],b"),
                          WORDS("QUIRE_ALLOWED_HOSTS=x", "QUIRE_ALLOWED_METHODS=[]"), &options,
                          NULL),
                     0);
    assert_words(&options.allowed_hosts, WORDS("a", "[::1]", "b"));
    assert_words(&options.allowed_methods, NO_WORDS);
    assert_words(&options.allowed_headers, WORDS("*"));
    options_finish(&options);
    static const char yaml[] = "allowed-hosts: [a, \"[::1]\"]\nallowed-origins: 'null,b'\n";
    assert_int_equal(load_yaml(yaml, strlen(yaml), &options, NULL), 0);
    assert_words(&options.allowed_hosts, WORDS("a", "[::1]"));
    assert_words(&options.allowed_origins, WORDS("null", "b"));
    options_finish(&options);
}

static void test_bad_lists_of_words(void **state) {
    static char *const arrays[] = {"[\"a\"",   "[\"a\",b]",        "[\"a]",
                                   "[\"a\",]", "[\"a\", [\"b\"]]", "[\"a,b\"]"};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        assert_refused(WORDS(MODEL, "--allowed-hosts", arrays[i]), NO_WORDS,
                       WORDS("allowed-hosts", "command line", "JSON array of strings"));
    static char *const empty[] = {"", " ", "a,", ",a", "a,,b", "[\"\"]"};
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++)
        assert_refused(WORDS(MODEL, "--allowed-hosts", empty[i]), NO_WORDS,
                       WORDS("allowed-hosts", "1 to 255"));
    char many[2 * OPTIONS_MAX_LIST + 2] = "a";
    for (int i = 0; i < OPTIONS_MAX_LIST; i++)
        strcat(many, ",a");
    assert_refused(WORDS(MODEL, "--allowed-hosts", many), NO_WORDS, WORDS("at most 64"));
}

static void test_bad_environment(void **state) {
    assert_refused(WORDS(MODEL), WORDS("QUIRE_PORT="), WORDS("port", "environment"));
    assert_refused(WORDS(MODEL), WORDS("QUIRE_PORT=tcp:/10.0.0.1:80"), WORDS("port", "\"tcp:/10"));
}

struct kept_log {
    int ends[2], saved;
};

static struct kept_log keep_log(void) {
    struct kept_log log = {.saved = dup(STDERR_FILENO)};
    assert_int_equal(pipe(log.ends), 0);
    dup2(log.ends[1], STDERR_FILENO);
    close(log.ends[1]);
    return log;
}

static void read_log(struct kept_log *log, char out[static 4096]) {
    dup2(log->saved, STDERR_FILENO);
    close(log->saved);
    fcntl(log->ends[0], F_SETFL, O_NONBLOCK);
    ssize_t length = read(log->ends[0], out, 4095);
    close(log->ends[0]);
    out[length > 0 ? length : 0] = '\0';
}

static void read_log_of_flags(int argc, char *const *argv, char out[static 4096]) {
    struct kept_log log = keep_log();
    options_log_flags(argc, argv);
    read_log(&log, out);
}

/* Loads with these variables, which are no options, and returns what is logged of them. */
static void read_warnings(char *const *variables, char out[static 4096]) {
    struct options options, plain;
    assert_int_equal(load(WORDS(MODEL), variables, &options, NULL), 0);
    assert_int_equal(load(WORDS(MODEL), NO_WORDS, &plain, NULL), 0);
    assert_int_equal(options.port, plain.port);
    options_finish(&options);
    options_finish(&plain);
    struct kept_log log = keep_log();
    options_warn_of_variables(variables);
    read_log(&log, out);
}

static void test_unknown_variables_are_a_warning(void **state) {
    char text[4096];
    read_warnings(WORDS("QUIRE_PROT=1", "QUIRE_MAX_NUM_SEQ=1", "QUIRE_=1", "QUIRE_CUDASIM=1",
                        "QUIRE_SECRET=sk-1"),
                  text);
    assert_non_null(strstr(text, "QUIRE_PROT is ignored; did you mean QUIRE_PORT?\n"));
    assert_non_null(strstr(text, "QUIRE_MAX_NUM_SEQ is ignored; did you mean QUIRE_MAX_NUM_SEQS?"));
    assert_non_null(strstr(text, "QUIRE_ is ignored"));
    assert_non_null(strstr(text, "QUIRE_CUDASIM is ignored"));
    assert_non_null(strstr(text, "QUIRE_SECRET is ignored"));
    assert_null(strstr(text, "sk-1"));
}

static void test_variables_of_others(void **state) {
    char text[4096];
    read_warnings(WORDS("QUIRE_TEST_MODEL=x", "QUIRE_CUDASIM_MEMORY=1", "HOME=/"), text);
    assert_string_equal(text, "");
}

/* As kubelet writes them beside services named "quire" and "quire-web". */
static void test_service_links_are_left_alone(void **state) {
    char text[4096];
    read_warnings(WORDS("QUIRE_SERVICE_HOST=10.0.0.1", "QUIRE_SERVICE_PORT=8000",
                        "QUIRE_SERVICE_PORT_HTTP=8000", "QUIRE_PORT=tcp://10.0.0.1:8000",
                        "QUIRE_PORT_8000_TCP=tcp://10.0.0.1:8000", "QUIRE_PORT_8000_TCP_PROTO=tcp",
                        "QUIRE_PORT_8000_TCP_PORT=8000", "QUIRE_PORT_8000_TCP_ADDR=10.0.0.1",
                        "QUIRE_WEB_SERVICE_HOST=10.0.0.2", "QUIRE_WEB_SERVICE_PORT=80",
                        "QUIRE_WEB_PORT=udp://10.0.0.2:80", "QUIRE_WEB_PORT_80_UDP_ADDR=10.0.0.2"),
                  text);
    assert_string_equal(text, "");
    read_warnings(WORDS("QUIRE_WEB_PORT=80", "QUIRE_PORT_X_TCP=1", "QUIRE_PORT_1_FTP=1"), text);
    assert_non_null(strstr(text, "QUIRE_WEB_PORT is"));
    assert_non_null(strstr(text, "QUIRE_PORT_X_TCP is"));
    assert_non_null(strstr(text, "QUIRE_PORT_1_FTP is"));
}

static void test_yaml_forms(void **state) {
    static const char yaml[] =
        "# comment\nmax_body-bytes: 2M\nserved-model-name:\n  - a\n  - 'b c'\n"
        "host: \"::1\"\nbatch-invariant: true\nenforce-eager: true\n"
        "gpu-memory-utilization: 0.5\n";
    struct options options;
    assert_int_equal(load_yaml(yaml, strlen(yaml), &options, NULL), 0);
    assert_int_equal(options.max_body_bytes, 2 << 20);
    assert_int_equal(options.served_model_names.count, 2);
    assert_string_equal(options.served_model_names.items[1], "b c");
    assert_string_equal(options.host, "::1");
    assert_true(options.batch_invariant && options.enforce_eager);
    assert_true(options.gpu_memory_utilization == 0.5);
    options_finish(&options);
    assert_int_equal(load_yaml("# nothing\n", 10, &options, NULL), 0);
    options_finish(&options);
    assert_int_equal(load_yaml("", 0, &options, NULL), 0);
    options_finish(&options);
}

static void assert_json(const char *yaml, const char *expected) {
    struct options options;
    struct error err = {0};
    if (load_yaml(yaml, strlen(yaml), &options, &err) != 0)
        fail_msg("%s", err.message);
    assert_string_equal(options.speculative_config, expected);
    options_finish(&options);
}

static void test_json(void **state) {
    static char config[] = "{\"method\": \"ngram\"}", variable[64];
    struct options options;
    assert_int_equal(load(WORDS(MODEL, "--speculative-config", config), NO_WORDS, &options, NULL),
                     0);
    assert_string_equal(options.speculative_config, config);
    options_finish(&options);
    snprintf(variable, sizeof(variable), "QUIRE_SPECULATIVE_CONFIG=%s", config);
    assert_int_equal(load(WORDS(MODEL), WORDS(variable), &options, NULL), 0);
    assert_string_equal(options.speculative_config, config);
    options_finish(&options);
    assert_json("speculative-config: '{\"method\": 1}'\n", "{\"method\": 1}");
    assert_json("speculative-config: {}\n", "{}");
    assert_json("speculative_config:\n  method: ngram\n  num_speculative_tokens: 5\n",
                "{\"method\":\"ngram\",\"num_speculative_tokens\":5}");
    assert_json("speculative-config: {\"method\": \"ngram\", \"n\": \"5\"}\n",
                "{\"method\":\"ngram\",\"n\":\"5\"}");
    assert_json("speculative-config: {a: -1.5e3, b: true, c: null, d: 1st, e: , f: 'a\"b\\c'}\n",
                "{\"a\":-1.5e3,\"b\":true,\"c\":null,\"d\":\"1st\",\"e\":\"\","
                "\"f\":\"a\\\"b\\\\c\"}");
}

static void test_bad_json(void **state) {
    char long_map[6000] = "speculative-config: {a: ";
    assert_yaml_refused("speculative-config: [1]\n", WORDS("speculative-config", "not a list"));
    assert_yaml_refused("speculative-config:\n  a: 1\n  b: {c: 1}\n",
                        WORDS("line 3", "a map may hold only plain values"));
    assert_yaml_refused("speculative-config: {[a]: 1}\n", WORDS("line 1", "plain values"));
    assert_yaml_refused("speculative-config: {a: \"b\\0c\"}\n", WORDS("line 1", "NUL"));
    assert_yaml_refused("speculative-config: {a: \"b\\nc\"}\n", WORDS("control characters"));
    assert_yaml_refused("speculative-config: {a: 1\n", WORDS("configuration file"));
    for (int length = 900; length <= 5000; length += 50) {
        memset(long_map + 24, 'x', (size_t)length);
        strcpy(long_map + 24 + length, "}\n");
        if (length > 1023)
            assert_yaml_refused(long_map, WORDS(length < 2030 ? "bytes long" : "is too long"));
    }
    assert_refused(WORDS(MODEL, "--speculative-config", ""), NO_WORDS, WORDS("2 to 1023 bytes"));
}

static void test_bad_yaml(void **state) {
    assert_yaml_refused("host: a\nprot: 1\n", WORDS("line 2", "\"prot\"", "did you mean port?"));
    assert_yaml_refused("port: 1\nhost: x\nport: 2\n", WORDS("line 3", "port", "twice", "line 1"));
    assert_yaml_refused("max-num-seqs: 1\nmax_num_seqs: 2\n", WORDS("twice"));
    assert_yaml_refused("port: many\n", WORDS("port", "\"many\"", "line 1", "0 to 65535"));
    assert_yaml_refused("port: [1, 2]\n", WORDS("port", "not a list"));
    assert_yaml_refused("port: {a: 1}\n", WORDS("port", "line 1", "one plain value"));
    assert_yaml_refused("api-key: {a: 1}\n", WORDS("api-key", "list of values"));
    assert_yaml_refused("api-key: [[a]]\n", WORDS("line 1", "plain values"));
    assert_yaml_refused("port:\n", WORDS("port", "\"\""));
    assert_yaml_refused("- port\n", WORDS("flat map"));
    assert_yaml_refused("just text\n", WORDS("flat map"));
    assert_yaml_refused("[a]: 1\n", WORDS("line 1", "option's name"));
    assert_yaml_refused("port: 1\n---\nhost: a\n", WORDS("single document"));
    assert_yaml_refused("host: &a x\nuds: *a\n", WORDS("line 2", "uds"));
    assert_yaml_refused("api-key: [\n", WORDS("configuration file"));
    assert_yaml_refused("\thost: a\n", WORDS("configuration file", "line"));
    assert_yaml_refused("config: other.yaml\n", WORDS("config", "cannot be set in the file"));
    assert_yaml_refused("host: \"a\\0b\"\n", WORDS("NUL"));
    assert_yaml_refused("host: \"a\\nb\"\n", WORDS("control characters"));
    assert_yaml_refused("\x01\xff: 1\n", WORDS("configuration file"));
}

static void test_huge_file(void **state) {
    size_t length = (1 << 20) + 1;
    char *content = malloc(length);
    struct options options;
    struct error err = {0};
    memset(content, '#', length);
    assert_int_equal(load_yaml(content, length, &options, &err), -1);
    assert_non_null(strstr(err.message, "larger than 1048576 bytes"));
    free(content);
}

static void test_sample_file(void **state) {
    struct options options;
    struct error err = {0};
    const char *root = getenv("QUIRE_TEST_SOURCE_ROOT");
    assert_non_null(root);
    char path[4096];
    snprintf(path, sizeof(path), "%s/config/quire.yaml", root);
    if (load(WORDS("--config", path), NO_WORDS, &options, &err) != 0)
        fail_msg("%s", err.message);
    assert_string_equal(options.model, "/var/lib/quire/model.gguf");
    assert_string_equal(options.served_model_names.items[0], "default");
    options_finish(&options);
}

/* The sample's commented lines must be valid options with the default values they claim. */
static void test_sample_file_comments(void **state) {
    char path[4096], line[256], yaml[16384] = "";
    snprintf(path, sizeof(path), "%s/config/quire.yaml", getenv("QUIRE_TEST_SOURCE_ROOT"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        size_t key = strspn(line, "# ");
        size_t length = strspn(line + key, "abcdefghijklmnopqrstuvwxyz-");
        if (line[0] == '#' && strncmp(line + key + length, ": ", 2) == 0 && length > 2 &&
            strncmp(line + key, "uds", 3) != 0 && strncmp(line + key, "api-key", 7) != 0 &&
            strncmp(line, "# Sample", 8) != 0)
            strcat(yaml, line + key);
    }
    fclose(file);
    struct options sample, plain;
    struct error err = {0};
    if (load_yaml(yaml, strlen(yaml), &sample, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(load(WORDS(MODEL), NO_WORDS, &plain, NULL), 0);
    assert_non_null(strstr(yaml, "max-queued-tokens"));
    assert_string_equal(sample.metrics_prefix, plain.metrics_prefix);
    assert_string_equal(sample.kv_cache_dtype, plain.kv_cache_dtype);
    assert_string_equal(sample.log_level, plain.log_level);
    assert_int_equal(sample.max_body_bytes, plain.max_body_bytes);
    assert_int_equal(sample.watchdog_sec, plain.watchdog_sec);
    assert_int_equal(sample.max_queued_tokens, plain.max_queued_tokens);
    assert_int_equal(sample.queue_timeout, plain.queue_timeout);
    assert_int_equal(sample.max_n, plain.max_n);
    assert_int_equal(sample.max_logprobs, plain.max_logprobs);
    assert_int_equal(sample.max_num_batched_tokens, plain.max_num_batched_tokens);
    assert_int_equal(sample.max_num_seqs, plain.max_num_seqs);
    assert_true(sample.max_inter_token_ms == plain.max_inter_token_ms);
    assert_string_equal(sample.dtype, plain.dtype);
    assert_true(sample.gpu_memory_utilization == plain.gpu_memory_utilization);
    assert_true(sample.batch_invariant == plain.batch_invariant);
    assert_true(sample.fp8_activations == plain.fp8_activations);
    assert_true(sample.fast_sums == plain.fast_sums);
    assert_true(sample.enforce_eager == plain.enforce_eager);
    assert_true(sample.enable_prefix_caching == plain.enable_prefix_caching);
    assert_int_equal(sample.allowed_origins.count, plain.allowed_origins.count);
    assert_words(&sample.allowed_methods, plain.allowed_methods.items);
    assert_words(&sample.allowed_headers, plain.allowed_headers.items);
    assert_true(sample.allow_credentials == plain.allow_credentials);
    options_finish(&sample);
    options_finish(&plain);
}

/* --- The model without a name, and other servers' flags --- */

static void assert_loads(char *const *arguments, struct options *options) {
    struct error err = {0};
    if (load(arguments, NO_WORDS, options, &err) != 0)
        fail_msg("%s", err.message);
}

static void test_model_without_a_name(void **state) {
    struct options options;
    assert_loads(WORDS("m.gguf", "--port", "1"), &options);
    assert_string_equal(options.model, "m.gguf");
    options_finish(&options);
    assert_loads(WORDS("--port", "1", "--batch-invariant", "m.gguf"), &options);
    assert_string_equal(options.model, "m.gguf");
    options_finish(&options);
    assert_loads(WORDS("m.gguf", "--served-model-name", "a", "b", "--api-key", "c", "d"),
                 &options); /* as vLLM takes several */
    assert_int_equal(options.served_model_names.count, 2);
    assert_string_equal(options.served_model_names.items[1], "b");
    assert_int_equal(options.api_keys.count, 2);
    options_finish(&options);
    assert_loads(WORDS("m.gguf", "--model", "n.gguf"), &options); /* two: test_model_options.c */
    assert_string_equal(options.model, "n.gguf");
    options_finish(&options);
    assert_loads(WORDS("m.gguf", "--model", "m.gguf"), &options);
    options_finish(&options);
}

static void test_other_names(void **state) {
    struct options options;
    assert_loads(WORDS("-m", "m.gguf", "-a", "x", "-c", "4k", "-np", "4", "-t", "2", "-b", "2048",
                       "-ctk", "q8_0", "-ctv", "q8_0", "-lv", "2", "--cors-origins", "https://a",
                       "--no-cache-prompt", "-ngl", "99"),
                 &options);
    assert_string_equal(options.model, "m.gguf");
    assert_string_equal(options.served_model_names.items[0], "x");
    assert_int_equal(options.max_model_len, 4096);
    assert_int_equal(options.max_num_seqs, 4);
    assert_int_equal(options.threads, 2);
    assert_int_equal(options.max_num_batched_tokens, 2048);
    assert_string_equal(options.kv_cache_dtype, "int8");
    assert_string_equal(options.log_level, "warning");
    assert_string_equal(options.allowed_origins.items[0], "https://a");
    assert_string_equal(options.device, "auto"); /* 99 layers are all of them */
    assert_false(options.enable_prefix_caching);
    options_finish(&options);
    assert_loads(WORDS("m", "-tp", "1", "-ngl=0", "--uvicorn-log-level", "trace", "-np", "-1",
                       "--dtype", "half", "-s", "-1", "--seed", "-1"),
                 &options);
    assert_int_equal(options.seed, 0);
    assert_string_equal(options.device, "cpu");
    assert_string_equal(options.log_level, "debug");
    assert_int_equal(options.max_num_seqs, 0);
    assert_string_equal(options.dtype, "float16");
    options_finish(&options);
    assert_refused(WORDS("m", "-c", "4096", "--max-model-len", "8192"), NO_WORDS,
                   WORDS("-c and --max-model-len", "max-model-len", "different values"));
    assert_refused(WORDS("m", "-ctk", "f16", "-ctv", "q8_0"), NO_WORDS, WORDS("-ctk and -ctv"));
    assert_refused(WORDS("m", "-c"), NO_WORDS, WORDS("-c", "needs a value"));
    assert_refused(WORDS("m", "-c", "-t", "1"), NO_WORDS, WORDS("-c", "needs a value"));
    assert_refused(WORDS("m", "-c", "x"), NO_WORDS, WORDS("max-model-len", "\"x\""));
}

static void test_bounds_of_several_models(void **state) {
    struct options options;
    assert_loads(WORDS("m", "--memory", "64G", "--models-max", "64", "--model-turn-seconds", "0"),
                 &options);
    assert_int_equal(options.memory, (int64_t)64 << 30);
    assert_int_equal(options.models_max, 64);
    options_finish(&options);
    assert_refused(WORDS("m", "--memory", "-1"), NO_WORDS, WORDS("memory \"-1\""));
    assert_refused(WORDS("m", "--memory", "2048T"), NO_WORDS, WORDS("memory \"2048T\""));
    assert_refused(WORDS("m", "--models-max", "65"), NO_WORDS, WORDS("models-max", "0 to 64"));
    assert_refused(WORDS("m", "--model-turn-seconds", "86401"), NO_WORDS, WORDS("0 to 86400"));
    assert_refused(WORDS("m", "--models-dir", ""), NO_WORDS, WORDS("models-dir", "1 to 4095"));
}

static void test_what_is_so_anyway(void **state) {
    struct options options;
    assert_loads(WORDS("--trust-remote-code", "--enable-chunked-prefill", "True",
                       "--enable-auto-tool-choice", "-fa", "on", "--flash-attn", "m", "--jinja",
                       "--metrics", "-cb", "--no-mmap", "--no-enable-lora", "--load-format", "auto",
                       "--disable-log-requests", "--data-parallel-size", "1"),
                 &options);
    assert_string_equal(options.model, "m");
    options_finish(&options);
    assert_loads(WORDS("m", "--trust-remote-code=False", "--no-trust-remote-code"), &options);
    options_finish(&options);
    assert_refused(WORDS("m", "--no-jinja"), NO_WORDS,
                   WORDS("--no-jinja", "llama-server", "turned off"));
    assert_refused(WORDS("m", "-fa", "off"), NO_WORDS, WORDS("-fa", "turned off"));
    assert_refused(WORDS("m", "--enable-chunked-prefill=false"), NO_WORDS, WORDS("turned off"));
    assert_refused(WORDS("m", "--load-format", "dummy"), NO_WORDS,
                   WORDS("--load-format", "this value", "safetensors or GGUF"));
}

/* What is said of flags that were accepted. */
static void test_taken_flags_are_logged(void **state) {
    char *words[] = {"m", "--jinja", "-c", "4096", "--port", "1", "--max-num-seqs", "2", "-m", "m"};
    char text[4096];
    read_log_of_flags(10, words, text);
    assert_non_null(strstr(text, "option --jinja changes nothing: always on\n"));
    assert_non_null(strstr(text, "option -c is --max-model-len: of each sequence"));
    assert_null(strstr(text, "port"));
    assert_null(strstr(text, "max-num-seqs"));
    assert_null(strstr(text, "option -m"));
}

static void test_what_is_not_available(void **state) {
    assert_refused(WORDS("m", "--mlock"), NO_WORDS, WORDS("--mlock", "not available", "swapping"));
    assert_refused(WORDS("m", "--fully-sharded-loras"), NO_WORDS, WORDS("vLLM", "--lora-modules"));
    assert_refused(WORDS("m", "--num-gpu-blocks-override", "9"), NO_WORDS,
                   WORDS("use --kv-cache-memory-bytes (in bytes)"));
    assert_refused(WORDS("m", "-ub", "512"), NO_WORDS,
                   WORDS("-ub of llama-server is not needed", "--max-num-batched-tokens"));
    assert_refused(WORDS("m", "--data-parallel-size", "2"), NO_WORDS, WORDS("behind a proxy"));
    assert_refused(WORDS("m", "--load-mode", "mmap"), NO_WORDS,
                   WORDS("must be one of: shards", "llama-server", "never mapped"));
    assert_refused(WORDS("m", "--context-length", "9"), NO_WORDS,
                   WORDS("did you mean --max-model-len?"));
    assert_refused(WORDS("m", "-model", "9"), NO_WORDS, WORDS("did you mean --model?"));
    assert_yaml_refused("ctx-size: 4096\n", WORDS("\"ctx-size\"", "did you mean max-model-len?"));
}

struct lines {
    int count;
    char text[64][512];
};

static void keep_line(void *context, const char *line) {
    struct lines *lines = context;
    assert_true(lines->count < 64);
    snprintf(lines->text[lines->count++], sizeof(lines->text[0]), "%s", line);
}

static struct lines mistakes_of(char *const *arguments) {
    static struct lines lines;
    struct options options;
    struct error err = {0};
    int argc = 0;
    lines.count = 0;
    while (arguments[argc] != NULL)
        argc++;
    assert_int_equal(load(arguments, NO_WORDS, &options, &err), -1);
    options_list_mistakes(argc, arguments, &err, keep_line, &lines);
    return lines;
}

static void test_all_mistakes_at_once(void **state) {
    struct lines lines = mistakes_of(WORDS("m", "--frob", "9", "--port", "x", "-tb", "2", "-c",
                                           "4096", "--mlock", "--lora-target-modules", "a", "b"));
    assert_int_equal(lines.count, 5);
    assert_non_null(strstr(lines.text[0], "--frob"));
    assert_non_null(strstr(lines.text[1], "\"x\""));
    assert_non_null(strstr(lines.text[2], "-tb"));
    assert_non_null(strstr(lines.text[3], "--mlock"));
    assert_non_null(strstr(lines.text[4], "--lora-target-modules"));
    lines = mistakes_of(WORDS("--port", "x"));
    assert_int_equal(lines.count, 1);
    lines = mistakes_of(WORDS("m", "--config", "absent.yaml", "--mlock"));
    assert_int_equal(lines.count, 2); /* the file's too */
    assert_non_null(strstr(lines.text[1], "absent.yaml"));
    char *many[101];
    for (int i = 0; i < 100; i++)
        many[i] = "--mlock";
    many[100] = NULL;
    lines = mistakes_of(many);
    assert_int_equal(lines.count, 33);
    assert_non_null(strstr(lines.text[32], "more is wrong"));
}

/* --- The table of other servers' flags --- */

static bool is_option(const char *name) {
    name += strncmp(name, "no-", 3) == 0 ? 3 : 0;
    return options_find(name, strlen(name)) >= 0;
}

/* What a value becomes must be a value of the option. */
static void assert_values(const struct peer_flag *flag, const char *name) {
    char value[32];
    const char *ours;
    size_t length, count;
    for (const char *pair = flag->values; pair != NULL && *pair != '\0';) {
        snprintf(value, sizeof(value), "%.*s", (int)strcspn(pair, "="), pair);
        assert_true(peer_flag_map(flag, value, &ours, &length));
        assert_true(flag->kind == PEER_SAME || length == 0);
        if (length > 0) {
            struct options options = {0};
            struct option_origin origin = {.level = OPTION_LEVEL_FLAG};
            struct error err = {0};
            snprintf(value, sizeof(value), "%.*s", (int)length, ours);
            int option = options_find(flag->option, strlen(flag->option));
            if (options_set(&options_table(&count)[option], value, &origin, &options, &err) != 0)
                fail_msg("%s: %s", name, err.message);
            options_finish(&options);
        }
        pair += strcspn(pair, " ");
        pair += *pair == ' ';
    }
}

static void test_peer_flags(void **state) {
    size_t count;
    const struct peer_flag *flags = peer_flags(&count);
    assert_true(count > 150);
    for (size_t i = 0; i < count; i++) {
        const char *name = flags[i].names;
        for (; *name != '\0'; name += strcspn(name, " "), name += *name == ' ') {
            size_t length = strcspn(name, " ");
            assert_true(length > 0 && length < OPTION_NAME_CAPACITY);
            const struct peer_flag *found = peer_flag_find(name, length);
            if (name[0] == '-' &&
                (found == NULL || (found != &flags[i] && (found->peers & flags[i].peers) != 0)))
                fail_msg("%.*s is in the table twice", (int)length, name);
            char plain[OPTION_NAME_CAPACITY];
            snprintf(plain, sizeof(plain), "%.*s", (int)length, name);
            bool sets_own = flags[i].kind == PEER_SAME && flags[i].option == NULL;
            if (sets_own && !is_option(plain + strspn(plain, "-")))
                fail_msg("%s is no option", plain);
        }
        if (flags[i].option != NULL && !is_option(flags[i].option))
            fail_msg("%s: no option %s", flags[i].names, flags[i].option);
        assert_values(&flags[i], flags[i].names);
    }
}

static char *help_of(const char *group, bool is_known) {
    struct byte_buffer text = {0};
    assert_int_equal(options_help(group, 80, &text), is_known);
    byte_buffer_append(&text, "", 1);
    assert_false(text.failed);
    return text.data;
}

/* Words that stand beside each other, whatever the lines. */
static char *unwrap(char *text) {
    char *out = text;
    for (char *c = text; *c != '\0'; c++) {
        bool is_space = *c == ' ' || *c == '\n';
        if (!is_space || (out > text && out[-1] != ' '))
            *out++ = is_space ? ' ' : *c;
    }
    *out = '\0';
    return text;
}

static void assert_has(const char *text, const char *part) {
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in the help", part);
}

static void test_help(void **state) {
    char *help = help_of("all", true);
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > 80)
            fail_msg("more than 80 columns: %.100s", line);
    unwrap(help);
    assert_has(help, "--max-num-seqs N");
    assert_has(help, "0 to 1024; default 0");
    assert_has(help, "--gpu-memory-utilization X");
    assert_has(help, "0.1 to 1; default 0.9");
    assert_has(help, "error, warning, info, debug; default info");
    assert_has(help, "--speculative-config JSON");
    assert_has(help, "--api-key-file PATH");
    assert_has(help, "openai, pythonic, llama4_pythonic; default auto)"); /* all choices */
    free(help);
}

/* Every option is in one group; the overview and "all" have each. */
static void test_help_groups(void **state) {
    static const char *const groups[] = {"model",         "serving", "limits",  "security",
                                         "observability", "device",  "advanced"};
    char *overview = help_of(NULL, true), *all = help_of("all", true);
    size_t count, num_found = 0, group_bytes = 0;
    const struct option_spec *table = options_table(&count);
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
        char *help = help_of(groups[g], true);
        assert_non_null(strstr(all, help));
        group_bytes += strlen(help) + 1; /* an empty line between two */
        for (size_t i = 0; i < count; i++) {
            char line[OPTION_NAME_CAPACITY + 8];
            snprintf(line, sizeof(line), "\n  --%s", table[i].name);
            const char *found = strstr(help, line);
            while (found != NULL && strchr(" \n", found[strlen(line)]) == NULL)
                found = strstr(found + 1, line);
            num_found += found != NULL;
        }
        free(help);
    }
    assert_int_equal(num_found, count);
    assert_int_equal(group_bytes - 1, strlen(all));
    for (size_t i = 0; i < count; i++) {
        char name[OPTION_NAME_CAPACITY + 8];
        snprintf(name, sizeof(name), " --%s", table[i].name);
        if (strstr(overview, name) == NULL)
            fail_msg("%s", table[i].name);
    }
    char *unknown = help_of("kernels", false);
    assert_non_null(strstr(unknown, "kernels: no such group"));
    assert_non_null(strstr(unknown, "security"));
    free(unknown);
    free(overview);
    free(all);
}

static struct option_value value_of(const struct options *options, const char *name) {
    struct option_value value;
    for (size_t i = 0; options_get(options, i, &value); i++)
        if (strcmp(value.name, name) == 0)
            return value;
    fail_msg("%s", name);
    return value;
}

/* What is said of each kind of option; of secrets nothing. */
static void test_values(void **state) {
    static const char yaml[] = "model: m.gguf\nport: 81\nswap-space: 1.5\napi-key: [hidden]\n"
                               "served-model-name: [x, y]\n";
    static const char *const urls[] = {"http://u:hidden@h/v1", "https://hidden@h", "http://h/@x"};
    struct options options;
    struct error err;
    assert_int_equal(load_yaml(yaml, strlen(yaml), &options, &err), 0);
    assert_string_equal(value_of(&options, "model").text, "m.gguf");
    assert_int_equal(value_of(&options, "port").integer, 81);
    assert_true(value_of(&options, "swap-space").decimal == 1.5);
    assert_string_equal(value_of(&options, "max-inter-token-ms").text, "auto");
    assert_true(value_of(&options, "enable-prefix-caching").flag);
    assert_int_equal(value_of(&options, "uds").kind, OPTION_VALUE_NONE);
    assert_int_equal(value_of(&options, "served-model-name").list->count, 2);
    struct option_value secret = value_of(&options, "api-key");
    assert_int_equal(secret.kind, OPTION_VALUE_SECRET);
    assert_true(secret.text == NULL && secret.list == NULL);
    for (int i = 0; i < 3; i++) {
        free(options.otlp_traces_endpoint);
        options.otlp_traces_endpoint = strdup(urls[i]);
        assert_int_equal(value_of(&options, "otlp-traces-endpoint").kind,
                         i < 2 ? OPTION_VALUE_SECRET : OPTION_VALUE_TEXT);
    }
    options_finish(&options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_flag_forms),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_integer_or_auto),
        cmocka_unit_test(test_decimal_or_auto),
        cmocka_unit_test(test_flags_without_a_value),
        cmocka_unit_test(test_negated_flags),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_model_without_a_name),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_bounds_of_several_models),
        cmocka_unit_test(test_what_is_so_anyway),
        cmocka_unit_test(test_taken_flags_are_logged),
        cmocka_unit_test(test_what_is_not_available),
        cmocka_unit_test(test_all_mistakes_at_once),
        cmocka_unit_test(test_peer_flags),
        cmocka_unit_test(test_bad_flags),
        cmocka_unit_test(test_overridden_value_is_checked_too),
        cmocka_unit_test(test_variable_behind_a_flag_is_not_read),
        cmocka_unit_test(test_secrets_leave_the_command_line),
        cmocka_unit_test(test_secrets_stay_hidden),
        cmocka_unit_test(test_long_value_is_cut),
        cmocka_unit_test(test_list_is_bounded),
        cmocka_unit_test(test_lists_of_words),
        cmocka_unit_test(test_bad_lists_of_words),
        cmocka_unit_test(test_bad_environment),
        cmocka_unit_test(test_unknown_variables_are_a_warning),
        cmocka_unit_test(test_variables_of_others),
        cmocka_unit_test(test_service_links_are_left_alone),
        cmocka_unit_test(test_yaml_forms),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_bad_yaml),
        cmocka_unit_test(test_huge_file),
        cmocka_unit_test(test_sample_file),
        cmocka_unit_test(test_sample_file_comments),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_help_groups),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
