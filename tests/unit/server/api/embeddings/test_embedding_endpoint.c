/* Drives embedding calls with hand-written engine events and reads the bytes back as a client
 * would; refusals name the field. */
#include "server/api/call/endpoints.h"

#include "tests/unit/server/api/fake_tokenizer.h"
#include "server/api/embeddings/embedding_format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static char *const names[] = {"m", "alias"};
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 16, .hidden_size = 3},
    .model_names = names,
    .num_model_names = 2,
    .max_prompts = 4,
    .max_prompt_tokens = 24,
    .pooling = POOLING_LAST,
};

static struct api_call *parse_ok(const char *body) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    if (embedding_endpoint_parse(&context, body, strlen(body), &call, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return call;
}

static void push(struct api_call *call, int index, const float vector[3]) {
    const struct token_event event = {.kind = TOKEN_EVENT_EMBEDDING,
                                      .text = "",
                                      .embedding = vector,
                                      .num_dimensions = 3,
                                      .finish = FINISH_STOP,
                                      .stop_token = -1,
                                      .stop_string = -1};
    assert_int_equal(token_stream_push(&api_call_request(call, index)->stream, &event), 0);
}

static void read_request(struct api_call *call, int index, struct byte_buffer *out) {
    api_call_read(call, api_call_request(call, index), out);
}

/* The whole answer's text; the call is freed. */
static char *take_answer(struct api_call *call, struct byte_buffer *out) {
    struct api_error err;
    assert_true(api_call_is_done(call));
    assert_false(api_call_error(call, &err));
    byte_buffer_append(out, "", 1);
    assert_false(out->failed);
    char *text = strdup(out->data);
    byte_buffer_finish(out);
    api_call_destroy(call);
    return text;
}

/* Two inputs that finish in the other order. */
static void answer_has_openais_shape(void **state) {
    struct api_call *call = parse_ok("{\"model\":\"alias\",\"input\":[\"abc\",\"a\"],\"foo\":1}");
    assert_int_equal(api_call_num_requests(call), 2);
    assert_int_equal(api_call_request(call, 0)->num_prompt_tokens, 4); /* with bos */
    assert_string_equal(api_call_ignored_params(call), "foo");
    assert_false(api_call_is_stream(call));
    struct byte_buffer out = {0};
    push(call, 1, (const float[]){0, 0, 0});
    read_request(call, 1, &out);
    assert_int_equal(out.length, 0);
    push(call, 0, (const float[]){3, 0, -4});
    read_request(call, 0, &out);
    char *text = take_answer(call, &out);
    assert_string_equal(text,
                        "{\"object\":\"list\",\"data\":["
                        "{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.6,0.0,-0.8]},"
                        "{\"object\":\"embedding\",\"index\":1,\"embedding\":[0.0,0.0,0.0]}],"
                        "\"model\":\"m\",\"usage\":{\"prompt_tokens\":6,\"total_tokens\":6}}");
    free(text);
}

static void base64_holds_the_floats(void **state) {
    struct api_call *call =
        parse_ok("{\"input\":[97,98],\"encoding_format\":\"base64\",\"normalize\":false}");
    struct byte_buffer out = {0};
    push(call, 0, (const float[]){1, -2, 0.5f}); /* 3f800000 c0000000 3f000000 */
    read_request(call, 0, &out);
    char *text = take_answer(call, &out);
    assert_non_null(strstr(text, "\"embedding\":\"AACAPwAAAMAAAAA/\"}"));
    assert_non_null(strstr(text, "\"prompt_tokens\":2,\"total_tokens\":2"));
    free(text);
}

static void check_request(const char *body, enum pooling pooling, int32_t num_tokens,
                          int32_t priority) {
    struct api_call *call = parse_ok(body);
    const struct request *request = api_call_request(call, 0);
    assert_int_equal(request->params.pooling, pooling);
    assert_int_equal(request->params.max_tokens, 0);
    assert_int_equal(request->params.num_choices, 1);
    assert_int_equal(request->num_prompt_tokens, num_tokens);
    assert_int_equal(request->priority, priority);
    api_call_destroy(call);
}

static void fields_reach_the_engine(void **state) {
    check_request("{\"input\":\"ab\"}", POOLING_LAST, 3, 0);
    check_request("{\"input\":\"ab\",\"pooling\":\"mean\",\"priority\":-3}", POOLING_MEAN, 3, -3);
    check_request("{\"input\":\"ab\",\"pooling\":null,\"encoding_format\":null}", POOLING_LAST, 3,
                  0);
    check_request("{\"input\":\"ab\",\"add_special_tokens\":false,\"dimensions\":3}", POOLING_LAST,
                  2, 0);
    check_request("{\"input\":[[1,2,3,4]]}", POOLING_LAST, 4, 0);
    check_request("{\"input\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", POOLING_LAST, 16, 0);
}

static void a_salt_reaches_the_engine(void **state) {
    static const char body[] = "{\"input\":\"ab\",\"cache_salt\":\"me\"}";
    struct api_call *call = NULL;
    struct api_error err = {0};
    assert_int_equal(embedding_endpoint_parse(&context, body, strlen(body), &call, &err), 0);
    assert_int_equal(api_call_request(call, 0)->cache_salt_bytes, 2);
    api_call_destroy(call);
}

static void refuse(const char *body, int status, const char *param, const char *code,
                   const char *piece) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    assert_int_equal(embedding_endpoint_parse(&context, body, strlen(body), &call, &err), -1);
    assert_null(call);
    assert_int_equal(err.status, status);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, code);
    if (strstr(err.message, piece) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", body, err.message, piece);
}

static void refusals_name_the_field(void **state) {
    refuse("{\"input\":\"a\",\"cache_salt\":\"\"}", 400, "cache_salt", "out_of_range", "0 bytes");
    refuse("{}", 400, "input", "missing_required_parameter", "input is missing");
    refuse("{\"input\":\"\"}", 400, "input", "empty_prompt", "input is empty");
    refuse("{\"input\":[]}", 400, "input", "empty_prompt", "input is empty");
    refuse("{\"input\":[\"a\",\"\"]}", 400, "input[1]", "empty_prompt", "input[1] is empty");
    refuse("{\"input\":[[1],[]]}", 400, "input[1]", "empty_prompt", "input[1] is empty");
    refuse("{\"input\":7}", 400, "input", "invalid_type", "not 7");
    refuse("{\"input\":[\"a\",null]}", 400, "input[1]", "invalid_type", "not null");
    refuse("{\"input\":[1,300]}", 400, "input[1]", "out_of_range", "from 0 to 299");
    refuse("{\"input\":[1,\"a\"]}", 400, "input[1]", "invalid_type", "an integer");
    refuse("{\"input\":[\"a\",\"a\",\"a\",\"a\",\"a\"]}", 400, "input", "array_above_max_length",
           "more than 4 entries");
    refuse("{\"input\":\"abcdefghijklmnop\"}", 400, "input", "context_length_exceeded",
           "context length is 16 tokens, but input has 17 tokens");
    refuse("{\"input\":[\"abcdefghijklm\",\"abcdefghijklm\"]}", 400, "input", "out_of_range",
           "24 tokens together");
    refuse("{\"input\":\"a\",\"model\":\"other\"}", 404, "model", "model_not_found", "other");
    refuse("{\"input\":\"a\",\"encoding_format\":\"hex\"}", 400, "encoding_format", "invalid_type",
           "\"float\" or \"base64\", not \"hex\"");
    refuse("{\"input\":\"a\",\"encoding_format\":1}", 400, "encoding_format", "invalid_type",
           "not 1");
    refuse("{\"input\":\"a\",\"pooling\":\"max\"}", 400, "pooling", "invalid_type",
           "\"last\" or \"mean\"");
    refuse("{\"input\":\"a\",\"dimensions\":2}", 400, "dimensions", "unsupported_value",
           "must be 3, the size");
    refuse("{\"input\":\"a\",\"dimensions\":0}", 400, "dimensions", "out_of_range", "from 1");
    refuse("{\"input\":\"a\",\"normalize\":1}", 400, "normalize", "invalid_type", "true or false");
    refuse("{\"input\":\"a\"", 400, "", "invalid_json", "");
}

static void embeddings_may_be_shortened(void **state) {
    static const struct embedding_sizes any = {.any = true},
                                        some = {.num_sizes = 2, .sizes = {3, 2}};
    static const char body[] = "{\"input\":\"a\",\"dimensions\":2}",
                      one[] = "{\"input\":\"a\",\"dimensions\":1}";
    struct api_context shortened = context;
    struct api_error err = {0};
    struct api_call *call = NULL;
    struct byte_buffer out = {0};
    shortened.embedding_sizes = &some;
    assert_int_equal(embedding_endpoint_parse(&shortened, one, strlen(one), &call, &err), -1);
    assert_non_null(strstr(err.message, "dimensions must be 2 or 3, not 1"));
    assert_int_equal(embedding_endpoint_parse(&shortened, body, strlen(body), &call, &err), 0);
    push(call, 0, (const float[]){3.0f, 4.0f, 100.0f});
    read_request(call, 0, &out);
    char *text = take_answer(call, &out);
    assert_non_null(strstr(text, "\"embedding\":[0.6,0.8]"));
    free(text);
    shortened.embedding_sizes = &any;
    static const char four[] = "{\"input\":\"a\",\"dimensions\":4}";
    assert_int_equal(embedding_endpoint_parse(&shortened, four, strlen(four), &call, &err), -1);
    assert_non_null(strstr(err.message, "dimensions must be from 1 to 3, not 4"));
    assert_int_equal(embedding_endpoint_parse(&shortened, one, strlen(one), &call, &err), 0);
    api_call_destroy(call);
}

static void unknown_fields_may_be_refused(void **state) {
    struct api_context strict = context;
    strict.rejects_unknown_params = true;
    static const char body[] = "{\"input\":\"a\",\"temperature\":1}";
    struct api_call *call = NULL;
    struct api_error err = {0};
    assert_int_equal(embedding_endpoint_parse(&strict, body, strlen(body), &call, &err), -1);
    assert_non_null(strstr(err.message, "temperature"));
}

/* More numbers than an API call may produce, though not more inputs. */
static void size_of_the_answer_is_bounded(void **state) {
    struct api_context wide = context;
    const struct serving_limits wide_limits = {.max_model_len = 16, .hidden_size = 4 << 20};
    wide.limits = &wide_limits;
    static const char body[] = "{\"input\":[\"a\",\"b\",\"c\"]}";
    struct api_call *call = NULL;
    struct api_error err = {0};
    assert_int_equal(embedding_endpoint_parse(&wide, body, strlen(body), &call, &err), -1);
    assert_string_equal(err.code, "array_above_max_length");
    assert_non_null(strstr(err.message, "at most 2 entries"));
}

static void engine_failure_ends_the_call(void **state) {
    struct api_call *call = parse_ok("{\"input\":[\"a\",\"b\"]}");
    struct byte_buffer out = {0};
    struct api_error err;
    push(call, 0, (const float[]){1, 2, 3});
    read_request(call, 0, &out);
    const struct token_event event = {.kind = TOKEN_EVENT_TEXT,
                                      .text = "",
                                      .finish = FINISH_ERROR,
                                      .stop_token = -1,
                                      .stop_string = -1};
    assert_int_equal(token_stream_push(&api_call_request(call, 1)->stream, &event), 0);
    read_request(call, 1, &out);
    assert_true(api_call_is_done(call) && api_call_error(call, &err));
    assert_int_equal(err.status, 503);
    assert_int_equal(out.length, 0);
    api_call_destroy(call);
}

/* Numbers read back as the same floats. */
static void numbers_are_exact(void **state) {
    float vector[100], expected[100];
    uint32_t seed = 1;
    for (int i = 0; i < 100; i++) {
        seed = seed * 1664525U + 1013904223U;
        vector[i] = ((float)(seed >> 8) - 8388608.0f) * 1e-7f;
    }
    embedding_normalise(vector, 100, expected);
    double length = 0;
    for (int i = 0; i < 100; i++)
        length += (double)expected[i] * (double)expected[i];
    assert_true(fabs(sqrt(length) - 1) < 1e-7);
    struct byte_buffer out = {0};
    embedding_format(7, expected, 100, EMBEDDING_FLOAT, &out);
    cJSON *json = cJSON_ParseWithLength(out.data, out.length);
    const cJSON *numbers = cJSON_GetObjectItemCaseSensitive(json, "embedding");
    assert_int_equal(cJSON_GetArraySize(numbers), 100);
    for (int i = 0; i < 100; i++)
        assert_true((float)cJSON_GetNumberValue(cJSON_GetArrayItem(numbers, i)) == expected[i]);
    cJSON_Delete(json);
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_has_openais_shape),
        cmocka_unit_test(base64_holds_the_floats),
        cmocka_unit_test(fields_reach_the_engine),
        cmocka_unit_test(a_salt_reaches_the_engine),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(embeddings_may_be_shortened),
        cmocka_unit_test(unknown_fields_may_be_refused),
        cmocka_unit_test(size_of_the_answer_is_bounded),
        cmocka_unit_test(engine_failure_ends_the_call),
        cmocka_unit_test(numbers_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
