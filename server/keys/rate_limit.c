#include "server/keys/rate_limit.h"

#define MINUTE_MS 60000
#define MAX_DEBT (INT64_MAX / 4)

/* Returns the level of a time that is not before the last one. */
static int64_t level_at(const struct rate_limit *limit, int64_t now_ms) {
    int64_t full = limit->per_minute * MINUTE_MS, elapsed_ms = now_ms - limit->now_ms;
    int64_t missing = full - limit->level;
    if (elapsed_ms <= 0)
        return limit->level;
    return elapsed_ms > missing / limit->per_minute ? full
                                                    : limit->level + elapsed_ms * limit->per_minute;
}

void rate_limit_set(struct rate_limit *limit, int64_t per_minute, int64_t now_ms) {
    int64_t full = per_minute * MINUTE_MS;
    int64_t used =
        limit->per_minute > 0 ? limit->per_minute * MINUTE_MS - level_at(limit, now_ms) : 0;
    *limit = (struct rate_limit){per_minute, full - used, now_ms};
}

int64_t rate_limit_wait_ms(const struct rate_limit *limit, int64_t amount, int64_t now_ms) {
    if (limit->per_minute == 0)
        return 0;
    if (amount > limit->per_minute)
        return -1;
    int64_t missing = amount * MINUTE_MS - level_at(limit, now_ms);
    return missing <= 0 ? 0 : (missing + limit->per_minute - 1) / limit->per_minute;
}

void rate_limit_take(struct rate_limit *limit, int64_t amount, int64_t now_ms) {
    if (limit->per_minute == 0)
        return;
    int64_t level = level_at(limit, now_ms);
    int64_t most = (level + MAX_DEBT) / MINUTE_MS;
    limit->level = level - (amount < most ? amount : most) * MINUTE_MS;
    limit->now_ms = now_ms;
}

void rate_limit_give(struct rate_limit *limit, int64_t amount, int64_t now_ms) {
    if (limit->per_minute == 0)
        return;
    int64_t level = level_at(limit, now_ms), missing = limit->per_minute * MINUTE_MS - level;
    limit->level = amount < missing / MINUTE_MS ? level + amount * MINUTE_MS : level + missing;
    limit->now_ms = now_ms;
}

int64_t rate_limit_remaining(const struct rate_limit *limit, int64_t now_ms) {
    if (limit->per_minute == 0)
        return 0;
    int64_t level = level_at(limit, now_ms);
    return level > 0 ? level / MINUTE_MS : 0;
}

int64_t rate_limit_reset_ms(const struct rate_limit *limit, int64_t now_ms) {
    return rate_limit_wait_ms(limit, limit->per_minute, now_ms);
}
