/* A conversation of `quire chat`: what was said, and how it is to be answered, as the body of a
 * request; and the loop that leads it. Memory that is short ends the program (CHECK): there is
 * little of it in use. */
#ifndef QUIRE_SERVER_CLIENT_CHAT_CHAT_SESSION_H
#define QUIRE_SERVER_CLIENT_CHAT_CHAT_SESSION_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "server/client/chat/chat_client.h"
#include "server/client/chat/chat_terminal.h"

#include <stdbool.h>

#define CHAT_SESSION_MAX_SETTINGS 32

struct chat_message {
    bool is_answer; /* by the model; otherwise by the user */
    char *text;     /* NUL-terminated */
};

/* A zeroed struct is an empty conversation. */
struct chat_session {
    struct chat_message *messages; /* user and model in turn, beginning with the user */
    int num_messages, capacity;
    char *system;                               /* NULL: none */
    double settings[CHAT_SESSION_MAX_SETTINGS]; /* by index of the table */
    bool is_set[CHAT_SESSION_MAX_SETTINGS];
};

/* The text ends at length, or at a NUL in it. */
void chat_session_add(struct chat_session *session, bool is_answer, const char *text,
                      size_t length);
/* Removes the last message, if there is one. */
void chat_session_drop(struct chat_session *session);
/* Removes all messages; the system's text and the settings stay. */
void chat_session_clear(struct chat_session *session);
/* NULL or "": none. */
void chat_session_set_system(struct chat_session *session, const char *text);
void chat_session_finish(struct chat_session *session);

/* Sets "temperature" and the like to a number, or with "default" leaves it to the server.
 * ERROR_CONFIG says which names, or which values, there are. */
int chat_session_set(struct chat_session *session, const char *name, const char *value,
                     struct error *err);
/* Appends "NAME VALUE" of each setting, a line each. */
void chat_session_show_settings(const struct chat_session *session, struct byte_buffer *out);

/* Appends the body of a streamed /v1/chat/completions that asks for the next answer. */
void chat_session_write_body(const struct chat_session *session, const char *model,
                             struct byte_buffer *out);
/* Writes {"model", "messages"} to a new file of mode 0600. ERROR_IO, also if there is such a
 * file. */
int chat_session_save(const struct chat_session *session, const char *model, const char *path,
                      struct error *err);

/* --- The loop: reads what the user says, does what a /command says, and shows answers --- */

struct chat_loop {
    struct chat_client *client;
    struct chat_session *session;
    struct chat_terminal *terminal;
    /* Has Ctrl-C been pressed since this was called last? */
    bool (*take_interrupt)(void);
    /* Has the program been told to end, by SIGTERM or because the terminal is gone? */
    bool (*must_end)(void);
    /* Of the last answer, and of all since the begin: */
    struct chat_answer last; /* without its content */
    int64_t num_answers, completion_tokens;
};

/* The members but for the last three are set; returns when the user leaves, or it must end. */
void chat_loop_run(struct chat_loop *loop);

#endif
