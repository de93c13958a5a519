/* Through the body of a completion, where every field of beam search and all that it excludes
 * stands. */
#include "server/api/fields/beam_fields.h"
#include "server/api/completions/completion_body.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char *const names[] = {"m"};
/* Its authors recommend what beam search does not have. */
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64, .max_logprobs = 20},
    .model_names = names,
    .num_model_names = 1,
    .max_prompts = 4,
    .max_n = 16,
    .max_choices = 32,
    .max_prompt_tokens = 100,
    .sampling =
        {.temperature = 0.5, .top_p = 0.75, .min_p = 0.25, .repetition_penalty = 1.25, .top_k = 20},
};

static int parse(const char *fields, struct completion_body *out, struct api_error *err) {
    char body[1024];
    snprintf(body, sizeof(body), "{\"prompt\":\"x\",%s}", fields);
    return completion_body_parse(&context, body, strlen(body), COMPLETION_OPENAI, out, err);
}

static struct completion_body parse_ok(const char *fields) {
    struct completion_body request;
    struct api_error err = {0};
    if (parse(fields, &request, &err) != 0)
        fail_msg("%s: %s", fields, err.message);
    return request;
}

static struct sampling_params params_of(const char *fields) {
    struct completion_body request = parse_ok(fields);
    struct sampling_params params = completion_body_params(&request, &context, 1, 7);
    completion_body_finish(&request);
    return params;
}

static void best_of_or_n_is_the_width(void **state) {
    struct sampling_params params = params_of("\"use_beam_search\":true,\"n\":2,\"best_of\":4");
    assert_int_equal(params.beam_width, 4);
    assert_int_equal(params.num_choices, 2);
    assert_int_equal(params.num_logprobs, -1);
    params = params_of("\"use_beam_search\":true,\"n\":3");
    assert_int_equal(params.beam_width, 3);
    assert_int_equal(params.num_choices, 3);
    params = params_of("\"use_beam_search\":true");
    assert_int_equal(params.beam_width, 1);
    params = params_of("\"use_beam_search\":false,\"n\":2,\"best_of\":4");
    assert_int_equal(params.beam_width, 0);
    assert_int_equal(params.num_choices, 4);
}

static void the_searchs_own_fields_reach_the_engine(void **state) {
    struct sampling_params params = params_of("\"use_beam_search\":true");
    assert_true(params.length_penalty == 1);
    assert_int_equal(params.early_stopping, EARLY_STOPPING_FALSE);
    params =
        params_of("\"use_beam_search\":true,\"length_penalty\":-0.5,\"early_stopping\":\"never\"");
    assert_true(params.length_penalty == -0.5);
    assert_int_equal(params.early_stopping, EARLY_STOPPING_NEVER);
    params = params_of("\"use_beam_search\":true,\"early_stopping\":true");
    assert_int_equal(params.early_stopping, EARLY_STOPPING_TRUE);
    params = params_of("\"use_beam_search\":true,\"early_stopping\":null,\"logprobs\":2");
    assert_int_equal(params.early_stopping, EARLY_STOPPING_FALSE);
    assert_int_equal(params.num_logprobs, 2);
}

static void nothing_else_changes_the_choice_of_tokens(void **state) {
    static const char *const bodies[] = {
        "\"use_beam_search\":true",
        "\"use_beam_search\":true,\"temperature\":0,\"top_p\":1,\"top_k\":0,\"min_p\":0,"
        "\"presence_penalty\":0,\"frequency_penalty\":0,\"repetition_penalty\":1,\"stop\":[],"
        "\"logit_bias\":{},\"bad_words\":[],\"stream\":false,\"seed\":3,\"echo\":true,"
        "\"response_format\":{\"type\":\"text\"},\"guided_json\":null,\"stop_token_ids\":[7]",
    };
    for (int i = 0; i < 2; i++) {
        struct sampling_params params = params_of(bodies[i]);
        assert_true(params.settings.temperature == 0 && params.settings.top_p == 1 &&
                    params.settings.min_p == 0);
        assert_true(params.settings.repetition_penalty == 1 &&
                    params.settings.presence_penalty == 0 &&
                    params.settings.frequency_penalty == 0);
        assert_true(params.settings.top_k <= 0);
    }
}

static void expect_error(const char *fields, const char *param, const char *message) {
    struct completion_body request;
    struct api_error err = {0};
    if (parse(fields, &request, &err) == 0)
        fail_msg("accepted %s", fields);
    if (err.status != 400 || strcmp(err.param, param) != 0 || strstr(err.message, message) == NULL)
        fail_msg("%s: %d, param \"%s\", \"%s\"", fields, err.status, err.param, err.message);
}

static void what_does_not_go_with_it_is_refused(void **state) {
    static const struct {
        const char *param, *value, *message;
    } others[] = {
        {"stream", "true", "stream must be false with use_beam_search: true, not true"},
        {"temperature", "0.7", "temperature must be 0 with use_beam_search: true, not 0.7"},
        {"top_p", "0.5", "must be 1"},
        {"top_k", "5", "0 or -1"},
        {"min_p", "0.1", "must be 0"},
        {"presence_penalty", "1", "must be 0"},
        {"frequency_penalty", "-1", "must be 0"},
        {"repetition_penalty", "1.1", "must be 1"},
        {"max_tokens", "0", "at least 1"},
        {"prompt_logprobs", "0", "absent"},
        {"stop", "\"a\"", "not \"a\""},
        {"logit_bias", "{\"1\":1}", "absent"},
        {"allowed_token_ids", "[1]", "absent"},
        {"bad_words", "[\"a\"]", "absent"},
        {"regex", "\"a+\"", "absent"},
        {"json_schema", "{\"type\":\"object\"}", "absent"},
        {"guided_regex", "\"a+\"", "absent"},
        {"guided_choice", "[\"a\"]", "absent"},
        {"guided_json", "{\"type\":\"object\"}", "absent"},
        {"structured_outputs", "{\"regex\":\"a\"}", "absent"},
        {"response_format", "{\"type\":\"json_object\"}", "type \"text\""},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char fields[256];
        snprintf(fields, sizeof(fields), "\"use_beam_search\":true,\"%s\":%s", others[i].param,
                 others[i].value);
        expect_error(fields, others[i].param, others[i].message);
    }
    expect_error("\"use_beam_search\":true,\"echo\":true,\"logprobs\":0", "echo", "must be false");
    expect_error("\"use_beam_search\":true,\"n\":3,\"best_of\":2", "best_of", "at least n (3)");
    expect_error("\"use_beam_search\":1", "use_beam_search", "true or false");
    expect_error("\"early_stopping\":\"soon\"", "early_stopping", "or \"never\", not \"soon\"");
    expect_error("\"early_stopping\":1", "early_stopping", "not 1");
    expect_error("\"length_penalty\":10.5", "length_penalty", "-10 to 10");
}

/* The fake tokenizer has one end token, 257. */
static void width_and_end_tokens_are_bounded_together(void **state) {
    assert_int_equal(params_of("\"use_beam_search\":true,\"n\":16,"
                               "\"stop_token_ids\":[1,2,3,257,1]")
                         .beam_width,
                     16);
    expect_error("\"use_beam_search\":true,\"n\":16,\"stop_token_ids\":[1,2,3,4]", "n",
                 "n, the width of the beam search, is 16, and 5 tokens end a beam");
    assert_int_equal(params_of("\"use_beam_search\":true,\"best_of\":16,\"ignore_eos\":true,"
                               "\"stop_token_ids\":[1,2,3,257]")
                         .beam_width,
                     16);
    expect_error("\"use_beam_search\":true,\"best_of\":16,\"ignore_eos\":true,"
                 "\"stop_token_ids\":[1,2,3,4,257]",
                 "best_of", "5 tokens end a beam");
}

static void fields_without_effect_are_named(void **state) {
    static const struct {
        const char *fields, *names;
    } bodies[] = {
        {"\"length_penalty\":2,\"early_stopping\":true,\"foo\":1",
         "foo,length_penalty,early_stopping"},
        {"\"use_beam_search\":false,\"early_stopping\":false", "early_stopping"},
        {"\"use_beam_search\":null,\"length_penalty\":null", ""},
        {"\"use_beam_search\":true,\"length_penalty\":2,\"early_stopping\":true", ""},
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct completion_body request = parse_ok(bodies[i].fields);
        byte_buffer_append(&request.ignored, "", 1);
        assert_string_equal(request.ignored.data, bodies[i].names);
        completion_body_finish(&request);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_of_or_n_is_the_width),
        cmocka_unit_test(the_searchs_own_fields_reach_the_engine),
        cmocka_unit_test(nothing_else_changes_the_choice_of_tokens),
        cmocka_unit_test(what_does_not_go_with_it_is_refused),
        cmocka_unit_test(width_and_end_tokens_are_bounded_together),
        cmocka_unit_test(fields_without_effect_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
