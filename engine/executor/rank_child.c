#include "engine/executor/rank_child.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 1000       /* between two looks at a process that does not answer */
#define END_MS 30000       /* for a killed process to be gone */
#define END_ITSELF_MS 3000 /* for one that is to end itself; a stop has little more */
#define IDLE_NS 5000000    /* of processor time between two looks; less is nothing */

extern char **environ;

static int spawn_failed(int status, struct error *err) {
    return error_set(err, ERROR_IO, "cannot start the rank process: %s", strerror(status));
}

/* The process gets its end of the socket, the files of the steps and the standard streams, but for
 * the input; what else is not closed by exec(3) it closes itself (rank_process.c). */
static int spawn_with(const char *program, const char *const *argv, const struct step_files *files,
                      int socket_fd, char **environment, pid_t *out) {
    posix_spawn_file_actions_t actions;
    int status = posix_spawn_file_actions_init(&actions);
    if (status != 0)
        return status;
    if ((status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) == 0 &&
        (status = posix_spawn_file_actions_adddup2(&actions, socket_fd, RANK_SOCKET_FD)) == 0 &&
        (status = posix_spawn_file_actions_adddup2(&actions, files->batches, RANK_BATCHES_FD)) ==
            0 &&
        (status = posix_spawn_file_actions_adddup2(&actions, files->results, RANK_RESULTS_FD)) == 0)
        status = posix_spawn(out, program, &actions, NULL, (char *const *)argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

/* Without the API keys. */
static char **list_environment(void) {
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count && list != NULL; i++)
        if (strncmp(environ[i], "QUIRE_API_KEY", 13) != 0)
            list[kept++] = environ[i];
    return list;
}

int rank_child_start(struct rank_child *child, const char *program, const char *const *argv,
                     const struct step_files *files, struct error *err) {
    int ends[2];
    pid_t pid = 0;
    child->lost = (struct error){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return spawn_failed(errno, err);
    int inherited = fcntl(ends[1], F_DUPFD_CLOEXEC, RANK_CHILD_MIN_FD);
    char **environment = list_environment();
    int status = inherited < 0 ? errno : ENOMEM;
    if (inherited >= 0 && environment != NULL)
        status = spawn_with(program, argv, files, inherited, environment, &pid);
    free(environment);
    close(ends[1]);
    if (inherited >= 0)
        close(inherited);
    if (status != 0) {
        close(ends[0]);
        return spawn_failed(status, err);
    }
    child->socket = ends[0];
    atomic_store(&child->pid, pid);
    return 0;
}

/* Waits for the process to end; false when it has not. */
static bool await_end(struct rank_child *child, int timeout_ms, int *out_status) {
    int64_t deadline_ms = clock_now_ms() + timeout_ms;
    pid_t pid = atomic_load(&child->pid), ended;
    while ((ended = waitpid(pid, out_status, WNOHANG)) == 0 && clock_now_ms() < deadline_ms)
        nanosleep(&(struct timespec){.tv_nsec = 2 * CLOCK_NS_PER_MS}, NULL);
    if (ended == 0)
        return false;
    atomic_store(&child->pid, 0);
    return true;
}

static void close_socket(struct rank_child *child) {
    if (child->socket >= 0)
        close(child->socket);
    child->socket = -1;
}

/* As rank_child_end, and says how the process ended. */
static int kill_process(struct rank_child *child, int *out_status, struct error *err) {
    close_socket(child);
    *out_status = 0;
    if (atomic_load(&child->pid) == 0)
        return 0;
    kill(atomic_load(&child->pid), SIGKILL);
    if (await_end(child, END_MS, out_status))
        return 0;
    return error_set(err, ERROR_DEVICE, "the rank process %d cannot be killed: its device hangs",
                     (int)atomic_load(&child->pid));
}

int rank_child_end(struct rank_child *child, struct error *err) {
    int status;
    return kill_process(child, &status, err);
}

void rank_child_dismiss(struct rank_child *child) {
    int status;
    close_socket(child);
    if (atomic_load(&child->pid) != 0 && !await_end(child, END_ITSELF_MS, &status))
        kill_process(child, &status, NULL);
}

static void describe_end(int status, char *text, size_t size) {
    if (WIFSIGNALED(status))
        snprintf(text, size, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exit status %d", WEXITSTATUS(status));
}

void rank_child_lose(struct rank_child *child, const char *why) {
    struct error err = {0};
    char end[128];
    int status;
    bool can_restart = kill_process(child, &status, &err) == 0;
    describe_end(status, end, sizeof(end));
    child->lost.code = can_restart ? ERROR_RESTART : ERROR_DEVICE;
    snprintf(child->lost.message, sizeof(child->lost.message), "%.400s",
             !can_restart  ? err.message
             : why != NULL ? why
                           : end);
    log_warning("the ranks are lost: %s%s", why != NULL ? "" : "the rank process ended with ",
                child->lost.message);
}

void rank_child_lose_for_answer(struct rank_child *child, const char *what) {
    char why[300];
    snprintf(why, sizeof(why), "the rank process answers wrongly: %.250s", what);
    rank_child_lose(child, why);
}

bool rank_child_is_lost(const struct rank_child *child) {
    return child->lost.code != ERROR_NONE;
}

int rank_child_check(const struct rank_child *child, struct error *err) {
    return rank_child_is_lost(child) ? error_set(err, child->lost.code, "%s", child->lost.message)
                                     : 0;
}

/* Returns the processor time that the process has used; -1: it is not known. */
static int64_t processor_ns(const struct rank_child *child) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(atomic_load(&child->pid), &clock) != 0 ||
        clock_gettime(clock, &used) != 0)
        return -1;
    return used.tv_sec * CLOCK_NS_PER_S + used.tv_nsec;
}

/* A process whose threads only look whether something has come uses some microseconds a second. A
 * second in which this process was stopped itself counts as one at most. */
int rank_child_receive(struct rank_child *child, int32_t timeout_s, const atomic_bool *gives_up,
                       struct rank_message *out) {
    struct pollfd poll_fd = {.fd = child->socket, .events = POLLIN};
    int64_t used_ns = processor_ns(child);
    int32_t num_idle = 0;
    int count;
    while ((count = poll(&poll_fd, 1, LOOK_MS)) <= 0) {
        CHECK(count == 0 || errno == EINTR);
        int64_t now_ns = processor_ns(child);
        num_idle = now_ns - used_ns < IDLE_NS ? num_idle + (count == 0) : 0;
        used_ns = now_ns;
        if (gives_up != NULL && atomic_load(gives_up)) {
            rank_child_lose(child, "nobody waits for it any more");
            return -1;
        }
        if (timeout_s == 0 || num_idle < timeout_s)
            continue;
        char why[128];
        snprintf(why, sizeof(why),
                 "the rank process has not run or answered for %d s (--device-timeout)", timeout_s);
        rank_child_lose(child, why);
        return -1;
    }
    if (rank_message_receive(child->socket, out) == 0)
        return 0;
    if (errno == EBADMSG)
        rank_child_lose_for_answer(child, "what came is not a message");
    else
        rank_child_lose(child, NULL);
    return -1;
}

void rank_child_send(struct rank_child *child, const struct rank_message *message) {
    if (!rank_child_is_lost(child) && rank_message_send(child->socket, message) != 0)
        rank_child_lose(child, NULL);
}
