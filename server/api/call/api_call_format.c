#include "server/api/call/api_call_format.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void api_call_format_begin(const struct api_call_head *head, const char *object,
                           struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "id", head->id);
    json_write_text_member(out, "object", object);
    json_write_int_member(out, "created", head->created);
    json_write_text_member(out, "model", head->model);
    json_write_key(out, "choices");
    json_write_begin_array(out);
}

void api_call_format_end_choices(const struct api_call_head *head, struct byte_buffer *out) {
    json_write_end_array(out);
    json_write_text_member(out, "system_fingerprint", head->system_fingerprint);
}

static const char *reason_word(const struct api_call_finish *finish, const char *instead) {
    switch (finish->reason) {
    case FINISH_STOP:
        return instead != NULL ? instead : "stop";
    case FINISH_LENGTH:
    case FINISH_DEADLINE: /* OpenAI has no finish reason for it, and clients check the reason */
        return "length";
    default:
        return NULL;
    }
}

void api_call_format_finish(const struct api_call_finish *finish, const char *reason,
                            struct byte_buffer *out) {
    json_write_text_member(out, "finish_reason", reason_word(finish, reason));
    json_write_key(out, "stop_reason");
    if (finish->reason == FINISH_STOP && finish->stop_string.data != NULL)
        json_write_string(out, finish->stop_string.data, finish->stop_string.length);
    else if (finish->reason == FINISH_STOP && finish->stop_token >= 0)
        json_write_int(out, finish->stop_token);
    else if (finish->reason == FINISH_DEADLINE)
        json_write_string(out, "deadline", strlen("deadline"));
    else
        json_write_null(out);
}

void api_call_format_usage(const struct api_call_usage *usage, struct byte_buffer *out) {
    json_write_key(out, "usage");
    if (usage == NULL) {
        json_write_null(out);
        return;
    }
    json_write_begin_object(out);
    json_write_int_member(out, "prompt_tokens", usage->prompt_tokens);
    json_write_int_member(out, "completion_tokens", usage->completion_tokens);
    json_write_int_member(out, "total_tokens", usage->prompt_tokens + usage->completion_tokens);
    json_write_key(out, "prompt_tokens_details");
    json_write_begin_object(out);
    json_write_int_member(out, "cached_tokens", usage->cached_tokens);
    json_write_end_object(out);
    if (usage->reasoning_tokens > 0) {
        json_write_key(out, "completion_tokens_details");
        json_write_begin_object(out);
        json_write_int_member(out, "reasoning_tokens", usage->reasoning_tokens);
        json_write_end_object(out);
    }
    json_write_end_object(out);
}

/* Returns the earlier of two times. 0 in time_ns: not yet. */
static int64_t min_time(int64_t least, int64_t time_ns) {
    return time_ns != 0 && time_ns < least ? time_ns : least;
}

/* Writes how many tokens took this time: PREFIX_n, PREFIX_ms and the rates. */
static void write_rate(const char *prefix, int64_t num_tokens, int64_t time_ns,
                       struct byte_buffer *out) {
    static const char *const names[] = {"n", "ms", "per_token_ms", "per_second"};
    double ms = (double)(time_ns > 0 ? time_ns : 0) / CLOCK_NS_PER_MS;
    const double values[] = {(double)num_tokens, ms, num_tokens > 0 ? ms / (double)num_tokens : 0,
                             ms > 0 ? (double)num_tokens * 1e3 / ms : 0};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s_%s", prefix, names[i]);
        json_write_key(out, name);
        if (i == 0)
            json_write_int(out, num_tokens);
        else
            json_write_float(out, (float)values[i]);
    }
}

void api_call_format_transfer(const struct api_call *call, struct byte_buffer *out) {
    int32_t most = 0;
    for (int32_t i = 0; i < call->num_prompts; i++)
        most = max_int32(most, call->prompts[i].num_stored_tokens);
    if (call->handed_over_to != NULL)
        kv_transfer_format(call->handed_over_to, most, out);
}

void api_call_format_timings(const struct api_call *call, int32_t first_choice, int32_t num_choices,
                             struct byte_buffer *out) {
    int32_t first = first_choice / call->num_choices,
            last = (first_choice + num_choices - 1) / call->num_choices;
    int64_t begin = INT64_MAX, token = INT64_MAX, end = 0, cached = 0, prompt = 0, predicted = 0;
    for (int32_t i = first; i <= last; i++) {
        struct request *request = call->prompts[i].request;
        begin = min_time(begin, atomic_load(&request->times.scheduled_ns));
        token = min_time(token, atomic_load(&request->times.first_token_ns));
        int64_t latest = atomic_load(&request->times.last_token_ns);
        end = latest > end ? latest : end;
        cached += call->prompts[i].num_cached_tokens;
        prompt += request->num_prompt_tokens;
    }
    for (int32_t i = 0; i < num_choices; i++)
        predicted += call->choices[first_choice + i].num_generated;
    token = token == INT64_MAX ? begin : token;
    json_write_key(out, "timings");
    json_write_begin_object(out);
    json_write_int_member(out, "cache_n", cached);
    write_rate("prompt", prompt - cached, token - begin, out);
    write_rate("predicted", predicted, end - token, out);
    json_write_end_object(out);
}

void api_call_format_progress(const struct api_call *call, int32_t prompt,
                              const struct token_event *event, struct byte_buffer *out) {
    const struct request *request = call->prompts[prompt].request;
    int64_t begin_ns = atomic_load(&request->times.scheduled_ns);
    json_write_key(out, "prompt_progress");
    json_write_begin_object(out);
    json_write_int_member(out, "total", request->num_prompt_tokens);
    json_write_int_member(out, "cache", event->num_cached_tokens);
    json_write_int_member(out, "processed", event->num_computed);
    json_write_int_member(out, "time_ms", (clock_now_ns() - begin_ns) / CLOCK_NS_PER_MS);
    json_write_end_object(out);
}

void api_call_format_arguments(const struct byte_buffer *text, struct byte_buffer *out) {
    struct api_error err;
    cJSON *arguments = json_parse_written(text->data, text->length, &err);
    if (cJSON_IsObject(arguments))
        json_write_tree_as_sent(out, arguments);
    else
        json_write_raw(out, "{}");
    cJSON_Delete(arguments);
}

void api_call_add_token_ids(const struct token_record *tokens, int32_t num_tokens,
                            struct byte_buffer *items) {
    for (int32_t i = 0; i < num_tokens; i++)
        json_write_int(items, tokens[i].token);
}

void api_call_add_prompt_ids(const struct request *request, struct byte_buffer *items) {
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        json_write_int(items, request->prompt[i]);
}
