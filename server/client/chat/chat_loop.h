/* The conversation itself: reads what the user says, does what a /command says, and shows
 * answers. */
#ifndef QUIRE_SERVER_CHAT_CHAT_LOOP_H
#define QUIRE_SERVER_CHAT_CHAT_LOOP_H

#include "server/client/chat/chat_client.h"
#include "server/client/chat/chat_session.h"
#include "server/client/chat/chat_terminal.h"

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
