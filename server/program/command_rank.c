/* `quire rank-process`: what `quire serve` runs where ranks live in a process of their own. It has
 * nothing of the server's but the socket to it, and ends with it. */
#include "server/program/command_line.h"

#include "engine/executor/process_executor.h"
#include "server/process/signals.h"

#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

/* Signals to the whole group are the server's, which ends this process when it ends itself. */
int command_rank(int argc, char *const *argv) {
    if (argc > 0 || !rank_process_is_expected()) {
        fputs("quire: rank-process is for quire serve alone\n", stderr);
        return EX_USAGE;
    }
    signals_block();
    if (rank_process_run() == 0)
        return EX_OK;
    fflush(NULL);
    _exit(EX_SOFTWARE);
}
