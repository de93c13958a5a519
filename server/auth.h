/* API keys: fixed ones, and a list that may be replaced while the server runs. The thread that
 * replaces it is the one that checks.
 *
 * Keys are held only as HMAC-SHA-256 digests under a random key of this process, and a presented
 * key is compared as a digest with all of them. The time taken depends on the presented key alone:
 * not on which key matched, nor on how much of one matched, nor on the lengths of ours. */
#ifndef QUIRE_SERVER_AUTH_H
#define QUIRE_SERVER_AUTH_H

#include "config/error.h"

#include <stdbool.h>

/* Different keys in the life of a process, those that were replaced included: the engine keeps the
 * cached prefixes of each apart. */
#define AUTH_MAX_TENANTS 4096

struct auth;

/* Takes the fixed keys. num_keys may be 0: then every request is allowed as long as there are no
 * other keys. An empty key is refused (ERROR_CONFIG). */
int auth_create(char *const *keys, int num_keys, struct auth **out, struct error *err);
/* Puts these keys in the place of those of the last time; the fixed ones stay. A key that was there
 * keeps its tenant. That of a key that is gone is never given out again: the key is a new tenant if
 * it comes back. ERROR_CONFIG when there were more than AUTH_MAX_TENANTS in all. On failure nothing
 * changes. */
int auth_replace(struct auth *auth, char *const *keys, int num_keys, struct error *err);
/* Accepts NULL. */
void auth_destroy(struct auth *auth);

bool auth_has_keys(const struct auth *auth);

/* Returns whose request it is: a number below AUTH_MAX_TENANTS that belongs to its key for the life
 * of this process, or 0 where there are no keys; -1: nobody's, it is not allowed. authorization:
 * value of the Authorization header, or NULL when there is none. The scheme's name is compared
 * without case, as RFC 9110 section 11.1 says. */
int auth_tenant(const struct auth *auth, const char *authorization);

#endif
