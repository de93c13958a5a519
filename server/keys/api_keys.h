/* The API keys of a running server: those of --api-key, and those of a file, which may be replaced;
 * and what each of them uses. I/O thread only. */
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

/* What is known of a key. It lives as long as it is listed or used, and then becomes another. */
struct api_key {
    struct key_entry entry; /* its name is "#N" where the key has none: N counts keys from 1 */
    int32_t tenant;         /* auth_tenant */
    int64_t number;         /* N; 0: it has not been a key yet */
    int64_t num_users;      /* api_key_use */
    bool is_listed;         /* still one of the server's keys */
    struct rate_limit requests, tokens;
    struct api_key_stats stats;
};

struct api_keys;

/* Takes the keys of --api-key; none: every request is allowed as long as there are no other keys.
 * ERROR_CONFIG for an empty one. */
int api_keys_create(char *const *texts, int count, struct api_keys **out, struct error *err);
/* Puts the keys of a file in the place of those of the last one, and takes their entries over,
 * whose weight is 0 then; on failure, which is lack of memory, nothing changes. A key that stays
 * keeps what it has used of its limits. Returns -1, or how many keys are not there as there is no
 * place for them: their entries stay in the file. */
int api_keys_replace(struct api_keys *keys, struct key_file *file, struct error *err);
/* Nobody uses one of the keys any more. Accepts NULL. */
void api_keys_destroy(struct api_keys *keys);

const struct auth *api_keys_auth(const struct api_keys *keys);
bool api_keys_are_needed(const struct api_keys *keys);
/* Returns the key that came with the request; NULL: none of ours. authorization as auth_tenant;
 * where that is NULL x_api_key counts, the value of the field of this name, or NULL. */
struct api_key *api_keys_find(const struct api_keys *keys, const char *authorization,
                              const char *x_api_key);
/* Keeps a key what it is, also when the file has it no more. Accept NULL. */
void api_key_use(struct api_key *key);
void api_key_leave(struct api_key *key);
/* Returns where the key stands among all: below AUTH_MAX_TENANTS. */
int32_t api_key_place(const struct api_key *key);
/* Returns the listed key with the next place after that of this tenant; -1 begins. NULL: there is
 * none. */
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
};

/* Returns the context itself where there is no key, and else a copy in *models with its tenant and
 * the names that it may use, maybe none. It holds pointers to what the context does, but nothing of
 * the key. */
const struct api_context *key_models_context(const struct api_key *key,
                                             const struct api_context *context,
                                             struct key_models *models);
/* Returns whether there is any that the key may use. */
bool key_models_any(const struct api_key *key, const struct api_context *context);

/* --- Limits --- */

/* What the limits of a key say to an API call. I/O thread only.
 *
 * Requests are counted before anything is computed, and so are tokens: a call takes its prompts and
 * all that its outputs may have, max_tokens for each choice, as OpenAI counts them, and gives back
 * at its end what they did not take. So no call takes more than its key's minute allows. A client
 * that leaves max_tokens out is not refused for the longest answer it could get: its outputs share
 * half of what the key has left, and end there with finish_reason "length". A request that is
 * refused before its body was read counts nowhere. */

/* Checks what is known before the body is: requests, tokens and calls in flight. -1: *err, a 429,
 * and after how many ms it may be tried again; 0: not known; -1: never, it is too large. */
int key_limits_check(const struct api_key *key, int64_t now_ms, struct api_error *err,
                     int64_t *out_retry_ms);
/* Counts a request that was checked; it is then running. */
void key_limits_begin(struct api_key *key, int64_t now_ms);
/* Checks all that a call is sure to ask for before it is submitted, prompts and outputs, like
 * key_limits_check. */
int key_limits_check_tokens(const struct api_key *key, int64_t num_tokens, int64_t now_ms,
                            struct api_error *err, int64_t *out_retry_ms);
/* Returns how many tokens the outputs may have in all that ask for as many as there are, beside
 * what was checked; INT64_MAX: there is no limit. */
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

/* Fields of an answer, as OpenAI has them (platform.openai.com/docs/guides/rate-limits): limit,
 * remaining and reset of requests and tokens. The time of a reset is that of a full bucket, in Go's
 * form: "17ms", "1m30.5s". */
#define KEY_LIMIT_MAX_FIELDS 6
struct key_limit_field {
    const char *name;
    char value[32];
};
/* Writes those of the limits that the key has; returns how many. */
int key_limits_fields(const struct api_key *key, int64_t now_ms,
                      struct key_limit_field out[KEY_LIMIT_MAX_FIELDS]);

#endif
