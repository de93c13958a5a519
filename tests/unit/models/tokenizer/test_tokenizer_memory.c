/* Fails the first, second, third ... allocation of making a tokenizer from a tokenizer.json until
 * one run needs no more: each run makes it or says ERROR_MEMORY, and frees what it took. The files
 * are the fuzz target's: tokenizer.json, NUL, tokenizer_config.json. */
#include "models/files/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/tokenizer_json.h"

#include "tests/unit/failing_allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;
static int make_tokenizer(const cJSON *root, const cJSON *config, struct tokenizer **out,
                          struct error *err) {
    struct tokenizer_spec spec;
    if (tokenizer_spec_from_json("t.json", root, "c.json", config, &spec, err) != 0)
        return -1;
    int status = tokenizer_create(&spec, out, err);
    tokenizer_spec_finish(&spec);
    return status;
}

/* Whether there was memory enough. */
static bool run(const cJSON *root, const cJSON *config, long num_allocations) {
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    allocations_left = num_allocations;
    int status = make_tokenizer(root, config, &tokenizer, &err);
    allocations_left = -1;
    if (status != 0) {
        assert_null(tokenizer);
        if (err.code != ERROR_MEMORY)
            fail_msg("after %ld allocations: %s", num_allocations, err.message);
        return false;
    }
    tokenizer_close(tokenizer);
    return true;
}

static void test_every_failure_is_survived(void **state) {
    char path[PATH_MAX], data[8192];
    struct error err = {0};
    long count = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, (const char *)*state);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(data, 1, sizeof(data), file);
    fclose(file);
    const char *end = memchr(data, '\0', bytes);
    assert_non_null(end);
    size_t length = (size_t)(end - data);
    cJSON *root = json_memory_read(data, length, "t.json", &err);
    cJSON *config = json_memory_read(end + 1, bytes - length - 1, "c.json", &err);
    assert_non_null(root);
    assert_non_null(config);
    while (!run(root, config, count))
        assert_true(++count < 1000);
    assert_in_range(count, 20, 1000);
    cJSON_Delete(root);
    cJSON_Delete(config);
}

#define SURVIVES(name)                                                                             \
    { name, test_every_failure_is_survived, NULL, NULL, name }

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        SURVIVES("gemma"),
        SURVIVES("deepseek"),
        SURVIVES("phi3"),
        SURVIVES("llama3"),
    };
    folder = argc > 1 ? argv[1] : "tests/fuzz/corpus/tokenizer_json";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
