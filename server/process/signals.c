#include "server/process/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <time.h>

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
