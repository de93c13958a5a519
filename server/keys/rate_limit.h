/* So many units (requests, tokens) per minute, as a token bucket: it holds what a minute allows, is
 * full at first and fills evenly. What is only known afterwards, as the tokens of an output, may be
 * taken from an empty one: it then owes them, and allows nothing before that is paid off. In whole
 * numbers: nothing drifts. Times are milliseconds of a clock that never goes back. */
#ifndef QUIRE_SERVER_KEYS_RATE_LIMIT_H
#define QUIRE_SERVER_KEYS_RATE_LIMIT_H

#include <stdint.h>

#define RATE_LIMIT_MAX INT64_C(1000000000000) /* per minute */

/* Zeroed: no limit. */
struct rate_limit {
    int64_t per_minute; /* 0: no limit */
    int64_t level;      /* in 1 / 60,000 of a unit, so that per_minute of them come in a ms */
    int64_t now_ms;     /* level is of then */
};

/* Sets the limit, 0 (none) to RATE_LIMIT_MAX. What was used of an old one, or is owed, stays so. */
void rate_limit_set(struct rate_limit *limit, int64_t per_minute, int64_t now_ms);

/* Returns after how many ms `amount` may be taken: 0 at once, -1 never, as a minute does not allow
 * so many. */
int64_t rate_limit_wait_ms(const struct rate_limit *limit, int64_t amount, int64_t now_ms);
/* Takes `amount`, whether it is there or not. */
void rate_limit_take(struct rate_limit *limit, int64_t amount, int64_t now_ms);

/* Gives back of what was taken. */
void rate_limit_give(struct rate_limit *limit, int64_t amount, int64_t now_ms);

/* Returns what is left, whole units; 0 where some are owed. */
int64_t rate_limit_remaining(const struct rate_limit *limit, int64_t now_ms);
/* Returns after how many ms it is full again. */
int64_t rate_limit_reset_ms(const struct rate_limit *limit, int64_t now_ms);

#endif
