/* The hash by which the hub names a file's content: SHA-256 of what lies in large-file storage, or
 * git's SHA-1 of a blob ("blob SIZE\0" and the content), told apart by their length. */
#ifndef QUIRE_SERVER_HUB_HUB_DIGEST_H
#define QUIRE_SERVER_HUB_HUB_DIGEST_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_digest {
    void *handle; /* of GnuTLS; NULL: not begun */
    int algorithm;
    const char *expected; /* hexadecimal digits, the caller's; "": any content will do */
};

/* Begins, or begins anew, for a content of so many bytes. expected: 64 or 40 digits, or "". */
int hub_digest_begin(struct hub_digest *digest, const char *expected, int64_t bytes,
                     struct error *err);
void hub_digest_add(struct hub_digest *digest, const void *data, size_t length);
/* Ends it; returns whether the content is the expected one. */
bool hub_digest_matches(struct hub_digest *digest);
/* Accepts a zeroed one. */
void hub_digest_finish(struct hub_digest *digest);

#endif
