/* When a request that failed is tried again. */
#ifndef QUIRE_SERVER_HUB_HUB_RETRY_H
#define QUIRE_SERVER_HUB_HUB_RETRY_H

#include "server/client/hub/hub_answer.h"
#include "server/client/hub/hub_fetch.h"

/* Zeroed: nothing has failed. */
struct hub_retry {
    int num_failures; /* one behind the other, without a byte that was new */
    int num_attempts; /* that failed in all */
    int64_t not_before_ms;
};

/* Decides what becomes of a request that ended without what it should have brought: 0, and when to
 * try again is in *retry, or -1 and the line for the user. The watcher is told. */
int hub_retry_decide(struct hub_retry *retry, const struct hub_fetch *fetch,
                     const struct hub_request *request, const struct hub_subject *subject,
                     int64_t now_ms, struct error *err);

#endif
