#include "server/api/call/api_call.h"

#include "config/base/check.h"
#include "server/api/call/api_call_type.h"
#include "server/api/call/conversation_slots.h"

#include <stdlib.h>

void api_call_destroy(struct api_call *call) {
    if (call == NULL)
        return;
    call->operations->finish(call);
    for (int32_t i = 0; call->prompts != NULL && i < call->num_prompts; i++)
        request_unref(call->prompts[i].request);
    free(call->prompts);
    free(call->choices);
    free(call->ranks);
    byte_buffer_finish(&call->ignored);
    byte_buffer_finish(&call->slot_tokens);
    token_buffer_finish(&call->events);
    free(call);
}

bool api_call_is_stream(const struct api_call *call) {
    return call->is_stream;
}

const char *api_call_ignored_params(const struct api_call *call) {
    return call->ignored.data;
}

int api_call_num_requests(const struct api_call *call) {
    return call->num_prompts;
}

struct request *api_call_request(struct api_call *call, int index) {
    CHECK(index >= 0 && index < call->num_prompts);
    return call->prompts[index].request;
}

int64_t api_call_num_prompt_tokens(const struct api_call *call) {
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < call->num_prompts; i++)
        num_tokens += call->prompts[i].request->num_prompt_tokens;
    return num_tokens;
}

int64_t api_call_timeout_ms(const struct api_call *call) {
    return call->timeout_ms;
}

int64_t api_call_num_generated(const struct api_call *call) {
    return call->num_generated;
}

bool api_call_is_done(const struct api_call *call) {
    return call->is_done;
}

bool api_call_error(const struct api_call *call, struct api_error *err) {
    if (call->has_error)
        *err = call->error;
    return call->has_error;
}

/* Ends the whole call with call->error, as the last event of a stream or as the answer. */
static void end_with_error(struct api_call *call, struct byte_buffer *out) {
    call->is_done = true;
    call->has_error = true;
    if (call->is_stream || call->is_background)
        call->operations->write_error(call, out);
}

void api_call_fail(struct api_call *call, const struct api_error *err, struct byte_buffer *out) {
    call->error = *err;
    end_with_error(call, out);
}

bool api_call_is_background(const struct api_call *call) {
    return call->is_background;
}

const char *api_call_id(const struct api_call *call) {
    return call->head.id;
}

void api_call_begin_stream(struct api_call *call, struct byte_buffer *out) {
    if (call->operations->write_begin != NULL)
        call->operations->write_begin(call, out);
}

void api_call_write_state(const struct api_call *call, struct byte_buffer *out) {
    call->operations->write_state(call, out);
}

void api_call_cancel(struct api_call *call, struct byte_buffer *out) {
    call->is_done = true;
    call->is_cancelled = true;
    call->operations->write_error(call, out);
}

size_t api_call_held_bytes(const struct api_call *call) {
    return call->operations->held_bytes(call);
}

static void update_choice(struct api_call *call, const struct request *request,
                          const struct token_event *event, struct api_call_choice *choice) {
    call->num_generated += event->num_generated - choice->num_generated;
    choice->num_generated = event->num_generated;
    for (int32_t i = 0; i < event->num_tokens && request->params.num_logprobs >= 0; i++)
        choice->sum_logprobs += (double)event->tokens[i].logprob;
    if (event->finish == FINISH_NONE)
        return;
    choice->is_finished = true;
    choice->finish.reason = event->finish;
    choice->finish.stop_token = event->stop_token;
    if (event->stop_string >= 0 && event->stop_string < request->params.num_stop_strings) {
        const struct stop_string *stop = &request->params.stop_strings[event->stop_string];
        choice->finish.stop_string = (struct text){.data = stop->data, .length = stop->length};
    }
    call->num_unfinished--;
}

/* Returns -1 with call->error when the choice ended without what the answer needs. */
static int check_end(struct api_call *call, const struct request *request,
                     enum finish_reason reason) {
    if (reason == FINISH_ERROR)
        return api_error_set(&call->error, 503, "server_error", "engine_error", NULL,
                             "The engine failed while it generated the completion");
    if (reason == FINISH_CRASHED)
        return api_error_set(&call->error, 500, "server_error", "device_crashed", NULL,
                             "The device crashed twice while it computed this request");
    if (reason == FINISH_ABORT)
        return api_error_set(&call->error, 503, "server_error", "request_aborted", NULL,
                             "The request was aborted before it finished");
    if (reason == FINISH_QUEUE_TIMEOUT)
        return api_error_set(&call->error, 503, "server_error", "queue_timeout", NULL,
                             "The request waited too long to run; try again later");
    if (reason == FINISH_ASLEEP)
        return api_error_set(&call->error, 503, "server_error", "cannot_wake", NULL,
                             "The server is asleep and cannot wake up now; its log says why; "
                             "try again later");
    if (reason == FINISH_DEADLINE && request->params.pooling != POOLING_NONE)
        return api_error_set(&call->error, 503, "server_error", "deadline_exceeded", NULL,
                             "The request's deadline passed before its embedding was computed");
    return 0;
}

/* Keeps what was generated, and at the end the conversation. Without memory there is none. */
static void fill_slot(struct api_call *call, const struct request *request,
                      const struct token_event *event) {
    struct byte_buffer *tokens = &call->slot_tokens;
    for (int32_t i = 0; i < event->num_tokens; i++)
        byte_buffer_append(tokens, &event->tokens[i].token, sizeof(event->tokens[i].token));
    if (event->finish == FINISH_NONE)
        return;
    if (tokens->failed)
        conversation_slots_clear(call->slots, call->slot);
    else
        conversation_slots_set(call->slots, call->slot, request,
                               (const int32_t *)(const void *)tokens->data,
                               (int32_t)(tokens->length / sizeof(int32_t)));
}

/* Returns -1 with call->error when the call cannot continue. */
static int read_choice(struct api_call *call, int32_t prompt, const struct token_event *event,
                       struct byte_buffer *out) {
    int32_t index = prompt * call->num_choices + event->choice;
    struct api_call_choice *choice = &call->choices[index];
    if (choice->is_finished)
        return 0;
    const struct request *request = call->prompts[prompt].request;
    if (check_end(call, request, event->finish) != 0)
        return -1;
    update_choice(call, request, event, choice);
    if (call->slots != NULL && index == 0)
        fill_slot(call, request, event);
    if (call->operations->add(call, index, event) != 0)
        return api_error_set_memory(&call->error);
    if (call->is_stream)
        call->operations->write_update(call, index, out);
    if (call->num_unfinished > 0)
        return 0;
    call->is_done = true;
    if (call->is_stream)
        call->operations->write_end(call, out);
    else
        call->operations->write_body(call, out);
    return 0;
}

void api_call_read(struct api_call *call, struct request *request, struct byte_buffer *out) {
    const struct api_call_operations *operations = call->operations;
    struct token_event event;
    int32_t prompt = 0;
    while (prompt < call->num_prompts && call->prompts[prompt].request != request)
        prompt++;
    CHECK(prompt < call->num_prompts);
    token_stream_take(&request->stream, &call->events);
    while (!call->is_done && token_buffer_next(&call->events, &event)) {
        int status = 0;
        CHECK(event.choice >= 0 && event.choice < call->num_choices);
        call->prompts[prompt].num_cached_tokens = event.num_cached_tokens;
        call->prompts[prompt].num_stored_tokens = event.num_stored_tokens;
        if (event.kind == TOKEN_EVENT_PROGRESS)
            operations->write_progress(call, prompt, &event, out);
        else if (event.kind != TOKEN_EVENT_PROMPT)
            status = read_choice(call, prompt, &event, out);
        else if (operations->add_prompt != NULL &&
                 operations->add_prompt(call, prompt, &event) != 0)
            status = api_error_set_memory(&call->error);
        if (status != 0)
            end_with_error(call, out);
    }
}
