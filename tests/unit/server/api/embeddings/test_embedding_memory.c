/* Fails the first, second, third ... allocation of a whole call until one run needs no more: each
 * run answers in full or with status 500, and frees what it took. */
#include "server/api/call/endpoints.h"
#include "server/api/scores/score_model.h"

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
    .limits = &(const struct serving_limits){.max_model_len = 64, .hidden_size = 200},
    .model_names = names,
    .num_model_names = 1,
    .max_prompts = 4,
    .max_prompt_tokens = 100,
    .pooling = POOLING_MEAN,
};

static const struct classifier classifier = {
    .num_labels = 1, .hidden_size = 200, .rows = (float[200]){1}, .scale = 1};
static const struct api_context *used = &context;

static const char class_body[] = "{\"input\":[\"ab\",[1,2]],\"f\\u006fo\":1}";
static const char rerank_body[] =
    "{\"query\":\"ab\",\"documents\":[{\"text\":\"c\"}],\"f\\u006fo\":1}";
static const char embedding_body[] = "{\"input\":[\"ab\",[1,2]],\"f\\u006fo\":1}";

/* Events are pushed with memory at hand: they are the engine's. */
static void push(struct api_call *call, int index) {
    static const float vector[200] = {1, 2, 3};
    const struct token_event event = {.kind = TOKEN_EVENT_EMBEDDING,
                                      .text = "",
                                      .embedding = vector,
                                      .num_dimensions = 200,
                                      .finish = FINISH_STOP,
                                      .stop_token = -1,
                                      .stop_string = -1};
    long left = allocations_left;
    allocations_left = -1;
    assert_int_equal(token_stream_push(&api_call_request(call, index)->stream, &event), 0);
    allocations_left = left;
}

/* True when the call was answered in full. */
static bool answer(struct api_call *call, struct byte_buffer *out) {
    struct api_error err = {0};
    for (int i = 0; i < 2 && !api_call_is_done(call); i++) {
        push(call, i);
        api_call_read(call, api_call_request(call, i), out);
    }
    assert_true(api_call_is_done(call));
    if (!api_call_error(call, &err))
        return !out->failed;
    assert_int_equal(err.status, 503);
    assert_int_equal(out->length, 0);
    return false;
}

static bool run_call(api_call_parse *parse, const char *body, long num_allocations) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    struct byte_buffer out = {0};
    bool is_whole = false;
    allocations_left = num_allocations;
    if (parse(used, body, strlen(body), &call, &err) != 0)
        assert_int_equal(err.status, 503);
    else
        is_whole = answer(call, &out);
    allocations_left = -1;
    byte_buffer_finish(&out);
    api_call_destroy(call);
    return is_whole;
}

static void try_call(api_call_parse *parse, const char *body) {
    long count = 0;
    while (!run_call(parse, body, count))
        assert_true(++count < 10000);
    assert_true(count > 15);
}

/* Pairs that a template writes. */
static void try_scores(void) {
    const struct score_model_config config = {.pair_text = "{query} {document}"};
    struct score_model *scores = NULL;
    struct error err = {0};
    for (long count = 0; scores == NULL && count < 10000; count++) {
        allocations_left = count;
        int status = score_model_create(&classifier, NULL, &config, &scores, &err);
        allocations_left = -1;
        assert_true(status == 0 || err.code == ERROR_MEMORY);
    }
    struct api_context scored = context;
    scored.scores = scores;
    used = &scored;
    try_call(classify_endpoint_parse, class_body);
    try_call(score_endpoint_parse_rerank, rerank_body);
    used = &context;
    score_model_destroy(scores);
}

static void every_failed_allocation_is_survived(void **state) {
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = free};
    cJSON_InitHooks(&hooks);
    try_call(embedding_endpoint_parse, embedding_body);
    try_call(score_endpoint_parse_rerank, rerank_body);
    try_scores();
    cJSON_InitHooks(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
