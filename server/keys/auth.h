/* Compares API keys. The thread that replaces them is the one that checks.
 *
 * A key comes here as its SHA-256, as files may hold it too. A plain hash is enough for a key that
 * is random: who has the hash of 256 random bits cannot try them all, with or without salt and
 * stretching (which protect words people can remember; no client should have to wait for them with
 * each request). It is not enough for a key that somebody thought up.
 *
 * In memory there are HMAC-SHA-256 digests of these hashes alone, under a random key of this
 * process, and a presented key is compared as a digest with all of them. The time taken depends on
 * the presented key alone: not on which key matched, nor on how much of one matched, nor on the
 * lengths of ours. */
#ifndef QUIRE_SERVER_AUTH_H
#define QUIRE_SERVER_AUTH_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_HASH_BYTES 32

/* Places for keys, which tell apart what is counted for each. A key has the place of its tenant:
 * tenant % AUTH_MAX_TENANTS. A place is given to another key once its key is gone, which is then
 * another tenant: what is cached or stored for one is never seen by another. */
#define AUTH_MAX_TENANTS 4096

struct auth;

/* SHA-256 of a key. */
struct auth_hash {
    unsigned char bytes[AUTH_HASH_BYTES];
};

/* Hashes a key; ERROR_IO when GnuTLS fails. */
int auth_hash_key(const char *key, struct auth_hash *out, struct error *err);
/* Fills out with random bits, as a key is made of; -1 when there are none. */
int auth_random(unsigned char *out, size_t num_bytes);

/* Begins without keys: every request is allowed then. */
int auth_create(struct auth **out, struct error *err);
/* Puts these keys, of which some may be equal, in the place of all. A key that was there keeps its
 * tenant. That of a key that is gone is never given out again: the key is a new tenant if it comes
 * back. is_held: [AUTH_MAX_TENANTS], whether a place is not to be given to another key yet; NULL:
 * none. out_tenants: [count], -1: there is no place for it, and it lets nobody in. On failure, as
 * without memory, nothing changes. */
int auth_replace(struct auth *auth, const struct auth_hash *hashes, int count, const bool *is_held,
                 int32_t *out_tenants, struct error *err);
/* Accepts NULL. */
void auth_destroy(struct auth *auth);

bool auth_has_keys(const struct auth *auth);

/* Returns whose request it is: a number that belongs to its key alone in the life of this process,
 * or 0 where there are no keys; -1: nobody's, it is not allowed. authorization:
 * value of the Authorization header, or NULL when there is none. The scheme's name is compared
 * without case, as RFC 9110 section 11.1 says. */
int32_t auth_tenant(const struct auth *auth, const char *authorization);
/* Returns the same for a key that came alone, as the value of X-Api-Key; NULL: there is none. */
int32_t auth_tenant_of_key(const struct auth *auth, const char *presented);

/* Returns a number below AUTH_MAX_TENANTS for a client without a key: equal ids have equal ones,
 * and nobody outside knows which others have the same. */
int32_t auth_share(const struct auth *auth, const void *id, size_t id_bytes);

#endif
