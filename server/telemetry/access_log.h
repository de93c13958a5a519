/* The access log: a line of JSON for each HTTP request, in a file, on stdout or, where stdout is the
 * systemd journal's and the program is built with libsystemd, as an entry with fields there. Written
 * by a thread of its own (outbox.h): who writes it down never waits, and what cannot be written for
 * long is lost and counted. */
#ifndef QUIRE_SERVER_ACCESS_LOG_H
#define QUIRE_SERVER_ACCESS_LOG_H

#include "config/base/error.h"
#include "server/telemetry/access_record.h"

#include <stdint.h>

/* What waits and what is being written, at most. */
#define ACCESS_LOG_MAX_BYTES ((size_t)8 << 20)

struct access_log;

/* target: the path of a file, which is appended to and made with mode 0640, "-" for stdout, or
 * "none": *out is then NULL. ERROR_CONFIG when the file cannot be opened. */
int access_log_open(const char *target, struct access_log **out, struct error *err);
/* These accept NULL, for no log. */
void access_log_write(struct access_log *log, const struct access_record *record);
/* Has the file opened again by its name, for programs that move it away (logrotate). One that cannot
 * be opened is logged, and the old one stays. */
void access_log_reopen(struct access_log *log);
/* Returns how many lines were lost since the start. */
uint64_t access_log_num_lost(struct access_log *log);
/* Writes down what waits, as far as that is possible soon. */
void access_log_close(struct access_log *log);

#endif
