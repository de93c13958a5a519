/* A log that is moved away, as logrotate does, is opened again by its old name. */
#include "config/base/log_file.h"

#include "tests/unit/temporary_files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

struct streams {
    int output, error;
};

static struct streams redirect(const char *path) {
    struct streams saved = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0640);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return saved;
}

static void restore(struct streams saved) {
    dup2(saved.output, STDOUT_FILENO);
    dup2(saved.error, STDERR_FILENO);
    close(saved.output);
    close(saved.error);
}

static size_t size_of(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? (size_t)status.st_size : SIZE_MAX;
}

struct fixture {
    struct temporary_folder folder;
    char path[600], moved[600];
    struct streams saved; /* until restore */
    struct log_file log;
};

/* Both streams go to a file of the folder, which is found as the log. */
static void start_log(struct fixture *f) {
    temporary_folder_make(&f->folder);
    snprintf(f->path, sizeof(f->path), "%s", temporary_file(&f->folder, "log"));
    snprintf(f->moved, sizeof(f->moved), "%s", temporary_file(&f->folder, "log.1"));
    f->saved = redirect(f->path);
    log_file_find(&f->log);
}

static void test_moved_file_is_opened_again(void **state) {
    struct fixture f;
    struct error err;
    start_log(&f);
    int nothing = log_file_reopen(&f.log, &err);
    dprintf(STDERR_FILENO, "old");
    rename(f.path, f.moved);
    int reopened = log_file_reopen(&f.log, &err);
    dprintf(STDERR_FILENO, "new error");
    dprintf(STDOUT_FILENO, " and output");
    int again = log_file_reopen(&f.log, &err);
    restore(f.saved);
    assert_int_equal(nothing, 0);
    assert_int_equal(reopened, 1);
    assert_int_equal(again, 0);
    assert_int_equal(size_of(f.moved), strlen("old"));
    assert_int_equal(size_of(f.path), strlen("new error and output"));
    temporary_folder_remove(&f.folder);
}

static void test_the_old_file_goes_on_where_there_is_no_new_one(void **state) {
    struct fixture f;
    struct error err;
    start_log(&f);
    rename(f.path, f.moved);
    int linked = symlink("elsewhere", f.path);
    int reopened = log_file_reopen(&f.log, &err);
    dprintf(STDERR_FILENO, "still here");
    restore(f.saved);
    assert_int_equal(linked, 0);
    assert_int_equal(reopened, -1);
    assert_int_equal(err.code, ERROR_IO);
    assert_non_null(strstr(err.message, "log"));
    assert_int_equal(size_of(f.moved), strlen("still here"));
    temporary_folder_remove(&f.folder);
}

static void test_a_pipe_is_left_alone(void **state) {
    int ends[2], saved = dup(STDERR_FILENO);
    struct log_file log;
    struct error err;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_file_find(&log);
    int status = log_file_reopen(&log, &err);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    assert_string_equal(log.path, "");
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moved_file_is_opened_again),
        cmocka_unit_test(test_the_old_file_goes_on_where_there_is_no_new_one),
        cmocka_unit_test(test_a_pipe_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
