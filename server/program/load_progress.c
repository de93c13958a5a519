#include "server/program/load_progress.h"

#include "config/base/clock.h"

#include <stdio.h>

#define SILENT_NS (2 * CLOCK_NS_PER_S)
#define STATUS_NS (CLOCK_NS_PER_S / 4)
#define LOG_NS (5 * CLOCK_NS_PER_S)

void load_progress_start(struct load_progress *out, int64_t now_ns, bool is_terminal) {
    *out = (struct load_progress){
        .started_ns = now_ns, .next_ns = now_ns + SILENT_NS, .is_terminal = is_terminal};
}

static double gib(double bytes) {
    return bytes / (double)((size_t)1 << 30);
}

enum load_progress_kind load_progress_update(struct load_progress *progress, size_t bytes_read,
                                             size_t num_bytes, int64_t now_ns,
                                             char line[static LOAD_PROGRESS_LINE_BYTES]) {
    double elapsed_s = (double)(now_ns - progress->started_ns) / (double)CLOCK_NS_PER_S;
    double read = (double)bytes_read, all = (double)num_bytes, rate = read / elapsed_s;
    if (bytes_read == num_bytes && progress->is_shown) {
        snprintf(line, LOAD_PROGRESS_LINE_BYTES, "loaded     %.1f GiB in %.1f s, %.2f GiB/s",
                 gib(all), elapsed_s, gib(rate));
        return LOAD_PROGRESS_LOG;
    }
    if (bytes_read == 0 || bytes_read == num_bytes || now_ns < progress->next_ns)
        return LOAD_PROGRESS_NONE;
    progress->is_shown = true;
    progress->next_ns = now_ns + (progress->is_terminal ? STATUS_NS : LOG_NS);
    snprintf(line, LOAD_PROGRESS_LINE_BYTES,
             "loading    %d %% of %.1f GiB, %.2f GiB/s, %.1f s left", (int)(100 * read / all),
             gib(all), gib(rate), (all - read) / rate);
    return progress->is_terminal ? LOAD_PROGRESS_STATUS : LOAD_PROGRESS_LOG;
}
