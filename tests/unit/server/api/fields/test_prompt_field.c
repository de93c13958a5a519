#include "server/api/fields/prompt_field.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void encoding_names_what_ran_out(void **state) {
    struct api_error err;
    assert_int_equal(prompt_field_refuse(TOKENIZER_TOO_COSTLY, "prompt[1]", &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "text_too_costly");
    assert_string_equal(err.param, "prompt[1]");
    assert_int_equal(prompt_field_refuse(TOKENIZER_NO_MEMORY, "prompt", &err), -1);
    assert_int_equal(err.status, 503);
    assert_non_null(strstr(err.message, "memory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(encoding_names_what_ran_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
