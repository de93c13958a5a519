/* Reads the tokenizer of a Hugging Face folder, as its tokenizer.json describes it.
 *
 * Transformers 5 rebuilds the tokenizers of some classes from the vocabulary and ignores the rest
 * of the file: LlamaTokenizer puts no space before a text that starts with one, and none after a
 * special token in the text unless "legacy" is set; GPT2Tokenizer drops steps before ByteLevel,
 * such as SmolLM 2's Digits. Here the file is followed, as by the `tokenizers` library and
 * Transformers 4. Of tokenizer_config.json counts what Transformers 5 takes from there for every
 * class: flags of added tokens, special tokens, add_bos_token and add_eos_token. Left aside are
 * "truncation" and "padding", which are for batches, and clean_up_tokenization_spaces, which would
 * change a text after it was streamed. */
#include "models/tokenizer/tokenizer_json.h"

#include "config/base/log.h"
#include "models/files/input_file.h"
#include "models/files/json_file.h"
#include "models/tokenizer/vocabulary.h"

#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What is put around a prompt --- The "post_processor" section, of which only the form for one
 * text matters here, or tokenizer_config.json's add_bos_token and add_eos_token. As in Transformers
 * 5, a tokenizer_config.json that has one of the two keys (with any value) replaces the section. */

/* Each piece looks its name up in the list of the others. In use are a handful of both. */
#define MAX_PIECES 64
#define MAX_NAMES 4096

static int put_around(struct tokenizer_json *json, int32_t *list, int *count, int32_t id) {
    if (*count == TOKENIZER_MAX_TEMPLATE)
        return tokenizer_json_refuse(json, "post_processor puts more than %d tokens at one side",
                                     TOKENIZER_MAX_TEMPLATE);
    list[(*count)++] = id;
    return 0;
}

static int check_id(struct tokenizer_json *json, const cJSON *item, int32_t *out) {
    int32_t limit = json->spec->num_tokens;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < limit) ||
        item->valuedouble != (int32_t)item->valuedouble)
        return tokenizer_json_refuse(json, "post_processor: an id is not an integer of 0 to %d",
                                     limit - 1);
    *out = (int32_t)item->valuedouble;
    return 0;
}

/* Appends the ids that special_tokens gives for a name: [1] in {"<s>": {"ids": [1], ...}}. */
static int put_named(struct tokenizer_json *json, const cJSON *section, const char *name,
                     int32_t *list, int *count) {
    const cJSON *entry = json_field(json_field(section, "special_tokens"), name), *ids, *item;
    int32_t id = -1;
    if (entry == NULL)
        return tokenizer_json_refuse(json, "post_processor.special_tokens has no \"%.64s\"", name);
    if (json_field_array(json, entry, "post_processor.special_tokens", "ids", &ids) != 0)
        return -1;
    cJSON_ArrayForEach(item, ids) {
        if (check_id(json, item, &id) != 0 || put_around(json, list, count, id) != 0)
            return -1;
    }
    return 0;
}

struct around {
    int num_prefix, num_suffix;
    int32_t prefix[TOKENIZER_MAX_TEMPLATE], suffix[TOKENIZER_MAX_TEMPLATE];
};

/* [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}] */
static int read_single(struct tokenizer_json *json, const cJSON *section, struct around *out) {
    const char *where = "post_processor.single", *name;
    const cJSON *single, *piece;
    bool seen = false;
    if (json_field_array(json, section, "post_processor", "single", &single) != 0)
        return -1;
    if (cJSON_GetArraySize(single) > MAX_PIECES)
        return tokenizer_json_refuse(json, "%s has more than %d pieces", where, MAX_PIECES);
    if (cJSON_GetArraySize(json_field(section, "special_tokens")) > MAX_NAMES)
        return tokenizer_json_refuse(json, "post_processor.special_tokens has more than %d entries",
                                     MAX_NAMES);
    cJSON_ArrayForEach(piece, single) {
        const cJSON *token = json_field(piece, "SpecialToken");
        const cJSON *sequence = json_field(piece, "Sequence");
        if ((token == NULL) == (sequence == NULL))
            return tokenizer_json_refuse(json, "%s: a piece is neither SpecialToken nor Sequence",
                                         where);
        if (json_field_text(json, token != NULL ? token : sequence, where, "id", &name) != 0)
            return -1;
        if (sequence != NULL && (seen || strcmp(name, "A") != 0))
            return tokenizer_json_refuse(json, "%s has other texts than one \"A\"", where);
        seen = seen || sequence != NULL;
        if (token != NULL && put_named(json, section, name, seen ? out->suffix : out->prefix,
                                       seen ? &out->num_suffix : &out->num_prefix) != 0)
            return -1;
    }
    return seen ? 0 : tokenizer_json_refuse(json, "%s has no text \"A\"", where);
}

/* ["</s>", 2] */
static int put_pair(struct tokenizer_json *json, const cJSON *section, const char *key,
                    int32_t *list, int *count) {
    const cJSON *pair;
    int32_t id = -1;
    if (json_field_array(json, section, "post_processor", key, &pair) != 0)
        return -1;
    if (cJSON_GetArraySize(pair) != 2)
        return tokenizer_json_refuse(json, "post_processor.%s is not [\"token\", id]", key);
    return check_id(json, pair->child->next, &id) != 0 ? -1 : put_around(json, list, count, id);
}

/* Puts `outer` around what there is. */
static int wrap(struct tokenizer_json *json, const struct around *outer) {
    struct tokenizer_spec *spec = json->spec;
    struct around all = *outer;
    for (int i = 0; i < spec->num_prefix; i++) {
        if (put_around(json, all.prefix, &all.num_prefix, spec->prefix[i]) != 0)
            return -1;
    }
    for (int i = 0; i < outer->num_suffix; i++) {
        if (put_around(json, spec->suffix, &spec->num_suffix, outer->suffix[i]) != 0)
            return -1;
    }
    memcpy(spec->prefix, all.prefix, sizeof(all.prefix));
    spec->num_prefix = all.num_prefix;
    return 0;
}

enum { SEQUENCE, TEMPLATE, BYTE_LEVEL, ROBERTA, BERT, NUM_PROCESSORS };
static const char *const processors[NUM_PROCESSORS] = {
    "Sequence", "TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing"};

static int read_template(struct tokenizer_json *json, const cJSON *section) {
    struct around around = {0};
    const cJSON *list, *item;
    int type;
    if (section == NULL)
        return 0;
    if (json_field_choice(json, section, "post_processor", "type", processors, NUM_PROCESSORS,
                          &type) != 0)
        return -1;
    switch (type) {
    case SEQUENCE:
        if (json_field_array(json, section, "post_processor", "processors", &list) != 0)
            return -1;
        cJSON_ArrayForEach(item, list) {
            if (read_template(json, item) != 0)
                return -1;
        }
        return 0;
    case BYTE_LEVEL: /* trims offsets, which nothing here uses */
        return 0;
    case TEMPLATE:
        return read_single(json, section, &around) != 0 ? -1 : wrap(json, &around);
    default:
        if (put_pair(json, section, "cls", around.prefix, &around.num_prefix) != 0 ||
            put_pair(json, section, "sep", around.suffix, &around.num_suffix) != 0)
            return -1;
        return wrap(json, &around);
    }
}

static int read_named(struct tokenizer_json *json, const cJSON *config, const char *key,
                      int32_t *out) {
    const cJSON *item = json_field(config, key);
    const char *text = tokenizer_json_named(config, key);
    *out = -1;
    if (item == NULL)
        return 0;
    if (text == NULL)
        return tokenizer_json_refuse(json, "%s is neither a string nor an object with \"content\"",
                                     key);
    *out = token_index_find(&json->index, json->spec, text, strlen(text));
    if (*out < 0)
        log_warning("%s: %s is not a token of the vocabulary and is ignored", json->path, key);
    return 0;
}

/* Reads bos and eos of tokenizer_config.json (NULL: no such file; one that is not a token counts as
 * absent), and what is put around a prompt where it says so. */
static int read_special_tokens(struct tokenizer_json *json, const cJSON *config) {
    struct tokenizer_spec *spec = json->spec;
    bool add_bos, add_eos;
    int32_t eos;
    if (read_named(json, config, "bos_token", &spec->bos) != 0 ||
        read_named(json, config, "eos_token", &eos) != 0 ||
        json_field_bool(json, config, "tokenizer_config", "add_bos_token", false, &add_bos) != 0 ||
        json_field_bool(json, config, "tokenizer_config", "add_eos_token", false, &add_eos) != 0)
        return -1;
    if (eos >= 0)
        spec->eos[spec->num_eos++] = eos;
    if (!cJSON_HasObjectItem(config, "add_bos_token") &&
        !cJSON_HasObjectItem(config, "add_eos_token"))
        return 0;
    spec->num_prefix = spec->num_suffix = 0;
    if (add_bos && spec->bos >= 0)
        spec->prefix[spec->num_prefix++] = spec->bos;
    if (add_eos && eos >= 0)
        spec->suffix[spec->num_suffix++] = eos;
    return 0;
}

/* --- The whole --- */

/* The largest in use, Gemma 3's, has 33 MB. */
#define TOKENIZER_MAX_FILE_BYTES ((size_t)128 << 20)
#define CONFIG_MAX_FILE_BYTES ((size_t)16 << 20)

static int read_sections(struct tokenizer_json *json, const cJSON *root, const cJSON *config) {
    if (tokenizer_json_model(json, root) != 0 ||
        tokenizer_json_added(json, json_field(root, "added_tokens"), config) != 0 ||
        tokenizer_json_normalizer(json, json_field(root, "normalizer")) != 0 ||
        tokenizer_json_pretokenizer(json, json_field(root, "pre_tokenizer")) != 0 ||
        read_template(json, json_field(root, "post_processor")) != 0 ||
        tokenizer_json_decoder(json, json_field(root, "decoder")) != 0)
        return -1;
    json->path = json->config_path;
    return read_special_tokens(json, config);
}

int tokenizer_spec_from_json(const char *path, const cJSON *root, const char *config_path,
                             const cJSON *config, struct tokenizer_spec *out, struct error *err) {
    struct tokenizer_spec spec = {.pretokenizer_name = "tokenizer.json", .unknown = -1, .bos = -1};
    struct tokenizer_json json = {
        .path = path, .config_path = config_path, .spec = &spec, .err = err};
    int status = read_sections(&json, root, config);
    free(json.index.slots);
    if (status == 0)
        *out = spec;
    else
        tokenizer_spec_finish(&spec);
    return status;
}

/* *out is NULL where the folder has no such file. */
static int read_config(const char *path, cJSON **out, struct error *err) {
    *out = NULL;
    if (input_file_is_missing(path))
        return 0;
    *out = json_file_read(path, CONFIG_MAX_FILE_BYTES, err);
    return *out != NULL ? 0 : -1;
}

int tokenizer_spec_read_json(const char *folder, struct tokenizer_spec *out, struct error *err) {
    char path[PATH_MAX], config_path[PATH_MAX];
    cJSON *config;
    if (input_file_join_path(folder, "tokenizer.json", path, err) != 0 ||
        input_file_join_path(folder, "tokenizer_config.json", config_path, err) != 0 ||
        read_config(config_path, &config, err) != 0)
        return -1;
    int status = -1;
    cJSON *root = json_file_read(path, TOKENIZER_MAX_FILE_BYTES, err);
    if (root != NULL)
        status = tokenizer_spec_from_json(path, root, config_path, config, out, err);
    cJSON_Delete(root);
    cJSON_Delete(config);
    /* The trees' millions of small blocks lie among what stays: without this the process keeps
     * them. */
    malloc_trim(0);
    return status;
}
