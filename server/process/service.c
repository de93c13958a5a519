#include "server/process/service.h"

#include "config/base/clock.h"
#include "config/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <systemd/sd-daemon.h>
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#define JOURNAL_MAX_FIELDS 64

void service_ready(void) {
    sd_notify(0, "READY=1");
}

void service_reloading(void) {
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_now_ns() / 1000));
}

void service_stopping(void) {
    sd_notify(0, "STOPPING=1");
}

void service_status(const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sd_notifyf(0, "STATUS=%s", text);
}

void service_extend_timeout(int seconds) {
    sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%lld", (long long)seconds * 1000000);
}

int64_t service_watchdog_ms(void) {
    uint64_t interval_us;
    return sd_watchdog_enabled(0, &interval_us) > 0 ? (int64_t)(interval_us / 1000) : 0;
}

void service_watchdog(void) {
    sd_notify(0, "WATCHDOG=1");
}

bool service_is_journal(int fd) {
    return log_is_journal(fd);
}

int service_journal_send(const char *fields, size_t length) {
    struct iovec parts[JOURNAL_MAX_FIELDS];
    int num_parts = 0;
    const char *end = fields + length;
    while (fields < end && num_parts < JOURNAL_MAX_FIELDS) {
        const char *next = memchr(fields, '\n', (size_t)(end - fields));
        parts[num_parts++] =
            (struct iovec){.iov_base = (char *)fields, .iov_len = (size_t)(next - fields)};
        fields = next + 1;
    }
    int status = sd_journal_sendv(parts, num_parts);
    errno = status < 0 ? -status : 0;
    return status < 0 ? -1 : 0;
}

int service_listen_socket(int *out_fd, struct error *err) {
    int count = sd_listen_fds(1);
    if (count <= 0)
        return 0;
    if (count > 1)
        return error_set(err, ERROR_CONFIG, "socket activation passed %d sockets; only 1 is used",
                         count);
    if (sd_is_socket(SD_LISTEN_FDS_START, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
        return error_set(err, ERROR_CONFIG,
                         "socket activation passed descriptor %d, which is not a listening stream "
                         "socket",
                         SD_LISTEN_FDS_START);
    *out_fd = SD_LISTEN_FDS_START;
    return 1;
}
