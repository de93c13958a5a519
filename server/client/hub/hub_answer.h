/* The fields of a hub's answer that Quire goes by, read from header lines as they come
 * (huggingface_hub, constants.py and utils/_http.py), and what an answer that is none means. */
#ifndef QUIRE_SERVER_HUB_HUB_ANSWER_H
#define QUIRE_SERVER_HUB_HUB_ANSWER_H

#include "server/client/hub/hub_http.h"

#define HUB_MAX_RETRY_AFTER_S 300

void hub_answer_clear(struct hub_answer *answer);
/* Reads one line of a header, with its end; a status line begins anew. Values that make no sense
 * and those that do not fit count as not given. */
void hub_answer_read_line(struct hub_answer *answer, const char *line, size_t length);

/* Copies an entity tag without W/ and quotes, as the name of a blob. */
void hub_answer_normalise_etag(const char *etag, char out[static HUB_FIELD_BYTES]);

/* What is asked for, for messages. */
struct hub_subject {
    const char *repository, *revision, *endpoint;
    const char *file; /* NULL: the list of files */
    bool has_token;
};

/* Returns whether a request that ended so may be tried again: it broke off, or the status is 408,
 * 429 or 5xx. */
bool hub_answer_may_retry(const struct hub_request *request);
/* Says in one line why there is no (whole) answer and what to do: ERROR_CONFIG where the user must
 * change something, ERROR_UNAVAILABLE where the hub or the network is to blame. */
int hub_answer_refuse(const struct hub_request *request, const struct hub_subject *subject,
                      struct error *err);

#endif
