/* `quire serve` as one of several processes that compute one model together, started by mpirun or
 * similar: rank 0 serves, the others compute. */
#ifndef QUIRE_SERVER_PROGRAM_SERVE_RANKS_H
#define QUIRE_SERVER_PROGRAM_SERVE_RANKS_H

#include "config/options.h"
#include "engine/executor/executor.h"

struct transport;

/* Opens the transport if this process is one of several; otherwise *out is NULL. Fails with
 * ERROR_CONFIG when the options do not match the ranks that were started. */
int serve_ranks_open(const struct options *options, struct transport **out, struct error *err);

/* Computes as a rank other than 0 until rank 0 ends. Returns the exit status. After a failure,
 * which it logs, it does not return: the process exits. */
int serve_ranks_compute(const struct options *options, struct transport *transport);

#endif
