/* The files of a model of a hub at a commit, and which of these Quire reads. */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_LISTING_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_LISTING_H

#include "config/base/error.h"
#include "server/client/hub/hub_reference.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- The files of a commit --- */

/* The files of a repository at a commit, as the hub lists them (GET
 * /api/models/ORG/NAME/revision/REVISION?blobs=true: https://huggingface.co/docs/hub/api), or as
 * they are in the cache. */

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

/* Fails with ERROR_SYNTAX and what is wrong, without a subject, or ERROR_MEMORY; *out is then
 * empty. */
int hub_listing_parse(const char *json, size_t length, struct hub_listing *out, struct error *err);

/* Adds a file; the name is copied. Fails with ERROR_SYNTAX for an invalid name or one file too
 * many. */
int hub_listing_add(struct hub_listing *listing, const char *name, int64_t bytes, const char *hash,
                    struct error *err);
/* Returns NULL if no file has that name. */
const struct hub_file *hub_listing_find(const struct hub_listing *listing, const char *name);
/* Accepts a zeroed one. */
void hub_listing_finish(struct hub_listing *listing);

/* --- The files that are needed --- */

/* Chooses the files of a repository that Quire reads: of a Hugging Face folder config.json, the
 * tokenizer, the chat template and the weights as safetensors; or one GGUF, which may be split.
 *
 * Safetensors are preferred if there are any, unless the reference chooses a GGUF. A choice is the
 * exact name of a file, or a quantisation: a case-insensitive part of the name before ".gguf" or of
 * its folder, between '-', '.', '/' (and, before it, '_'), so that Q4_K is not Q4_K_M. If nothing
 * is chosen and there are several, the first of Q4_K_M, Q8_0, Q4_0, BF16 and F16 that exactly one
 * file matches is taken. */

#define HUB_MAX_PARTS 512 /* maximum parts of split weights, as in models/files/tensor_parts.h */
#define HUB_MAX_SELECTED (HUB_MAX_PARTS + 16)

struct hub_selection {
    const struct hub_file *files[HUB_MAX_SELECTED]; /* of the listing, which outlives this */
    size_t num_files;
    const struct hub_file *gguf;  /* the (first) one, among files; NULL: a folder */
    const struct hub_file *index; /* that names the shards, among files; NULL: none */
};

/* Selects everything except the shards of an index. Fails with ERROR_CONFIG in one line that says
 * what is available, without a subject. */
int hub_selection_make(const struct hub_listing *listing, const char *choice,
                       struct hub_selection *out, struct error *err);
/* Adds the shards that the index's text names. ERROR_CONFIG, ERROR_MEMORY. */
int hub_selection_add_shards(struct hub_selection *selection, const struct hub_listing *listing,
                             const char *index, size_t length, struct error *err);

/* Returns whether the file is a GGUF that can be chosen: a complete one, or the first part of a
 * split one. */
bool hub_selection_is_gguf(const char *name);
/* Returns the names of a folder's optional files; NULL after the last. */
const char *const *hub_selection_optional_names(void);

#endif
