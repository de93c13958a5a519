#include "kernels/thread_load.h"

#include "config/base/numbers.h"

#include <stdbool.h>

void thread_load_init(struct thread_load *load, int num_threads) {
    *load = (struct thread_load){.num_threads = num_threads,
                                 .num_active = num_threads,
                                 .pause_ns = THREAD_LOAD_MIN_PAUSE_NS};
}

/* n threads that lose the share f of their time do n (1 - f) threads' work. One less would do n -
 * 1, and nearly as much where memory is the limit, so a little less than 1/n is enough. */
static bool loses_a_thread(const struct thread_load *load) {
    return load->lost_ns * load->num_active * 5 > load->elapsed_ns * 4;
}

static void leave_one_out(struct thread_load *load, int64_t now_ns) {
    load->num_active--;
    load->paused_until = now_ns + load->pause_ns;
    load->pause_ns = min_int64(2 * load->pause_ns, THREAD_LOAD_MAX_PAUSE_NS);
}

static void judge(struct thread_load *load, int64_t now_ns) {
    if (load->num_active > 1 && loses_a_thread(load))
        leave_one_out(load, now_ns);
    else if (load->num_active == load->num_threads)
        load->pause_ns = max_int64(load->pause_ns / 2, THREAD_LOAD_MIN_PAUSE_NS);
    load->elapsed_ns = load->lost_ns = 0;
}

void thread_load_add(struct thread_load *load, int64_t now_ns, int64_t elapsed_ns,
                     int64_t lost_ns) {
    load->elapsed_ns += elapsed_ns;
    load->lost_ns += lost_ns;
    if (load->elapsed_ns >= THREAD_LOAD_WINDOW_NS)
        judge(load, now_ns);
    if (load->num_active < load->num_threads && now_ns >= load->paused_until) {
        load->num_active++;
        load->paused_until = now_ns + load->pause_ns;
        load->elapsed_ns = load->lost_ns = 0;
    }
}
