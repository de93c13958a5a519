/* The signals of the server. SIGTERM and SIGINT stop it. SIGHUP rereads what may change while it
 * runs. No other one that a user or a program can send ends it: a stream must not be cut because a
 * terminal was closed or a script knows another server's signals. Faults of our own (SIGSEGV,
 * SIGABRT, ...) keep their effect, and so do the signals of job control. */
#ifndef QUIRE_SERVER_SIGNALS_H
#define QUIRE_SERVER_SIGNALS_H

#include <stdbool.h>

enum signal_action { SIGNAL_STOP, SIGNAL_RELOAD, SIGNAL_IGNORE };

/* Blocks in the calling thread, and in those it creates later, what is taken through the signalfd;
 * ignores SIGPIPE and SIGXFSZ, whose system calls fail instead. Before the first thread exists. */
void signals_block(void);

/* Opens a non-blocking signalfd(2) of all that signals_block blocks, for the caller to close; -1
 * with errno. */
int signals_open(void);

/* Likewise of those that stop, of which it tells; whoever has the other one takes them. */
int signals_open_stop(void);

enum signal_action signals_action(int number);

/* Takes a signal that stops; returns whether one was sent. Leaves the others. */
bool signals_take_stop(void);

#endif
