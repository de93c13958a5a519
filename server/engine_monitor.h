/* Watches whether the engine makes progress: the one notion behind /health and the service
 * manager's watchdog. I/O thread only. */
#ifndef QUIRE_SERVER_ENGINE_MONITOR_H
#define QUIRE_SERVER_ENGINE_MONITOR_H

#include "engine/engine_stats.h"

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_STUCK_MS 5000

struct engine_monitor {
    uint64_t step;       /* at the last change */
    int64_t progress_ms; /* when a step ended, or there was nothing to do */
};

/* Observes the engine; to be called every few hundred milliseconds. */
void engine_monitor_update(struct engine_monitor *monitor, const struct engine_stats *stats,
                           int64_t now_ms);
/* Returns false when there has been work but no finished step for ENGINE_STUCK_MS. */
bool engine_monitor_is_alive(const struct engine_monitor *monitor, int64_t now_ms);

#endif
