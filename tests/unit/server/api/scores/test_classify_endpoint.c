/* Drives classes and the scores of a classifier with hand-written hidden states. */
#include "server/api/call/endpoints.h"
#include "server/api/scores/score_model.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static float three_rows[] = {1, 0, 0, 1, -1, -1}, one_row[] = {1, -2};
static char *labels[] = {"bad", "so-so", "good"};
static const struct classifier three = {
    .num_labels = 3, .hidden_size = 2, .rows = three_rows, .labels = labels, .scale = 1};
static const struct classifier one = {
    .num_labels = 1, .hidden_size = 2, .rows = one_row, .scale = 1};
static const struct score_model three_scores = {.classifier = &three},
                                one_score = {.classifier = &one};

static char *const names[] = {"m"};
static const struct serving_limits narrow = {.max_model_len = 64, .hidden_size = 2};

static struct api_context context_of(const struct score_model *scores) {
    return (struct api_context){
        .limits = &narrow,
        .scores = scores,
        .refuses_generation = true,
        .model_names = names,
        .num_model_names = 1,
        .max_prompts = 5,
        .max_n = 1,
        .max_choices = 1,
        .max_prompt_tokens = 200,
        .pooling = POOLING_MEAN,
    };
}

static struct api_call *begin(const struct api_context *context, api_call_parse *parse,
                              const char *body) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    if (parse(context, body, strlen(body), &call, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return call;
}

static void push(struct api_call *call, int index, float x, float y, struct byte_buffer *out) {
    const struct token_event event = {.kind = TOKEN_EVENT_EMBEDDING,
                                      .text = "",
                                      .embedding = (const float[]){x, y},
                                      .num_dimensions = 2,
                                      .finish = FINISH_STOP,
                                      .stop_token = -1,
                                      .stop_string = -1};
    struct request *request = api_call_request(call, index);
    assert_int_equal(request->params.pooling, POOLING_LAST);
    assert_int_equal(token_stream_push(&request->stream, &event), 0);
    api_call_read(call, request, out);
}

/* Checks the list of an answer, and frees it and the call. */
static void expect(struct api_call *call, struct byte_buffer *out, const char *name,
                   const char *expected) {
    assert_true(api_call_is_done(call));
    assert_false(out->failed);
    cJSON *json = cJSON_ParseWithLength(out->data, out->length);
    assert_non_null(json);
    assert_null(cJSON_GetObjectItemCaseSensitive(json, "similarity"));
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(json, name));
    assert_string_equal(text, expected);
    free(text);
    cJSON_Delete(json);
    byte_buffer_finish(out);
    api_call_destroy(call);
}

static void classes_come_in_any_order(void **state) {
    const struct api_context context = context_of(&three_scores);
    struct byte_buffer out = {0};
    struct api_call *call = begin(&context, classify_endpoint_parse,
                                  "{\"input\":[\"a\",[1,2]],\"use_activation\":false}");
    (void)state;
    assert_int_equal(api_call_num_requests(call), 2);
    push(call, 1, 0, 2, &out);
    push(call, 0, -1, -1, &out);
    expect(call, &out, "data",
           "[{\"index\":0,\"label\":\"good\",\"probs\":[-1,-1,2],\"num_classes\":3},"
           "{\"index\":1,\"label\":\"so-so\",\"probs\":[0,2,-2],\"num_classes\":3}]");
    call = begin(&context, classify_endpoint_parse, "{\"input\":\"a\"}");
    push(call, 0, 0, 0, &out);
    expect(call, &out, "data",
           "[{\"index\":0,\"label\":\"bad\",\"probs\":[0.33333334,0.33333334,0.33333334],"
           "\"num_classes\":3}]");
}

static void a_pair_is_one_prompt(void **state) {
    const struct api_context context = context_of(&one_score);
    struct byte_buffer out = {0};
    struct api_call *call =
        begin(&context, score_endpoint_parse,
              "{\"text_1\":\"ab\",\"text_2\":[\"c\",\"def\"],\"activation\":false}");
    (void)state;
    assert_int_equal(api_call_num_requests(call), 2);
    static const int32_t tokens[] = {FAKE_BOS, 'a', 'b', 'd', 'e', 'f'};
    assert_int_equal(api_call_request(call, 1)->num_prompt_tokens, 6);
    assert_memory_equal(api_call_request(call, 1)->prompt, tokens, sizeof(tokens));
    push(call, 1, 3, 0.5F, &out);
    push(call, 0, 1, 1, &out);
    expect(call, &out, "data",
           "[{\"index\":0,\"object\":\"score\",\"score\":-1},{\"index\":1,\"object\":\"score\","
           "\"score\":2}]");
    call = begin(&context, score_endpoint_parse_rerank,
                 "{\"query\":\"q\",\"documents\":[\"a\",\"b\"],\"return_documents\":false}");
    push(call, 0, 0, 400, &out);
    push(call, 1, 0, 0, &out);
    expect(call, &out, "results",
           "[{\"index\":1,\"relevance_score\":0.5},{\"index\":0,\"relevance_score\":0}]");
}

static void refuse(const struct score_model *scores, api_call_parse *parse, const char *body,
                   const char *param, const char *piece) {
    const struct api_context context = context_of(scores);
    struct api_call *call = NULL;
    struct api_error err = {0};
    assert_int_equal(parse(&context, body, strlen(body), &call, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    if (strstr(err.message, piece) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", body, err.message, piece);
}

static void what_a_model_is_not_for_is_refused(void **state) {
    (void)state;
    refuse(NULL, classify_endpoint_parse, "{\"input\":\"a\"}", "model", "not a classifier");
    refuse(&three_scores, score_endpoint_parse, "{\"text_1\":\"a\",\"text_2\":\"b\"}", "model",
           "3 labels");
    refuse(&one_score, score_endpoint_parse,
           "{\"text_1\":\"a\",\"text_2\":\"b\",\"instruction\":\"c\"}", "instruction",
           "no place for one");
    refuse(&one_score, completion_endpoint_parse, "{\"prompt\":\"a\"}", "model",
           "does not generate text: it is served for scores, classes and embeddings");
    refuse(NULL, completion_endpoint_parse, "{\"prompt\":\"a\"}", "model", "served for embeddings");
    refuse(&one_score, classify_endpoint_parse, "{\"input\":[\"a\",\"\"]}", "input[1]", "empty");
    refuse(&one_score, classify_endpoint_parse, "{\"input\":\"a\",\"pooling\":\"mean\"}", "pooling",
           "last");
}

/* --- Templates of pairs --- */

static struct score_model *make(const struct score_model_config *config) {
    struct score_model *model = NULL;
    struct error err = {0};
    if (score_model_create(&one, NULL, config, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

/* Encodes a pair to bytes. */
static void assert_prompt(struct score_model *model, const char *instruction,
                          const char *expected) {
    const struct api_context context = context_of(model);
    const struct prompt_truncation all = {0};
    struct prompt_tokens tokens;
    struct api_error err = {0};
    char text[64] = "";
    assert_int_equal(score_model_encode(&context, "Q", "{query}", instruction, 0, &all, "documents",
                                        &tokens, &err),
                     0);
    for (int32_t i = 0; i < tokens.count && i < 63; i++)
        text[i] = (char)tokens.ids[i];
    assert_string_equal(text, expected);
    free(tokens.ids);
}

static void templates_are_found(void **state) {
    static const char by_role[] =
        "{% for m in messages %}{{ m.role[0] }}={{ m.content }};{% endfor %}";
    (void)state;
    struct score_model *model = make(&(const struct score_model_config){.chat_template = "hello"});
    assert_null(model->pair_template);
    assert_prompt(model, NULL, "Q{query}");
    score_model_destroy(model);
    model = make(&(const struct score_model_config){.pair_text = "a {query} b {document} c\n"});
    assert_false(model->takes_instruction);
    assert_prompt(model, NULL, "a Q b {query} c\n");
    score_model_destroy(model);
    model = make(&(const struct score_model_config){.given_template = by_role, .pair_text = "x"});
    assert_true(model->takes_instruction);
    assert_prompt(model, NULL, "q=Q;d={query};");
    assert_prompt(model, "I", "s=I;q=Q;d={query};");
    score_model_destroy(model);
    model = make(&(const struct score_model_config){.has_card_format = true});
    assert_true(model->takes_instruction);
    score_model_destroy(model);
}

static void a_given_template_must_show_both_texts(void **state) {
    const struct score_model_config config = {.given_template = "{{ messages[0].content }}"};
    struct score_model *model = NULL;
    struct error err = {0};
    (void)state;
    assert_int_equal(score_model_create(&one, NULL, &config, &model, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_string_equal(err.message, "chat-template: does not show messages with the roles "
                                     "\"query\" and \"document\"");
    const struct classifier none = {0};
    assert_int_equal(score_model_create(&none, NULL, &config, &model, &err), 0);
    assert_null(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_come_in_any_order),
        cmocka_unit_test(a_pair_is_one_prompt),
        cmocka_unit_test(what_a_model_is_not_for_is_refused),
        cmocka_unit_test(templates_are_found),
        cmocka_unit_test(a_given_template_must_show_both_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
