/* A POST of any endpoint that makes engine requests. Turns the body's bytes into requests, and
 * their events back into bytes. It knows JSON, but not sockets: server/http owns the connection and
 * calls this.
 *
 * Life: an endpoint's parse function (a prep worker) -> the caller submits every request to the
 * engine -> api_call_read whenever a request has events, and taking the output (the I/O thread) ->
 * api_call_destroy. Used by one thread at a time. */
#ifndef QUIRE_SERVER_API_CALL_API_CALL_H
#define QUIRE_SERVER_API_CALL_API_CALL_H

#include "config/base/byte_buffer.h"
#include "engine/request/request.h"
#include "server/api/call/api_context.h"
#include "config/json/api_error.h"

#include <stdbool.h>

struct api_call;

/* An endpoint's parse function: strict JSON (json_parse.h), with the range of every field checked.
 * On failure returns -1 and fills *err. */
typedef int api_call_parse(const struct api_context *context, const char *body, size_t length,
                           struct api_call **out, struct api_error *err);

void api_call_destroy(struct api_call *call); /* drops the requests; accepts NULL */

bool api_call_is_stream(const struct api_call *call);
/* Returns the comma-separated names of fields that were ignored, for X-Ignored-Params; NULL if
 * there are none. */
const char *api_call_ignored_params(const struct api_call *call);
/* The caller sets request->user and request->tenant. */
int api_call_num_requests(const struct api_call *call);
struct request *api_call_request(struct api_call *call, int index);
int64_t api_call_num_prompt_tokens(const struct api_call *call);
/* Returns how many milliseconds the call may take from its arrival to its end; 0: any number. */
int64_t api_call_timeout_ms(const struct api_call *call);
/* Returns how many tokens of all choices have been read. */
int64_t api_call_num_generated(const struct api_call *call);

/* Takes the request's new events. For a stream, appends finished SSE frames to *out. Otherwise
 * collects them, and appends the whole response body once the last choice has finished. A choice
 * that ends without what the answer needs ends the call (FINISH_ERROR, FINISH_CRASHED,
 * FINISH_ABORT, FINISH_QUEUE_TIMEOUT, FINISH_ASLEEP; an embedding's FINISH_DEADLINE): a stream gets
 * an error event, otherwise api_call_error gives the error to answer with. The caller cancels the
 * requests that are still running. */
void api_call_read(struct api_call *call, struct request *request, struct byte_buffer *out);
bool api_call_is_done(const struct api_call *call);
/* Once the call is done: returns true and fills *err if it ended with an error. The error was
 * already appended to a stream, and to the kept output of a call in the background; any other call
 * must be answered with it. */
bool api_call_error(const struct api_call *call, struct api_error *err);

/* Ends a call that has not failed, with this error: a stream gets it as its last event. */
void api_call_fail(struct api_call *call, const struct api_error *err, struct byte_buffer *out);

/* Returns whether the call continues without its client, who gets api_call_write_state at once and
 * comes back for the rest. If so, its errors become part of the kept output. A stream's output is
 * kept as a whole: what these functions append goes to one buffer, from which nothing is
 * removed. */
bool api_call_is_background(const struct api_call *call);
/* Returns the id of the answer. */
const char *api_call_id(const struct api_call *call);
/* Appends what a stream sends before anything was generated, if anything. Called once, before
 * api_call_read. */
void api_call_begin_stream(struct api_call *call, struct byte_buffer *out);
/* Appends the answer as far as it is known. May be called at any time, for a call in the
 * background. */
void api_call_write_state(const struct api_call *call, struct byte_buffer *out);
/* Ends a call in the background that is not done, because its client requested that. The caller
 * cancels its requests. */
void api_call_cancel(struct api_call *call, struct byte_buffer *out);

/* Returns how many bytes of output are kept until they are written. */
size_t api_call_held_bytes(const struct api_call *call);

#endif
