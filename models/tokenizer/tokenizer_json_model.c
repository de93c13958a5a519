/* The "model" section: vocabulary, merges and the flags of BPE. Ids may leave holes (a hole is a
 * token of length 0 and type UNUSED); room for the ids of added tokens is made by
 * tokenizer_json_added. */
#include "models/tokenizer/tokenizer_json.h"
#include "models/tokenizer/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a, from the seed. */
static uint32_t hash_text(uint32_t seed, const char *text, size_t length) {
    uint32_t hash = 2166136261u ^ seed;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static bool same_text(struct text a, const char *text, size_t length) {
    return a.length == length && memcmp(a.data, text, length) == 0;
}

int32_t token_index_find(const struct token_index *index, const struct tokenizer_spec *spec,
                         const char *text, size_t length) {
    for (uint32_t slot = hash_text(index->seed, text, length) & index->mask;;
         slot = (slot + 1) & index->mask) {
        int32_t id = index->slots[slot];
        if (id == -1 || same_text(spec->tokens[id], text, length))
            return id;
    }
}

bool token_index_build(struct token_index *index, const struct tokenizer_spec *spec) {
    uint32_t size = 16;
    while (size < 2 * (uint32_t)spec->num_tokens)
        size *= 2;
    int32_t *slots = malloc(size * sizeof(*slots));
    if (slots == NULL)
        return false;
    memset(slots, 0xff, size * sizeof(*slots));
    free(index->slots);
    *index = (struct token_index){slots, size - 1, (uint32_t)tokenizer_spec_seed()};
    for (int32_t id = 0; id < spec->num_tokens; id++) {
        struct text token = spec->tokens[id];
        if (token.length == 0)
            continue;
        uint32_t slot = hash_text(index->seed, token.data, token.length) & index->mask;
        while (slots[slot] != -1)
            slot = (slot + 1) & index->mask;
        slots[slot] = id;
    }
    return true;
}

/* Counts the ids, and the bytes of all tokens' texts. */
static int measure_vocabulary(struct tokenizer_json *json, const cJSON *vocab,
                              int32_t *out_num_tokens, size_t *out_bytes) {
    int32_t max_id = -1;
    size_t bytes = 0, count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id < VOCABULARY_MAX_TOKENS) || id != (int32_t)id)
            return tokenizer_json_refuse(
                json, "model.vocab: the id of token \"%.64s\" is not an integer of 0 to %d",
                item->string, VOCABULARY_MAX_TOKENS - 1);
        max_id = (int32_t)id > max_id ? (int32_t)id : max_id;
        bytes += strlen(item->string) + 1;
        count++;
    }
    if (count == 0)
        return tokenizer_json_refuse(json, "model.vocab has no token");
    if ((size_t)max_id > 2 * count + TOKENIZER_JSON_MAX_HOLES)
        return tokenizer_json_refuse(json, "model.vocab: id %d is too large for %zu tokens", max_id,
                                     count);
    *out_num_tokens = max_id + 1;
    *out_bytes = bytes;
    return 0;
}

static int read_vocabulary(struct tokenizer_json *json, const cJSON *model) {
    struct tokenizer_spec *spec = json->spec;
    const cJSON *vocab = json_field(model, "vocab"), *item;
    if (!cJSON_IsObject(vocab))
        return tokenizer_json_refuse(json, "model.vocab is %s",
                                     vocab == NULL ? "missing" : "not an object of tokens and ids");
    size_t bytes = 0;
    if (measure_vocabulary(json, vocab, &spec->num_tokens, &bytes) != 0)
        return -1;
    size_t count = (size_t)spec->num_tokens;
    spec->tokens = tokenizer_spec_alloc(spec, count * sizeof(*spec->tokens));
    spec->types = tokenizer_spec_alloc(spec, count);
    char *texts = tokenizer_spec_alloc(spec, bytes);
    if (spec->tokens == NULL || spec->types == NULL || texts == NULL)
        return tokenizer_json_no_memory(json);
    memset(spec->types, TOKEN_UNUSED, count);
    cJSON_ArrayForEach(item, vocab) {
        int32_t id = (int32_t)item->valuedouble;
        size_t length = strlen(item->string);
        if (spec->tokens[id].data != NULL)
            return tokenizer_json_refuse(
                json, "model.vocab: tokens \"%.64s\" and \"%.64s\" have both id %d",
                spec->tokens[id].data, item->string, id);
        memcpy(texts, item->string, length);
        spec->tokens[id] = (struct text){texts, length};
        spec->types[id] = length > 0 ? TOKEN_NORMAL : TOKEN_UNUSED;
        texts += length + 1;
    }
    return token_index_build(&json->index, spec) ? 0 : tokenizer_json_no_memory(json);
}

static int32_t find_token(const struct tokenizer_json *json, const char *text, size_t length) {
    return length == 0 ? -1 : token_index_find(&json->index, json->spec, text, length);
}

/* Splits "a b" or ["a", "b"] into its halves. */
static bool split_merge(const cJSON *item, struct text *left, struct text *right) {
    if (cJSON_IsString(item)) {
        const char *text = item->valuestring, *blank = strchr(text, ' ');
        if (blank == NULL || strchr(blank + 1, ' ') != NULL)
            return false;
        *left = (struct text){text, (size_t)(blank - text)};
        *right = (struct text){blank + 1, strlen(blank + 1)};
        return true;
    }
    const cJSON *first = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *second = first != NULL ? first->next : NULL;
    if (!cJSON_IsString(first) || !cJSON_IsString(second) || second->next != NULL)
        return false;
    *left = (struct text){first->valuestring, strlen(first->valuestring)};
    *right = (struct text){second->valuestring, strlen(second->valuestring)};
    return true;
}

/* Returns whether it is the heading "#version: 0.2" of an old list, which is not a merge. */
static bool is_heading(const cJSON *item) {
    return cJSON_IsString(item) && strncmp(item->valuestring, "#version", 8) == 0;
}

static int measure_merges(struct tokenizer_json *json, const cJSON *merges, size_t *out_count,
                          size_t *out_bytes) {
    size_t count = 0, bytes = 0;
    const cJSON *item;
    struct text left, right;
    cJSON_ArrayForEach(item, merges) {
        if (is_heading(item))
            continue;
        if (!split_merge(item, &left, &right))
            return tokenizer_json_refuse(
                json, "model.merges: merge %zu is neither \"left right\" nor [\"left\", \"right\"]",
                count);
        bytes += left.length + right.length;
        count++;
    }
    *out_count = count;
    *out_bytes = bytes;
    return 0;
}

static int read_merges(struct tokenizer_json *json, const cJSON *model) {
    struct tokenizer_spec *spec = json->spec;
    const cJSON *merges, *item;
    size_t count = 0, bytes = 0;
    if (json_field_array(json, model, "model", "merges", &merges) != 0 ||
        measure_merges(json, merges, &count, &bytes) != 0)
        return -1;
    spec->merges = tokenizer_spec_alloc(spec, (count + 1) * sizeof(*spec->merges));
    char *texts = tokenizer_spec_alloc(spec, bytes + 1);
    if (spec->merges == NULL || texts == NULL)
        return tokenizer_json_no_memory(json);
    cJSON_ArrayForEach(item, merges) {
        struct text left, right;
        if (is_heading(item))
            continue;
        split_merge(item, &left, &right);
        spec->merges[spec->num_merges].left = text_copy(left, &texts);
        spec->merges[spec->num_merges].right = text_copy(right, &texts);
        spec->num_merges++;
    }
    return 0;
}

/* Refuses what no model of the known families uses and would change every token. */
static int refuse_variants(struct tokenizer_json *json, const cJSON *model) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const cJSON *dropout = json_field(model, "dropout");
    if (dropout != NULL && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
        return tokenizer_json_refuse(json, "model.dropout is set, only null and 0 are supported");
    for (int i = 0; i < 2; i++) {
        const cJSON *affix = json_field(model, affixes[i]);
        if (affix != NULL && !(cJSON_IsString(affix) && affix->valuestring[0] == '\0'))
            return tokenizer_json_refuse(json, "model.%s is set, only null and \"\" are supported",
                                         affixes[i]);
    }
    return 0;
}

static int read_unknown(struct tokenizer_json *json, const cJSON *model) {
    struct tokenizer_spec *spec = json->spec;
    const char *text;
    spec->unknown = -1;
    if (json_field(model, "unk_token") == NULL)
        return 0;
    if (json_field_text(json, model, "model", "unk_token", &text) != 0)
        return -1;
    spec->unknown = find_token(json, text, strlen(text));
    if (spec->unknown < 0)
        return tokenizer_json_refuse(json, "model.unk_token \"%.64s\" is not in the vocabulary",
                                     text);
    spec->types[spec->unknown] = TOKEN_UNKNOWN;
    return 0;
}

/* Marks "<0x00>" to "<0xFF>", which stand for bytes. */
static void mark_byte_tokens(struct tokenizer_json *json) {
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        int length = snprintf(text, sizeof(text), "<0x%02X>", byte);
        int32_t id = find_token(json, text, (size_t)length);
        if (id >= 0)
            json->spec->types[id] = TOKEN_BYTE;
    }
}

int tokenizer_json_model(struct tokenizer_json *json, const cJSON *root) {
    static const char *const types[] = {"BPE"};
    struct tokenizer_spec *spec = json->spec;
    const cJSON *model = json_field(root, "model");
    int type;
    if (!cJSON_IsObject(model))
        return tokenizer_json_refuse(json, "model is %s",
                                     model == NULL ? "missing" : "not an object");
    /* Files of 2020 leave the type out; their BPE is known by its merges. */
    if ((json_field(model, "type") != NULL || json_field(model, "merges") == NULL) &&
        json_field_choice(json, model, "model", "type", types, 1, &type) != 0)
        return -1;
    if (refuse_variants(json, model) != 0 ||
        json_field_bool(json, model, "model", "fuse_unk", false, &spec->fuse_unknown) != 0 ||
        json_field_bool(json, model, "model", "byte_fallback", false, &spec->byte_fallback) != 0 ||
        json_field_bool(json, model, "model", "ignore_merges", false, &spec->ignore_merges) != 0 ||
        read_vocabulary(json, model) != 0 || read_merges(json, model) != 0 ||
        read_unknown(json, model) != 0)
        return -1;
    if (spec->byte_fallback)
        mark_byte_tokens(json);
    return 0;
}
