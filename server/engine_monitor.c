#include "server/engine_monitor.h"

void engine_monitor_update(struct engine_monitor *monitor, const struct engine_stats *stats,
                           int64_t now_ms) {
    bool is_idle = stats->num_running == 0 && stats->num_waiting == 0;
    if (is_idle || stats->step != monitor->step || monitor->progress_ms == 0)
        monitor->progress_ms = now_ms;
    monitor->step = stats->step;
}

bool engine_monitor_is_alive(const struct engine_monitor *monitor, int64_t now_ms) {
    return now_ms - monitor->progress_ms <= ENGINE_STUCK_MS;
}
