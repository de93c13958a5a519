/* Added tokens: those of tokenizer.json's list, then those of tokenizer_config.json's
 * added_tokens_decoder, then the tokens that tokenizer_config.json names, which are special
 * regardless of the lists. Transformers 5 adds the second and the third to the first in this order.
 * A named token that is not in the vocabulary is skipped (Transformers would give it an id for
 * which the model has no embedding). */
#include "models/tokenizer/tokenizer_json.h"

#include "config/base/utf8.h"
#include "models/tokenizer/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WHERE 48

struct added_entry {
    const char *path; /* this and the next for messages */
    char where[MAX_WHERE];
    const char *content;
    struct added_token token;
};

struct added_list {
    struct added_entry *entries;
    size_t count;
    size_t num_first; /* of tokenizer.json; the rest are of tokenizer_config.json */
    int32_t *slots;   /* [num_tokens] place of an id in spec->added, or -1 */
};

static int read_flags(struct tokenizer_json *json, const cJSON *item, struct added_entry *out) {
    struct added_token *token = &out->token;
    const char *where = out->where;
    if (!cJSON_IsObject(item))
        return tokenizer_json_refuse(json, "%s is not an object", where);
    if (json_field_text(json, item, where, "content", &out->content) != 0 ||
        json_field_bool(json, item, where, "special", false, &token->special) != 0 ||
        json_field_bool(json, item, where, "lstrip", false, &token->lstrip) != 0 ||
        json_field_bool(json, item, where, "rstrip", false, &token->rstrip) != 0 ||
        json_field_bool(json, item, where, "single_word", false, &token->single_word) != 0 ||
        json_field_bool(json, item, where, "normalized", !token->special, &token->normalized) != 0)
        return -1;
    return out->content[0] != '\0' ? 0 : tokenizer_json_refuse(json, "%s.content is empty", where);
}

static int read_list(struct tokenizer_json *json, const cJSON *list, struct added_list *out) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        struct added_entry *entry = &out->entries[out->count];
        entry->path = json->path;
        snprintf(entry->where, MAX_WHERE, "added_tokens[%zu]", out->count);
        if (read_flags(json, item, entry) != 0 ||
            json_field_index(json, item, entry->where, "id", VOCABULARY_MAX_TOKENS,
                             &entry->token.id) != 0)
            return -1;
        out->count++;
    }
    out->num_first = out->count;
    return 0;
}

/* {"32000": {"content": ...}, ...} */
static int read_by_id(struct tokenizer_json *json, const cJSON *by_id, struct added_list *out) {
    const cJSON *item;
    cJSON_ArrayForEach(item, by_id) {
        struct added_entry *entry = &out->entries[out->count];
        char *end;
        unsigned long id = strtoul(item->string, &end, 10);
        entry->path = json->path;
        snprintf(entry->where, MAX_WHERE, "added_tokens_decoder[\"%.16s\"]", item->string);
        if (item->string[0] < '0' || item->string[0] > '9' || *end != '\0' ||
            id >= VOCABULARY_MAX_TOKENS)
            return tokenizer_json_refuse(json, "%s: the key is not an id of 0 to %d", entry->where,
                                         VOCABULARY_MAX_TOKENS - 1);
        entry->token.id = (int32_t)id;
        if (read_flags(json, item, entry) != 0)
            return -1;
        out->count++;
    }
    return 0;
}

/* Makes room for every entry's id, which may lie beyond the vocabulary by as many as there are. */
static int grow_vocabulary(struct tokenizer_json *json, const struct added_list *list) {
    struct tokenizer_spec *spec = json->spec;
    size_t old = (size_t)spec->num_tokens, count = old;
    for (size_t i = 0; i < list->count; i++) {
        size_t id = (size_t)list->entries[i].token.id;
        json->path = list->entries[i].path;
        if (id >= old + 2 * list->count + TOKENIZER_JSON_MAX_HOLES)
            return tokenizer_json_refuse(json, "%s: id %zu is too large for %zu tokens",
                                         list->entries[i].where, id, old);
        count = id >= count ? id + 1 : count;
    }
    struct text *tokens = tokenizer_spec_alloc(spec, count * sizeof(*tokens));
    uint8_t *types = tokenizer_spec_alloc(spec, count);
    if (tokens == NULL || types == NULL)
        return tokenizer_json_no_memory(json);
    memcpy(tokens, spec->tokens, old * sizeof(*tokens));
    memcpy(types, spec->types, old);
    memset(types + old, TOKEN_UNUSED, count - old);
    spec->tokens = tokens;
    spec->types = types;
    spec->num_tokens = (int32_t)count;
    return 0;
}

/* Returns whether merges start from this token of the model's own vocabulary: one character, which
 * stands for a byte where the alphabet is of bytes. */
static bool is_symbol(const struct tokenizer_spec *spec, int32_t id) {
    struct text text = spec->tokens[id];
    return spec->types[id] == TOKEN_NORMAL && text.length > 0 &&
           utf8_char_bytes(text.data, text.length) == text.length;
}

/* A symbol also stays plain text, such as the "!" that some models pad with: otherwise every text
 * would lose it. */
static void set_added(struct tokenizer_json *json, struct added_list *list,
                      const struct added_token *token) {
    struct tokenizer_spec *spec = json->spec;
    int32_t *slot = &list->slots[token->id];
    if (*slot < 0)
        *slot = (int32_t)spec->num_added++;
    spec->added[*slot] = *token;
    if (!is_symbol(spec, token->id))
        spec->types[token->id] = token->special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
}

/* Puts an entry's text where its id says, where it may stand already. */
static int place_entry(struct tokenizer_json *json, struct added_list *list, size_t i) {
    const struct added_entry *entry = &list->entries[i];
    int32_t id = entry->token.id;
    struct text *token = &json->spec->tokens[id];
    json->path = entry->path;
    if (token->length == 0) {
        if (!tokenizer_json_copy(json, entry->content, token))
            return tokenizer_json_no_memory(json);
    } else if (token->length != strlen(entry->content) ||
               memcmp(token->data, entry->content, token->length) != 0) {
        return tokenizer_json_refuse(json, "%s: id %d of \"%.64s\" is that of token \"%.64s\"",
                                     entry->where, id, entry->content, token->data);
    }
    if (i < list->num_first && list->slots[id] >= 0)
        return tokenizer_json_refuse(json, "%s: id %d is in the list twice", entry->where, id);
    set_added(json, list, &entry->token);
    return 0;
}

static int place_entries(struct tokenizer_json *json, struct added_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        if (place_entry(json, list, i) != 0)
            return -1;
    }
    if (!token_index_build(&json->index, json->spec))
        return tokenizer_json_no_memory(json);
    for (size_t i = 0; i < list->count; i++) {
        const struct added_entry *entry = &list->entries[i];
        int32_t id =
            token_index_find(&json->index, json->spec, entry->content, strlen(entry->content));
        json->path = entry->path;
        if (id != entry->token.id)
            return tokenizer_json_refuse(json, "%s: token \"%.64s\" has id %d, elsewhere %d",
                                         entry->where, entry->content, entry->token.id, id);
    }
    return 0;
}

static void make_special(struct tokenizer_json *json, struct added_list *list, const char *name,
                         const char *text) {
    struct tokenizer_spec *spec = json->spec;
    int32_t id = token_index_find(&json->index, spec, text, strlen(text));
    if (id < 0)
        return;
    spec->named[spec->num_named++] = (struct named_token){name, id};
    struct added_token token = {.id = id};
    if (list->slots[id] >= 0)
        token = spec->added[list->slots[id]];
    token.special = true;
    set_added(json, list, &token);
}

static const char *const named[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                    "sep_token", "cls_token", "mask_token"};
/* Lists of them; the second is Transformers 5's name for the first. */
static const char *const named_lists[] = {"additional_special_tokens", "extra_special_tokens"};

static void make_named_special(struct tokenizer_json *json, struct added_list *list,
                               const cJSON *config) {
    for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
        const char *text = tokenizer_json_named(config, named[i]);
        if (text != NULL)
            make_special(json, list, named[i], text);
    }
    for (size_t i = 0; i < 2; i++) {
        const cJSON *item;
        cJSON_ArrayForEach(item, json_field(config, named_lists[i])) {
            const cJSON *text = cJSON_IsObject(item) ? json_field(item, "content") : item;
            if (cJSON_IsString(text))
                make_special(json, list, named_lists[0], text->valuestring);
        }
    }
}

static size_t count_named(const cJSON *config) {
    size_t count = sizeof(named) / sizeof(*named);
    for (size_t i = 0; i < 2; i++)
        count += (size_t)cJSON_GetArraySize(json_field(config, named_lists[i]));
    return count;
}

static int add_tokens(struct tokenizer_json *json, struct added_list *list, const cJSON *config) {
    struct tokenizer_spec *spec = json->spec;
    if (grow_vocabulary(json, list) != 0)
        return -1;
    size_t slots_bytes = (size_t)spec->num_tokens * sizeof(*list->slots);
    list->slots = malloc(slots_bytes);
    spec->added =
        tokenizer_spec_alloc(spec, (list->count + count_named(config)) * sizeof(*spec->added));
    spec->named = tokenizer_spec_alloc(spec, count_named(config) * sizeof(*spec->named));
    if (list->slots == NULL || spec->added == NULL || spec->named == NULL)
        return tokenizer_json_no_memory(json);
    memset(list->slots, 0xff, slots_bytes);
    if (place_entries(json, list) != 0)
        return -1;
    make_named_special(json, list, config);
    return 0;
}

int tokenizer_json_added(struct tokenizer_json *json, const cJSON *added, const cJSON *config) {
    const cJSON *by_id = json_field(config, "added_tokens_decoder");
    const char *path = json->path;
    struct added_list list = {0};
    if (added != NULL && !cJSON_IsArray(added))
        return tokenizer_json_refuse(json, "added_tokens is not a list");
    if (by_id != NULL && !cJSON_IsObject(by_id)) {
        json->path = json->config_path;
        return tokenizer_json_refuse(json, "added_tokens_decoder is not an object");
    }
    size_t capacity = (size_t)cJSON_GetArraySize(added) + (size_t)cJSON_GetArraySize(by_id);
    list.entries = calloc(capacity + 1, sizeof(*list.entries));
    int status = list.entries != NULL ? 0 : tokenizer_json_no_memory(json);
    if (status == 0)
        status = read_list(json, added, &list);
    json->path = json->config_path;
    if (status == 0)
        status = read_by_id(json, by_id, &list);
    if (status == 0)
        status = add_tokens(json, &list, config);
    json->path = path;
    free(list.entries);
    free(list.slots);
    return status;
}
