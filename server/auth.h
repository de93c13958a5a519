/* API keys. Immutable after auth_create; any thread may check.
 *
 * Keys are held only as HMAC-SHA-256 digests under a random key of this process, and a presented
 * key is compared as a digest with all of them. The time taken depends on the presented key alone:
 * not on which key matched, nor on how much of one matched, nor on the lengths of ours. */
#ifndef QUIRE_SERVER_AUTH_H
#define QUIRE_SERVER_AUTH_H

#include "config/error.h"

struct auth;

/* num_keys may be 0: then every request is allowed. An empty key is refused (ERROR_CONFIG). */
int auth_create(char *const *keys, int num_keys, struct auth **out, struct error *err);
/* Accepts NULL. */
void auth_destroy(struct auth *auth);

/* Whose request it is: the index of its key, or 0 where there are no keys; -1: nobody's, it is not
 * allowed. authorization: value of the Authorization header, or NULL when there is none. The
 * scheme's name is compared without case, as RFC 9110 section 11.1 says. */
int auth_tenant(const struct auth *auth, const char *authorization);

#endif
