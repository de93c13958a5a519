#include "server/client/hub/hub_listing.h"

#include "config/base/array.h"
#include "config/base/byte_buffer.h"
#include "config/base/text.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- The files of a commit --- */

int hub_listing_add(struct hub_listing *listing, const char *name, int64_t bytes, const char *hash,
                    struct error *err) {
    if (!hub_reference_is_file_name(name))
        return error_set(err, ERROR_SYNTAX, "'%.100s' is not the name of a file below its folder",
                         name);
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

/* --- Its JSON --- */

/* Copies a hash of that many digits; a missing one stays unknown. */
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
        return error_set(err, ERROR_SYNTAX, "sha is not a commit of 40 hexadecimal digits");
    if (!cJSON_IsArray(siblings))
        return error_set(err, ERROR_SYNTAX, "siblings is not a list of files");
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

/* --- Which of them are read --- */

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_NAME "adapter_model.safetensors"
#define MAX_LISTED 12 /* names in a message */

/* What models/config/model_folder.c, folder_head.c and models/tokenizer/tokenizer_json.c open. */
static const char *const required_names[] = {"config.json", "tokenizer.json", NULL};
static const char *const optional_names[] = {
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
    "modules.json",
    "1_Pooling/config.json",
    "1_LogitScore/config.json",
    NULL,
};

const char *const *hub_selection_optional_names(void) {
    return optional_names;
}

static int add(struct hub_selection *selection, const struct hub_file *file, struct error *err) {
    if (selection->num_files == HUB_MAX_SELECTED)
        return error_set(err, ERROR_CONFIG, "more than %d files of weights", HUB_MAX_PARTS);
    selection->files[selection->num_files++] = file;
    return 0;
}

/* --- GGUF files --- */

/* One that may be chosen: the first, or only, file of a GGUF. */
struct candidates {
    const struct hub_file **items;
    size_t count;
};

static const char split_form[] = "-ddddd-of-ddddd.gguf";

/* Returns whether the name ends as that of a part, with which number of how many. */
static bool read_part(const char *name, int *number, int *count) {
    size_t length = strlen(name), n = strlen(split_form);
    const char *end = name + length - n;
    if (length <= n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (split_form[i] == 'd' ? !isdigit((unsigned char)end[i]) : end[i] != split_form[i])
            return false;
    return sscanf(end, "-%5d-of-%5d", number, count) == 2;
}

static const char *base_name(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

/* The projector of an image model, and the statistics used for a quantisation, are not models. */
bool hub_selection_is_gguf(const char *name) {
    int number, count;
    struct text all = {name, strlen(name)};
    return text_ends_with(all, ".gguf") && strncasecmp(base_name(name), "mmproj", 6) != 0 &&
           strcasestr(base_name(name), "imatrix") == NULL &&
           (!read_part(name, &number, &count) || number == 1);
}

/* Returns whether the name has the quantisation, see the header. */
static bool has_quantisation(const char *name, const char *quantisation) {
    size_t length = strlen(quantisation);
    for (const char *at = name; (at = strcasestr(at, quantisation)) != NULL; at++)
        if ((at == name || strchr("-._/", at[-1]) != NULL) && strchr("-./", at[length]) != NULL &&
            at[length] != '\0')
            return true;
    return false;
}

static void append_names(struct byte_buffer *out, const struct candidates *candidates) {
    for (size_t i = 0; i < candidates->count && i < MAX_LISTED; i++)
        byte_buffer_printf(out, "%s%.80s", i > 0 ? ", " : "", candidates->items[i]->name);
    if (candidates->count > MAX_LISTED)
        byte_buffer_printf(out, " and %zu more", candidates->count - MAX_LISTED);
    byte_buffer_append(out, "", 1);
}

static int refuse_choice(const char *what, const char *choice, const struct candidates *there,
                         struct error *err) {
    struct byte_buffer names = {0};
    append_names(&names, there);
    error_set(err, ERROR_CONFIG, what, choice, names.failed ? "" : names.data);
    byte_buffer_finish(&names);
    return -1;
}

/* Returns how many candidates have the quantisation, and puts them to the front. */
static size_t gather(struct candidates *candidates, const char *quantisation) {
    size_t count = 0;
    for (size_t i = 0; i < candidates->count; i++) {
        const struct hub_file *file = candidates->items[i];
        if (!has_quantisation(file->name, quantisation))
            continue;
        candidates->items[i] = candidates->items[count];
        candidates->items[count++] = file;
    }
    return count;
}

static int choose_given(struct candidates *candidates, const char *choice,
                        const struct hub_file **out, struct error *err) {
    size_t count = gather(candidates, choice);
    if (count == 0)
        return refuse_choice("has no GGUF file '%.100s'; there is: %s", choice, candidates, err);
    if (count > 1)
        return refuse_choice("has several GGUF files with '%.100s': name one of %s", choice,
                             &(struct candidates){candidates->items, count}, err);
    *out = candidates->items[0];
    return 0;
}

static int choose_default(struct candidates *candidates, const struct hub_file **out,
                          struct error *err) {
    static const char *const preferred[] = {"Q4_K_M", "Q8_0", "Q4_0", "BF16", "F16"};
    bool is_chosen = candidates->count == 1;
    for (size_t i = 0; i < sizeof(preferred) / sizeof(preferred[0]) && !is_chosen; i++)
        is_chosen = gather(candidates, preferred[i]) == 1;
    if (!is_chosen)
        return refuse_choice("has several GGUF files%s: add :FILE or :QUANTISATION; there is: %s",
                             "", candidates, err);
    *out = candidates->items[0];
    return 0;
}

static int find_exact(const struct hub_listing *listing, const char *choice,
                      const struct hub_file **out, struct error *err) {
    int number, count;
    const struct hub_file *file = hub_listing_find(listing, choice);
    struct text name = {choice, strlen(choice)};
    if (file == NULL)
        return 0;
    if (!text_ends_with(name, ".gguf"))
        return error_set(err, ERROR_CONFIG, "'%.100s' is no GGUF file; only such are chosen",
                         choice);
    if (read_part(choice, &number, &count) && number != 1)
        return error_set(err, ERROR_CONFIG,
                         "'%.100s' is part %d of %d: choose the first one, the others follow",
                         choice, number, count);
    *out = file;
    return 1;
}

static int choose_gguf(struct candidates *candidates, const struct hub_listing *listing,
                       const char *choice, const struct hub_file **out, struct error *err) {
    int found = choice[0] != '\0' ? find_exact(listing, choice, out, err) : 0;
    if (found != 0)
        return found < 0 ? -1 : 0;
    for (size_t i = 0; i < listing->num_files; i++)
        if (hub_selection_is_gguf(listing->files[i].name))
            candidates->items[candidates->count++] = &listing->files[i];
    if (candidates->count == 0)
        return error_set(err, ERROR_CONFIG, "has no GGUF file%s%.100s",
                         choice[0] != '\0' ? " and so none of " : "", choice);
    return choice[0] != '\0' ? choose_given(candidates, choice, out, err)
                             : choose_default(candidates, out, err);
}

static int add_parts(struct hub_selection *selection, const struct hub_listing *listing,
                     struct error *err) {
    int number, count;
    const char *name = selection->gguf->name;
    if (add(selection, selection->gguf, err) != 0)
        return -1;
    if (!read_part(name, &number, &count))
        return 0;
    if (count < 1 || count > HUB_MAX_PARTS)
        return error_set(err, ERROR_CONFIG, "'%.100s': %d parts (1 to %d are allowed)", name, count,
                         HUB_MAX_PARTS);
    for (int i = 2; i <= count; i++) {
        char part[HUB_FILE_NAME_BYTES];
        snprintf(part, sizeof(part), "%.*s-%05d-of-%05d.gguf",
                 (int)(strlen(name) - strlen(split_form)), name, i, count);
        const struct hub_file *file = hub_listing_find(listing, part);
        if (file == NULL)
            return error_set(err, ERROR_CONFIG, "has no '%.200s', a part of '%.200s'", part, name);
        if (add(selection, file, err) != 0)
            return -1;
    }
    return 0;
}

static int select_gguf(const struct hub_listing *listing, const char *choice,
                       struct hub_selection *out, struct error *err) {
    struct candidates candidates = {calloc(listing->num_files + 1, sizeof(*candidates.items)), 0};
    if (candidates.items == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a list of files");
    int status = choose_gguf(&candidates, listing, choice, &out->gguf, err);
    free(candidates.items);
    return status == 0 ? add_parts(out, listing, err) : -1;
}

/* --- A folder --- */

static int select_folder(const struct hub_listing *listing, struct hub_selection *out,
                         struct error *err) {
    for (size_t i = 0; required_names[i] != NULL; i++) {
        const struct hub_file *file = hub_listing_find(listing, required_names[i]);
        if (file == NULL)
            return error_set(err, ERROR_CONFIG, "has weights but no %s, which Quire needs",
                             required_names[i]);
        if (add(out, file, err) != 0)
            return -1;
    }
    for (size_t i = 0; optional_names[i] != NULL; i++) {
        const struct hub_file *file = hub_listing_find(listing, optional_names[i]);
        if (file != NULL && add(out, file, err) != 0)
            return -1;
    }
    const struct hub_file *single = hub_listing_find(listing, SINGLE_NAME);
    out->index = single == NULL ? hub_listing_find(listing, INDEX_NAME) : NULL;
    return add(out, single != NULL ? single : out->index, err);
}

/* A low-rank adapter's, of PEFT; NULL: the repository has none. */
static const struct hub_file *find_adapter(const struct hub_listing *listing) {
    return hub_listing_find(listing, ADAPTER_CONFIG) != NULL
               ? hub_listing_find(listing, ADAPTER_NAME)
               : NULL;
}

static int select_adapter(const struct hub_listing *listing, struct hub_selection *out,
                          struct error *err) {
    return add(out, hub_listing_find(listing, ADAPTER_CONFIG), err) != 0
               ? -1
               : add(out, find_adapter(listing), err);
}

static bool has_any(const struct hub_listing *listing, bool (*matches)(const char *name)) {
    for (size_t i = 0; i < listing->num_files; i++)
        if (matches(listing->files[i].name))
            return true;
    return false;
}

static bool is_pickle(const char *name) {
    struct text all = {name, strlen(name)};
    return text_ends_with(all, ".bin") || text_ends_with(all, ".pth") || text_ends_with(all, ".pt");
}

static int refuse_repository(const struct hub_listing *listing, struct error *err) {
    if (has_any(listing, is_pickle))
        return error_set(err, ERROR_CONFIG,
                         "holds its weights as pickle files, which can run code and are never "
                         "read; " SINGLE_NAME " or a GGUF file is needed");
    return error_set(err, ERROR_CONFIG,
                     "has neither " SINGLE_NAME " nor " INDEX_NAME " nor a GGUF file");
}

int hub_selection_make(const struct hub_listing *listing, const char *choice,
                       struct hub_selection *out, struct error *err) {
    bool has_folder = hub_listing_find(listing, SINGLE_NAME) != NULL ||
                      hub_listing_find(listing, INDEX_NAME) != NULL;
    *out = (struct hub_selection){0};
    if (has_folder && choice[0] == '\0')
        return select_folder(listing, out, err);
    if (find_adapter(listing) != NULL && choice[0] == '\0')
        return select_adapter(listing, out, err);
    if (choice[0] != '\0' || has_any(listing, hub_selection_is_gguf))
        return select_gguf(listing, choice, out, err);
    return refuse_repository(listing, err);
}

/* --- The shards of an index --- */

static bool is_selected(const struct hub_selection *selection, const struct hub_file *file) {
    for (size_t i = selection->num_files; i-- > 0;)
        if (selection->files[i] == file)
            return true;
    return false;
}

static int add_shard(struct hub_selection *selection, const struct hub_listing *listing,
                     const char *name, struct error *err) {
    struct text all = {name, strlen(name)};
    const struct hub_file *last = selection->files[selection->num_files - 1];
    if (strcmp(last->name, name) == 0)
        return 0;
    if (!text_ends_with(all, ".safetensors") || strchr(name, '/') != NULL)
        return error_set(err, ERROR_CONFIG, INDEX_NAME ": '%.100s' is not the name of a shard",
                         name);
    const struct hub_file *file = hub_listing_find(listing, name);
    if (file == NULL)
        return error_set(err, ERROR_CONFIG, "has no '%.200s', which " INDEX_NAME " names", name);
    return is_selected(selection, file) ? 0 : add(selection, file, err);
}

int hub_selection_add_shards(struct hub_selection *selection, const struct hub_listing *listing,
                             const char *index, size_t length, struct error *err) {
    struct api_error why;
    cJSON *tree = json_parse(index, length, &why);
    const cJSON *map = json_given_member(tree, "weight_map"), *item;
    int status = 0;
    if (tree == NULL)
        return error_set(err, why.status == 503 ? ERROR_MEMORY : ERROR_CONFIG,
                         INDEX_NAME ": %.300s", why.message);
    if (!cJSON_IsObject(map) || map->child == NULL)
        status = error_set(err, ERROR_CONFIG, INDEX_NAME ": weight_map is missing or empty");
    cJSON_ArrayForEach(item, map) {
        if (status == 0)
            status = cJSON_IsString(item)
                         ? add_shard(selection, listing, item->valuestring, err)
                         : error_set(err, ERROR_CONFIG,
                                     INDEX_NAME ": weight_map: a shard is not a string");
    }
    cJSON_Delete(tree);
    return status;
}
