/* Lines as they arrive on stderr: one per call, prefixed, printable, cut at the limit. */
#include "config/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_line_stays_one_line),
        cmocka_unit_test(test_long_line_is_cut),
        cmocka_unit_test(test_journal_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
