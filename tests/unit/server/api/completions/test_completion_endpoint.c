/* Drives calls with hand-written engine events and reads the bytes back as a client would. */
#include "server/api/call/api_call_type.h"
#include "server/api/call/endpoints.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#define MAX_FRAMES 64

static char *const names[] = {"m", "alias"};
static atomic_uint_fast64_t num_seeds;
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64, .max_logprobs = 20},
    .sampling = SAMPLING_SETTINGS_NEUTRAL,
    .model_names = names,
    .num_model_names = 2,
    .max_prompts = 4,
    .max_n = 16,
    .max_choices = 32,
    .max_prompt_tokens = 100,
    .seed = 99,
    .num_seeds = &num_seeds,
    .system_fingerprint = "fp",
};

static struct api_call *parse_ok_by(api_call_parse *parse, const char *body) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    if (parse(&context, body, strlen(body), &call, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return call;
}

static struct api_call *parse_ok(const char *body) {
    return parse_ok_by(completion_endpoint_parse, body);
}

/* The engine's side of an event; logprob -0.5 and no top entries unless given. */
struct reply {
    int32_t choice;
    const char *text;
    int32_t token; /* -1: none */
    int32_t num_generated;
    enum finish_reason finish;
    int32_t stop_token, stop_string;
};

static void push(struct api_call *call, int index, struct reply reply) {
    struct token_record record = {.token = reply.token, .logprob = -0.5f, .num_top = 1};
    struct top_logprob top = {.token = reply.token, .logprob = -0.5f};
    struct token_event event = {
        .kind = TOKEN_EVENT_TEXT,
        .choice = reply.choice,
        .text = reply.text,
        .text_bytes = strlen(reply.text),
        .num_tokens = reply.token >= 0,
        .tokens = &record,
        .top = &top,
        .num_top = reply.token >= 0,
        .finish = reply.finish,
        .stop_token = reply.stop_token,
        .stop_string = reply.stop_string,
        .num_generated = reply.num_generated,
        .num_cached_tokens = 1,
    };
    struct request *request = api_call_request(call, index);
    assert_int_equal(token_stream_push(&request->stream, &event), 0);
}

#define TEXT(...) ((struct reply){.stop_token = -1, .stop_string = -1, __VA_ARGS__})

static void read_request(struct api_call *call, int index, struct byte_buffer *out) {
    api_call_read(call, api_call_request(call, index), out);
}

static cJSON *parse_json(const char *data, size_t length) {
    const char *end;
    cJSON *json = cJSON_ParseWithLengthOpts(data, length, &end, false);
    if (json == NULL || end != data + length)
        fail_msg("not JSON: %.*s", (int)length, data);
    return json;
}

/* What the call's whole answer says, then the call is freed. */
static cJSON *take_answer(struct api_call *call, struct byte_buffer *out) {
    struct api_error err;
    assert_true(api_call_is_done(call));
    assert_false(api_call_error(call, &err));
    assert_false(out->failed);
    cJSON *json = parse_json(out->data, out->length);
    byte_buffer_finish(out);
    api_call_destroy(call);
    return json;
}

static const cJSON *get(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (item == NULL)
        fail_msg("no \"%s\"", name);
    return item;
}

static void assert_text(const cJSON *json, const char *name, const char *expected) {
    assert_string_equal(cJSON_GetStringValue(get(json, name)), expected);
}

static void assert_number(const cJSON *json, const char *name, double expected) {
    assert_true(cJSON_GetNumberValue(get(json, name)) == expected);
}

/* json's compact text against the expected one. */
static void assert_json(const cJSON *json, const char *expected) {
    char *text = cJSON_PrintUnformatted(json);
    assert_string_equal(text, expected);
    cJSON_free(text);
}

static const cJSON *choice_at(const cJSON *json, int index) {
    return cJSON_GetArrayItem(get(json, "choices"), index);
}

static void assert_head(const cJSON *json) {
    const char *id = cJSON_GetStringValue(get(json, "id"));
    assert_memory_equal(id, "cmpl-", 5);
    assert_int_equal(strlen(id), 5 + 32);
    assert_int_equal(strspn(id + 5, "0123456789abcdef"), 32);
    assert_text(json, "object", "text_completion");
    assert_text(json, "model", "m");
    assert_text(json, "system_fingerprint", "fp");
    assert_true(cJSON_GetNumberValue(get(json, "created")) > 1.6e9);
}

static void whole_answer_has_openais_shape(void **state) {
    struct api_call *call =
        parse_ok("{\"model\":\"alias\",\"prompt\":\"abc\",\"stop\":[\"no\",\"\xC3\xA9nd\"]}");
    assert_int_equal(api_call_num_requests(call), 1);
    assert_int_equal(api_call_request(call, 0)->num_prompt_tokens, 4); /* with bos */
    assert_null(api_call_ignored_params(call));
    struct byte_buffer out = {0};
    push(call, 0, TEXT(.text = " \"hi\"\n", .token = 'h', .num_generated = 1));
    read_request(call, 0, &out);
    assert_int_equal(out.length, 0);
    assert_false(api_call_is_done(call));
    struct reply last =
        TEXT(.text = "\xE2\x82\xAC", .token = 'x', .num_generated = 3, .finish = FINISH_STOP);
    last.stop_string = 1;
    push(call, 0, last);
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_head(json);
    assert_json(get(json, "choices"), "[{\"index\":0,\"text\":\" \\\"hi\\\"\\n\xE2\x82\xAC\","
                                      "\"logprobs\":null,\"finish_reason\":\"stop\","
                                      "\"stop_reason\":\"\xC3\xA9nd\","
                                      "\"prompt_logprobs\":null,\"token_ids\":null,"
                                      "\"prompt_token_ids\":null}]");
    assert_json(get(json, "usage"),
                "{\"prompt_tokens\":4,\"completion_tokens\":3,\"total_tokens\":7,"
                "\"prompt_tokens_details\":{\"cached_tokens\":1}}");
    cJSON_Delete(json);
}

static void stop_reason_tells_the_cause(void **state) {
    static const struct {
        struct reply reply;
        const char *finish_reason, *stop_reason;
    } cases[] = {
        {{.finish = FINISH_STOP, .stop_token = -1, .stop_string = -1}, "\"stop\"", "null"},
        {{.finish = FINISH_STOP, .stop_token = 258, .stop_string = -1}, "\"stop\"", "258"},
        {{.finish = FINISH_STOP, .stop_token = 0, .stop_string = -1}, "\"stop\"", "0"},
        {{.finish = FINISH_STOP, .stop_token = -1, .stop_string = 0}, "\"stop\"", "\"s\""},
        {{.finish = FINISH_LENGTH, .stop_token = -1, .stop_string = -1}, "\"length\"", "null"},
        {{.finish = FINISH_DEADLINE, .stop_token = -1, .stop_string = -1},
         "\"length\"",
         "\"deadline\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_call *call = parse_ok("{\"prompt\":\"abc\",\"stop\":\"s\"}");
        struct byte_buffer out = {0};
        struct reply reply = cases[i].reply;
        reply.text = "x";
        reply.token = 'x';
        push(call, 0, reply);
        read_request(call, 0, &out);
        cJSON *json = take_answer(call, &out);
        assert_json(get(choice_at(json, 0), "finish_reason"), cases[i].finish_reason);
        assert_json(get(choice_at(json, 0), "stop_reason"), cases[i].stop_reason);
        cJSON_Delete(json);
    }
}

static void choices_are_numbered_prompt_by_prompt(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":[\"ab\",[1,2,3]],\"n\":2}");
    struct byte_buffer out = {0};
    assert_int_equal(api_call_num_requests(call), 2);
    push(call, 1,
         TEXT(.choice = 1, .text = "D", .token = 'D', .num_generated = 1, .finish = FINISH_LENGTH));
    push(call, 1,
         TEXT(.choice = 0, .text = "C", .token = 'C', .num_generated = 2, .finish = FINISH_LENGTH));
    read_request(call, 1, &out);
    push(call, 0,
         TEXT(.choice = 1, .text = "B", .token = 'B', .num_generated = 3, .finish = FINISH_STOP));
    push(call, 0,
         TEXT(.choice = 0, .text = "A", .token = 'A', .num_generated = 4, .finish = FINISH_STOP));
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    static const char *const texts[] = {"A", "B", "C", "D"};
    assert_int_equal(cJSON_GetArraySize(get(json, "choices")), 4);
    for (int i = 0; i < 4; i++) {
        assert_number(choice_at(json, i), "index", i);
        assert_text(choice_at(json, i), "text", texts[i]);
    }
    assert_number(get(json, "usage"), "prompt_tokens", 6);
    assert_number(get(json, "usage"), "completion_tokens", 10);
    assert_number(get(get(json, "usage"), "prompt_tokens_details"), "cached_tokens", 2);
    cJSON_Delete(json);
}

static void best_of_answers_the_most_probable(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":\"ab\",\"n\":2,\"best_of\":3}");
    struct byte_buffer out = {0};
    static const float logprobs[] = {-0.5f, -2.0f, -0.25f};
    static const char *const texts[] = {"A", "B", "C"};
    assert_int_equal(api_call_request(call, 0)->params.num_choices, 3);
    assert_int_equal(api_call_request(call, 0)->params.num_logprobs, 0);
    for (int32_t i = 0; i < 3; i++) {
        struct token_record record = {.token = 'A' + i, .logprob = logprobs[i]};
        struct token_event event = {.kind = TOKEN_EVENT_TEXT,
                                    .choice = i,
                                    .text = texts[i],
                                    .text_bytes = 1,
                                    .num_tokens = 1,
                                    .tokens = &record,
                                    .finish = FINISH_LENGTH,
                                    .stop_token = -1,
                                    .stop_string = -1,
                                    .num_generated = 1};
        assert_int_equal(token_stream_push(&api_call_request(call, 0)->stream, &event), 0);
    }
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_int_equal(cJSON_GetArraySize(get(json, "choices")), 2);
    assert_text(choice_at(json, 0), "text", "C");
    assert_number(choice_at(json, 0), "index", 0);
    assert_json(get(choice_at(json, 0), "logprobs"), "null");
    assert_text(choice_at(json, 1), "text", "A");
    assert_number(choice_at(json, 1), "index", 1);
    assert_number(get(json, "usage"), "completion_tokens", 3);
    cJSON_Delete(json);
}

/* The engine has put them in their order. */
static void beams_are_answered_as_they_come(void **state) {
    struct api_call *call =
        parse_ok("{\"prompt\":\"ab\",\"n\":2,\"best_of\":3,\"use_beam_search\":true}");
    struct byte_buffer out = {0};
    assert_int_equal(api_call_request(call, 0)->params.num_choices, 2);
    push(call, 0, TEXT(.text = "A", .token = -1, .num_generated = 4, .finish = FINISH_LENGTH));
    push(call, 0,
         TEXT(.choice = 1, .text = "B", .token = -1, .num_generated = 3, .finish = FINISH_STOP));
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_int_equal(cJSON_GetArraySize(get(json, "choices")), 2);
    assert_text(choice_at(json, 0), "text", "A");
    assert_text(choice_at(json, 1), "text", "B");
    assert_number(get(json, "usage"), "completion_tokens", 7);
    cJSON_Delete(json);
}

static void a_salt_reaches_the_engine(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":[\"a\",\"b\"],\"cache_salt\":\"s\xC3\xA9\"}");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(api_call_request(call, i)->cache_salt_bytes, 3);
        assert_memory_equal(api_call_request(call, i)->cache_salt, "s\xC3\xA9", 3);
    }
    api_call_destroy(call);
    call = parse_ok("{\"prompt\":\"a\",\"cache_salt\":null}");
    assert_null(api_call_request(call, 0)->cache_salt);
    api_call_destroy(call);
}

static void a_salts_length_is_bounded(void **state) {
    static const int lengths[] = {0, 1, MAX_CACHE_SALT_BYTES, MAX_CACHE_SALT_BYTES + 1};
    for (int i = 0; i < 4; i++) {
        char body[400];
        struct api_call *call = NULL;
        struct api_error err = {0};
        int length = lengths[i];
        snprintf(body, sizeof(body), "{\"prompt\":\"a\",\"cache_salt\":\"%0*d\"}", length, 0);
        if (length == 0)
            strcpy(body, "{\"prompt\":\"a\",\"cache_salt\":\"\"}");
        int result = completion_endpoint_parse(&context, body, strlen(body), &call, &err);
        assert_int_equal(result, length == 1 || length == MAX_CACHE_SALT_BYTES ? 0 : -1);
        assert_string_equal(err.param, result == 0 ? "" : "cache_salt");
        api_call_destroy(call);
    }
}

static void tokens_and_prompt_scores_come_when_asked_for(void **state) {
    struct api_call *call =
        parse_ok("{\"prompt\":[97,98],\"prompt_logprobs\":1,\"return_token_ids\":true}");
    struct byte_buffer out = {0};
    assert_int_equal(api_call_request(call, 0)->params.num_prompt_logprobs, 1);
    struct token_record records[] = {
        {.token = 'a', .logprob = NAN},
        {.token = 'b', .logprob = -2.0f, .rank = 3, .num_top = 1},
    };
    struct top_logprob top = {.token = 'e', .logprob = -0.5f};
    struct token_event event = {.kind = TOKEN_EVENT_PROMPT,
                                .num_tokens = 2,
                                .tokens = records,
                                .top = &top,
                                .num_top = 1,
                                .stop_token = -1,
                                .stop_string = -1};
    assert_int_equal(token_stream_push(&api_call_request(call, 0)->stream, &event), 0);
    push(call, 0, TEXT(.text = "c", .token = 'c', .num_generated = 1, .finish = FINISH_LENGTH));
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_json(get(choice_at(json, 0), "prompt_logprobs"),
                "[null,{\"98\":{\"logprob\":-2,\"rank\":3,\"decoded_token\":\"b\"},"
                "\"101\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"e\"}}]");
    assert_json(get(choice_at(json, 0), "token_ids"), "[99]");
    assert_json(get(choice_at(json, 0), "prompt_token_ids"), "[97,98]");
    cJSON_Delete(json);
}

/* A stream's frames; a NULL entry stands for [DONE]. */
struct frames {
    int count;
    cJSON *json[MAX_FRAMES];
};

static struct frames split_frames(struct byte_buffer *out) {
    struct frames frames = {0};
    const char *at = out->data, *end = out->data + out->length;
    while (at < end) {
        assert_memory_equal(at, "data: ", 6);
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        assert_non_null(stop);
        assert_true(frames.count < MAX_FRAMES);
        size_t length = (size_t)(stop - at) - 6;
        bool is_done = length == 6 && memcmp(at + 6, "[DONE]", 6) == 0;
        frames.json[frames.count++] = is_done ? NULL : parse_json(at + 6, length);
        at = stop + 2;
    }
    byte_buffer_finish(out);
    return frames;
}

static void delete_frames(struct frames *frames) {
    for (int i = 0; i < frames->count; i++)
        cJSON_Delete(frames->json[i]);
}

static void stream_sends_deltas_finish_usage_and_done(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":\"abc\",\"stream\":true,"
                                     "\"stream_options\":{\"include_usage\":true}}");
    struct byte_buffer out = {0};
    assert_true(api_call_is_stream(call));
    push(call, 0, TEXT(.text = "Hel", .token = 'H', .num_generated = 1));
    push(call, 0, TEXT(.text = "", .token = 'x', .num_generated = 2)); /* held back: no chunk */
    read_request(call, 0, &out);
    push(call, 0, TEXT(.text = "lo", .token = 'l', .num_generated = 3));
    read_request(call, 0, &out);
    push(call, 0, TEXT(.text = "", .token = -1, .num_generated = 4, .finish = FINISH_STOP));
    read_request(call, 0, &out);
    assert_true(api_call_is_done(call));
    struct frames frames = split_frames(&out);
    assert_int_equal(frames.count, 5);
    assert_text(choice_at(frames.json[0], 0), "text", "Hel");
    assert_text(choice_at(frames.json[1], 0), "text", "lo");
    assert_json(get(choice_at(frames.json[1], 0), "finish_reason"), "null");
    assert_text(choice_at(frames.json[2], 0), "text", "");
    assert_text(choice_at(frames.json[2], 0), "finish_reason", "stop");
    for (int i = 0; i < 4; i++) {
        assert_head(frames.json[i]);
        assert_text(frames.json[i], "id", cJSON_GetStringValue(get(frames.json[0], "id")));
        if (i < 3)
            assert_true(cJSON_IsNull(get(frames.json[i], "usage")));
    }
    assert_json(get(frames.json[3], "choices"), "[]");
    assert_number(get(frames.json[3], "usage"), "completion_tokens", 4);
    assert_number(get(frames.json[3], "usage"), "total_tokens", 8);
    assert_null(frames.json[4]);
    delete_frames(&frames);
    api_call_destroy(call);
}

static void stream_without_usage_has_no_usage_key(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":\"abc\",\"stream\":true}");
    struct byte_buffer out = {0};
    push(call, 0, TEXT(.text = "x", .token = 'x', .num_generated = 1, .finish = FINISH_LENGTH));
    read_request(call, 0, &out);
    struct frames frames = split_frames(&out);
    assert_int_equal(frames.count, 2);
    assert_null(cJSON_GetObjectItemCaseSensitive(frames.json[0], "usage"));
    assert_text(choice_at(frames.json[0], 0), "text", "x");
    assert_text(choice_at(frames.json[0], 0), "finish_reason", "length");
    assert_null(frames.json[1]);
    delete_frames(&frames);
    api_call_destroy(call);
}

static void streams_of_several_prompts_interleave(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":[\"a\",\"b\"],\"stream\":true,\"echo\":true}");
    struct byte_buffer out = {0};
    push(call, 1, TEXT(.text = "1", .token = '1', .num_generated = 1));
    read_request(call, 1, &out);
    push(call, 0, TEXT(.text = "0", .token = '0', .num_generated = 1, .finish = FINISH_STOP));
    read_request(call, 0, &out);
    assert_false(api_call_is_done(call));
    push(call, 1, TEXT(.text = "2", .token = '2', .num_generated = 2, .finish = FINISH_LENGTH));
    read_request(call, 1, &out);
    assert_true(api_call_is_done(call));
    struct frames frames = split_frames(&out);
    assert_int_equal(frames.count, 4);
    static const int indexes[] = {1, 0, 1};
    static const char *const texts[] = {"b1", "a0", "2"}; /* the first chunk carries the prompt */
    for (int i = 0; i < 3; i++) {
        assert_number(choice_at(frames.json[i], 0), "index", indexes[i]);
        assert_text(choice_at(frames.json[i], 0), "text", texts[i]);
    }
    delete_frames(&frames);
    api_call_destroy(call);
}

static void engine_failures_become_errors(void **state) {
    static const struct {
        enum finish_reason finish;
        int status;
        const char *code;
    } cases[] = {{FINISH_ERROR, 503, "engine_error"},
                 {FINISH_ABORT, 503, "request_aborted"},
                 {FINISH_CRASHED, 500, "device_crashed"},
                 {FINISH_QUEUE_TIMEOUT, 503, "queue_timeout"},
                 {FINISH_ASLEEP, 503, "cannot_wake"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_error err = {0};
        struct byte_buffer out = {0};
        struct api_call *call = parse_ok("{\"prompt\":\"abc\",\"n\":2}");
        push(call, 0, TEXT(.text = "x", .token = 'x', .num_generated = 1));
        push(call, 0, TEXT(.text = "", .token = -1, .finish = cases[i].finish));
        push(call, 0, TEXT(.choice = 1, .text = "y", .token = 'y', .finish = FINISH_STOP));
        read_request(call, 0, &out);
        assert_true(api_call_is_done(call));
        assert_true(api_call_error(call, &err));
        assert_int_equal(err.status, cases[i].status);
        assert_int_equal(out.length, 0);
        api_call_destroy(call);

        call = parse_ok("{\"prompt\":\"abc\",\"n\":2,\"stream\":true}");
        push(call, 0, TEXT(.text = "x", .token = 'x', .num_generated = 1));
        push(call, 0, TEXT(.text = "", .token = -1, .finish = cases[i].finish));
        push(call, 0, TEXT(.choice = 1, .text = "y", .token = 'y', .finish = FINISH_STOP));
        read_request(call, 0, &out);
        read_request(call, 0, &out);
        assert_true(api_call_is_done(call));
        assert_true(api_call_error(call, &err));
        assert_string_equal(err.code, cases[i].code);
        struct frames frames = split_frames(&out);
        assert_int_equal(frames.count, 3);
        assert_text(get(frames.json[1], "error"), "code", cases[i].code);
        assert_null(frames.json[2]);
        delete_frames(&frames);
        api_call_destroy(call);
    }
}

static void a_stream_without_a_token_fails_with_an_event(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":\"abc\",\"stream\":true}");
    struct byte_buffer out = {0};
    struct api_error err = {0};
    api_call_begin_stream(call, &out);
    assert_int_equal(out.length, 0);
    push(call, 0, TEXT(.text = "", .token = -1, .finish = FINISH_QUEUE_TIMEOUT));
    read_request(call, 0, &out);
    assert_true(api_call_is_done(call));
    assert_true(api_call_error(call, &err));
    assert_int_equal(err.status, 503);
    struct frames frames = split_frames(&out);
    assert_int_equal(frames.count, 2);
    assert_text(get(frames.json[0], "error"), "code", "queue_timeout");
    assert_null(frames.json[1]);
    delete_frames(&frames);
    api_call_destroy(call);
}

/* Scores "abc" (with a bos in front): prompt records as the engine gives them, split at `split`. */
static void push_prompt(struct api_call *call, int split) {
    struct token_record records[4] = {
        {.token = FAKE_BOS, .logprob = NAN},
        {.token = 'a', .logprob = -0.25f, .first_top = 0, .num_top = 2},
        {.token = 'b', .logprob = -1.5f, .first_top = 2, .num_top = 2},
        {.token = 'c', .logprob = -INFINITY, .first_top = 4, .num_top = 2},
    };
    struct top_logprob top[6] = {{'a', -0.25f}, {'x', -2.0f}, {'y', -0.5f},
                                 {'z', -1.0f},  {'y', -0.5f}, {'z', -1.0f}};
    int first_top = split <= 1 ? 0 : 2 * (split - 1);
    for (int i = split; i < 4; i++)
        records[i].first_top -= records[i].num_top > 0 ? first_top : 0;
    struct token_event first = {.kind = TOKEN_EVENT_PROMPT,
                                .num_tokens = split,
                                .tokens = records,
                                .top = top,
                                .num_top = first_top,
                                .stop_token = -1,
                                .stop_string = -1};
    struct token_event second = first;
    second.num_tokens = 4 - split;
    second.tokens = records + split;
    second.top = top + first_top;
    second.num_top = 6 - first_top;
    struct request *request = api_call_request(call, 0);
    if (split > 0)
        assert_int_equal(token_stream_push(&request->stream, &first), 0);
    if (split < 4)
        assert_int_equal(token_stream_push(&request->stream, &second), 0);
}

#define SCORED_PROMPT                                                                              \
    "\"text_offset\":[0,0,1,2],\"token_logprobs\":[null,-0.25,-1.5,-9999],"                        \
    "\"tokens\":[\"<s>\",\"a\",\"b\",\"c\"],"                                                      \
    "\"top_logprobs\":[null,{\"a\":-0.25,\"x\":-2},{\"b\":-1.5,\"y\":-0.5,\"z\":-1},"              \
    "{\"c\":-9999,\"y\":-0.5,\"z\":-1}]"

static void echo_with_no_output_scores_the_prompt(void **state) {
    for (int split = 0; split <= 4; split++) {
        struct api_call *call =
            parse_ok("{\"prompt\":\"abc\",\"echo\":true,\"max_tokens\":0,\"logprobs\":2}");
        struct request *request = api_call_request(call, 0);
        assert_int_equal(request->params.max_tokens, 0);
        assert_int_equal(request->params.num_prompt_logprobs, 2);
        struct byte_buffer out = {0};
        push_prompt(call, split);
        if (split % 2 == 1)
            read_request(call, 0, &out);
        push(call, 0, TEXT(.text = "", .token = -1, .finish = FINISH_LENGTH));
        read_request(call, 0, &out);
        cJSON *json = take_answer(call, &out);
        assert_text(choice_at(json, 0), "text", "abc");
        assert_text(choice_at(json, 0), "finish_reason", "length");
        assert_json(get(choice_at(json, 0), "logprobs"), "{" SCORED_PROMPT "}");
        assert_number(get(json, "usage"), "completion_tokens", 0);
        cJSON_Delete(json);
    }
}

/* lm-evaluation-harness: token ids, one token of output, which it drops. */
static void echo_puts_the_prompt_before_the_output(void **state) {
    struct api_call *call =
        parse_ok("{\"model\":\"m\",\"prompt\":[256,97,98,99],\"temperature\":0,\"max_tokens\":1,"
                 "\"logprobs\":2,\"seed\":1234,\"echo\":true}");
    struct byte_buffer out = {0};
    push_prompt(call, 4);
    push(call, 0,
         TEXT(.text = "hello", .token = FAKE_HELLO, .num_generated = 1, .finish = FINISH_LENGTH));
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_text(choice_at(json, 0), "text", "<s>abchello");
    const cJSON *logprobs = get(choice_at(json, 0), "logprobs");
    assert_json(get(logprobs, "token_logprobs"), "[null,-0.25,-1.5,-9999,-0.5]");
    assert_json(get(logprobs, "tokens"), "[\"<s>\",\"a\",\"b\",\"c\",\"hello\"]");
    assert_json(get(logprobs, "text_offset"), "[0,3,4,5,6]"); /* the given bos is in the text */
    assert_int_equal(cJSON_GetArraySize(get(logprobs, "top_logprobs")), 5);
    cJSON_Delete(json);
}

static void check_tokens(api_call_parse *parse, const char *body, const int32_t *expected,
                         int32_t count) {
    struct api_call *call = parse_ok_by(parse, body);
    const struct request *request = api_call_request(call, 0);
    assert_int_equal(request->num_prompt_tokens, count);
    assert_memory_equal(request->prompt, expected, (size_t)count * sizeof(*expected));
    api_call_destroy(call);
}

#define CHECK_TOKENS_BY(parse, body, ...)                                                          \
    check_tokens(parse, body, (const int32_t[]){__VA_ARGS__},                                      \
                 (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))
#define CHECK_TOKENS(body, ...) CHECK_TOKENS_BY(completion_endpoint_parse, body, __VA_ARGS__)
#define CHECK_INFILL(body, ...) CHECK_TOKENS_BY(completion_endpoint_parse_infill, body, __VA_ARGS__)
#define INFILL(more) "{\"input_prefix\":\"ab\",\"input_suffix\":\"c\"" more "}"

static void a_suffix_stands_between_its_marks(void **state) {
    CHECK_TOKENS("{\"prompt\":\"ab\",\"suffix\":\"c\"}", FAKE_BOS, FAKE_FIM_PREFIX, 'a', 'b',
                 FAKE_FIM_SUFFIX, 'c', FAKE_FIM_MIDDLE);
    CHECK_TOKENS("{\"prompt\":[7,8],\"suffix\":\"c\"}", FAKE_FIM_PREFIX, 7, 8, FAKE_FIM_SUFFIX, 'c',
                 FAKE_FIM_MIDDLE);
    CHECK_TOKENS("{\"prompt\":\"\",\"suffix\":\"<s>\",\"add_special_tokens\":false}",
                 FAKE_FIM_PREFIX, FAKE_FIM_SUFFIX, '<', 's', '>', FAKE_FIM_MIDDLE);
    CHECK_TOKENS("{\"prompt\":\"\",\"suffix\":\"<s>\",\"parse_special\":true}", FAKE_BOS,
                 FAKE_FIM_PREFIX, FAKE_FIM_SUFFIX, FAKE_BOS, FAKE_FIM_MIDDLE);
    CHECK_TOKENS("{\"prompt\":\"<s>\",\"suffix\":\"\"}", FAKE_BOS, FAKE_BOS);
}

/* Of eight tokens four are marks and the first one. */
static void a_truncation_keeps_what_is_around_the_gap(void **state) {
    CHECK_TOKENS("{\"prompt\":\"abcdef\",\"suffix\":\"ghijkl\",\"truncate_prompt_tokens\":8}",
                 FAKE_BOS, FAKE_FIM_PREFIX, 'd', 'e', 'f', FAKE_FIM_SUFFIX, 'g', FAKE_FIM_MIDDLE);
    CHECK_TOKENS("{\"prompt\":\"a\",\"suffix\":\"ghijkl\",\"truncate_prompt_tokens\":8}", FAKE_BOS,
                 FAKE_FIM_PREFIX, 'a', FAKE_FIM_SUFFIX, 'g', 'h', 'i', FAKE_FIM_MIDDLE);
    CHECK_TOKENS("{\"prompt\":\"abcdef\",\"suffix\":\"g\",\"truncate_prompt_tokens\":4}", FAKE_BOS,
                 FAKE_FIM_PREFIX, FAKE_FIM_SUFFIX, FAKE_FIM_MIDDLE);
}

#define PROJECT 'm', 'y', 'p', 'r', 'o', 'j', 'e', 'c', 't', '\n'
#define FILENAME FAKE_FIM_FILE, 'f', 'i', 'l', 'e', 'n', 'a', 'm', 'e', '\n'
#define GAP FAKE_FIM_PREFIX, 'a', 'b', FAKE_FIM_SUFFIX, 'c', FAKE_FIM_MIDDLE

static void an_infill_stands_in_a_repository(void **state) {
    CHECK_INFILL(INFILL(""), FAKE_BOS, FAKE_FIM_REPO, PROJECT, FILENAME, GAP);
    CHECK_INFILL(
        INFILL(",\"prompt\":\"xy\",\"input_extra\":[{\"text\":\"t\",\"filename\":\"n\"},{\"text\":"
               "\"\"}]"),
        FAKE_BOS, FAKE_FIM_REPO, PROJECT, FAKE_FIM_FILE, 'n', '\n', 't', FAKE_FIM_FILE, 't', 'm',
        'p', '\n', FILENAME, FAKE_FIM_PREFIX, 'a', 'b', 'x', 'y', FAKE_FIM_SUFFIX, 'c',
        FAKE_FIM_MIDDLE);
    CHECK_INFILL(INFILL(",\"truncate_prompt_tokens\":10"), FAKE_BOS, 'm', 'e', '\n', GAP);
    CHECK_INFILL(INFILL(",\"truncate_prompt_tokens\":6,\"prompt\":\"x\""), FAKE_BOS,
                 FAKE_FIM_PREFIX, 'b', 'x', FAKE_FIM_SUFFIX, FAKE_FIM_MIDDLE);
}

static void the_output_of_an_infill_has_bounds(void **state) {
    static const struct {
        const char *body;
        int32_t max_tokens;
    } cases[] = {{INFILL(",\"n_predict\":3"), 3},
                 {INFILL(",\"n_predict\":0"), 0},
                 {INFILL(",\"n_predict\":-1"), 64 - 28},
                 {INFILL(""), 64 - 28},
                 {INFILL(",\"n_predict\":1000"), 64 - 28}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_call *call = parse_ok_by(completion_endpoint_parse_infill, cases[i].body);
        const struct request *request = api_call_request(call, 0);
        assert_int_equal(request->params.max_tokens, cases[i].max_tokens);
        assert_int_equal(request->params.num_stop_tokens, 2);
        assert_int_equal(request->params.stop_tokens[0], FAKE_FIM_REPO);
        assert_int_equal(request->params.stop_tokens[1], FAKE_FIM_FILE);
        api_call_destroy(call);
    }
}

/* Of 64 tokens as many are left as are to be predicted, and a quarter at most. */
static void long_files_leave_an_infill_room(void **state) {
#define LONG INFILL("%s,\"input_extra\":[{\"text\":\"%064d\"},{\"text\":\"%064d\"}]")
    static const char *const lengths[] = {",\"n_predict\":3", ",\"n_predict\":0",
                                          ",\"n_predict\":50", ""};
    static const int32_t prompts[] = {64 - 3, 64, 64 - 16, 64 - 16};
    for (int i = 0; i < 4; i++) {
        char body[512];
        snprintf(body, sizeof(body), LONG, lengths[i], 0, 0);
        struct api_call *call = parse_ok_by(completion_endpoint_parse_infill, body);
        assert_int_equal(api_call_request(call, 0)->num_prompt_tokens, prompts[i]);
        api_call_destroy(call);
    }
#undef LONG
}

static void what_ends_a_gap_is_asked_for_there_only(void **state) {
    static const char *const bodies[] = {
        "{\"prompt\":\"a\",\"suffix\":\"b\",\"stop_token_ids\":[265]}",
        "{\"prompt\":\"a\",\"suffix\":\"b\",\"ignore_eos\":true}", "{\"prompt\":\"a\"}"};
    static const int32_t counts[] = {2, 0, 0};
    for (int i = 0; i < 3; i++) {
        struct api_call *call = parse_ok(bodies[i]);
        assert_int_equal(api_call_request(call, 0)->params.num_stop_tokens, counts[i]);
        api_call_destroy(call);
    }
}

static void without_marks_a_suffix_is_refused(void **state) {
    static const char body[] = "{\"prompt\":\"a\",\"suffix\":\"b\"}";
    struct api_context other = context;
    struct api_call *call = NULL;
    struct api_error err = {0};
    other.tokenizer = FAKE_WITHOUT_FIM;
    assert_int_equal(completion_endpoint_parse(&other, body, strlen(body), &call, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "suffix");
}

/* Control tokens of the given text are part of it, that which was added in front is not. */
static void echo_counts_control_tokens_of_the_text(void **state) {
    static const int32_t tokens[] = {FAKE_BOS, 'a', FAKE_BOS, 'b', FAKE_EOS};
    struct api_call *call =
        parse_ok("{\"prompt\":\"a<s>b</s>\",\"echo\":true,\"max_tokens\":1,\"logprobs\":0}");
    struct request *request = api_call_request(call, 0);
    assert_int_equal(request->num_prompt_tokens, 5);
    assert_memory_equal(request->prompt, tokens, sizeof(tokens));
    struct token_record records[5];
    for (int i = 0; i < 5; i++)
        records[i] = (struct token_record){.token = tokens[i], .logprob = -1};
    for (int i = 0; i < 5; i += i == 0 ? 2 : 3) {
        const struct token_event event = {
            .kind = TOKEN_EVENT_PROMPT, .tokens = records + i, .num_tokens = i == 0 ? 2 : 3};
        assert_int_equal(token_stream_push(&request->stream, &event), 0);
    }
    struct byte_buffer out = {0};
    push(call, 0, TEXT(.text = "Y", .token = 'Y', .num_generated = 1, .finish = FINISH_LENGTH));
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_text(choice_at(json, 0), "text", "a<s>b</s>Y");
    assert_json(get(get(choice_at(json, 0), "logprobs"), "text_offset"), "[0,0,1,4,5,9]");
    cJSON_Delete(json);
}

static void echo_repeats_the_prompt_in_every_choice(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":\"abc\",\"echo\":true,\"n\":2,\"logprobs\":2}");
    struct byte_buffer out = {0};
    push_prompt(call, 2);
    push(call, 0, TEXT(.choice = 1, .text = "Z", .token = 'Z', .finish = FINISH_LENGTH));
    push(call, 0, TEXT(.choice = 0, .text = "Y", .token = 'Y', .finish = FINISH_LENGTH));
    read_request(call, 0, &out);
    cJSON *json = take_answer(call, &out);
    assert_text(choice_at(json, 0), "text", "abcY");
    assert_text(choice_at(json, 1), "text", "abcZ");
    for (int i = 0; i < 2; i++)
        assert_json(get(get(choice_at(json, i), "logprobs"), "token_logprobs"),
                    "[null,-0.25,-1.5,-9999,-0.5]");
    cJSON_Delete(json);
}

static void streamed_echo_and_logprobs_add_up(void **state) {
    struct api_call *call =
        parse_ok("{\"prompt\":\"abc\",\"echo\":true,\"stream\":true,\"logprobs\":2}");
    struct byte_buffer out = {0};
    push_prompt(call, 3);
    read_request(call, 0, &out);
    assert_int_equal(out.length, 0); /* nothing before the first output */
    push(call, 0, TEXT(.text = "hello", .token = FAKE_HELLO, .num_generated = 1));
    read_request(call, 0, &out);
    push(call, 0, TEXT(.text = "", .token = FAKE_WORLD, .num_generated = 2));
    read_request(call, 0, &out);
    push(call, 0,
         TEXT(.text = " world", .token = FAKE_EOS, .num_generated = 3, .finish = FINISH_STOP));
    read_request(call, 0, &out);
    struct frames frames = split_frames(&out);
    assert_int_equal(frames.count, 4);
    assert_text(choice_at(frames.json[0], 0), "text", "abchello");
    assert_json(get(get(choice_at(frames.json[0], 0), "logprobs"), "tokens"),
                "[\"<s>\",\"a\",\"b\",\"c\",\"hello\"]");
    assert_json(get(choice_at(frames.json[1], 0), "logprobs"),
                "{\"text_offset\":[8],\"token_logprobs\":[-0.5],\"tokens\":[\" world\"],"
                "\"top_logprobs\":[{\" world\":-0.5}]}");
    assert_json(get(get(choice_at(frames.json[2], 0), "logprobs"), "text_offset"), "[14]");
    delete_frames(&frames);
    api_call_destroy(call);
}

static void ignored_params_are_named(void **state) {
    struct api_call *call = parse_ok("{\"prompt\":\"a\",\"foo\":1,\"guided_pig\":{}}");
    assert_string_equal(api_call_ignored_params(call), "foo,guided_pig");
    api_call_destroy(call);
}

static uint64_t seed_of(const char *body, int index) {
    struct api_call *call = parse_ok(body);
    uint64_t seed = api_call_request(call, index)->params.seed;
    api_call_destroy(call);
    return seed;
}

static void seeds_are_kept_or_made(void **state) {
    assert_int_equal(seed_of("{\"prompt\":\"a\",\"seed\":5}", 0), 5);
    assert_int_equal(seed_of("{\"prompt\":[\"b\",\"a\"],\"seed\":5}", 1), 5);
    assert_int_equal(seed_of("{\"prompt\":\"a\",\"seed\":-1}", 0), UINT64_MAX);
    assert_int_equal(seed_of("{\"prompt\":\"a\",\"seed\":9007199254740993}", 0),
                     UINT64_C(9007199254740993));
    assert_int_equal(seed_of("{\"prompt\":\"a\",\"seed\":9223372036854775807}", 0),
                     (uint64_t)INT64_MAX);
    assert_int_equal(seed_of("{\"prompt\":\"a\",\"seed\":-9223372036854775808}", 0),
                     (uint64_t)INT64_MIN);
    uint64_t first = seed_of("{\"prompt\":\"a\"}", 0), second = seed_of("{\"prompt\":\"a\"}", 0);
    assert_int_not_equal(first, second);
}

static void ids_differ_between_calls(void **state) {
    char ids[2][64];
    for (int i = 0; i < 2; i++) {
        struct api_call *call = parse_ok("{\"prompt\":\"a\"}");
        struct byte_buffer out = {0};
        push(call, 0, TEXT(.text = "", .token = -1, .finish = FINISH_STOP));
        read_request(call, 0, &out);
        cJSON *json = take_answer(call, &out);
        snprintf(ids[i], sizeof(ids[i]), "%s", cJSON_GetStringValue(get(json, "id")));
        cJSON_Delete(json);
    }
    assert_string_not_equal(ids[0], ids[1]);
}

/* Body with num_prompts prompts of num_bytes letters each; the fake tokenizer makes each a token.
 */
static int parse_letters(const struct api_context *wide, int num_prompts, int num_bytes,
                         const char *fields, struct api_error *err) {
    struct byte_buffer body = {0};
    byte_buffer_append_text(&body, "{\"prompt\":[");
    for (int i = 0; i < num_prompts; i++)
        byte_buffer_printf(&body, "%s\"%0*d\"", i > 0 ? "," : "", num_bytes, 0);
    byte_buffer_printf(&body, "]%s}", fields);
    struct api_call *call = NULL;
    int result = completion_endpoint_parse(wide, body.data, body.length, &call, err);
    byte_buffer_finish(&body);
    api_call_destroy(call);
    return result;
}

static void prompts_that_could_never_be_queued_together_are_refused(void **state) {
    (void)state;
    struct api_error err = {0};
    assert_int_equal(parse_letters(&context, 2, 40, "", &err), 0);
    assert_int_equal(parse_letters(&context, 3, 40, "", &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "prompt");
    assert_non_null(strstr(err.message, "100 tokens"));
    struct api_context narrow = context;
    narrow.max_prompt_tokens = 10;
    assert_int_equal(parse_letters(&narrow, 1, 40, "", &err), 0);
}

static void logprobs_of_one_call_are_bounded(void **state) {
    (void)state;
    struct api_error err = {0};
    struct api_context wide = context;
    struct serving_limits long_limits = *context.limits;
    long_limits.max_model_len = 32768;
    wide.limits = &long_limits;
    wide.max_prompt_tokens = 100000;
    const char *output = ",\"n\":16,\"max_tokens\":32000,\"logprobs\":20";
    const char *echo = ",\"n\":16,\"max_tokens\":0,\"echo\":true,\"logprobs\":20";
    assert_int_equal(parse_letters(&wide, 1, 1, ",\"n\":16,\"max_tokens\":32000", &err), 0);
    assert_int_equal(
        parse_letters(&wide, 1, 1, ",\"n\":16,\"max_tokens\":32000,\"logprobs\":5", &err), 0);
    assert_int_equal(parse_letters(&wide, 1, 1, output, &err), -1);
    assert_string_equal(err.param, "logprobs");
    assert_int_equal(parse_letters(&wide, 1, 10000, echo, &err), 0);
    assert_int_equal(parse_letters(&wide, 1, 30000, echo, &err), -1);
    assert_string_equal(err.param, "logprobs");
    assert_int_equal(err.status, 400);
}

static void failed_parse_leaves_nothing(void **state) {
    static const char *const bodies[] = {
        "{\"prompt\":[\"a\",[1,300]],\"foo\":1,\"echo\":true}",
        "{\"prompt\":\"a\",\"n\":0}",
        "{\"prompt\":\"a\"",
        "",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct api_call *call = NULL;
        struct api_error err = {0};
        assert_int_equal(
            completion_endpoint_parse(&context, bodies[i], strlen(bodies[i]), &call, &err), -1);
        assert_null(call);
        assert_int_equal(err.status, 400);
    }
    api_call_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answer_has_openais_shape),
        cmocka_unit_test(a_suffix_stands_between_its_marks),
        cmocka_unit_test(a_truncation_keeps_what_is_around_the_gap),
        cmocka_unit_test(an_infill_stands_in_a_repository),
        cmocka_unit_test(the_output_of_an_infill_has_bounds),
        cmocka_unit_test(long_files_leave_an_infill_room),
        cmocka_unit_test(what_ends_a_gap_is_asked_for_there_only),
        cmocka_unit_test(without_marks_a_suffix_is_refused),
        cmocka_unit_test(stop_reason_tells_the_cause),
        cmocka_unit_test(choices_are_numbered_prompt_by_prompt),
        cmocka_unit_test(best_of_answers_the_most_probable),
        cmocka_unit_test(beams_are_answered_as_they_come),
        cmocka_unit_test(a_salt_reaches_the_engine),
        cmocka_unit_test(a_salts_length_is_bounded),
        cmocka_unit_test(tokens_and_prompt_scores_come_when_asked_for),
        cmocka_unit_test(stream_sends_deltas_finish_usage_and_done),
        cmocka_unit_test(stream_without_usage_has_no_usage_key),
        cmocka_unit_test(streams_of_several_prompts_interleave),
        cmocka_unit_test(engine_failures_become_errors),
        cmocka_unit_test(a_stream_without_a_token_fails_with_an_event),
        cmocka_unit_test(echo_with_no_output_scores_the_prompt),
        cmocka_unit_test(echo_puts_the_prompt_before_the_output),
        cmocka_unit_test(echo_counts_control_tokens_of_the_text),
        cmocka_unit_test(echo_repeats_the_prompt_in_every_choice),
        cmocka_unit_test(streamed_echo_and_logprobs_add_up),
        cmocka_unit_test(ignored_params_are_named),
        cmocka_unit_test(seeds_are_kept_or_made),
        cmocka_unit_test(ids_differ_between_calls),
        cmocka_unit_test(prompts_that_could_never_be_queued_together_are_refused),
        cmocka_unit_test(logprobs_of_one_call_are_bounded),
        cmocka_unit_test(failed_parse_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
