/* Lines as they arrive on stderr: one per call, prefixed, printable, cut at the limit; and what
 * happens when it takes none. */
#include "config/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* stderr goes into this pipe while a test runs. */
struct capture {
    int read_fd, saved_stderr;
};

static void capture_start(struct capture *capture) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    capture->read_fd = ends[0];
    capture->saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

static size_t capture_stop(struct capture *capture, char *out, size_t capacity) {
    dup2(capture->saved_stderr, STDERR_FILENO);
    close(capture->saved_stderr);
    size_t length = 0;
    ssize_t got;
    while ((got = read(capture->read_fd, out + length, capacity - 1 - length)) > 0)
        length += (size_t)got;
    close(capture->read_fd);
    out[length] = '\0';
    return length;
}

static void test_levels(void **state) {
    struct capture capture;
    char text[4096];
    log_set_level(LOG_WARNING);
    capture_start(&capture);
    log_error("first %d", 1);
    log_info("hidden");
    log_warning("second");
    capture_stop(&capture, text, sizeof(text));
    log_set_level(LOG_INFO);
    assert_non_null(strstr(text, "Z ERROR   first 1\n"));
    assert_non_null(strstr(text, "Z WARNING second\n"));
    assert_null(strstr(text, "hidden"));
}

static void test_line_stays_one_line(void **state) {
    struct capture capture;
    char text[4096];
    capture_start(&capture);
    log_info("a\nb\x1b[31mc");
    size_t length = capture_stop(&capture, text, sizeof(text));
    assert_non_null(strstr(text, "a?b?[31mc\n"));
    assert_ptr_equal(strchr(text, '\n'), text + length - 1);
}

static void test_long_line_is_cut(void **state) {
    struct capture capture;
    char long_text[4000], text[8192];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    capture_start(&capture);
    log_info("%s", long_text);
    size_t length = capture_stop(&capture, text, sizeof(text));
    assert_in_range(length, 2000, 2048);
    assert_int_equal(text[length - 1], '\n');
}

static void test_journal_prefix(void **state) {
    struct capture capture;
    char text[4096], stream[64];
    struct stat status;
    capture_start(&capture);
    fstat(STDERR_FILENO, &status);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_warning("from the unit");
    setenv("JOURNAL_STREAM", "1:1", 1); /* stderr was redirected since */
    log_warning("elsewhere");
    unsetenv("JOURNAL_STREAM");
    capture_stop(&capture, text, sizeof(text));
    assert_non_null(strstr(text, "<4>from the unit\n"));
    assert_non_null(strstr(text, "Z WARNING elsewhere\n"));
}

/* Writes lines until one is lost, which takes no more than fills any pipe. Returns how many. */
static int fill_log(void) {
    uint64_t before = log_num_lost();
    int count = 0;
    while (log_num_lost() == before && count < 100000)
        log_info("line %d that nobody reads, and that takes some room", count++);
    return count;
}

/* All that waits in fd, which is made non-blocking at the reader's end alone. */
static size_t drain(int fd, char *out, size_t capacity) {
    size_t length = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (length < capacity - 1 && poll(&ready, 1, 0) == 1) {
        ssize_t got = read(fd, out + length, capacity - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    out[length] = '\0';
    return length;
}

/* stderr is `fd`, whose other end is read through `reader`. Would hang if a line waited. */
static void check_full(int fd, int reader, int flags_before) {
    static char text[4 << 20];
    int saved = dup(STDERR_FILENO);
    uint64_t lost_before = log_num_lost();
    dup2(fd, STDERR_FILENO);
    int count = fill_log();
    for (int i = 0; i < 9; i++)
        log_info("lost");
    assert_int_equal(log_num_lost(), lost_before + 10);
    size_t length = drain(reader, text, sizeof(text));
    assert_true(length > 1000 && length < sizeof(text) - 1);
    int lines = 0;
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, count - 1);
    log_info("moves again");
    log_info("and on");
    drain(reader, text, sizeof(text));
    assert_int_equal(fcntl(fd, F_GETFL), flags_before); /* it is not ours alone */
    dup2(saved, STDERR_FILENO);
    close(saved);
    const char *report = strstr(text, "10 lines of the log could not be written");
    assert_non_null(report);
    assert_non_null(strstr(report, "moves again"));
    assert_null(strstr(report + 30, "could not be written"));
    assert_null(strstr(text, "lost\n"));
}

static void test_full_pipe_holds_up_nobody(void **state) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    check_full(ends[1], ends[0], fcntl(ends[1], F_GETFL));
    close(ends[0]);
    close(ends[1]);
}

static void test_full_socket_holds_up_nobody(void **state) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    check_full(ends[1], ends[0], fcntl(ends[1], F_GETFL));
    close(ends[0]);
    close(ends[1]);
}

/* Returns the end that a program has, or -1, and in *out_leader the other one. */
static int open_terminal(int *out_leader) {
    int leader = posix_openpt(O_RDWR | O_NOCTTY);
    const char *name =
        leader >= 0 && grantpt(leader) == 0 && unlockpt(leader) == 0 ? ptsname(leader) : NULL;
    int terminal = name != NULL ? open(name, O_RDWR | O_NOCTTY) : -1;
    if (terminal < 0 && leader >= 0)
        close(leader);
    *out_leader = leader;
    return terminal;
}

/* A line may be cut here: a terminal takes as many bytes as it has room for, and would make us wait
 * with the others. */
static void test_stuck_terminal_holds_up_nobody(void **state) {
    static char text[4 << 20];
    int leader, terminal = open_terminal(&leader);
    assert_true(terminal >= 0);
    int saved = dup(STDERR_FILENO);
    dup2(terminal, STDERR_FILENO);
    fill_log();
    drain(leader, text, sizeof(text));
    log_info("moves again");
    drain(leader, text, sizeof(text));
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_non_null(strstr(text, "could not be written"));
    assert_non_null(strstr(text, "moves again"));
    close(terminal);
    close(leader);
}

static void test_status_gives_way_to_the_next_line(void **state) {
    static char text[4096];
    int leader, terminal = open_terminal(&leader);
    assert_true(terminal >= 0);
    int saved = dup(STDERR_FILENO);
    dup2(terminal, STDERR_FILENO);
    log_info("before");
    log_status("one %d", 1);
    log_status("two\n");
    log_info("after");
    log_info("last");
    drain(leader, text, sizeof(text));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(terminal);
    close(leader);
    const char *shown = strstr(text, "before\r\n\r\x1b[Kone 1\r\x1b[Ktwo?\r\x1b[K2");
    assert_non_null(shown);
    const char *after = strstr(shown, "after\r\n2"); /* a line begins with its year */
    assert_non_null(after);
    assert_non_null(strstr(after, "last\r\n"));
}

static void test_status_is_for_terminals(void **state) {
    struct capture capture;
    char text[64];
    capture_start(&capture);
    log_status("42 %%");
    assert_false(log_is_terminal());
    assert_int_equal(capture_stop(&capture, text, sizeof(text)), 0);
}

/* A disk that is full takes the begin of a line alone: the next one that it takes stands on its
 * own. */
static void test_a_cut_line_is_ended(void **state) {
    char path[] = "/tmp/test_log_XXXXXX", text[4096];
    int file = mkstemp(path), saved = dup(STDERR_FILENO);
    struct rlimit old, limit;
    assert_true(file >= 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    dup2(file, STDERR_FILENO);
    log_info("first");
    off_t first = lseek(STDERR_FILENO, 0, SEEK_CUR);
    limit = (struct rlimit){(rlim_t)first + 10, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    log_info("cut");
    log_info("lost");
    setrlimit(RLIMIT_FSIZE, &old);
    log_info("next");
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t length = pread(file, text, sizeof(text) - 1, 0);
    assert_true(length > first + 10);
    text[length] = '\0';
    close(file);
    unlink(path);
    assert_int_equal(text[first + 10], '\n');
    assert_non_null(strstr(text + first + 11, "2 lines of the log could not be written\n"));
    assert_null(strstr(text, "lost\n"));
    assert_string_equal(text + length - 5, "next\n");
}

static void test_closed_reader_and_full_disk_lose_lines(void **state) {
    int ends[2], saved = dup(STDERR_FILENO);
    uint64_t before = log_num_lost();
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    log_info("nobody reads");
    int full = open("/dev/full", O_WRONLY);
    dup2(full, STDERR_FILENO);
    log_info("no room");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(full);
    close(ends[1]);
    assert_int_equal(log_num_lost(), before + 2);
}

/* What needs a terminal is a run of its own, which skips as a whole: cmocka 1.1.5 has "not ok" for
 * a single test that skips, and Meson a failure. */
static int run_with_terminal(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stuck_terminal_holds_up_nobody),
        cmocka_unit_test(test_status_gives_way_to_the_next_line),
    };
    int leader, terminal = open_terminal(&leader);
    if (terminal < 0) {
        puts("1..0 # SKIP no terminal can be opened: /dev/pts is not mounted");
        return 0;
    }
    close(terminal);
    close(leader);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "terminal") == 0)
        return run_with_terminal();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_line_stays_one_line),
        cmocka_unit_test(test_long_line_is_cut),
        cmocka_unit_test(test_journal_prefix),
        cmocka_unit_test(test_full_pipe_holds_up_nobody),
        cmocka_unit_test(test_full_socket_holds_up_nobody),
        cmocka_unit_test(test_status_is_for_terminals),
        cmocka_unit_test(test_a_cut_line_is_ended),
        cmocka_unit_test(test_closed_reader_and_full_disk_lose_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
