/* What the limits of a key say to an API call. I/O thread only.
 *
 * Requests are counted before anything is computed, and so are tokens: a call takes its prompts and
 * all that its outputs may have, max_tokens for each choice, as OpenAI counts them, and gives back
 * at its end what they did not take. So no call takes more than its key's minute allows. A client
 * that leaves max_tokens out is not refused for the longest answer it could get: its outputs share
 * half of what the key has left, and end there with finish_reason "length". A request that is
 * refused before its body was read counts nowhere. */
#ifndef QUIRE_SERVER_KEYS_KEY_LIMITS_H
#define QUIRE_SERVER_KEYS_KEY_LIMITS_H

#include "config/json/api_error.h"
#include "server/keys/api_keys.h"

#include <stdint.h>

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

/* Returns the priority of a request of this key: the client's, or the end of the key's range that it
 * is beyond. */
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
