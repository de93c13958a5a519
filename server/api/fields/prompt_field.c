#include "server/api/fields/prompt_field.h"

#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int prompt_field_refuse(int code, const char *path, struct api_error *err) {
    if (code == TOKENIZER_TOO_COSTLY)
        return bad_request(err, "text_too_costly", path,
                           "The text takes the model's tokenizer too long");
    return api_error_set_memory(err);
}

/* Bound a text that is to be cut: many times what the context holds. */
#define MAX_CUT_BYTES_PER_TOKEN 64
#define LEAST_CUT_BYTES ((size_t)1 << 20)

static int read_side(const cJSON *body, bool *keeps_start, struct api_error *err) {
    const cJSON *item = json_given_member(body, "truncation_side");
    const char *side = cJSON_GetStringValue(item);
    if (item == NULL)
        return 0;
    if (side == NULL || (strcmp(side, "left") != 0 && strcmp(side, "right") != 0))
        return json_refuse(item, "truncation_side", "\"left\" or \"right\"", err);
    *keeps_start = strcmp(side, "right") == 0;
    return 0;
}

int prompt_truncation_read(const struct api_context *context, const cJSON *body,
                           struct prompt_truncation *out, struct api_error *err) {
    static const char name[] = "truncate_prompt_tokens";
    const cJSON *item = json_given_member(body, name);
    struct prompt_truncation truncation = {0};
    if (read_side(body, &truncation.keeps_start, err) != 0)
        return -1;
    if (item != NULL && cJSON_IsNumber(item) && item->valuedouble == 0)
        return json_refuse(item, name, "at least 1, or -1 for the context length", err);
    if (item != NULL && json_read_int(item, name, -1, context->limits->max_model_len,
                                      &truncation.max_tokens, err) != 0)
        return -1;
    *out = truncation;
    return 0;
}

static const char allowed_shapes[] =
    "a string, an array of strings, an array of token ids or an array of arrays of token ids";

static int refuse_empty(const char *path, struct api_error *err) {
    return bad_request(err, "empty_prompt", path, "%s is empty: at least one token is needed",
                       path);
}

static int refuse_length(const struct api_context *context, const char *path, const char *about,
                         int64_t num_tokens, const struct prompt_limits *limits,
                         struct api_error *err) {
    const char *field = limits->max_tokens_field;
    char output[64] = "";
    if (limits->max_tokens > 0)
        snprintf(output, sizeof(output), " and %s is %lld", field != NULL ? field : "max_tokens",
                 (long long)limits->max_tokens);
    return bad_request(err, "context_length_exceeded", path,
                       "This model's maximum context length is %d tokens, but %s has %s%lld "
                       "tokens%s",
                       (int)context->limits->max_model_len, path, about, (long long)num_tokens,
                       output);
}

static int check_prompt(const cJSON *item, const char *path, bool allows_empty,
                        struct api_error *err) {
    if (cJSON_IsString(item))
        return allows_empty || item->valuestring[0] != '\0' ? 0 : refuse_empty(path, err);
    if (cJSON_IsArray(item))
        return allows_empty || item->child != NULL ? 0 : refuse_empty(path, err);
    return json_refuse(item, path, allowed_shapes, err);
}

void prompt_list_path(const struct prompt_list *list, int32_t index, char out[PROMPT_PATH_BYTES]) {
    if (list->is_list)
        snprintf(out, PROMPT_PATH_BYTES, "%s[%d]", list->name, (int)index);
    else
        snprintf(out, PROMPT_PATH_BYTES, "%s", list->name);
}

int prompt_list_read(const struct api_context *context, const cJSON *body, const char *name,
                     bool allows_empty, struct prompt_list *out, struct api_error *err) {
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, name);
    if (prompt == NULL)
        return bad_request(err, "missing_required_parameter", name, "%s is missing: it must be %s",
                           name, allowed_shapes);
    if (check_prompt(prompt, name, allows_empty && cJSON_IsString(prompt), err) != 0)
        return -1;
    struct prompt_list list = {.name = name, .first = prompt, .num_prompts = 1};
    if (cJSON_IsArray(prompt) && !cJSON_IsNumber(prompt->child)) {
        list = (struct prompt_list){.name = name, .first = prompt->child, .is_list = true};
        const cJSON *item;
        cJSON_ArrayForEach(item, prompt) {
            char path[PROMPT_PATH_BYTES];
            if (list.num_prompts == context->max_prompts)
                return bad_request(err, "array_above_max_length", name,
                                   "%s has more than %d entries, the most allowed", name,
                                   (int)context->max_prompts);
            prompt_list_path(&list, list.num_prompts, path);
            if (check_prompt(item, path, allows_empty, err) != 0)
                return -1;
            list.num_prompts++;
        }
    }
    *out = list;
    return 0;
}

static size_t longest_piece(const struct tokenizer *tokenizer) {
    size_t longest = 1;
    for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
        size_t length = tokenizer_piece(tokenizer, token).length;
        if (length > longest)
            longest = length;
    }
    return longest;
}

/* Refuses a text so long that it cannot fit whatever its tokens are, without encoding it. */
static int check_bytes(const struct api_context *context, size_t length, const char *path,
                       int32_t limit, const struct prompt_limits *limits, struct api_error *err) {
    if (length / 16 <= (size_t)limit)
        return 0;
    size_t least = length / longest_piece(context->tokenizer);
    if (least <= (size_t)limit)
        return 0;
    return refuse_length(context, path, "at least ", (int64_t)least, limits, err);
}

int prompt_text_encode(const struct tokenizer *tokenizer, const struct prompt_text *text,
                       const char *path, int32_t **out, size_t *out_count, struct api_error *err) {
    size_t capacity = text->length / 2 + 16;
    for (;;) {
        int32_t *tokens = malloc(capacity * sizeof(*tokens));
        if (tokens == NULL)
            return api_error_set_memory(err);
        int64_t count =
            tokenizer_encode_spans(tokenizer, text->data, text->length, text->client_spans,
                                   text->num_client_spans, text->flags, tokens, capacity);
        if (count >= 0 && (size_t)count <= capacity) {
            *out = tokens;
            *out_count = (size_t)count;
            return 0;
        }
        free(tokens);
        if (count < 0)
            return prompt_field_refuse((int)count, path, err);
        capacity = (size_t)count;
    }
}

/* What is given in addition to the prompt. */
struct prompt_reader {
    const struct api_context *context;
    const char *path;
    const struct prompt_limits *limits;
    int32_t most; /* tokens of a prompt */
};

static int check_count(const struct prompt_reader *reader, int64_t count, struct api_error *err) {
    if (count == 0)
        return refuse_empty(reader->path, err);
    if (count <= reader->most)
        return 0;
    return refuse_length(reader->context, reader->path, "", count, reader->limits, err);
}

/* Encodes a text to at most as many tokens as the prompt may have. */
static int encode(const struct prompt_reader *reader, const struct prompt_text *text,
                  struct prompt_tokens *tokens, struct api_error *err) {
    if (check_bytes(reader->context, text->length, reader->path, reader->most, reader->limits,
                    err) != 0)
        return -1;
    tokens->ids = calloc((size_t)reader->most + 1, sizeof(*tokens->ids));
    if (tokens->ids == NULL)
        return api_error_set_memory(err);
    int64_t count = tokenizer_encode_spans(reader->context->tokenizer, text->data, text->length,
                                           text->client_spans, text->num_client_spans, text->flags,
                                           tokens->ids, (size_t)reader->most);
    if (count < 0)
        return prompt_field_refuse((int)count, reader->path, err);
    if (check_count(reader, count, err) != 0)
        return -1;
    tokens->count = (int32_t)count;
    return 0;
}

int64_t prompt_truncation_limit(const struct api_context *context,
                                const struct prompt_limits *limits) {
    int32_t most = context->limits->max_model_len;
    int64_t output = limits->max_tokens < 0 ? 1 : limits->max_tokens;
    if (limits->truncation.max_tokens >= 0)
        return limits->truncation.max_tokens;
    return output < most ? most - output : 1;
}

/* Keeps as many of the count tokens as the truncation allows. The first `before` and the last
 * `behind` tokens were added by the tokenizer and stay. */
static void cut(const struct prompt_reader *reader, int64_t count, int32_t before, int32_t behind,
                struct prompt_tokens *tokens) {
    const struct prompt_limits *limits = reader->limits;
    int32_t keep = (int32_t)prompt_truncation_limit(reader->context, limits);
    tokens->is_cut = count > keep;
    tokens->count = tokens->is_cut ? keep : (int32_t)count;
    if (!tokens->is_cut)
        return;
    if (before + behind >= keep)
        before = behind = 0;
    int32_t *ids = tokens->ids, kept = keep - before - behind;
    int64_t from = limits->truncation.keeps_start ? before : count - behind - kept;
    memmove(ids + before, ids + from, (size_t)kept * sizeof(*ids));
    memmove(ids + before + kept, ids + count - behind, (size_t)behind * sizeof(*ids));
}

/* Bounds a text that will be cut: all of it is encoded, on a worker that others wait for. */
static int check_cut_bytes(const struct prompt_reader *reader, size_t length,
                           struct api_error *err) {
    size_t most = (size_t)reader->context->limits->max_model_len * MAX_CUT_BYTES_PER_TOKEN;
    if (most < LEAST_CUT_BYTES)
        most = LEAST_CUT_BYTES;
    if (length <= most)
        return 0;
    return bad_request(err, "out_of_range", reader->path,
                       "%s has %zu bytes: at most %zu are cut by truncate_prompt_tokens",
                       reader->path, length, most);
}

static int encode_and_cut(const struct prompt_reader *reader, const struct prompt_text *text,
                          struct prompt_tokens *tokens, struct api_error *err) {
    int before = 0, behind = 0;
    size_t count;
    if (check_cut_bytes(reader, text->length, err) != 0)
        return -1;
    if (prompt_text_encode(reader->context->tokenizer, text, reader->path, &tokens->ids, &count,
                           err) != 0)
        return -1;
    if ((text->flags & TOKENIZER_ADD_SPECIAL) != 0)
        tokenizer_num_added(reader->context->tokenizer, &before, &behind);
    cut(reader, (int64_t)count, before, behind, tokens);
    return check_count(reader, tokens->count, err);
}

static int read_ids(const struct prompt_reader *reader, const cJSON *array,
                    struct prompt_tokens *tokens, struct api_error *err) {
    int32_t vocab_size = tokenizer_vocab_size(reader->context->tokenizer);
    bool is_cut = reader->limits->truncation.max_tokens != 0;
    int length = cJSON_GetArraySize(array), count = 0;
    if (!is_cut && check_count(reader, length, err) != 0)
        return -1;
    tokens->ids = calloc((size_t)length + 1, sizeof(*tokens->ids));
    if (tokens->ids == NULL)
        return api_error_set_memory(err);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        char item_path[PROMPT_PATH_BYTES + 16];
        int64_t id;
        snprintf(item_path, sizeof(item_path), "%s[%d]", reader->path, count);
        if (json_read_int(item, item_path, 0, vocab_size - 1, &id, err) != 0)
            return -1;
        tokens->ids[count++] = (int32_t)id;
    }
    tokens->count = count;
    if (is_cut)
        cut(reader, count, 0, 0, tokens);
    return check_count(reader, tokens->count, err);
}

static struct prompt_reader reader_of(const struct api_context *context, const char *path,
                                      const struct prompt_limits *limits) {
    return (struct prompt_reader){.context = context,
                                  .path = path,
                                  .limits = limits,
                                  .most =
                                      context->limits->max_model_len - (limits->max_tokens != 0)};
}

int prompt_check_length(const struct api_context *context, const char *path,
                        const struct prompt_limits *limits, int64_t num_tokens,
                        struct api_error *err) {
    const struct prompt_reader reader = reader_of(context, path, limits);
    return check_count(&reader, num_tokens, err);
}

static int finish(int result, struct prompt_tokens *tokens, struct prompt_tokens *out) {
    if (result == 0)
        *out = *tokens;
    else
        free(tokens->ids);
    return result;
}

int prompt_text_tokens(const struct api_context *context, const struct prompt_text *text,
                       const char *path, const struct prompt_limits *limits,
                       struct prompt_tokens *out, struct api_error *err) {
    struct prompt_reader reader = reader_of(context, path, limits);
    struct prompt_tokens tokens = {0};
    int result = limits->truncation.max_tokens != 0 ? encode_and_cut(&reader, text, &tokens, err)
                                                    : encode(&reader, text, &tokens, err);
    return finish(result, &tokens, out);
}

int prompt_read_tokens(const struct api_context *context, const cJSON *item, const char *path,
                       unsigned flags, const struct prompt_limits *limits,
                       struct prompt_tokens *out, struct api_error *err) {
    if (cJSON_IsString(item)) {
        const struct prompt_text text = {
            .data = item->valuestring, .length = strlen(item->valuestring), .flags = flags};
        return prompt_text_tokens(context, &text, path, limits, out, err);
    }
    struct prompt_reader reader = reader_of(context, path, limits);
    struct prompt_tokens tokens = {0};
    return finish(read_ids(&reader, item, &tokens, err), &tokens, out);
}

unsigned prompt_text_flags(bool add_special, bool parse_special) {
    return (add_special ? (unsigned)TOKENIZER_ADD_SPECIAL : 0) |
           (parse_special ? (unsigned)TOKENIZER_PARSE_SPECIAL : 0);
}

int prompt_list_check_total(const struct api_context *context, const struct prompt_list *list,
                            int64_t num_tokens, struct api_error *err) {
    if (list->num_prompts == 1 || num_tokens <= context->max_prompt_tokens)
        return 0;
    return bad_request(err, "out_of_range", list->name,
                       "the prompts of one call may have %lld tokens together, and these have "
                       "more; send them in several calls",
                       (long long)context->max_prompt_tokens);
}
