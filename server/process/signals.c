#include "server/process/signals.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

/* The signals that keep their effect: faults of the thread itself and what debuggers and profilers
 * use, job control, and what does nothing unless it is handled. */
static const int untouched[] = {
    SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGABRT, SIGSYS,   SIGPROF,
    SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD, SIGURG,  SIGWINCH,
};

static void fill_taken(sigset_t *out) {
    sigfillset(out);
    for (size_t i = 0; i < sizeof(untouched) / sizeof(untouched[0]); i++)
        sigdelset(out, untouched[i]);
}

void signals_block(void) {
    sigset_t taken;
    fill_taken(&taken);
    pthread_sigmask(SIG_BLOCK, &taken, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

int signals_open(void) {
    sigset_t taken;
    fill_taken(&taken);
    /* A blocked signal waits for us even if it is ignored: only its failing system call counts. */
    sigdelset(&taken, SIGPIPE);
    sigdelset(&taken, SIGXFSZ);
    return signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void fill_stopping(sigset_t *out) {
    sigemptyset(out);
    sigaddset(out, SIGTERM);
    sigaddset(out, SIGINT);
}

int signals_open_stop(void) {
    sigset_t stopping;
    fill_stopping(&stopping);
    return signalfd(-1, &stopping, SFD_NONBLOCK | SFD_CLOEXEC);
}

enum signal_action signals_action(int number) {
    if (number == SIGTERM || number == SIGINT)
        return SIGNAL_STOP;
    return number == SIGHUP ? SIGNAL_RELOAD : SIGNAL_IGNORE;
}

bool signals_take_stop(void) {
    sigset_t stopping;
    fill_stopping(&stopping);
    return sigtimedwait(&stopping, NULL, &(struct timespec){0}) > 0;
}

/* --- The stop guard --- */

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
    log_error("the stop takes too long: the main thread %s%s%s; ending at once, status %d",
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
