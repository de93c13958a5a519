/* One POST /v1/completions: from the body's bytes to engine requests, and from their events back to
 * bytes. Knows JSON, not sockets: http_server owns the connection and calls this.
 *
 * Life: completion_call_parse (a prep worker) -> the caller submits every request to the engine ->
 * completion_call_read whenever a request has news, and completion_call_take output (the I/O
 * thread) -> completion_call_destroy. One thread at a time; never two at once. */
#ifndef QUIRE_SERVER_COMPLETION_CALL_H
#define QUIRE_SERVER_COMPLETION_CALL_H

#include "engine/request.h"
#include "models/tokenizer/tokenizer.h"
#include "server/api/api_error.h"
#include "server/byte_buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* What parsing needs to know of the server; const, shared. */
/* What holds where a request says nothing: OpenAI's and vLLM's values, or what the model's makers
 * recommend. */
struct sampling_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k; /* -1: all */
};

#define SAMPLING_DEFAULTS_OPENAI                                                                   \
    { .temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = -1 }

struct api_context {
    const struct tokenizer *tokenizer;
    char *const *model_names; /* served names; the first one is reported */
    int num_model_names;
    int64_t created; /* Unix seconds of the server's start, for /v1/models */
    int32_t max_model_len;
    int32_t max_prompts; /* prompts in one call */
    int32_t max_choices; /* n, and prompts * n */
    /* Of all prompts of a call that has several; a single one may be as long as the context. */
    int64_t max_prompt_tokens;
    struct sampling_defaults sampling;
    uint64_t seed; /* base of the seeds of requests that bring none */
    const char *system_fingerprint;
};

struct completion_call;

/* Strict JSON (see json_parse.h), every field ranged. On failure returns -1 and fills *err. */
int completion_call_parse(const struct api_context *context, const char *body, size_t length,
                          struct completion_call **out, struct api_error *err);
void completion_call_destroy(struct completion_call *call); /* drops the requests; accepts NULL */

bool completion_call_is_stream(const struct completion_call *call);
/* Comma-separated names of fields that were ignored, for X-Ignored-Params; NULL when none. */
const char *completion_call_ignored_params(const struct completion_call *call);
/* One request per prompt; request->user is set by the caller. */
int completion_call_num_requests(const struct completion_call *call);
struct request *completion_call_request(struct completion_call *call, int index);

/* Takes the request's new events. For a stream, appends finished SSE frames (the last of them
 * `data: [DONE]`) to *out; otherwise collects, and appends the whole response body once the last
 * choice has finished. A choice that ends with FINISH_ERROR or FINISH_ABORT ends the call: a
 * stream that has begun gets an error event, otherwise completion_call_error says what to answer.
 * The caller cancels the requests that still run. */
void completion_call_read(struct completion_call *call, struct request *request,
                          struct byte_buffer *out);
bool completion_call_is_done(const struct completion_call *call);
/* After done: true and *err filled when the answer is an error with its own status: without a
 * stream, or for a stream that failed before its first frame (nothing was appended then). */
bool completion_call_error(const struct completion_call *call, struct api_error *err);

#endif
