/* The server's side of `quire chat`: asks a server for its model and for answers. */
#ifndef QUIRE_SERVER_CHAT_CHAT_CLIENT_H
#define QUIRE_SERVER_CHAT_CHAT_CLIENT_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "server/net/http_client.h"

#include <stdbool.h>
#include <stdint.h>

#define CHAT_MODEL_NAME_BYTES 256

struct chat_client {
    struct http_client *http;
    struct http_url url;     /* its path is before /v1/... */
    const char *socket_path; /* of a UNIX socket; NULL: none. The caller's */
    const char *key_variable;
    char key_field[HTTP_KEY_FIELD_BYTES];
    char model[CHAT_MODEL_NAME_BYTES]; /* "" before chat_client_find_model */
    int64_t max_model_len;             /* 0: the server does not say */
};

/* url: of the server, with or without /v1 at its end. key_variable: the environment's variable with
 * the API key, if there is one. The texts outlive the client. ERROR_CONFIG for what is no URL or
 * key; ERROR_MEMORY. */
int chat_client_open(const char *url, const char *socket_path, const char *key_variable,
                     struct chat_client *out, struct error *err);
void chat_client_close(struct chat_client *client);

/* Takes the first model of /v1/models. ERROR_IO with why there is none. */
int chat_client_find_model(struct chat_client *client, struct error *err);

enum chat_end {
    CHAT_ANSWERED,
    CHAT_STOPPED, /* as is_stopped said */
    CHAT_FULL,    /* the conversation is longer than the model's context; there is no answer */
    CHAT_REFUSED, /* by the server, for another reason; there is no answer */
    CHAT_LOST,    /* the connection, or the rest of the answer */
};

struct chat_answer {
    enum chat_end end;
    char why[512];              /* one line, where it was not answered; not fit for a terminal */
    struct byte_buffer content; /* as far as it came */
    char finish_reason[32];     /* "": the server said none */
    int64_t prompt_tokens;      /* -1: not known */
    int64_t completion_tokens;  /* as the server counts, else the number of its events */
    int64_t started_ns, first_ns, last_ns; /* of the request, of its first and last event; or 0 */
};

/* Where an answer goes while it comes. */
struct chat_sink {
    void (*write)(void *context, bool is_reasoning, const char *data, size_t length);
    bool (*is_stopped)(void *context);
    void *context;
};

/* Asks with a body of chat_session_write_body. The caller finishes out->content. */
void chat_client_ask(struct chat_client *client, const struct byte_buffer *body,
                     const struct chat_sink *sink, struct chat_answer *out);

#endif
