#include "server/process_stats.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
