#include "server/client/hub/hub_retry.h"

#include <stdio.h>

#define FIRST_PAUSE_MS 500
#define MAX_ATTEMPTS 1000 /* of a server that lets a few bytes through each time */

static int64_t pause_ms(const struct hub_retry *retry, const struct hub_request *request) {
    int64_t asked_s = request->answer.retry_after_s;
    if (request->failure[0] == '\0' && asked_s >= 0)
        return asked_s * 1000;
    return (int64_t)FIRST_PAUSE_MS << (retry->num_failures - 1);
}

int hub_retry_decide(struct hub_retry *retry, const struct hub_fetch *fetch,
                     const struct hub_request *request, const struct hub_subject *subject,
                     int64_t now_ms, struct error *err) {
    char line[sizeof(err->message) + 64];
    struct error why;
    hub_answer_refuse(request, subject, &why);
    retry->num_failures++;
    retry->num_attempts++;
    if (!hub_answer_may_retry(request) || retry->num_failures > fetch->max_retries ||
        retry->num_attempts > MAX_ATTEMPTS ||
        request->answer.retry_after_s > HUB_MAX_RETRY_AFTER_S) {
        *err = why;
        return -1;
    }
    int64_t wait_ms = pause_ms(retry, request);
    retry->not_before_ms = now_ms + wait_ms;
    snprintf(line, sizeof(line), "%s; again in %.1f s", why.message, (double)wait_ms / 1000);
    fetch->watcher->say(fetch->watcher->context, HUB_WARNING, line);
    return 0;
}
