/* Drives scores and ranks with hand-written embeddings, which come in any order. */
#include "server/api/call/endpoints.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static char *const names[] = {"m"};
static const struct serving_limits narrow = {.max_model_len = 16, .hidden_size = 2};
static const struct api_context context = {
    .limits = &narrow,
    .model_names = names,
    .num_model_names = 1,
    .max_prompts = 5,
    .max_prompt_tokens = 24,
    .pooling = POOLING_LAST,
};

static struct api_call *begin(api_call_parse *parse, const char *body) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    if (parse(&context, body, strlen(body), &call, &err) != 0)
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
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "similarity")),
                        "cosine");
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(json, name));
    assert_string_equal(text, expected);
    free(text);
    cJSON_Delete(json);
    byte_buffer_finish(out);
    api_call_destroy(call);
}

/* The first one with the others: cosines 0.6, 0 and -1. */
static void push_one(struct api_call *call, int index, struct byte_buffer *out) {
    static const float vectors[][2] = {{1, 0}, {3, 4}, {0, 2}, {-1, 0}};
    push(call, index, vectors[index][0], vectors[index][1], out);
}

static void embeddings_may_come_in_any_order(void **state) {
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct byte_buffer out = {0};
        struct api_call *call =
            begin(score_endpoint_parse, "{\"text_1\":\"q\",\"text_2\":[\"a\",\"b\",\"c\"]}");
        assert_int_equal(api_call_num_requests(call), 4);
        for (int k = 0; k < 4; k++)
            push_one(call, orders[i][k], &out);
        expect(
            call, &out, "data",
            "[{\"index\":0,\"object\":\"score\",\"score\":0.6},{\"index\":1,\"object\":\"score\","
            "\"score\":0},{\"index\":2,\"object\":\"score\",\"score\":-1}]");
    }
}

static void lists_are_scored_pair_by_pair(void **state) {
    struct byte_buffer out = {0};
    struct api_call *call =
        begin(score_endpoint_parse, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\"]}");
    for (int i = 4; i-- > 0;)
        push_one(call, i, &out);
    /* the first with the third, the second with the fourth */
    expect(call, &out, "data",
           "[{\"index\":0,\"object\":\"score\",\"score\":0},{\"index\":1,\"object\":\"score\","
           "\"score\":-0.6}]");
}

static void ranks_fall_and_equal_ones_keep_their_order(void **state) {
    static const char body[] =
        "{\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"b\"},\"c\",\"d\"],\"top_n\":3}";
    struct byte_buffer out = {0};
    struct api_call *call = begin(score_endpoint_parse_rerank, body);
    push(call, 0, 1, 0, &out);
    push(call, 3, 0, 5, &out);
    push(call, 4, 3, 4, &out);
    push(call, 1, 0, 1, &out);
    push(call, 2, 3, 4, &out);
    expect(call, &out, "results",
           "[{\"index\":1,\"document\":{\"text\":\"b\"},\"relevance_score\":0.6},{\"index\":3,"
           "\"document\":{\"text\":\"d\"},\"relevance_score\":0.6},{\"index\":0,\"document\":{"
           "\"text\":\"a\"},\"relevance_score\":0}]");
}

static void an_embedding_without_length_is_like_nothing(void **state) {
    struct byte_buffer out = {0};
    struct api_call *call =
        begin(score_endpoint_parse_rerank,
              "{\"query\":\"q\",\"documents\":\"a\",\"return_documents\":false}");
    push(call, 0, 1, 0, &out);
    push(call, 1, 0, 0, &out);
    expect(call, &out, "results", "[{\"index\":0,\"relevance_score\":0}]");
}

static void what_is_held_is_counted(void **state) {
    struct byte_buffer out = {0};
    struct api_call *call =
        begin(score_endpoint_parse, "{\"text_1\":\"q\",\"text_2\":[\"a\",\"b\",\"c\"]}");
    size_t before = api_call_held_bytes(call);
    push_one(call, 1, &out);
    push_one(call, 2, &out);
    assert_int_equal(api_call_held_bytes(call), before + 4 * sizeof(float));
    push_one(call, 0, &out); /* completes two pairs */
    assert_int_equal(api_call_held_bytes(call), before + 2 * sizeof(float));
    api_call_destroy(call);
    byte_buffer_finish(&out);
}

static void refuse(const struct api_context *used, const char *body, const char *param,
                   const char *piece) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    api_call_parse *parse =
        strstr(body, "query") != NULL ? score_endpoint_parse_rerank : score_endpoint_parse;
    assert_int_equal(parse(used, body, strlen(body), &call, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    if (strstr(err.message, piece) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", body, err.message, piece);
}

static void sizes_are_bounded(void **state) {
    static const struct serving_limits limits = {.max_model_len = 16, .hidden_size = 4 << 20};
    struct api_context wide = context;
    wide.limits = &limits;
    refuse(&context, "{\"query\":\"q\",\"documents\":[\"a\",\"a\",\"a\",\"a\",\"a\"]}", "documents",
           "at most 5 entries together, not 6");
    refuse(&context, "{\"query\":\"q\",\"documents\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}",
           "documents", "more than 5 entries");
    refuse(&context, "{\"query\":\"q\",\"documents\":[\"abcdefghijkl\",\"abcdefghijkl\"]}",
           "documents", "24 tokens together");
    refuse(&context, "{\"text_1\":\"abcdefghijklmnop\",\"text_2\":\"a\"}", "text_1", "17 tokens");
    refuse(&wide, "{\"text_1\":\"a\",\"text_2\":[\"a\",\"b\"]}", "text_2", "at most 2 texts");
    refuse(&context, "{\"text_1\":[\"a\",\"b\"],\"text_2\":\"a\"}", "text_2",
           "the same number of entries as text_1 (2)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_may_come_in_any_order),
        cmocka_unit_test(lists_are_scored_pair_by_pair),
        cmocka_unit_test(ranks_fall_and_equal_ones_keep_their_order),
        cmocka_unit_test(an_embedding_without_length_is_like_nothing),
        cmocka_unit_test(what_is_held_is_counted),
        cmocka_unit_test(sizes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
