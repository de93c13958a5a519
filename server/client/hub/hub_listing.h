/* The files of a repository at a commit, as the hub lists them (GET
 * /api/models/ORG/NAME/revision/REVISION?blobs=true: https://huggingface.co/docs/hub/api), or as
 * they lie in the cache. */
#ifndef QUIRE_SERVER_HUB_HUB_LISTING_H
#define QUIRE_SERVER_HUB_HUB_LISTING_H

#include "config/base/error.h"
#include "server/client/hub/hub_reference.h"

#include <stddef.h>
#include <stdint.h>

#define HUB_LISTING_MAX_FILES 20000
#define HUB_LISTING_MAX_BYTES ((size_t)16 << 20) /* of its JSON */
#define HUB_MAX_FILE_BYTES (INT64_C(1) << 50)
#define HUB_HASH_BYTES 65

struct hub_file {
    char *name;                /* relative, see hub_reference_is_file_name */
    int64_t bytes;             /* -1: not known */
    char hash[HUB_HASH_BYTES]; /* SHA-256 of a large file, git's SHA-1 of a small one, in
                                  hexadecimal digits; "": not known */
};

/* Zeroed: empty. */
struct hub_listing {
    char commit[HUB_COMMIT_BYTES];
    struct hub_file *files;
    size_t num_files, capacity;
};

/* ERROR_SYNTAX with what is wrong, without a subject; ERROR_MEMORY. *out is then empty. */
int hub_listing_parse(const char *json, size_t length, struct hub_listing *out, struct error *err);

/* Adds a file; the name is copied. ERROR_SYNTAX for a name that is none or a file too many. */
int hub_listing_add(struct hub_listing *listing, const char *name, int64_t bytes, const char *hash,
                    struct error *err);
/* Returns NULL where there is none of that name. */
const struct hub_file *hub_listing_find(const struct hub_listing *listing, const char *name);
/* Accepts a zeroed one. */
void hub_listing_finish(struct hub_listing *listing);

#endif
