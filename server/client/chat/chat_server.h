/* A server that `quire chat --model` starts for itself: `quire serve` as a child process, on a UNIX
 * socket in a folder that nobody else can open. It ends with this process, however that ends. */
#ifndef QUIRE_SERVER_CLIENT_CHAT_CHAT_SERVER_H
#define QUIRE_SERVER_CLIENT_CHAT_CHAT_SERVER_H

#include "config/base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct chat_server {
    pid_t pid; /* 0: none */
    char folder[64];
    char socket_path[80];
    char log_path[80]; /* the server's log */
};

/* Starts it with these arguments of `quire serve`, which do not contain --uds, and waits until it
 * is ready. shows_progress: shows the last line of its log on stderr, which is a terminal. Fails
 * with ERROR_CONFIG and the last line of its log if it ends before, ERROR_IO when the system
 * refuses something or take_interrupt returns true. *out must be stopped in any case. */
int chat_server_start(char *const *arguments, int num_arguments, bool shows_progress,
                      bool (*take_interrupt)(void), struct chat_server *out, struct error *err);
/* Ends the server and removes its folder. Accepts a zeroed struct. */
void chat_server_stop(struct chat_server *server);

#endif
