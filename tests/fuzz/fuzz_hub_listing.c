/* Any bytes as what a hub says: its list of files, the index of shards, the lines of a header, and
 * as a name that a user gives. Every name that is taken lies below its folder, every hash and size
 * is in bounds, and what is chosen is part of the list. */
#include "server/client/hub/hub_http.h"
#include "server/client/hub/hub_cache.h"
#include "server/client/hub/hub_listing.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static void require_line(const struct error *err) {
    for (const char *c = err->message; *c != '\0'; c++)
        require((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void require_below(const char *name) {
    require(name[0] != '\0' && name[0] != '/' && strlen(name) < HUB_FILE_NAME_BYTES);
    require(strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0);
    require(strstr(name, "/../") == NULL && strstr(name, "//") == NULL);
    size_t length = strlen(name);
    require(length < 3 || strcmp(name + length - 3, "/..") != 0);
}

static void choose(const struct hub_listing *listing, const char *choice, const char *index,
                   size_t length) {
    struct hub_selection selection;
    struct error err = {0};
    if (hub_selection_make(listing, choice, &selection, &err) != 0 ||
        (selection.index != NULL &&
         hub_selection_add_shards(&selection, listing, index, length, &err) != 0))
        require_line(&err);
    require(selection.num_files <= HUB_MAX_SELECTED);
    for (size_t i = 0; i < selection.num_files; i++)
        require(selection.files[i] >= listing->files &&
                selection.files[i] < listing->files + listing->num_files);
}

static void try_listing(const char *text, size_t bytes) {
    struct hub_listing listing;
    struct error err = {0};
    if (hub_listing_parse(text, bytes, &listing, &err) != 0) {
        require(listing.files == NULL && err.code != ERROR_NONE);
        require_line(&err);
        return;
    }
    require(hub_reference_is_commit(listing.commit));
    for (size_t i = 0; i < listing.num_files; i++) {
        require_below(listing.files[i].name);
        require(listing.files[i].bytes >= -1 && listing.files[i].bytes <= HUB_MAX_FILE_BYTES);
    }
    choose(&listing, "", text, bytes);
    choose(&listing, "Q4_0", text, bytes);
    if (listing.num_files > 0)
        choose(&listing, listing.files[0].name, text, bytes);
    hub_listing_finish(&listing);
}

/* The text as an index of a repository that has some shards. */
static void try_index(const char *text, size_t bytes) {
    static const char *const names[] = {"config.json", "tokenizer.json",
                                        "model.safetensors.index.json", "1.safetensors",
                                        "2.safetensors"};
    struct hub_listing listing = {0};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        require(hub_listing_add(&listing, names[i], 1, "", NULL) == 0);
    choose(&listing, "", text, bytes);
    hub_listing_finish(&listing);
}

static void try_header(const char *text, size_t bytes) {
    struct hub_answer answer;
    char etag[HUB_FIELD_BYTES];
    hub_answer_clear(&answer);
    for (size_t begin = 0; begin < bytes;) {
        const char *end = memchr(text + begin, '\n', bytes - begin);
        size_t length = end != NULL ? (size_t)(end + 1 - text) - begin : bytes - begin;
        hub_answer_read_line(&answer, text + begin, length);
        begin += length;
    }
    require(answer.content_bytes >= -1 && answer.content_bytes <= HUB_MAX_FILE_BYTES);
    require(answer.range_begin >= -1 && answer.range_begin <= HUB_MAX_FILE_BYTES);
    hub_answer_normalise_etag(answer.etag, etag);
    if (hub_blob_is_etag(etag))
        require_below(etag);
}

static void try_reference(const char *text) {
    struct hub_reference reference;
    struct error err = {0};
    if (hub_reference_parse(text, &reference, &err) != 0) {
        require(err.code == ERROR_CONFIG);
        require_line(&err);
        return;
    }
    require_below(reference.repository);
    require_below(reference.revision);
    if (reference.choice[0] != '\0')
        require_below(reference.choice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = malloc(bytes + 1);
    require(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    try_listing(text, bytes);
    try_index(text, bytes);
    try_header(text, bytes);
    try_reference(text);
    free(text);
    return 0;
}
