/* Reads what a server streams as the answer to a chat or a completion: server-sent events (WHATWG
 * HTML, section 9.2; lines end with LF or CR LF) whose data are OpenAI's chunks, to "[DONE]". The
 * first choice counts. Everything comes from outside: events are bounded and strictly checked. */
#ifndef QUIRE_SERVER_COMPLETION_STREAM_H
#define QUIRE_SERVER_COMPLETION_STREAM_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPLETION_STREAM_MAX_EVENT_BYTES ((size_t)16 << 20)

/* What a chunk says; valid until the callback returns. */
struct completion_event {
    struct text text, reasoning;              /* empty: none */
    const char *finish_reason;                /* NULL: the choice goes on */
    int64_t prompt_tokens, completion_tokens; /* -1: it has no usage */
};

struct completion_stream {
    void (*on_event)(void *context, const struct completion_event *event);
    void *context;
    /* Zero at the start: */
    struct byte_buffer line, data; /* that are not whole yet */
    bool is_done;                  /* "[DONE]" came */
};

/* Takes the next bytes, and calls on_event for each chunk that they end. -1 with the error that the
 * server sent as an event, or ERROR_SYNTAX for what is no chunk; nothing is to be taken then. */
int completion_stream_take(struct completion_stream *stream, const char *data, size_t length,
                           struct error *err);
void completion_stream_finish(struct completion_stream *stream);

#define COMPLETION_CODE_BYTES 64

/* An answer that is no stream: OpenAI's error object. */
struct completion_refusal {
    char code[COMPLETION_CODE_BYTES]; /* "": none */
    char message[400];                /* without control characters */
};

/* body: as it came. One without an error object is itself the message, cut short. */
void completion_refusal_read(const struct byte_buffer *body, struct completion_refusal *out);

#endif
