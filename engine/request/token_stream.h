/* Carries the events of one request from the engine thread to the front end.
 *
 * One writer (the engine thread), one reader. The writer never blocks: it appends events to a
 * buffer under a short lock, and the reader takes the whole buffer at once. When a slow reader lets
 * the buffer grow past TOKEN_STREAM_STALL_BYTES, the scheduler leaves the request out of its steps
 * until it is read (or aborts it after a while), so the buffer is bounded by that size plus one
 * step.
 *
 * Text of an event is always whole UTF-8 characters. Text that may begin a stop string is held back
 * until that is decided, so text may arrive later than the token that produced it. */
#ifndef QUIRE_ENGINE_REQUEST_TOKEN_STREAM_H
#define QUIRE_ENGINE_REQUEST_TOKEN_STREAM_H

#include "kernels/sampling.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_STREAM_STALL_BYTES (48 * 1024)

enum finish_reason {
    FINISH_NONE = 0,      /* not finished */
    FINISH_STOP,          /* end token, stop string or stop token; or the embedding is complete */
    FINISH_LENGTH,        /* max_tokens or the context's end */
    FINISH_DEADLINE,      /* the request's deadline passed while it ran */
    FINISH_QUEUE_TIMEOUT, /* one of its deadlines passed before it ran: nothing was computed */
    FINISH_ASLEEP,        /* the engine could not wake up: nothing was computed */
    FINISH_ABORT,         /* cancelled, or the server is stopping */
    FINISH_CRASHED,       /* the ranks were lost twice while they computed it */
    FINISH_ERROR,         /* the device failed, or memory was short */
};

/* Returns the reason's word in the log: "stop", "length", "queue timeout". */
const char *token_stream_finish_name(enum finish_reason reason);

/* A token with its logprob and its share of the event's `top` array. */
struct token_record {
    int32_t token;
    float logprob;     /* NaN: not requested, or the first prompt token */
    int32_t rank;      /* with a logprob: among all tokens, 1 = most probable; else 0 */
    int32_t first_top; /* index into event.top */
    int32_t num_top;
};

enum token_event_kind {
    /* Scored prompt tokens, in order, in one or more events of choice 0, before any TEXT event of
     * the request. Only with num_prompt_logprobs >= 0. */
    TOKEN_EVENT_PROMPT,
    TOKEN_EVENT_PROGRESS,  /* more of the prompt is computed; only with request.reports_progress */
    TOKEN_EVENT_TEXT,      /* generated tokens and/or text, and the end of a choice */
    TOKEN_EVENT_EMBEDDING, /* the pooled hidden states, with FINISH_STOP: the only event */
};

/* Pointers are valid until the next token_stream_take or _finish of that buffer. */
struct token_event {
    enum token_event_kind kind;
    int32_t choice;   /* 0..num_choices-1 */
    const char *text; /* may be empty */
    size_t text_bytes;
    int32_t num_tokens; /* tokens this event accounts for */
    const struct token_record *tokens;
    const struct top_logprob *top;
    int32_t num_top;
    const float *embedding; /* [num_dimensions] not normalised; only of TOKEN_EVENT_EMBEDDING */
    int32_t num_dimensions;
    enum finish_reason finish;
    int32_t stop_token;    /* with FINISH_STOP: the stop_token_ids entry that matched, else -1 */
    int32_t stop_string;   /* with FINISH_STOP: index of the stop string that matched, else -1 */
    int32_t num_generated; /* of this choice so far, the end token included */
    int32_t num_cached_tokens; /* prompt tokens found in the prefix cache */
    int32_t num_stored_tokens; /* with request.hands_over: prompt tokens that the store has */
    int32_t num_computed; /* TOKEN_EVENT_PROGRESS: computed prompt tokens, cached ones included */
};

struct token_buffer {
    unsigned char *data;
    size_t bytes, capacity;
    size_t cursor; /* of token_buffer_next */
};

struct token_stream {
    pthread_mutex_t lock;
    struct token_buffer pending; /* guarded by lock */
};

void token_stream_init(struct token_stream *stream);
void token_stream_finish(struct token_stream *stream);
void token_buffer_finish(struct token_buffer *buffer);

/* Makes room for this many events without text or tokens, before the stream is shared. Until
 * something else is pushed, pushing them cannot fail. Returns -1 when memory is short. */
int token_stream_reserve(struct token_stream *stream, int32_t num_events);

/* Writer. Copies the event; returns -1 when memory is short (nothing was appended). */
int token_stream_push(struct token_stream *stream, const struct token_event *event);
/* Writer. Returns the bytes not yet taken. */
size_t token_stream_pending_bytes(struct token_stream *stream);

/* Reader. Swaps the pending events into *buffer (whose old content is dropped, memory reused).
 * Leaves it empty when there are none. */
void token_stream_take(struct token_stream *stream, struct token_buffer *buffer);
/* Reader. Reads the next event of a taken buffer; false at its end. */
bool token_buffer_next(struct token_buffer *buffer, struct token_event *out);

#endif
