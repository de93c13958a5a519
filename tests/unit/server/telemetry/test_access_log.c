/* Lines in a file, in a pipe that nobody reads, and in the journal. */
#include "server/telemetry/access_log.h"

#include <fcntl.h>
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

static char folder[64], path[128], old_path[128];

static int make_folder(void **state) {
    strcpy(folder, "/tmp/quire-access-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(old_path, sizeof(old_path), "%s/log.1", folder);
    return 0;
}

static int remove_folder(void **state) {
    unlink(path);
    unlink(old_path);
    return rmdir(folder);
}

static struct access_log *open_log(const char *target) {
    struct access_log *log;
    struct error err;
    assert_int_equal(access_log_open(target, &log, &err), 0);
    return log;
}

static void write_status(struct access_log *log, int status) {
    const struct access_record record = {.status = status};
    access_log_write(log, &record);
}

/* The statuses of the lines of a file. */
static int read_statuses(const char *name, int *out, int capacity) {
    FILE *file = fopen(name, "r");
    char line[512];
    int count = 0;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, "\"status\":");
        assert_true(at != NULL && line[strlen(line) - 1] == '\n' && count < capacity);
        out[count++] = atoi(at + strlen("\"status\":"));
    }
    fclose(file);
    return count;
}

static void test_file_is_appended_to(void **state) {
    int statuses[4];
    for (int i = 0; i < 2; i++) {
        struct access_log *log = open_log(path);
        write_status(log, 200 + i);
        assert_int_equal(access_log_num_lost(log), 0);
        access_log_close(log);
    }
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0007, 0);
    assert_int_equal(read_statuses(path, statuses, 4), 2);
    assert_int_equal(statuses[0], 200);
    assert_int_equal(statuses[1], 201);
}

static void test_reopened_by_its_name(void **state) {
    int statuses[4];
    struct access_log *log = open_log(path);
    write_status(log, 200);
    while (read_statuses(path, statuses, 4) == 0)
        usleep(1000);
    assert_int_equal(rename(path, old_path), 0);
    access_log_reopen(log);
    while (access(path, F_OK) != 0)
        usleep(1000);
    write_status(log, 201);
    access_log_close(log);
    assert_int_equal(read_statuses(old_path, statuses, 4), 1);
    assert_int_equal(statuses[0], 200);
    assert_int_equal(read_statuses(path, statuses, 4), 1);
    assert_int_equal(statuses[0], 201);
}

static void test_bad_file(void **state) {
    struct access_log *log;
    struct error err;
    assert_int_equal(access_log_open("/nowhere/log", &log, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_string_equal(err.message, "access-log /nowhere/log: No such file or directory");
    assert_null(log);
    assert_int_equal(access_log_open(folder, &log, &err), -1);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(access_log_open(path, &log, &err), -1); /* that nobody reads */
}

static void test_none(void **state) {
    struct access_log *log = open_log("none");
    assert_null(log);
    write_status(log, 200);
    access_log_reopen(log);
    assert_int_equal(access_log_num_lost(log), 0);
    access_log_close(log);
}

/* All stands still but for whoever logs; what the bounds do not hold is counted. */
static void test_nobody_reads(void **state) {
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct access_log *log = open_log(path);
    const int num_lines = 100000; /* 9 MB */
    for (int i = 0; i < num_lines; i++)
        write_status(log, 200);
    uint64_t num_lost = access_log_num_lost(log);
    assert_in_range(num_lost, 1, num_lines - 16384);
    char data[65536];
    int num_read = 0;
    ssize_t count;
    while ((uint64_t)num_read + access_log_num_lost(log) < (uint64_t)num_lines)
        for (count = read(reader, data, sizeof(data)); count > 0; count--)
            num_read += data[count - 1] == '\n';
    write_status(log, 201);
    access_log_close(log);
    count = read(reader, data, sizeof(data) - 1);
    data[count > 0 ? count : 0] = '\0';
    assert_non_null(strstr(data, "\"status\":201"));
    close(reader);
}

/* The pipe is full and stays so: the end comes all the same. */
static void test_end_while_nobody_reads(void **state) {
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct access_log *log = open_log(path);
    for (int i = 0; i < 10000; i++)
        write_status(log, 200);
    access_log_close(log);
    close(reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_is_appended_to, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_reopened_by_its_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_bad_file, make_folder, remove_folder),
        cmocka_unit_test(test_none),
        cmocka_unit_test_setup_teardown(test_nobody_reads, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_end_while_nobody_reads, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
