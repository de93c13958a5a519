#include "server/client/hub/hub_progress.h"

#include "config/base/clock.h"

#include <stdio.h>

#define STATUS_NS (CLOCK_NS_PER_S / 4)
#define LOG_NS (5 * CLOCK_NS_PER_S)
#define NEWEST_SHARE 0.3 /* of the last sample in the rate */

void hub_progress_print_size(int64_t bytes, char out[static HUB_SIZE_BYTES]) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes;
    int unit = 0;
    for (; size >= 1024.0 && unit < 4; unit++)
        size /= 1024.0;
    snprintf(out, HUB_SIZE_BYTES, "%.*f %s", unit == 0 ? 0 : 1, size, units[unit]);
}

void hub_progress_start(struct hub_progress *out, int64_t bytes, int64_t now_ns, bool is_terminal) {
    *out = (struct hub_progress){.started_ns = now_ns,
                                 .next_ns = now_ns + (is_terminal ? STATUS_NS : LOG_NS),
                                 .sampled_ns = now_ns,
                                 .sampled_bytes = bytes,
                                 .first_bytes = bytes,
                                 .is_terminal = is_terminal};
}

/* A sample a second. */
static void sample(struct hub_progress *progress, int64_t bytes, int64_t now_ns) {
    int64_t elapsed_ns = now_ns - progress->sampled_ns;
    if (elapsed_ns < CLOCK_NS_PER_S && progress->rate > 0)
        return;
    int64_t came = bytes > progress->sampled_bytes ? bytes - progress->sampled_bytes : 0;
    double rate = elapsed_ns > 0 ? (double)came * CLOCK_NS_PER_S / (double)elapsed_ns : 0;
    progress->rate =
        progress->rate > 0 ? (1 - NEWEST_SHARE) * progress->rate + NEWEST_SHARE * rate : rate;
    progress->sampled_ns = now_ns;
    progress->sampled_bytes = bytes;
}

static void print_left(double seconds, char *out, size_t capacity) {
    if (seconds < 100)
        snprintf(out, capacity, "%.0f s left", seconds);
    else if (seconds < 100 * 60)
        snprintf(out, capacity, "%.0f min left", seconds / 60);
    else
        snprintf(out, capacity, "%.1f h left", seconds / 3600);
}

enum hub_message hub_progress_update(struct hub_progress *progress, int64_t bytes,
                                     int64_t num_bytes, int64_t now_ns,
                                     char line[static HUB_PROGRESS_LINE_BYTES]) {
    char all[HUB_SIZE_BYTES], rate[HUB_SIZE_BYTES], left[32] = "";
    if (now_ns < progress->next_ns || num_bytes == 0)
        return HUB_NONE;
    sample(progress, bytes, now_ns);
    progress->next_ns = now_ns + (progress->is_terminal ? STATUS_NS : LOG_NS);
    if (progress->rate >= 1)
        print_left((double)(num_bytes - bytes) / progress->rate, left, sizeof(left));
    hub_progress_print_size(num_bytes, all);
    hub_progress_print_size((int64_t)progress->rate, rate);
    snprintf(line, HUB_PROGRESS_LINE_BYTES, "fetching   %d %% of %s, %s/s%s%s",
             (int)(100 * (double)bytes / (double)num_bytes), all, rate, left[0] != '\0' ? ", " : "",
             left);
    return progress->is_terminal ? HUB_STATUS : HUB_LINE;
}

void hub_progress_end(const struct hub_progress *progress, int64_t bytes, int64_t now_ns,
                      char line[static HUB_PROGRESS_LINE_BYTES]) {
    char size[HUB_SIZE_BYTES], rate[HUB_SIZE_BYTES];
    double elapsed_s = (double)(now_ns - progress->started_ns) / (double)CLOCK_NS_PER_S;
    int64_t came = bytes - progress->first_bytes;
    hub_progress_print_size(came, size);
    hub_progress_print_size(elapsed_s > 0 ? (int64_t)((double)came / elapsed_s) : 0, rate);
    snprintf(line, HUB_PROGRESS_LINE_BYTES, "fetched    %s in %.1f s, %s/s", size, elapsed_s, rate);
}
