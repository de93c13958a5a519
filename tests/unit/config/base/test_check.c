/* A failed CHECK ends the process, also when nobody reads what it says. */
#include "config/base/check.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Exit status, as of wait(2), of a child whose CHECK fails with this stderr. */
static int run_child(int error_fd) {
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(error_fd, STDERR_FILENO);
        alarm(60);
        int one = 1;
        CHECK(one == 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_it_says_where_and_aborts(void **state) {
    int ends[2];
    char text[1024];
    assert_int_equal(pipe(ends), 0);
    int status = run_child(ends[1]);
    close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof(text) - 1);
    close(ends[0]);
    text[length > 0 ? length : 0] = '\0';
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "internal error at"));
    assert_non_null(strstr(text, "test_check.c"));
    assert_non_null(strstr(text, "one == 2"));
}

static void test_a_full_pipe_does_not_keep_it(void **state) {
    int ends[2];
    static const char piece[4096];
    assert_int_equal(pipe(ends), 0);
    int flags = fcntl(ends[1], F_GETFL);
    fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
    while (write(ends[1], piece, sizeof(piece)) > 0) {
    }
    fcntl(ends[1], F_SETFL, flags);
    int status = run_child(ends[1]);
    close(ends[0]);
    close(ends[1]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_says_where_and_aborts),
        cmocka_unit_test(test_a_full_pipe_does_not_keep_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
