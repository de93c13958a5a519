/* The access log on a stdout that is the journal's: entries with fields, handed to libsystemd. */
#include "server/telemetry/access_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_ENTRIES 4

static int num_entries, status_of_send;
static char entries[MAX_ENTRIES][2048];

/* In place of libsystemd's; the names of its symbols are the linker's. */
int __wrap_sd_journal_sendv(const struct iovec *parts, int num_parts);
int __wrap_sd_journal_sendv(const struct iovec *parts, int num_parts) {
    assert_true(num_entries < MAX_ENTRIES);
    char *entry = entries[num_entries++];
    for (int i = 0; i < num_parts; i++) {
        strncat(entry, parts[i].iov_base, parts[i].iov_len);
        strcat(entry, "|");
    }
    return status_of_send;
}

static void write_two(int status) {
    struct access_log *log;
    struct error err;
    num_entries = 0;
    memset(entries, 0, sizeof(entries));
    status_of_send = status;
    assert_int_equal(access_log_open("-", &log, &err), 0);
    const struct access_record first = {.status = 200, .request_id = "one"};
    const struct access_record second = {.status = 404, .request_id = "two"};
    access_log_write(log, &first);
    access_log_write(log, &second);
    while ((uint64_t)access_log_num_lost(log) < (status < 0 ? 2 : 0))
        usleep(1000);
    access_log_close(log);
}

static void test_entries_have_fields(void **state) {
    write_two(0);
    assert_int_equal(num_entries, 2);
    assert_memory_equal(entries[0], "PRIORITY=6|MESSAGE={\"time\"", 26);
    assert_non_null(strstr(entries[0], "}|QUIRE_REQUEST_ID=one|QUIRE_STATUS=200|"));
    assert_non_null(strstr(entries[1], "}|QUIRE_REQUEST_ID=two|QUIRE_STATUS=404|"));
}

static void test_a_journal_that_refuses_loses_lines(void **state) {
    write_two(-11);
    assert_int_equal(num_entries, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries_have_fields),
        cmocka_unit_test(test_a_journal_that_refuses_loses_lines),
    };
    char stream[64];
    struct stat status;
    if (fstat(STDOUT_FILENO, &status) != 0)
        return 1;
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
