/* Finds room in memory for a model: whether it fits next to those that are awake and, if not, who
 * makes room for it. Decides only; pure. */
#ifndef QUIRE_SERVER_HTTP_HTTP_MODEL_ROOM_H
#define QUIRE_SERVER_HTTP_HTTP_MODEL_ROOM_H

#include "server/http/http_models.h"

enum http_model_room {
    HTTP_ROOM_ENOUGH,
    HTTP_ROOM_SLEEPS, /* once *victim sleeps, which has no calls */
    HTTP_ROOM_CLOSES, /* once *victim is closed, which sleeps without its weights */
    HTTP_ROOM_DRAINS, /* once *victim has no calls: it takes no more of them */
    HTTP_ROOM_LATER,  /* others have calls, and their turns are not over or end already */
    HTTP_ROOM_NEVER,  /* not even if all sleep that are not pinned */
};

/* with_weights: of HTTP_ROOM_SLEEPS, whether the victim may keep them. */
enum http_model_room http_model_room_find(const struct http_models *models,
                                          const struct http_model *wanted, int64_t now_ms,
                                          struct http_model **victim, bool *with_weights);

/* Returns whether it sleeps with its weights. */
bool http_model_room_has_weights(const struct http_model *model);
/* Returns whether it counts as one of those that are loaded at a time. */
bool http_model_room_is_awake(const struct http_model *model);
/* Returns why a model never fits, as the end of a sentence that begins with what it needs. */
const char *http_model_room_explain(const struct http_models *models,
                                    const struct http_model *wanted);

#endif
