/* `quire top`: reads /metrics of a running server again and again, and shows what it says. The key
 * for that comes from the environment, as command lines are for all to see. */
#include "server/client/client.h"

#include "config/base/help_text.h"
#include "config/base/byte_buffer.h"
#include "config/base/clock.h"
#include "server/net/http_client.h"
#include "server/client/top_view.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <termios.h>
#include <unistd.h>

#define ASK_MS 10000
#define MAX_METRICS_BYTES ((size_t)16 << 20)
#define MAX_SECONDS 3600
#define CLEAR_SCREEN "\x1b[H\x1b[2J" /* ECMA-48: CUP, ED */

static const char usage[] =
    "usage: quire top [URL] [--once] [--interval SECONDS] [--api-key-env NAME]\n"
    "  URL\tof the server, http or https; default " CLIENT_DEFAULT_URL "; its /metrics is read. "
    "CURL_CA_BUNDLE names a file of certificate authorities to trust instead of the system's\n"
    "  --once\tshow the state once, with rates and latencies since the server's start\n"
    "  --interval SECONDS\tbetween two looks, 1 to 3600; default 2; q or Ctrl-C ends\n"
    "  --api-key-env NAME\tenvironment variable with the API key; default QUIRE_API_KEY\n"
    "\n"
    "for example: quire top http://gpu1:8000 --interval 5\n";

struct top {
    const char *url_text, *key_name;
    int interval_s;
    bool is_once;
    struct http_url url;
    char path[HTTP_URL_BYTES + 16];
    char key_field[HTTP_KEY_FIELD_BYTES];
    struct http_client *client;
};

/* Returns -1 when the words are not as usage says. */
static int read_words(int argc, char *const *argv, struct top *top) {
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(word, "--once") == 0) {
            top->is_once = true;
        } else if (strcmp(word, "--interval") == 0 && value != NULL) {
            top->interval_s = atoi(value);
            i++;
        } else if (strcmp(word, "--api-key-env") == 0 && value != NULL) {
            top->key_name = value;
            i++;
        } else if (word[0] != '-' && top->url_text == NULL) {
            top->url_text = word;
        } else {
            return -1;
        }
    }
    return top->interval_s >= 1 && top->interval_s <= MAX_SECONDS ? 0 : -1;
}

static int refuse(const char *what, const char *why) {
    fprintf(stderr, "quire top: %.256s: %s\n", what, why);
    return -1;
}

static int set_key(struct top *top) {
    struct error err;
    if (http_client_key_field(top->key_name, top->key_field, &err) == 0)
        return 0;
    fprintf(stderr, "quire top: %s\n", err.message);
    return -1;
}

static int set_url(struct top *top) {
    const char *text = top->url_text != NULL ? top->url_text : CLIENT_DEFAULT_URL;
    struct error err;
    if (http_url_parse(text, &top->url, &err) != 0)
        return refuse(text, err.message);
    size_t length = strlen(top->url.path);
    while (length > 0 && top->url.path[length - 1] == '/')
        top->url.path[--length] = '\0';
    bool has_name = length >= 8 && strcmp(top->url.path + length - 8, "/metrics") == 0;
    snprintf(top->path, sizeof(top->path), "%s%s", top->url.path, has_name ? "" : "/metrics");
    return 0;
}

/* The answer ends with a NUL. */
static int ask(const struct top *top, struct byte_buffer *out) {
    struct error err;
    const struct http_client_request request = {
        .url = &top->url,
        .path = top->path,
        .fields = {top->key_field[0] != '\0' ? top->key_field : NULL},
        .timeout_ms = ASK_MS,
        .max_answer_bytes = MAX_METRICS_BYTES,
    };
    struct http_answer answer;
    if (http_client_send(top->client, &request, &answer, &err) != 0)
        return refuse(top->path, err.message);
    *out = answer.body;
    out->max_length = 0;
    byte_buffer_append(out, "", 1);
    if (answer.status == 200 && !out->failed)
        return 0;
    byte_buffer_finish(out);
    char why[64];
    snprintf(why, sizeof(why), "the server answers with status %d", answer.status);
    return refuse(top->path, why);
}

/* is_screen: clears it first, and names the key that ends the program. */
static int show(const struct byte_buffer *now, const struct byte_buffer *earlier, double seconds,
                bool is_screen) {
    struct byte_buffer view = {0};
    byte_buffer_append_text(&view, is_screen ? CLEAR_SCREEN : "");
    top_view_write(now->data, earlier != NULL ? earlier->data : NULL, seconds, &view);
    byte_buffer_append_text(&view, is_screen ? "\nq quits\n" : "");
    bool is_shown = !view.failed && fwrite(view.data, 1, view.length, stdout) == view.length &&
                    fflush(stdout) == 0;
    byte_buffer_finish(&view);
    return is_shown ? 0 : -1;
}

static int show_once(const struct top *top) {
    struct byte_buffer now;
    if (ask(top, &now) != 0)
        return -1;
    int status = show(&now, NULL, 0, false);
    byte_buffer_finish(&now);
    return status;
}

/* Returns whether q was pressed, or the terminal is gone, before the time is up or a signal comes.
 */
static bool await_key(int signal_fd, int seconds) {
    int64_t end_ms = clock_now_ms() + seconds * 1000LL, left_ms;
    struct pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = signal_fd, .events = POLLIN}};
    while ((left_ms = end_ms - clock_now_ms()) > 0) {
        char key;
        if (poll(sources, 2, (int)left_ms) <= 0 || sources[1].revents != 0)
            return false;
        if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')
            return true;
    }
    return false;
}

/* Waits while keys are read one by one; returns whether to end. A signal takes effect once the
 * terminal is as it was. In the background the terminal belongs to others. */
static bool wait_for_quit(int seconds) {
    struct termios usual, keys;
    sigset_t stops, before;
    if (tcgetattr(STDIN_FILENO, &usual) != 0 || tcgetpgrp(STDIN_FILENO) != getpgrp()) {
        sleep((unsigned)seconds);
        return false;
    }
    sigemptyset(&stops);
    sigaddset(&stops, SIGHUP);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGQUIT);
    sigaddset(&stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops, &before);
    int signal_fd = signalfd(-1, &stops, SFD_CLOEXEC);
    keys = usual;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    bool quits = await_key(signal_fd, seconds);
    tcsetattr(STDIN_FILENO, TCSANOW, &usual);
    if (signal_fd >= 0)
        close(signal_fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return quits;
}

/* Until q is pressed, it is interrupted or the server is gone. */
static int show_often(const struct top *top) {
    struct byte_buffer earlier, now;
    int64_t earlier_ns = clock_now_ns();
    bool is_screen = isatty(STDOUT_FILENO);
    if (ask(top, &earlier) != 0)
        return -1;
    int status = show(&earlier, NULL, 0, is_screen);
    while (status == 0 && !wait_for_quit(top->interval_s)) {
        int64_t now_ns = clock_now_ns();
        status = ask(top, &now);
        if (status != 0)
            break;
        if (!is_screen)
            putchar('\n');
        status = show(&now, &earlier, (double)(now_ns - earlier_ns) * 1e-9, is_screen);
        byte_buffer_finish(&earlier);
        earlier = now;
        earlier_ns = now_ns;
    }
    byte_buffer_finish(&earlier);
    return status;
}

int command_top(int argc, char *const *argv) {
    struct top top = {.interval_s = 2, .key_name = "QUIRE_API_KEY"};
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    if (read_words(argc, argv, &top) != 0) {
        help_text_print(usage, stderr);
        return EX_USAGE;
    }
    if (set_url(&top) != 0 || set_key(&top) != 0)
        return EX_USAGE;
    top.client = http_client_create();
    if (top.client == NULL) {
        refuse(top.path, "no memory for a client");
        return EX_OSERR;
    }
    int status = top.is_once ? show_once(&top) : show_often(&top);
    http_client_destroy(top.client);
    return status == 0 ? EX_OK : EX_UNAVAILABLE;
}
