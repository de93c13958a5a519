#include "sim_test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const int SURVIVED = 42;

/* cmocka's handlers would continue with the tests. */
[[noreturn]] static void be_child(const std::function<void()> &body, int error_fd) {
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    dup2(error_fd, STDERR_FILENO);
    body();
    _exit(SURVIVED);
}

std::string run_child(const std::function<void()> &body, bool *out_survived) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(nullptr);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_child(body, ends[1]);
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t length; (length = read(ends[0], part, sizeof part)) > 0;)
        text.append(part, (size_t)length);
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    *out_survived = WIFEXITED(status) && WEXITSTATUS(status) == SURVIVED;
    return text;
}
