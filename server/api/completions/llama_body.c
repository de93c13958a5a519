#include "server/api/completions/llama_body.h"

#include "engine/request/sampling_params.h"
#include "server/api/fields/prompt_field.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER (-100.0)           /* the bias for which false stands */
#define RANDOM_SEED 4294967295.0 /* or -1: a random seed */
#define MAX_FIELDS 64            /* of an answer; each causes a search */
#define MAX_FIELD_BYTES 256

static const struct json_alias aliases[] = {
    {"max_tokens", "n_predict", .has_none = true, .none = -1},
    {"logprobs", "n_probs", .has_none = true, .none = 0},
    {"n", "n_cmpl"},
    {"repetition_penalty", "repeat_penalty"},
    {"return_token_ids", "return_tokens"},
    {"prompt", "input_prefix"}, /* these two only in /infill */
    {"suffix", "input_suffix"},
};
const struct body_names llama_body_names = {
    .aliases = aliases, .num_aliases = 5, .format = "response_format"};
const struct body_names llama_body_infill_names = {
    .aliases = aliases, .num_aliases = 7, .format = "response_format"};

cJSON *llama_body_detach(cJSON *json, const char *name) {
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(json, name);
    if (!cJSON_IsNull(item))
        return item;
    cJSON_Delete(item);
    return NULL;
}

/* Replaces any member of that name; takes ownership of the item. Returns -1 and *err if the item is
 * NULL or memory is short. */
static int put(cJSON *json, const char *name, cJSON *item, struct api_error *err) {
    cJSON_DeleteItemFromObjectCaseSensitive(json, name);
    if (item != NULL && cJSON_AddItemToObject(json, name, item))
        return 0;
    cJSON_Delete(item);
    return api_error_set_memory(err);
}

/* Without penalties it does not matter how far back they look. */
static void drop_idle(cJSON *json) {
    static const char *const zeros[] = {"presence_penalty", "frequency_penalty"};
    const cJSON *repetition = body_names_given(&llama_body_names, json, "repetition_penalty"),
                *seed = json_given_member(json, "seed");
    bool is_idle =
        repetition == NULL || (cJSON_IsNumber(repetition) && repetition->valuedouble == 1);
    for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
        const cJSON *penalty = json_given_member(json, zeros[i]);
        is_idle =
            is_idle && (penalty == NULL || (cJSON_IsNumber(penalty) && penalty->valuedouble == 0));
    }
    if (is_idle)
        cJSON_DeleteItemFromObjectCaseSensitive(json, "repeat_last_n");
    if (cJSON_IsNumber(seed) && (seed->valuedouble == -1 || seed->valuedouble == RANDOM_SEED))
        cJSON_DeleteItemFromObjectCaseSensitive(json, "seed");
}

/* The order that llama.cpp's editors send. The steps before the last one have this order here too;
 * the last one has no counterpart. */
static bool is_editors_order(const cJSON *samplers) {
    static const char *const order[] = {"top_k", "top_p", "infill"};
    const cJSON *item;
    int count = 0;
    cJSON_ArrayForEach(item, samplers) {
        if (count == 3 || !cJSON_IsString(item) || strcmp(item->valuestring, order[count]) != 0)
            return false;
        count++;
    }
    return count == 3;
}

/* Drops what ends llama.cpp's answer early, by time or by the indentation of a line. */
static int drop_others(cJSON *json, struct byte_buffer *ignored, struct api_error *err) {
    static const char *const names[] = {"t_max_prompt_ms", "t_max_predict_ms", "n_indent",
                                        "samplers"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const cJSON *item = json_given_member(json, names[i]);
        bool is_order = strcmp(names[i], "samplers") == 0;
        if (item == NULL || (is_order && !is_editors_order(item)))
            continue;
        json_fields_append_name(names[i], "", ignored);
        cJSON_DeleteItemFromObjectCaseSensitive(json, names[i]);
    }
    return ignored->failed ? api_error_set_memory(err) : 0;
}

/* An empty stop string counts as none, as in llama.cpp. */
static void drop_empty_stops(cJSON *json) {
    cJSON *stop = cJSON_GetObjectItemCaseSensitive(json, "stop"), *next;
    if (cJSON_IsString(stop) && stop->valuestring[0] == '\0')
        cJSON_DeleteItemFromObjectCaseSensitive(json, "stop");
    for (cJSON *item = cJSON_IsArray(stop) ? stop->child : NULL; item != NULL; item = next) {
        next = item->next;
        if (cJSON_IsString(item) && item->valuestring[0] == '\0')
            cJSON_Delete(cJSON_DetachItemViaPointer(stop, item));
    }
}

static int check_fields(const cJSON *fields, struct api_error *err) {
    const cJSON *item;
    int index = 0;
    if (!cJSON_IsArray(fields))
        return json_refuse(fields, "response_fields", "an array of strings", err);
    cJSON_ArrayForEach(item, fields) {
        char path[PROMPT_PATH_BYTES];
        snprintf(path, sizeof(path), "response_fields[%d]", index++);
        if (index > MAX_FIELDS)
            return bad_request(err, "array_above_max_length", "response_fields",
                               "response_fields has too many entries: at most %d are allowed",
                               MAX_FIELDS);
        if (!cJSON_IsString(item))
            return json_refuse(item, path, "a string", err);
        if (strlen(item->valuestring) > MAX_FIELD_BYTES)
            return bad_request(err, "out_of_range", path, "%s must have at most %d bytes", path,
                               MAX_FIELD_BYTES);
    }
    return 0;
}

int llama_body_take_fields(cJSON *json, cJSON **out, struct api_error *err) {
    cJSON *fields = llama_body_detach(json, "response_fields");
    int result = fields != NULL ? check_fields(fields, err) : 0;
    bool is_given = result == 0 && fields != NULL && fields->child != NULL;
    *out = is_given ? fields : NULL; /* an empty list selects nothing: the answer has all members */
    if (!is_given)
        cJSON_Delete(fields);
    return result;
}

/* Encodes a text that is part of another text. */
static int encode(const struct api_context *context, const char *text, const char *path,
                  unsigned flags, int32_t **out, size_t *out_count, struct api_error *err) {
    const struct prompt_text whole = {.data = text, .length = strlen(text), .flags = flags};
    return prompt_text_encode(context->tokenizer, &whole, path, out, out_count, err);
}

struct bias_reader {
    const struct api_context *context;
    cJSON *map;  /* from ids to biases */
    int num_set; /* biases set, repeated ids included: each is a search through all of them */
    struct api_error *err;
};

static int set_named(struct bias_reader *reader, const char *id, const cJSON *value) {
    if (reader->num_set++ == MAX_LOGIT_BIASES)
        return bad_request(
            reader->err, "array_above_max_length", "logit_bias",
            "logit_bias has too many entries: at most %d are allowed, and a text has as many as it "
            "has tokens",
            MAX_LOGIT_BIASES);
    return put(reader->map, id,
               cJSON_IsFalse(value) ? cJSON_CreateNumber(NEVER) : cJSON_Duplicate(value, false),
               reader->err);
}

static int set_bias(struct bias_reader *reader, int64_t token, const cJSON *value) {
    char id[24];
    snprintf(id, sizeof(id), "%lld", (long long)token);
    return set_named(reader, id, value);
}

/* A text stands for each of its tokens. */
static int set_biases(struct bias_reader *reader, const char *text, const char *path,
                      const cJSON *value) {
    size_t count = 0;
    int32_t *tokens = NULL;
    int result = encode(reader->context, text, path, prompt_text_flags(false, true), &tokens,
                        &count, reader->err);
    for (size_t i = 0; i < count && result == 0; i++)
        result = set_bias(reader, tokens[i], value);
    free(tokens);
    return result;
}

/* Reads [token or text, bias or false]; or a member whose name is a token or text. */
static int read_bias(struct bias_reader *reader, const cJSON *item, const char *path) {
    const cJSON *what = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *value = what != NULL ? what->next : NULL;
    int64_t token = 0;
    if (item->string != NULL && item->string[strspn(item->string, "0123456789")] == '\0')
        return set_named(reader, item->string, item);
    if (item->string != NULL)
        return set_biases(reader, item->string, path, item);
    if (value == NULL || value->next != NULL)
        return json_refuse(item, path, "[a token id or a text, a number or false]", reader->err);
    if (cJSON_IsString(what))
        return set_biases(reader, what->valuestring, path, value);
    int32_t last = tokenizer_vocab_size(reader->context->tokenizer) - 1;
    return json_read_int(what, path, 0, last, &token, reader->err) != 0
               ? -1
               : set_bias(reader, token, value);
}

static int take_biases(const struct api_context *context, cJSON *json, struct api_error *err) {
    const cJSON *given = json_given_member(json, "logit_bias"), *item;
    int index = 0, result = 0;
    if (!cJSON_IsArray(given) && !cJSON_IsObject(given))
        return 0;
    struct bias_reader reader = {.context = context, .map = cJSON_CreateObject(), .err = err};
    cJSON_ArrayForEach(item, given) {
        char path[PROMPT_PATH_BYTES];
        snprintf(path, sizeof(path), "logit_bias[%d]", index++);
        if (reader.map != NULL && result == 0)
            result = read_bias(&reader, item, path);
    }
    if (result == 0)
        return put(json, "logit_bias", reader.map, err);
    cJSON_Delete(reader.map);
    return -1;
}

int llama_body_take(const struct api_context *context, cJSON *json, struct byte_buffer *ignored,
                    struct api_error *err) {
    if (take_biases(context, json, err) != 0)
        return -1;
    drop_idle(json);
    drop_empty_stops(json);
    return drop_others(json, ignored, err);
}

/* Appends a text's ids. Only a text at the start of the prompt gets what the tokenizer puts
 * there. */
static int append_text(const struct api_context *context, const cJSON *text, bool is_first,
                       cJSON *ids, struct api_error *err) {
    unsigned flags = prompt_text_flags(is_first, true);
    size_t count = 0;
    int32_t *tokens = NULL;
    if (encode(context, text->valuestring, "prompt", flags, &tokens, &count, err) != 0)
        return -1;
    bool has_memory = true;
    for (size_t i = 0; i < count && has_memory; i++)
        has_memory = cJSON_AddItemToArray(ids, cJSON_CreateNumber(tokens[i]));
    free(tokens);
    return has_memory ? 0 : api_error_set_memory(err);
}

static int append_id(const cJSON *id, cJSON *ids, struct api_error *err) {
    return cJSON_AddItemToArray(ids, cJSON_Duplicate(id, false)) ? 0 : api_error_set_memory(err);
}

/* Returns the ids of a list of ids and texts; NULL and *err on failure. */
static cJSON *make_ids(const struct api_context *context, const cJSON *list,
                       struct api_error *err) {
    cJSON *ids = cJSON_CreateArray();
    const cJSON *item;
    int result = ids != NULL ? 0 : api_error_set_memory(err);
    cJSON_ArrayForEach(item, list) {
        if (result == 0 && cJSON_IsString(item))
            result = append_text(context, item, item == list->child, ids, err);
        else if (result == 0)
            result = append_id(item, ids, err);
    }
    if (result == 0)
        return ids;
    cJSON_Delete(ids);
    return NULL;
}

static bool is_mixed(const cJSON *list) {
    const cJSON *item;
    bool has_text = false, has_id = false, has_other = false;
    cJSON_ArrayForEach(item, list) {
        has_text |= cJSON_IsString(item);
        has_id |= cJSON_IsNumber(item);
        has_other |= !cJSON_IsString(item) && !cJSON_IsNumber(item);
    }
    return has_text && has_id && !has_other;
}

/* Returns what a prompt stands for; the item itself if it has the form of a completion's prompt. */
static cJSON *make_prompt(const struct api_context *context, cJSON *item, struct api_error *err) {
    const cJSON *data = json_given_member(item, "multimodal_data"),
                *text = json_given_member(item, "prompt_string");
    if (cJSON_IsArray(item) && is_mixed(item))
        return make_ids(context, item, err);
    if (!cJSON_IsObject(item))
        return item;
    if (data != NULL && !(cJSON_IsArray(data) && data->child == NULL)) {
        bad_request(err, "unsupported_parameter", "prompt",
                    "prompt has multimodal_data: this server takes texts only");
        return NULL;
    }
    if (!cJSON_IsString(text)) {
        json_refuse(text, "prompt.prompt_string", "a string", err);
        return NULL;
    }
    cJSON *copy = cJSON_CreateString(text->valuestring);
    if (copy == NULL)
        api_error_set_memory(err);
    return copy;
}

int llama_body_take_prompt(const struct api_context *context, cJSON *json, struct api_error *err) {
    cJSON *prompt = cJSON_GetObjectItemCaseSensitive(json, "prompt"), *item, *next;
    cJSON *made = prompt != NULL ? make_prompt(context, prompt, err) : NULL;
    if (prompt == NULL || made == NULL)
        return prompt == NULL ? 0 : -1;
    if (made != prompt)
        return put(json, "prompt", made, err);
    for (item = cJSON_IsArray(prompt) ? prompt->child : NULL; item != NULL; item = next) {
        next = item->next;
        made = make_prompt(context, item, err);
        if (made == NULL)
            return -1;
        if (made != item)
            cJSON_ReplaceItemViaPointer(prompt, item, made);
    }
    return 0;
}
