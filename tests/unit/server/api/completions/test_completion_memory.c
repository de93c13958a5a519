/* Fails the first, second, third ... allocation of a whole call until one run needs no more: each
 * run answers in full or with status 500, and frees what it took. */
#include "server/api/call/endpoints.h"

#include "tests/unit/failing_allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static char *const names[] = {"m"};
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64, .max_logprobs = 20},
    .sampling = SAMPLING_SETTINGS_NEUTRAL,
    .model_names = names,
    .num_model_names = 1,
    .max_prompts = 4,
    .max_n = 16,
    .max_choices = 32,
    .max_prompt_tokens = 100,
};

static const char gap_body[] = "{\"prompt\":[\"ab\",[1,2]],\"suffix\":\"cd\",\"echo\":true,"
                               "\"n\":2,\"truncate_prompt_tokens\":6}";
static const char infill_body[] =
    "{\"input_prefix\":\"ab\",\"input_suffix\":\"cd\",\"prompt\":\"e\",\"n\":4,\"n_predict\":3,"
    "\"input_extra\":[{\"text\":\"f\",\"filename\":\"g\"}],\"t_max_predict_ms\":9}";
static const char full_body[] =
    "{\"prompt\":[\"ab\",[1,2]],\"cache_salt\":\"s\",\"echo\":true,\"logprobs\":1,\"n\":2,"
    "\"stop\":[\"x\"],\"logit_bias\":{\"5\":1},\"f\\u006fo\":1}";

/* Events are pushed with memory at hand: they are the engine's. */
static void push(struct api_call *call, int index, int32_t choice) {
    struct token_record record = {.token = 'a', .logprob = -1.0f};
    struct token_event event = {.kind = TOKEN_EVENT_TEXT,
                                .choice = choice,
                                .text = "text",
                                .text_bytes = 4,
                                .num_tokens = 1,
                                .tokens = &record,
                                .finish = FINISH_LENGTH,
                                .stop_token = -1,
                                .stop_string = -1};
    long left = allocations_left;
    allocations_left = -1;
    assert_int_equal(token_stream_push(&api_call_request(call, index)->stream, &event), 0);
    allocations_left = left;
}

/* True when the call was answered in full. */
static bool answer(struct api_call *call, int num_choices, struct byte_buffer *out) {
    struct api_error err = {0};
    for (int i = 0; i < 4 && !api_call_is_done(call); i++) {
        push(call, i / num_choices, i % num_choices);
        api_call_read(call, api_call_request(call, i / num_choices), out);
    }
    assert_true(api_call_is_done(call));
    if (api_call_error(call, &err)) {
        assert_int_equal(err.status, 503);
        assert_int_equal(out->length, 0);
        return false;
    }
    return !out->failed;
}

static bool run_call(const char *body, long num_allocations) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    struct byte_buffer out = {0};
    allocations_left = num_allocations;
    bool is_whole = false, is_infill = body == infill_body;
    api_call_parse *parse =
        is_infill ? completion_endpoint_parse_infill : completion_endpoint_parse;
    if (parse(&context, body, strlen(body), &call, &err) != 0)
        assert_int_equal(err.status, 503);
    else
        is_whole = answer(call, is_infill ? 4 : 2, &out);
    allocations_left = -1;
    if (is_whole) {
        cJSON *json = cJSON_ParseWithLength(out.data, out.length);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "choices")), 4);
        cJSON_Delete(json);
    }
    byte_buffer_finish(&out);
    api_call_destroy(call);
    return is_whole;
}

static void every_failed_allocation_is_survived(void **state) {
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = free};
    cJSON_InitHooks(&hooks);
    static const char *const bodies[] = {full_body, gap_body, infill_body};
    for (int i = 0; i < 3; i++) {
        long count = 0;
        while (!run_call(bodies[i], count))
            assert_true(++count < 10000);
        assert_true(count > 30);
    }
    cJSON_InitHooks(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_survived)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
