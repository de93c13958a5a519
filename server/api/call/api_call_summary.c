#include "server/api/call/api_call_summary.h"

#include "server/api/call/api_call_type.h"

static const char *finish_word(const struct api_call *call) {
    if (call->has_error)
        return "error";
    switch (call->choices[0].finish.reason) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
    case FINISH_DEADLINE:
        return "length";
    default:
        return "abort";
    }
}

static struct text stop_text(const struct api_call_finish *finish) {
    static const struct text deadline = {.data = "deadline", .length = sizeof("deadline") - 1};
    return finish->reason == FINISH_DEADLINE ? deadline : finish->stop_string;
}

struct api_call_summary api_call_summary_of(const struct api_call *call) {
    const struct api_call_usage usage = api_call_total_usage(call);
    const struct api_call_finish *finish = &call->choices[0].finish;
    const struct request *request = call->prompts[0].request;
    return (struct api_call_summary){
        .id = call->head.id,
        .model = call->head.model,
        .is_stream = call->is_stream,
        .num_choices = call->num_prompts * call->num_choices,
        .prompt_tokens = usage.prompt_tokens,
        .cached_tokens = usage.cached_tokens,
        .completion_tokens = usage.completion_tokens,
        .finish_reason = finish_word(call),
        .stop_text = stop_text(finish),
        .stop_token = finish->reason == FINISH_STOP ? finish->stop_token : -1,
        .error_code = call->has_error ? call->error.code : NULL,
        .params = &request->params,
        .arrival_ns = request->arrival_ns,
        .scheduled_ns = atomic_load(&request->times.scheduled_ns),
        .first_token_ns = atomic_load(&request->times.first_token_ns),
        .last_token_ns = atomic_load(&request->times.last_token_ns),
    };
}
