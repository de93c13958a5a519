#include "server/process/stop_guard.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/process/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>

#define LOG_S 1 /* for the line to be written */

static void leave_without_log(int signal_number) {
    _exit(EX_SOFTWARE);
}

/* The file of the log, or a thread that writes to it, may hang as well. */
static void limit_logging(void) {
    const struct sigaction action = {.sa_handler = leave_without_log};
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    alarm(LOG_S);
}

static _Noreturn void end_process(const struct stop_guard *guard) {
    const char *engine = atomic_load(&guard->engine_activity);
    int status = atomic_load(&guard->serves) ? EX_SOFTWARE : EX_OK;
    limit_logging();
    log_error("the stop is not over in time: the main thread %s%s%s; ending at once, status %d",
              atomic_load(&guard->activity), engine != NULL ? ", the engine's thread " : "",
              engine != NULL ? engine : "", status);
    _exit(status);
}

static int timeout_ms(int64_t deadline_ns) {
    int64_t left_ns = deadline_ns - clock_now_ns();
    if (deadline_ns == 0)
        return -1;
    return left_ns <= 0 ? 0 : (int)(left_ns / CLOCK_NS_PER_MS) + 1;
}

/* A signal is left to whoever takes it. */
static void *watch(void *argument) {
    struct stop_guard *guard = argument;
    pthread_setname_np(pthread_self(), "stop guard");
    while (!atomic_load(&guard->ends)) {
        int64_t deadline_ns = atomic_load(&guard->deadline_ns);
        struct pollfd fds[] = {{.fd = guard->wake_fd, .events = POLLIN},
                               {.fd = deadline_ns == 0 ? guard->signal_fd : -1, .events = POLLIN}};
        uint64_t count;
        poll(fds, 2, timeout_ms(deadline_ns));
        if (fds[0].revents != 0 && read(guard->wake_fd, &count, sizeof(count)) < 0)
            CHECK(errno == EAGAIN);
        if (fds[1].revents != 0)
            stop_guard_arm(guard, atomic_load(&guard->clients_ms));
        if (deadline_ns != 0 && clock_now_ns() >= deadline_ns && !atomic_load(&guard->ends))
            end_process(guard);
    }
    return NULL;
}

static void wake(const struct stop_guard *guard) {
    const uint64_t one = 1;
    CHECK(write(guard->wake_fd, &one, sizeof(one)) == sizeof(one));
}

static void close_files(struct stop_guard *guard) {
    if (guard->signal_fd >= 0)
        close(guard->signal_fd);
    if (guard->wake_fd >= 0)
        close(guard->wake_fd);
}

int stop_guard_start(struct stop_guard *guard, struct error *err) {
    guard->signal_fd = signals_open_stop();
    guard->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int status = guard->signal_fd < 0 || guard->wake_fd < 0
                     ? errno
                     : pthread_create(&guard->thread, NULL, watch, guard);
    guard->has_thread = status == 0;
    if (status == 0)
        return 0;
    close_files(guard);
    return error_set(err, ERROR_IO, "cannot start the thread that bounds a stop: %s",
                     strerror(status));
}

void stop_guard_note(struct stop_guard *guard, const char *activity) {
    atomic_store(&guard->activity, activity);
}

void stop_guard_serve(struct stop_guard *guard, int64_t clients_ms) {
    atomic_store(&guard->clients_ms, clients_ms);
    atomic_store(&guard->serves, true);
}

void stop_guard_arm(struct stop_guard *guard, int64_t clients_ms) {
    long long deadline_ns = clock_now_ns() + (clients_ms + STOP_GUARD_SPARE_MS) * CLOCK_NS_PER_MS;
    long long before = atomic_load(&guard->deadline_ns);
    while ((before == 0 || deadline_ns < before) &&
           !atomic_compare_exchange_weak(&guard->deadline_ns, &before, deadline_ns))
        continue;
    if (guard->has_thread)
        wake(guard);
}

void stop_guard_finish(struct stop_guard *guard) {
    if (!guard->has_thread)
        return;
    atomic_store(&guard->ends, true);
    wake(guard);
    CHECK(pthread_join(guard->thread, NULL) == 0);
    close_files(guard);
    guard->has_thread = false;
}
