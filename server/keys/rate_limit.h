/* A limit of units (requests, tokens) per minute, as a token bucket: it holds what a minute allows,
 * is initially full and fills evenly. Units that are only known afterwards, such as the tokens of
 * an output, may be taken from an empty bucket: it then has a debt, and allows nothing until that
 * is paid off. It uses integers, so nothing drifts. Times are milliseconds of a clock that never
 * goes back. */
#ifndef QUIRE_SERVER_KEYS_RATE_LIMIT_H
#define QUIRE_SERVER_KEYS_RATE_LIMIT_H

#include <stdint.h>

#define RATE_LIMIT_MAX INT64_C(1000000000000) /* per minute */

/* Zeroed: no limit. */
struct rate_limit {
    int64_t per_minute; /* 0: no limit */
    int64_t level;      /* in 1 / 60,000 of a unit, so that per_minute of them come in a ms */
    int64_t now_ms;     /* time of level */
};

/* Sets the limit, 0 (none) to RATE_LIMIT_MAX. The used part of the old one, or the debt, is
 * kept. */
void rate_limit_set(struct rate_limit *limit, int64_t per_minute, int64_t now_ms);

/* Returns after how many ms `amount` may be taken: 0: at once; -1: never, because a minute does not
 * allow that many. */
int64_t rate_limit_wait_ms(const struct rate_limit *limit, int64_t amount, int64_t now_ms);
/* Takes `amount`, even if the bucket does not hold it. */
void rate_limit_take(struct rate_limit *limit, int64_t amount, int64_t now_ms);

/* Gives back a part of what was taken. */
void rate_limit_give(struct rate_limit *limit, int64_t amount, int64_t now_ms);

/* Returns the whole units left; 0 if there is a debt. */
int64_t rate_limit_remaining(const struct rate_limit *limit, int64_t now_ms);
/* Returns after how many ms it is full again. */
int64_t rate_limit_reset_ms(const struct rate_limit *limit, int64_t now_ms);

#endif
