#include "kernels/spin_wait.h"

#include "config/base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS_PER_CLOCK_READ 32

#if defined(__x86_64__) || defined(__i386__)
static inline void cpu_relax(void) {
    __builtin_ia32_pause();
}
#else
static inline void cpu_relax(void) {
    atomic_signal_fence(memory_order_seq_cst);
}
#endif

bool spin_wait_until(atomic_uint *word, bool (*done)(unsigned now, unsigned value), unsigned value,
                     int64_t spin_ns) {
    int64_t deadline = 0;
    for (;;) {
        for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
            if (done(atomic_load_explicit(word, memory_order_acquire), value))
                return true;
            cpu_relax();
        }
        int64_t now = clock_now_ns();
        if (deadline == 0)
            deadline = now + spin_ns;
        if (now >= deadline)
            return false;
    }
}

bool spin_wait_differs(unsigned now, unsigned value) {
    return now != value;
}

bool spin_wait_equals(unsigned now, unsigned value) {
    return now == value;
}

void spin_wait_sleep(atomic_uint *word, unsigned expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void spin_wait_wake_all(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
