#include "server/client/chat/chat_server.h"

#include "config/base/clock.h"
#include "server/net/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 50
#define ASK_MS 5000
#define STOP_MS 10000
#define LINE_BYTES 400
#define ERASE_LINE "\r\x1b[K" /* ECMA-48: EL */

static int make_folder(struct chat_server *server, struct error *err) {
    snprintf(server->folder, sizeof(server->folder), "/tmp/quire-chat-XXXXXX");
    if (mkdtemp(server->folder) == NULL) {
        server->folder[0] = '\0';
        return error_set(err, ERROR_IO, "no folder in /tmp: %s", strerror(errno));
    }
    snprintf(server->socket_path, sizeof(server->socket_path), "%s/socket", server->folder);
    snprintf(server->log_path, sizeof(server->log_path), "%s/log", server->folder);
    return 0;
}

/* In the child. It must not receive Ctrl-C from the terminal: hence its own process group. */
static _Noreturn void become_server(char *const *words, const char *log_path, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null_fd = open("/dev/null", O_RDONLY);
    if (getppid() == parent && log_fd >= 0 && null_fd >= 0 && dup2(null_fd, 0) == 0 &&
        dup2(log_fd, 1) == 1 && dup2(log_fd, 2) == 2)
        execv("/proc/self/exe", words);
    _exit(127);
}

static int start_process(struct chat_server *server, char *const *arguments, int num_arguments,
                         struct error *err) {
    char **words = calloc((size_t)num_arguments + 5, sizeof(*words));
    if (words == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a server");
    words[0] = "quire";
    words[1] = "serve";
    words[2] = "--uds";
    words[3] = server->socket_path;
    memcpy(words + 4, arguments, (size_t)num_arguments * sizeof(*words));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_server(words, server->log_path, parent);
    free(words);
    if (pid < 0)
        return error_set(err, ERROR_IO, "cannot start a process: %s", strerror(errno));
    server->pid = pid;
    return 0;
}

/* Reads the end of the log, and writes its last line, without the time, to line; "" if there is
 * none. */
static void read_last_line(const struct chat_server *server, char line[static LINE_BYTES]) {
    char text[4096];
    line[0] = '\0';
    int fd = open(server->log_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    off_t end = lseek(fd, 0, SEEK_END);
    off_t begin = end > (off_t)sizeof(text) - 1 ? end - (off_t)(sizeof(text) - 1) : 0;
    ssize_t count = pread(fd, text, sizeof(text) - 1, begin);
    close(fd);
    while (count > 0 && text[count - 1] == '\n')
        count--;
    if (count <= 0)
        return;
    text[count] = '\0';
    const char *last = strrchr(text, '\n'), *level = NULL;
    last = last != NULL ? last + 1 : text;
    for (const char *const *name = (const char *const[]){" ERROR ", " WARNING ", " INFO ", NULL};
         *name != NULL && level == NULL; name++)
        if ((level = strstr(last, *name)) != NULL)
            last = level + strlen(*name) + strspn(level + strlen(*name), " ");
    snprintf(line, LINE_BYTES, "%.*s", LINE_BYTES - 1, last);
}

static void show_progress(const struct chat_server *server, int64_t started_ns) {
    char line[LINE_BYTES];
    read_last_line(server, line);
    for (char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            *c = '?';
    fprintf(stderr, ERASE_LINE "starting, %.0f s: %.60s",
            (double)(clock_now_ns() - started_ns) / (double)CLOCK_NS_PER_S, line);
}

static bool is_ready(const struct chat_server *server, struct http_client *client) {
    struct error err;
    struct http_answer answer;
    static const struct http_url url = {.origin = "http://localhost"};
    const struct http_client_request request = {.url = &url,
                                                .path = "/ready",
                                                .socket_path = server->socket_path,
                                                .timeout_ms = ASK_MS,
                                                .max_answer_bytes = 65536};
    if (access(server->socket_path, F_OK) != 0 ||
        http_client_send(client, &request, &answer, &err) != 0)
        return false;
    byte_buffer_finish(&answer.body);
    return answer.status == 200;
}

static bool has_ended(struct chat_server *server) {
    int status;
    if (waitpid(server->pid, &status, WNOHANG) != server->pid)
        return false;
    server->pid = 0;
    return true;
}

static int wait_until_ready(struct chat_server *server, struct http_client *client,
                            bool shows_progress, bool (*take_interrupt)(void), struct error *err) {
    char line[LINE_BYTES];
    const struct timespec pause = {.tv_nsec = LOOK_MS * CLOCK_NS_PER_MS};
    int64_t started_ns = clock_now_ns();
    while (!is_ready(server, client)) {
        if (has_ended(server)) {
            read_last_line(server, line);
            return error_set(err, ERROR_CONFIG, "the server ended: %s", line);
        }
        if (take_interrupt())
            return error_set(err, ERROR_IO, "interrupted");
        if (shows_progress)
            show_progress(server, started_ns);
        nanosleep(&pause, NULL);
    }
    return 0;
}

int chat_server_start(char *const *arguments, int num_arguments, bool shows_progress,
                      bool (*take_interrupt)(void), struct chat_server *out, struct error *err) {
    *out = (struct chat_server){0};
    if (make_folder(out, err) != 0 || start_process(out, arguments, num_arguments, err) != 0)
        return -1;
    struct http_client *client = http_client_create();
    if (client == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a client");
    int status = wait_until_ready(out, client, shows_progress, take_interrupt, err);
    if (shows_progress)
        fputs(ERASE_LINE, stderr);
    http_client_destroy(client);
    return status;
}

void chat_server_stop(struct chat_server *server) {
    const struct timespec pause = {.tv_nsec = LOOK_MS * CLOCK_NS_PER_MS};
    if (server->pid > 0)
        kill(server->pid, SIGTERM);
    for (int64_t end_ms = clock_now_ms() + STOP_MS; server->pid > 0 && !has_ended(server);) {
        if (clock_now_ms() > end_ms)
            kill(server->pid, SIGKILL);
        nanosleep(&pause, NULL);
    }
    if (server->folder[0] == '\0')
        return;
    unlink(server->socket_path);
    unlink(server->log_path);
    rmdir(server->folder);
    server->folder[0] = '\0';
}
