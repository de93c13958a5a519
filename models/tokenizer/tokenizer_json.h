/* Private to the reader of tokenizer.json (tokenizer_json*.c): its sections, one function each, and
 * how they read fields.
 *
 * The format is what Hugging Face's `tokenizers` 0.23 writes and reads (its serialisation is the
 * specification). Nothing that changes tokens is ignored: an unknown "type" is refused by name,
 * listing the known ones. Unknown keys are ignored, as there. */
#ifndef QUIRE_MODELS_TOKENIZER_TOKENIZER_JSON_H
#define QUIRE_MODELS_TOKENIZER_TOKENIZER_JSON_H

#include "models/tokenizer/tokenizer_spec.h"

#include <cjson/cJSON.h>

/* Number of ids that a file may skip, in addition to one for each that it has. */
#define TOKENIZER_JSON_MAX_HOLES 65536

/* Token texts to ids while a file is read: open addressing over spec->tokens. */
struct token_index {
    int32_t *slots; /* [mask + 1], -1: free */
    uint32_t mask;
    uint32_t seed;
};

/* State shared by the sections, which fill the spec in the order of the declarations below. */
struct tokenizer_json {
    const char *path;        /* of the file being read, for messages */
    const char *config_path; /* of tokenizer_config.json */
    struct tokenizer_spec *spec;
    struct token_index index;
    struct error *err;
};

/* Each takes the value of its section, NULL if the file has none, and returns 0, or -1 with "PATH:
 * SECTION ..." in json->err. `root` is the whole document. */
int tokenizer_json_model(struct tokenizer_json *json, const cJSON *root);
/* `list` is tokenizer.json's, `config` all of tokenizer_config.json or NULL: the flags in its
 * added_tokens_decoder prevail, and the tokens it names (bos_token and so on) are special. A token
 * that is one character of model.vocab also remains plain text. */
int tokenizer_json_added(struct tokenizer_json *json, const cJSON *list, const cJSON *config);
int tokenizer_json_normalizer(struct tokenizer_json *json, const cJSON *section);
int tokenizer_json_pretokenizer(struct tokenizer_json *json, const cJSON *section);
int tokenizer_json_decoder(struct tokenizer_json *json, const cJSON *section);

/* Reads a tokenizer.json (`path` names it in messages) and its tokenizer_config.json, NULL: none.
 * Keeps no reference to the trees. *out is set only on success. */
int tokenizer_spec_from_json(const char *path, const cJSON *root, const char *config_path,
                             const cJSON *config, struct tokenizer_spec *out, struct error *err);

/* Sets json->err to "PATH: " and the message, printable ASCII with '?' for the rest; returns -1. */
int tokenizer_json_refuse(struct tokenizer_json *json, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int tokenizer_json_no_memory(struct tokenizer_json *json);

/* Copies a text of the file for the spec. False when memory is short. */
bool tokenizer_json_copy(struct tokenizer_json *json, const char *text, struct text *out);

/* Returns the id of a token's text, or -1. */
int32_t token_index_find(const struct token_index *index, const struct tokenizer_spec *spec,
                         const char *text, size_t length);
/* Rebuilds the index of spec->tokens and frees an old one; of equal texts the lower id is found.
 * False when memory is short. */
bool token_index_build(struct token_index *index, const struct tokenizer_spec *spec);

/* Returns NULL if the key is missing or null. */
const cJSON *json_field(const cJSON *object, const char *key);
/* Read typed fields of the object that `where` names in messages: 0, or -1 with json->err. A
 * missing bool is `otherwise`; the other fields are required. */
int json_field_bool(struct tokenizer_json *json, const cJSON *object, const char *where,
                    const char *key, bool otherwise, bool *out);
int json_field_text(struct tokenizer_json *json, const cJSON *object, const char *where,
                    const char *key, const char **out);
/* Reads an integer in [0, limit). */
int json_field_index(struct tokenizer_json *json, const cJSON *object, const char *where,
                     const char *key, int32_t limit, int32_t *out);
/* Reads the string `key` and returns its index in names[0..count), which the message lists. */
int json_field_choice(struct tokenizer_json *json, const cJSON *object, const char *where,
                      const char *key, const char *const *names, int count, int *out);
int json_field_array(struct tokenizer_json *json, const cJSON *object, const char *where,
                     const char *key, const cJSON **out);
/* Returns the text of a token named in tokenizer_config.json, a string or an object's "content";
 * NULL if absent. */
const char *tokenizer_json_named(const cJSON *config, const char *key);

#endif
