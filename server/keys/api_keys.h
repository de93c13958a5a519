/* The API keys of a running server: those of --api-key, and those of a file, which may be replaced;
 * and the usage of each. I/O thread only. */
#ifndef QUIRE_SERVER_KEYS_API_KEYS_H
#define QUIRE_SERVER_KEYS_API_KEYS_H

#include "config/base/error.h"
#include "config/json/api_error.h"
#include "config/options.h"
#include "server/api/call/api_context.h"
#include "server/keys/auth.h"
#include "server/keys/key_file.h"
#include "server/keys/rate_limit.h"

#include <stdbool.h>
#include <stdint.h>

/* Since the key was first seen. */
struct api_key_stats {
    uint64_t requests_by_class[6]; /* answered, by status / 100 */
    uint64_t rate_limited;         /* API calls refused for a limit of the key */
    uint64_t prompt_tokens, generation_tokens;
    int64_t num_running; /* API calls in flight, queued or running */
};

/* The state of a key. It lives as long as the key is listed or used, and is then reused for
 * another. */
struct api_key {
    struct key_entry entry; /* its name is "#N" if the key has none: N counts keys from 1 */
    int32_t tenant;         /* auth_tenant */
    int64_t number;         /* N; 0: not used for a key yet */
    int64_t num_users;      /* api_key_use */
    bool is_listed;         /* still one of the server's keys */
    struct rate_limit requests, tokens;
    struct api_key_stats stats;
};

struct api_keys;

/* Takes the keys of --api-key; without any, every request is allowed as long as there are no other
 * keys. Fails with ERROR_CONFIG for an empty key. */
int api_keys_create(char *const *texts, int count, struct api_keys **out, struct error *err);
/* Replaces the previous file's keys by those of a file, and takes over their entries, whose weight
 * in the file becomes 0. On failure, when memory is short, nothing changes. A key that remains
 * keeps the used part of its limits. Returns -1, or the number of keys that were left out for lack
 * of room: their entries stay in the file. */
int api_keys_replace(struct api_keys *keys, struct key_file *file, struct error *err);
/* None of the keys may be in use. Accepts NULL. */
void api_keys_destroy(struct api_keys *keys);

const struct auth *api_keys_auth(const struct api_keys *keys);
bool api_keys_are_needed(const struct api_keys *keys);
/* Returns the key of the request; NULL: not one of ours. authorization: see auth_tenant; if it is
 * NULL, x_api_key counts, the value of the field of that name, or NULL. */
struct api_key *api_keys_find(const struct api_keys *keys, const char *authorization,
                              const char *x_api_key);
/* Keep a key's state alive, even after the file no longer contains it. Accept NULL. */
void api_key_use(struct api_key *key);
void api_key_leave(struct api_key *key);
/* Returns the key's place: below AUTH_MAX_TENANTS. */
int32_t api_key_place(const struct api_key *key);
/* Returns the listed key with the next place after that of this tenant; -1 starts the iteration.
 * NULL: no more. */
const struct api_key *api_keys_next(const struct api_keys *keys, int32_t tenant);
/* Returns whether the key may use the routes of administrators: its entry says so, or it is the
 * only one of the server and has no entry that could. */
bool api_keys_is_admin(const struct api_keys *keys, const struct api_key *key);
/* Returns how many keys are listed. */
int api_keys_count(const struct api_keys *keys);

/* --- Models --- */

/* The server as a key sees it: with the models that the key may use, and its tenant. */

/* What such a context points to. */
struct key_models {
    struct api_context context;
    char *names[OPTIONS_MAX_LIST];
    char **kept; /* see key_models_keep; NULL: nothing */
};

/* Returns the context itself if there is no key, otherwise a copy in *models with the key's tenant
 * and the names that it may use, possibly none. The copy points to what the context points to, and
 * to the names in the key, which a new file may replace. */
const struct api_context *key_models_context(const struct api_key *key,
                                             const struct api_context *context,
                                             struct key_models *models);
/* Copies the names in the key, for another thread. Returns -1 when memory is short. */
int key_models_keep(struct key_models *models);
void key_models_finish(struct key_models *models); /* accepts zeroed ones */
/* Returns whether the key may use any model or adapter. */
bool key_models_any(const struct api_key *key, const struct api_context *context);

/* --- Limits --- */

/* Applies the limits of a key to an API call. I/O thread only.
 *
 * Requests are counted before anything is computed, and so are tokens: a call takes its prompts and
 * the maximum of its outputs (max_tokens for each choice, like OpenAI) and gives back at its end
 * what they did not use. So no call takes more than its key's minute allows. A client that leaves
 * max_tokens out is not refused for the longest answer it could get: its outputs share half of what
 * the key has left, and end there with finish_reason "length". A request that is refused before its
 * body was read is not counted. */

/* Checks what is known before the body is read: requests, tokens and calls in flight. Returns -1
 * with *err, a 429, and after how many ms it may be retried; 0: unknown; -1: never, it is too
 * large. */
int key_limits_check(const struct api_key *key, int64_t now_ms, struct api_error *err,
                     int64_t *out_retry_ms);
/* Counts a request that was checked; it is then running. */
void key_limits_begin(struct api_key *key, int64_t now_ms);
/* Checks all that a call certainly needs, prompts and outputs, before it is submitted; like
 * key_limits_check. */
int key_limits_check_tokens(const struct api_key *key, int64_t num_tokens, int64_t now_ms,
                            struct api_error *err, int64_t *out_retry_ms);
/* Returns how many tokens all outputs without max_tokens may have together, in addition to what was
 * checked; INT64_MAX: no limit. */
int64_t key_limits_share(const struct api_key *key, int64_t num_tokens, int64_t now_ms);
/* Counts prompts that were taken, and reserves the tokens that their outputs may have. */
void key_limits_take_prompt(struct api_key *key, int64_t num_tokens, int64_t num_reserved,
                            int64_t now_ms);
/* Counts tokens that were generated, first those of *reserved, which it lowers. */
void key_limits_take_output(struct api_key *key, int64_t num_tokens, int64_t *reserved,
                            int64_t now_ms);
/* Gives back what was reserved and not generated. */
void key_limits_give_back(struct api_key *key, int64_t num_tokens, int64_t now_ms);
/* Ends what key_limits_begin began. */
void key_limits_end(struct api_key *key);

/* Returns the priority of a request of this key: the client's, or the end of the key's range that
 * it is beyond. */
int32_t key_limits_priority(const struct api_key *key, int32_t priority);

/* Fields of an answer, like OpenAI's (platform.openai.com/docs/guides/rate-limits): limit,
 * remaining and reset of requests and tokens. The time of a reset is that of a full bucket, in Go's
 * form: "17ms", "1m30.5s". */
#define KEY_LIMIT_MAX_FIELDS 6
struct key_limit_field {
    const char *name;
    char value[32];
};
/* Writes the fields of the key's limits; returns their number. */
int key_limits_fields(const struct api_key *key, int64_t now_ms,
                      struct key_limit_field out[KEY_LIMIT_MAX_FIELDS]);

#endif
