/* Models on a hub: their names as users write them. */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_REFERENCE_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_REFERENCE_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define HUB_REPOSITORY_BYTES 97 /* huggingface_hub, utils/_validators.py: at most 96 characters */
#define HUB_REVISION_BYTES 256
#define HUB_FILE_NAME_BYTES 512 /* with its folders */
#define HUB_COMMIT_BYTES 41

/* ORG/NAME[@REVISION][:CHOICE], where CHOICE is the name of a GGUF file or a quantisation
 * (Q4_K_M). hf.co/, huggingface.co/ or https:// with one of them or with HF_ENDPOINT may stand
 * before it; so may the address of a page (.../tree/REVISION) or a file (.../resolve/REVISION/FILE,
 * .../blob/...). */
struct hub_reference {
    char repository[HUB_REPOSITORY_BYTES]; /* "ORG/NAME" */
    char revision[HUB_REVISION_BYTES];     /* branch, tag or commit; "main" if not given */
    char choice[HUB_FILE_NAME_BYTES];      /* "": none */
};

/* Fails with ERROR_CONFIG, which names the text and what is wrong with it. */
int hub_reference_parse(const char *text, struct hub_reference *out, struct error *err);

/* Returns whether a text begins with a hub or as a URL. */
bool hub_reference_is_address(const char *text);

/* Returns whether a text that does not name an existing file was still meant as a path: it begins
 * with a slash, a dot or a tilde, ends with a slash, or is the name of a GGUF file. */
bool hub_reference_is_path(const char *text);

/* Returns whether a name from a hub is safe for a file below its folder: relative, without "..",
 * empty parts and control characters, and with no part longer than a file system allows. */
bool hub_reference_is_file_name(const char *name);
/* Returns whether the text is a commit: 40 lower-case hexadecimal digits. */
bool hub_reference_is_commit(const char *text);
/* Returns whether the text is num_digits lower-case hexadecimal digits. */
bool hub_reference_is_hex(const char *text, size_t num_digits);

#endif
