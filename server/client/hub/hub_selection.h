/* Chooses the files of a repository that Quire reads: of a Hugging Face folder config.json, the
 * tokenizer, the chat template and the weights as safetensors; or one GGUF, which may be split.
 *
 * Safetensors are taken where there are any, unless the reference chooses a GGUF. A choice is the
 * exact name of a file, or else a quantisation: a part of the name before ".gguf" or of its folder,
 * in either case of letters, between '-', '.', '/' (and, before it, '_'), so that Q4_K is not
 * Q4_K_M. Where nothing is chosen and there are several, the first of Q4_K_M, Q8_0, Q4_0, BF16 and
 * F16 that just one of them has is taken. */
#ifndef QUIRE_SERVER_HUB_HUB_SELECTION_H
#define QUIRE_SERVER_HUB_HUB_SELECTION_H

#include "server/client/hub/hub_listing.h"

#include <stdbool.h>

#define HUB_MAX_PARTS 512 /* of split weights, as in models/files/tensor_parts.h */
#define HUB_MAX_SELECTED (HUB_MAX_PARTS + 16)

struct hub_selection {
    const struct hub_file *files[HUB_MAX_SELECTED]; /* of the listing, which outlives this */
    size_t num_files;
    const struct hub_file *gguf;  /* the (first) one, among files; NULL: a folder */
    const struct hub_file *index; /* that names the shards, among files; NULL: none */
};

/* Selects everything but the shards of an index. ERROR_CONFIG in one line that says what there is,
 * without a subject. */
int hub_selection_make(const struct hub_listing *listing, const char *choice,
                       struct hub_selection *out, struct error *err);
/* Adds the shards that the index's text names. ERROR_CONFIG, ERROR_MEMORY. */
int hub_selection_add_shards(struct hub_selection *selection, const struct hub_listing *listing,
                             const char *index, size_t length, struct error *err);

/* Returns whether the file is a GGUF that can be chosen: whole, or the first part of a split
 * one. */
bool hub_selection_is_gguf(const char *name);
/* Returns the names of the files of a folder that need not be there, NULL behind the last. */
const char *const *hub_selection_optional_names(void);

#endif
