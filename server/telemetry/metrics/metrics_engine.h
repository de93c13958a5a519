/* What the engine counts, its ranks and --record included, by vLLM's names where it has them. */
#ifndef QUIRE_SERVER_METRICS_METRICS_ENGINE_H
#define QUIRE_SERVER_METRICS_METRICS_ENGINE_H

#include "server/telemetry/metrics/metrics.h"
#include "server/telemetry/metrics/metrics_text.h"

void metrics_engine_write(const struct metrics_text *w, const struct metrics_facts *facts,
                          const struct engine_stats *s);
void metrics_engine_write_recording(const struct metrics_text *w, const struct engine_stats *s);

#endif
