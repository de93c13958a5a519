#include "server/client/hub/hub_listing.h"

#include "config/base/array.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hub_listing_add(struct hub_listing *listing, const char *name, int64_t bytes, const char *hash,
                    struct error *err) {
    if (!hub_reference_is_file_name(name))
        return error_set(err, ERROR_SYNTAX, "'%.100s' is no name of a file below its folder", name);
    if (listing->num_files == HUB_LISTING_MAX_FILES)
        return error_set(err, ERROR_SYNTAX, "more than %d files", HUB_LISTING_MAX_FILES);
    char *copy = strdup(name);
    if (copy == NULL || !array_reserve(&listing->files, &listing->capacity, listing->num_files + 1,
                                       sizeof(*listing->files))) {
        free(copy);
        return error_set(err, ERROR_MEMORY, "no memory for a list of files");
    }
    struct hub_file *file = &listing->files[listing->num_files++];
    *file = (struct hub_file){.name = copy, .bytes = bytes};
    snprintf(file->hash, sizeof(file->hash), "%s", hash);
    return 0;
}

const struct hub_file *hub_listing_find(const struct hub_listing *listing, const char *name) {
    for (size_t i = 0; i < listing->num_files; i++)
        if (strcmp(listing->files[i].name, name) == 0)
            return &listing->files[i];
    return NULL;
}

void hub_listing_finish(struct hub_listing *listing) {
    for (size_t i = 0; i < listing->num_files; i++)
        free(listing->files[i].name);
    free(listing->files);
    *listing = (struct hub_listing){0};
}

/* --- Its JSON --------------------------------------------------------------------------------- */

/* Copies a hash of so many digits; one that is not there stays unknown. */
static int read_hash(const cJSON *item, const char *field, size_t num_digits, char *out,
                     struct error *err) {
    if (!json_is_given(item))
        return 0;
    if (!cJSON_IsString(item) || !hub_reference_is_hex(item->valuestring, num_digits))
        return error_set(err, ERROR_SYNTAX, "%s is not %zu hexadecimal digits", field, num_digits);
    memcpy(out, item->valuestring, num_digits + 1);
    return 0;
}

static int read_size(const cJSON *item, int64_t *out, struct error *err) {
    struct api_error why;
    if (!json_is_given(item) || json_read_int(item, "size", 0, HUB_MAX_FILE_BYTES, out, &why) == 0)
        return 0;
    return error_set(err, ERROR_SYNTAX, "%.200s", why.message);
}

static int read_sibling(const cJSON *item, struct hub_listing *out, struct error *err) {
    const cJSON *name = json_given_member(item, "rfilename"), *lfs = json_given_member(item, "lfs");
    char hash[HUB_HASH_BYTES] = "";
    int64_t bytes = -1;
    if (!cJSON_IsString(name))
        return error_set(err, ERROR_SYNTAX, "a file of siblings has no rfilename");
    if (read_size(json_given_member(item, "size"), &bytes, err) != 0 ||
        read_size(json_given_member(lfs, "size"), &bytes, err) != 0)
        return -1;
    if ((lfs != NULL ? read_hash(json_given_member(lfs, "sha256"), "lfs.sha256", 64, hash, err)
                     : read_hash(json_given_member(item, "blobId"), "blobId", 40, hash, err)) != 0)
        return -1;
    return hub_listing_add(out, name->valuestring, bytes, hash, err);
}

static int read_model(const cJSON *json, struct hub_listing *out, struct error *err) {
    const cJSON *commit = json_given_member(json, "sha"), *item;
    const cJSON *siblings = json_given_member(json, "siblings");
    if (!cJSON_IsString(commit) || !hub_reference_is_commit(commit->valuestring))
        return error_set(err, ERROR_SYNTAX, "sha is no commit of 40 hexadecimal digits");
    if (!cJSON_IsArray(siblings))
        return error_set(err, ERROR_SYNTAX, "siblings is no list of files");
    memcpy(out->commit, commit->valuestring, HUB_COMMIT_BYTES);
    cJSON_ArrayForEach(item, siblings) {
        if (read_sibling(item, out, err) != 0)
            return -1;
    }
    return 0;
}

int hub_listing_parse(const char *json, size_t length, struct hub_listing *out, struct error *err) {
    struct hub_listing listing = {0};
    struct api_error why;
    *out = listing;
    cJSON *tree = json_parse(json, length, &why);
    if (tree == NULL)
        return error_set(err, why.status == 503 ? ERROR_MEMORY : ERROR_SYNTAX, "%.300s",
                         why.message);
    int status = read_model(tree, &listing, err);
    cJSON_Delete(tree);
    if (status != 0)
        hub_listing_finish(&listing);
    *out = listing;
    return status;
}
