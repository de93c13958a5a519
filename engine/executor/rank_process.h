/* The child's side of process_executor.h: weights, KV blocks and the device, in a process that does
 * nothing but what it is told over its socket. */
#ifndef QUIRE_ENGINE_RANK_PROCESS_H
#define QUIRE_ENGINE_RANK_PROCESS_H

#include <stdbool.h>

/* Returns whether this process was started for it: the socket is there. */
bool rank_process_is_expected(void);
/* Runs until the engine's process closes its end of the socket, or is gone: 0. -1: it could not
 * start, which the engine's process was told, or the device hangs, so that the process is to leave
 * by _exit(2). The program's only thread. Closes every file that was inherited beyond those that the
 * engine hands over. */
int rank_process_run(void);

#endif
