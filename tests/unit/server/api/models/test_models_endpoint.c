#include "server/api/call/endpoints.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static char *const names[] = {"m", "ali\"as"};
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64},
    .sampling = SAMPLING_SETTINGS_NEUTRAL,
    .model_names = names,
    .num_model_names = 2,
    .created = 1700000000,
};

#define MODEL(id)                                                                                  \
    "{\"id\":\"" id "\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"quire\","       \
    "\"root\":\"m\",\"parent\":null,\"max_model_len\":64,\"permission\":[]}"

static void models_are_listed(void **state) {
    struct byte_buffer out = {0};
    models_endpoint_list((const struct api_context *const[]){&context}, 1, false, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data,
                        "{\"object\":\"list\",\"data\":[" MODEL("m") "," MODEL("ali\\\"as") "]}");
    byte_buffer_finish(&out);
}

static void the_tokenizer_is_described(void **state) {
    struct byte_buffer out = {0};
    models_endpoint_tokenizer_info(&context, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data,
                        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"model_max_length\":64,"
                        "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true,"
                        "\"add_eos_token\":false,\"chat_template\":null,"
                        "\"added_tokens_decoder\":{\"256\":{\"content\":\"<s>\",\"special\":true},"
                        "\"257\":{\"content\":\"</s>\",\"special\":true}}}");
    byte_buffer_finish(&out);
}

static void one_model_is_found_by_id(void **state) {
    struct byte_buffer out = {0};
    struct api_error err = {0};
    assert_int_equal(models_endpoint_get(&context, "ali\"as", false, &out, &err), 0);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, MODEL("ali\\\"as"));
    byte_buffer_clear(&out);
    assert_int_equal(models_endpoint_get(&context, "nope", false, &out, &err), -1);
    assert_int_equal(err.status, 404);
    assert_string_equal(err.code, "model_not_found");
    assert_int_equal(out.length, 0);
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_listed),
        cmocka_unit_test(the_tokenizer_is_described),
        cmocka_unit_test(one_model_is_found_by_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
