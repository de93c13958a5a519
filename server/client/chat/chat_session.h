/* A conversation of `quire chat`: what was said, and the settings for answers, written as the body
 * of a request; and the loop that runs it. The program ends when memory is short (CHECK): it uses
 * only little. */
#ifndef QUIRE_SERVER_CLIENT_CHAT_CHAT_SESSION_H
#define QUIRE_SERVER_CLIENT_CHAT_CHAT_SESSION_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "server/client/chat/chat_client.h"
#include "server/client/chat/chat_terminal.h"

#include <stdbool.h>

#define CHAT_SESSION_MAX_SETTINGS 32

struct chat_message {
    bool is_answer; /* written by the model; otherwise by the user */
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
/* Removes all messages; the system's text and the settings are kept. */
void chat_session_clear(struct chat_session *session);
/* NULL or "": none. */
void chat_session_set_system(struct chat_session *session, const char *text);
void chat_session_finish(struct chat_session *session);

/* Returns whether there is a setting of this name. */
bool chat_session_has(const char *name);
/* Sets "temperature" and others to a number, or with "default" leaves the choice to the server.
 * ERROR_CONFIG lists the names or the values that are allowed. */
int chat_session_set(struct chat_session *session, const char *name, const char *value,
                     struct error *err);
/* Appends a line "NAME VALUE" for each setting. */
void chat_session_show_settings(const struct chat_session *session, struct byte_buffer *out);

/* Appends the body of a streamed /v1/chat/completions that asks for the next answer. */
void chat_session_write_body(const struct chat_session *session, const char *model,
                             struct byte_buffer *out);
/* Writes {"model", "messages"} to a new file of mode 0600. Fails with ERROR_IO, also if the file
 * exists. */
int chat_session_save(const struct chat_session *session, const char *model, const char *path,
                      struct error *err);

/* --- The loop: reads input, executes /commands, and shows answers --- */

struct chat_loop {
    struct chat_client *client;
    struct chat_session *session;
    struct chat_terminal *terminal;
    /* Returns whether Ctrl-C was pressed since the last call. */
    bool (*take_interrupt)(void);
    /* Returns whether the program must end, because of SIGTERM or a closed terminal. */
    bool (*must_end)(void);
    int64_t status_ns; /* when the model's state was last asked for, while an answer is awaited */
    bool has_text;     /* the answer that is awaited has begun */
    /* About the last answer, and all since the beginning: */
    struct chat_answer last; /* without its content */
    int64_t num_answers, completion_tokens;
};

/* All members up to must_end are set. Returns when the user leaves or the program must
 * end. */
void chat_loop_run(struct chat_loop *loop);

#endif
