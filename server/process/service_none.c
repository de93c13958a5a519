/* service.h for builds without libsystemd. */
#include "server/process/service.h"

void service_ready(void) {
}

void service_reloading(void) {
}

void service_stopping(void) {
}

void service_status(const char *format, ...) {
}

void service_extend_timeout(int seconds) {
}

int64_t service_watchdog_ms(void) {
    return 0;
}

void service_watchdog(void) {
}

bool service_is_journal(int fd) {
    return false;
}

int service_journal_send(const char *fields, size_t length) {
    return -1;
}

int service_listen_socket(int *out_fd, struct error *err) {
    return 0;
}
