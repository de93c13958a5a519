/* The server's side of `quire chat` and `quire bench`: asks a server for its model and for answers,
 * and reads what it streams. */
#ifndef QUIRE_SERVER_CLIENT_CHAT_CHAT_CLIENT_H
#define QUIRE_SERVER_CLIENT_CHAT_CHAT_CLIENT_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "config/base/text.h"
#include "server/net/http_client.h"

#include <stdbool.h>
#include <stdint.h>

/* --- Streams --- */

/* Reads what a server streams as the answer to a chat or a completion: server-sent events (WHATWG
 * HTML, section 9.2; lines end with LF or CR LF) whose data are OpenAI's chunks, to "[DONE]". The
 * first choice counts. Everything comes from outside: events are bounded and strictly checked. */

#define COMPLETION_STREAM_MAX_EVENT_BYTES ((size_t)16 << 20)

/* The contents of a chunk; valid until the callback returns. */
struct completion_event {
    struct text text, reasoning;              /* empty: none */
    const char *finish_reason;                /* NULL: the choice continues */
    int64_t prompt_tokens, completion_tokens; /* -1: the chunk has no usage */
};

struct completion_stream {
    void (*on_event)(void *context, const struct completion_event *event);
    void *context;
    /* Zero at the start: */
    struct byte_buffer line, data; /* incomplete */
    bool is_done;                  /* "[DONE]" came */
};

/* Takes the next bytes, and calls on_event for each chunk that they complete. Returns -1 with the
 * error that the server sent as an event, or ERROR_SYNTAX for something that is not a chunk; must
 * not be called again then. */
int completion_stream_take(struct completion_stream *stream, const char *data, size_t length,
                           struct error *err);
void completion_stream_finish(struct completion_stream *stream);

#define COMPLETION_CODE_BYTES 64

/* An answer that is not a stream: OpenAI's error object. */
struct completion_refusal {
    char code[COMPLETION_CODE_BYTES]; /* "": none */
    char message[400];                /* without control characters */
};

/* body: as received. Without an error object, the body itself, shortened, becomes the message. */
void completion_refusal_read(const struct byte_buffer *body, struct completion_refusal *out);

/* --- The client --- */

#define CHAT_MODEL_NAME_BYTES 256
#define CHAT_LIST_MS 30000 /* for the list of models, while nothing else waits */

struct chat_model {
    char name[CHAT_MODEL_NAME_BYTES];
    char status[16]; /* unloaded, loading, loaded, sleeping; "": the server does not load models */
    int64_t max_model_len; /* 0: not given by the server */
};

struct chat_models {
    struct chat_model *items; /* owned by the caller: free */
    int count;
};

struct chat_client {
    struct http_client *http;
    struct http_client *list_http; /* asks for the models, also while an answer is awaited */
    struct http_url url;           /* its path is before /v1/... */
    const char *socket_path;       /* of a UNIX socket; NULL: none. The caller's */
    const char *key_variable;
    char key_field[HTTP_KEY_FIELD_BYTES];
    char model[CHAT_MODEL_NAME_BYTES]; /* "" before chat_client_find_model */
    int64_t max_model_len;             /* 0: not given by the server */
    bool has_states;                   /* the server loads models when they are asked for */
    int num_models;                    /* of the server */
};

/* url: of the server, with or without /v1 at its end. key_variable: the environment variable with
 * the API key, if any. The texts outlive the client. Fails with ERROR_CONFIG for an invalid URL or
 * key, or ERROR_MEMORY. */
int chat_client_open(const char *url, const char *socket_path, const char *key_variable,
                     struct chat_client *out, struct error *err);
void chat_client_close(struct chat_client *client);

/* Lists /v1/models. May be called in the callbacks of a sink. Fails with ERROR_IO and the reason if
 * there is none. */
int chat_client_list(struct chat_client *client, int64_t timeout_ms, struct chat_models *out,
                     struct error *err);

/* Takes the model of this name, or the only one whose name contains it, or, if it is NULL, the
 * first. Fails with ERROR_IO if there is none, or ERROR_CONFIG if several names contain it. */
int chat_client_find_model(struct chat_client *client, const char *name, struct error *err);

enum chat_end {
    CHAT_ANSWERED,
    CHAT_STOPPED, /* because is_stopped returned true */
    CHAT_FULL,    /* the conversation is longer than the model's context; there is no answer */
    CHAT_REFUSED, /* by the server, for another reason; there is no answer */
    CHAT_LOST,    /* the connection, or the rest of the answer */
};

struct chat_answer {
    enum chat_end end;
    char why[512];              /* one line, if it was not answered; not safe for a terminal */
    struct byte_buffer content; /* as far as received */
    char finish_reason[32];     /* "": the server said none */
    int64_t prompt_tokens;      /* -1: not known */
    int64_t completion_tokens;  /* as counted by the server, otherwise the number of its events */
    int64_t started_ns, first_ns, last_ns; /* of the request, of its first and last event; or 0 */
};

/* Receives an answer while it arrives. */
struct chat_sink {
    void (*write)(void *context, bool is_reasoning, const char *data, size_t length);
    bool (*is_stopped)(void *context);
    void *context;
};

/* Asks with a body of chat_session_write_body. The caller finishes out->content. */
void chat_client_ask(struct chat_client *client, const struct byte_buffer *body,
                     const struct chat_sink *sink, struct chat_answer *out);

#endif
