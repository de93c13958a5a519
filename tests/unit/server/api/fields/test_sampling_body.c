/* Shared fields by an endpoint's own names. */
#include "server/api/fields/sampling_body.h"
#include "server/api/fields/beam_fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64, .max_logprobs = 20},
    .max_prompts = 4,
    .max_n = 16,
    .max_choices = 32,
    .max_prompt_tokens = 100,
};

static const struct json_alias aliases[] = {
    {"max_tokens", "length"},
    {"n", "copies"},
    {"stop", "ends"},
    {"logit_bias", "biases"},
    {"repetition_penalty", "penalty"},
    {"seed", "start", .has_none = true, .none = -1},
};
static const struct body_names names = {
    .aliases = aliases, .num_aliases = 6, .format = "text.format", .has_flat_format = true};

static const struct json_field own_fields[] = {JSON_OTHER(text)};

static int read_body(const cJSON *json, struct sampling_body *out, struct byte_buffer *ignored,
                     struct api_error *err) {
    *err = (struct api_error){0};
    *out = sampling_body_defaults(&context, &names, SAMPLING_TO_THE_END);
    if (sampling_body_read(&context, json, out, err) != 0)
        return -1;
    if (beam_fields_read(&context, json, out, err) == 0 &&
        sampling_body_check_unknown(&context, json, out, JSON_TABLE(own_fields), ignored, err) == 0)
        return 0;
    sampling_body_finish(out);
    return -1;
}

static void errors_have_the_endpoints_names(void **unused) {
    static const struct {
        const char *body, *param, *message; /* a part of it */
    } cases[] = {
        {"{\"length\":-1}", "length", "length must be an integer from 0"},
        {"{\"copies\":17}", "copies", "copies must be an integer from 1 to 16 (--max-n), not 17"},
        {"{\"n\":17}", "n", "n must be an integer"},
        {"{\"ends\":1}", "ends", "ends must be a string or"},
        {"{\"ends\":[\"a\",1]}", "ends[1]", "ends[1] must be"},
        {"{\"ends\":[\"\"]}", "ends[0]", "ends[0] has 0 bytes"},
        {"{\"biases\":{\"x\":1}}", "biases", "biases has the key \"x\""},
        {"{\"biases\":{\"5\":101}}", "biases.5", "biases.5 must be a number"},
        {"{\"length\":3,\"min_tokens\":4}", "min_tokens", "must be at most length (3), not 4"},
        {"{\"max_tokens\":3,\"min_tokens\":4}", "min_tokens", "at most max_tokens (3), not 4"},
        {"{\"copies\":3,\"best_of\":2}", "best_of", "must be at least copies (3), not 2"},
        {"{\"use_beam_search\":true,\"penalty\":2}", "penalty", "penalty must be 1 with"},
        {"{\"use_beam_search\":true,\"ends\":\"a\"}", "ends", "ends must be absent with"},
        {"{\"use_beam_search\":true,\"copies\":16,\"stop_token_ids\":[1,2,3,4,5]}", "copies",
         "copies, the width of the beam search, is 16"},
        {"{\"use_beam_search\":true,\"text\":{\"format\":{\"type\":\"json_object\"}}}",
         "text.format", "text.format must be absent or of type \"text\" with"},
        {"{\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":1}}}", "text.format.schema",
         "text.format.schema"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *json = cJSON_Parse(cases[i].body);
        struct sampling_body body;
        struct byte_buffer ignored = {0};
        struct api_error err;
        assert_non_null(json);
        if (read_body(json, &body, &ignored, &err) == 0)
            fail_msg("%s must be refused", cases[i].body);
        if (strcmp(err.param, cases[i].param) != 0 || strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s: %s: %s", cases[i].body, err.param, err.message);
        byte_buffer_finish(&ignored);
        cJSON_Delete(json);
    }
}

/* The form at another place than the endpoint's is not read. */
static void values_come_by_the_endpoints_names(void **unused) {
    cJSON *json =
        cJSON_Parse("{\"length\":5,\"copies\":2,\"ends\":[\"x\"],\"start\":-1,\"penalty\":2,"
                    "\"text\":{\"format\":{\"type\":\"text\",\"a\":1}},\"response_format\":7,"
                    "\"other\":1}");
    struct sampling_body body;
    struct byte_buffer ignored = {0};
    struct api_error err;
    assert_int_equal(read_body(json, &body, &ignored, &err), 0);
    assert_int_equal(body.max_tokens, 5);
    assert_string_equal(body.max_tokens_field, "length");
    assert_int_equal(body.n, 2);
    assert_int_equal(body.lists.num_stop_strings, 1);
    assert_false(body.has_seed);
    assert_true(body.settings.repetition_penalty == 2);
    assert_null(body.grammar);
    byte_buffer_append(&ignored, "", 1);
    assert_string_equal(ignored.data, "other,text.format.a");
    byte_buffer_finish(&ignored);
    sampling_body_finish(&body);
    cJSON_Delete(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_the_endpoints_names),
        cmocka_unit_test(values_come_by_the_endpoints_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
