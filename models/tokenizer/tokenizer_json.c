/* Reads the tokenizer of a Hugging Face folder, as its tokenizer.json describes it.
 *
 * Transformers 5 builds the tokenizers of some classes anew from the vocabulary and passes over
 * what else is in the file: LlamaTokenizer puts no space before a text that starts with one, and
 * none after a special token in the text unless "legacy" is set; GPT2Tokenizer drops steps before
 * ByteLevel, such as SmolLM 2's Digits. Here the file is followed, as by the `tokenizers` library
 * and Transformers 4. Of tokenizer_config.json counts what Transformers 5 takes from there for
 * every class: flags of added tokens, special tokens, add_bos_token and add_eos_token. Left aside
 * are "truncation" and "padding", which are for batches, and clean_up_tokenization_spaces, which
 * would change a text after it was streamed. */
#include "models/tokenizer/tokenizer_json.h"

#include "models/files/input_file.h"
#include "models/files/json_file.h"

#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest in use, Gemma 3's, has 33 MB. */
#define TOKENIZER_MAX_FILE_BYTES ((size_t)128 << 20)
#define CONFIG_MAX_FILE_BYTES ((size_t)16 << 20)

static int read_sections(struct tokenizer_json *json, const cJSON *root, const cJSON *config) {
    if (tokenizer_json_model(json, root) != 0 ||
        tokenizer_json_added(json, json_field(root, "added_tokens"), config) != 0 ||
        tokenizer_json_normalizer(json, json_field(root, "normalizer")) != 0 ||
        tokenizer_json_pretokenizer(json, json_field(root, "pre_tokenizer")) != 0 ||
        tokenizer_json_template(json, json_field(root, "post_processor")) != 0 ||
        tokenizer_json_decoder(json, json_field(root, "decoder")) != 0)
        return -1;
    json->path = json->config_path;
    return tokenizer_json_config(json, config);
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
