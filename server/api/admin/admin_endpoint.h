/* The bodies of /admin/, which http_control.h serves: pure, on any thread. */
#ifndef QUIRE_SERVER_API_ADMIN_ADMIN_ENDPOINT_H
#define QUIRE_SERVER_API_ADMIN_ADMIN_ENDPOINT_H

#include "config/base/byte_buffer.h"
#include "config/base/log.h"
#include "engine/stats/engine_stats.h"
#include "config/json/api_error.h"

struct admin_status {
    const char *state; /* "serving", "draining", "stopping", "failed" */
    int64_t uptime_s;
    int64_t num_connections;
    int64_t num_in_flight; /* requests that need work and are not completely answered */
    enum log_level log_level;
    const struct engine_stats *stats;
};

/* Appends one JSON object. */
void admin_endpoint_write_status(const struct admin_status *status, struct byte_buffer *out);

/* Reads {"level": NAME}. Returns -1 and *err, status 400, for anything else. */
int admin_endpoint_read_level(const char *body, size_t length, enum log_level *out,
                              struct api_error *err);

#endif
