#include "server/process/process_stats.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES ((size_t)64 << 20)

static void test_memory(void **state) {
    struct process_stats before, after;
    process_stats_read(&before);
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 1, BYTES);
    process_stats_read(&after);
    munmap(memory, BYTES);
    assert_true(after.resident_bytes >= before.resident_bytes + BYTES / 2);
    assert_true(after.virtual_bytes >= before.virtual_bytes + BYTES);
}

static void test_files(void **state) {
    struct process_stats before, after;
    struct rlimit limit;
    process_stats_read(&before);
    int fds[10];
    for (int i = 0; i < 10; i++)
        assert_true((fds[i] = open("/dev/null", O_RDONLY)) >= 0);
    process_stats_read(&after);
    for (int i = 0; i < 10; i++)
        close(fds[i]);
    assert_true(before.num_files >= 3);
    assert_int_equal(after.num_files, before.num_files + 10);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(after.max_files, limit.rlim_cur);
}

static void test_times(void **state) {
    struct process_stats stats;
    struct rusage used;
    volatile unsigned sum = 0;
    do {
        for (unsigned i = 0; i < 1000000; i++)
            sum = sum + i;
        getrusage(RUSAGE_SELF, &used);
    } while (used.ru_utime.tv_sec == 0 && used.ru_utime.tv_usec < 50000);
    process_stats_read(&stats);
    assert_true(stats.cpu_seconds > 0 && stats.cpu_seconds < 60);
    assert_true(stats.start_seconds > (double)time(NULL) - 3600 &&
                stats.start_seconds < (double)time(NULL) + 1);
}

static void test_child(void **state) {
    struct process_stats own, of_child;
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        /* until the parent closes its end */
        _exit(memory == MAP_FAILED || read(ends[0], &byte, 1) != 0);
    }
    assert_true(pid > 0);
    close(ends[0]);
    do
        process_stats_read_child(pid, &of_child);
    while (of_child.resident_bytes < BYTES && waitpid(pid, NULL, WNOHANG) == 0);
    process_stats_read(&own);
    assert_true(of_child.resident_bytes >= BYTES);
    assert_true(of_child.start_seconds >= own.start_seconds);
    assert_int_equal(of_child.num_files, 0);
    close(ends[1]);
    waitpid(pid, NULL, 0);
    process_stats_read_child(pid, &of_child);
    assert_int_equal(of_child.resident_bytes, 0);
    process_stats_read_child(0, &of_child);
    assert_int_equal(of_child.resident_bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
