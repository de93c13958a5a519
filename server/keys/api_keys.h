/* The API keys of a running server: those of --api-key, and those of a file, which may be replaced;
 * and what each of them uses. I/O thread only. */
#ifndef QUIRE_SERVER_KEYS_API_KEYS_H
#define QUIRE_SERVER_KEYS_API_KEYS_H

#include "config/base/error.h"
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
/* Returns the key that came with the request; NULL: none of ours. authorization as auth_tenant; where
 * that is NULL x_api_key counts, the value of the field of this name, or NULL. */
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
/* Returns whether the key may use the routes of administrators: its entry says so, or it is the only
 * one of the server and has no entry that could. */
bool api_keys_is_admin(const struct api_keys *keys, const struct api_key *key);
/* Returns how many keys are listed. */
int api_keys_count(const struct api_keys *keys);

#endif
