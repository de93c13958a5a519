#include "server/api/call/api_context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void names_of_paths(void **state) {
    static const struct {
        const char *path, *name;
    } cases[] = {
        {"/models/SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1"},
        {"a.gguf", "a"},
        {"big-00001-of-00003.gguf", "big"},
        {"big-0001-of-0003.gguf", "big-0001-of-0003"},
        {"-00001-of-00003.gguf", "-00001-of-00003"},
        {"/models/SmolLM2-1.7B", "SmolLM2-1.7B"},
        {"models/Qwen2.5-0.5B///", "Qwen2.5-0.5B"},
        {"big-00001-of-00003", "big-00001-of-00003"},
        {".gguf", ".gguf"},
        {"/", "model"},
        {"", "model"},
    };
    char name[64];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        api_context_model_name(cases[i].path, name, sizeof(name));
        assert_string_equal(name, cases[i].name);
    }
    api_context_model_name("abcdefgh", name, 4);
    assert_string_equal(name, "abc");
}

/* "." is where the server was started. */
static void names_of_relative_folders(void **state) {
    char name[64], parent[64];
    assert_int_equal(chdir("/usr/bin"), 0);
    api_context_model_name(".", name, sizeof(name));
    api_context_model_name("./..", parent, sizeof(parent));
    assert_string_equal(name, "bin");
    assert_string_equal(parent, "usr");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_paths),
        cmocka_unit_test(names_of_relative_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
