/* The service manager: readiness, status, watchdog and passed sockets (sd_notify(3),
 * sd_listen_fds(3)). Outside a service manager, and in builds without libsystemd
 * (service_none.c), everything here does nothing. */
#ifndef QUIRE_SERVER_PROCESS_SERVICE_H
#define QUIRE_SERVER_PROCESS_SERVICE_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void service_ready(void);
/* To be followed by service_ready when reloading is done. */
void service_reloading(void);
void service_stopping(void);
/* One line for `systemctl status`. */
void service_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Makes the manager wait that much longer, from now on, for the start or the stop. */
void service_extend_timeout(int seconds);

/* Returns the milliseconds within which service_watchdog must be called; 0: no watchdog. */
int64_t service_watchdog_ms(void);
void service_watchdog(void);

/* Returns whether the descriptor is the journal's, and service_journal_send works. */
bool service_is_journal(int fd);
/* Writes a journal entry from fields, each NAME=VALUE without a line feed, followed by one
 * (sd_journal_send(3)). May block. Returns -1 with errno when the journal does not accept it. */
int service_journal_send(const char *fields, size_t length);

/* Returns 1 and *out_fd when the manager passed a listening stream socket, 0 when it passed none,
 * -1 (ERROR_CONFIG) when it passed more than one or something else. */
int service_listen_socket(int *out_fd, struct error *err);

#endif
