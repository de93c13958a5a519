#include "server/api/completions/infill_body.h"

#include "server/api/completions/llama_body.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_SHARE 4 /* of the context, at most: a quarter */
#define PATH_BYTES 48

static int refuse_name(const char *name, const char *instead, struct api_error *err) {
    return bad_request(err, "unsupported_parameter", name, "%s is not a field of /infill: use %s",
                       name, instead);
}

/* Refuses completion fields under the names to which /infill's fields are mapped. */
static int check_names(const cJSON *json, struct api_error *err) {
    static const struct {
        const char *name, *instead;
    } names[] = {{"suffix", "input_suffix"}, {"max_tokens", "n_predict"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_given_member(json, names[i].name) != NULL)
            return refuse_name(names[i].name, names[i].instead, err);
    return 0;
}

static int check_text(const cJSON *json, const char *name, struct api_error *err) {
    const cJSON *item = json_given_member(json, name);
    return cJSON_IsString(item) ? 0 : json_refuse(item, name, "a string", err);
}

static int check_file(const cJSON *file, int index, struct api_error *err) {
    char path[PATH_BYTES];
    const cJSON *text = json_given_member(file, "text"),
                *name = json_given_member(file, "filename");
    snprintf(path, sizeof(path), "input_extra[%d]", index);
    if (!cJSON_IsObject(file))
        return json_refuse(file, path, "an object with text and filename", err);
    snprintf(path, sizeof(path), "input_extra[%d].text", index);
    if (!cJSON_IsString(text))
        return json_refuse(text, path, "a string", err);
    snprintf(path, sizeof(path), "input_extra[%d].filename", index);
    if (name != NULL && !cJSON_IsString(name))
        return json_refuse(name, path, "a string", err);
    if (name != NULL && strlen(name->valuestring) > INFILL_MAX_NAME_BYTES)
        return bad_request(err, "out_of_range", path, "%s must have at most %d bytes", path,
                           INFILL_MAX_NAME_BYTES);
    return 0;
}

static int check_files(const cJSON *files, struct api_error *err) {
    const cJSON *file;
    int index = 0;
    if (files != NULL && !cJSON_IsArray(files))
        return json_refuse(files, "input_extra", "an array of objects", err);
    if (cJSON_GetArraySize(files) > INFILL_MAX_FILES)
        return bad_request(err, "out_of_range", "input_extra",
                           "input_extra must have at most %d items, not %d", INFILL_MAX_FILES,
                           cJSON_GetArraySize(files));
    cJSON_ArrayForEach(file, files) {
        if (check_file(file, index++, err) != 0)
            return -1;
    }
    return 0;
}

int infill_body_take(const struct api_context *context, cJSON *json, struct infill_body *out,
                     struct byte_buffer *ignored, struct api_error *err) {
    *out = (struct infill_body){.is_given = true};
    if (check_names(json, err) != 0 || llama_body_take(context, json, ignored, err) != 0)
        return -1;
    out->prompt = json_given_member(json, "prompt");
    out->files = llama_body_detach(json, "input_extra");
    if (out->prompt != NULL && !cJSON_IsString(out->prompt))
        return json_refuse(out->prompt, "prompt", "a string", err);
    if (check_files(out->files, err) != 0 || check_text(json, "input_prefix", err) != 0)
        return -1;
    return check_text(json, "input_suffix", err);
}

void infill_body_leave_room(const struct api_context *context, struct sampling_body *sampling) {
    int64_t most = context->limits->max_model_len, share = most / OUTPUT_SHARE;
    int64_t length = sampling->max_tokens;
    bool is_open = length == SAMPLING_TO_THE_END || length > share;
    if (sampling->truncation.max_tokens == 0)
        sampling->truncation.max_tokens = most - (is_open ? share : length);
}

static void append_id(struct byte_buffer *ids, int32_t id) {
    byte_buffer_append(ids, &id, sizeof(id));
}

static int append_text(const struct api_context *context, const char *text, const char *path,
                       const struct prompt_limits *limits, struct byte_buffer *ids,
                       struct api_error *err) {
    const struct prompt_text whole = {.data = text, .length = strlen(text)};
    struct prompt_tokens tokens;
    if (whole.length == 0)
        return 0;
    if (prompt_text_tokens(context, &whole, path, limits, &tokens, err) != 0)
        return -1;
    byte_buffer_append(ids, tokens.ids, (size_t)tokens.count * sizeof(*tokens.ids));
    free(tokens.ids);
    return 0;
}

static int append_name(const struct api_context *context, int32_t mark, const char *name,
                       const char *path, const struct prompt_limits *limits,
                       struct byte_buffer *ids, struct api_error *err) {
    char line[INFILL_MAX_NAME_BYTES + 2];
    snprintf(line, sizeof(line), "%s\n", name);
    append_id(ids, mark);
    return append_text(context, line, path, limits, ids, err);
}

static int append_file(const struct api_context *context, const cJSON *file, int index,
                       const struct prompt_limits *limits, struct byte_buffer *ids,
                       struct api_error *err) {
    static const char snippet[] = "\n\n--- snippet ---\n\n";
    int32_t mark = tokenizer_fim_marks(context->tokenizer)[FIM_FILE];
    const cJSON *name = json_given_member(file, "filename");
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "input_extra[%d].filename", index);
    int result = mark >= 0 ? append_name(context, mark, name != NULL ? name->valuestring : "tmp",
                                         path, limits, ids, err)
                           : append_text(context, snippet, path, limits, ids, err);
    snprintf(path, sizeof(path), "input_extra[%d].text", index);
    const char *text = json_given_member(file, "text")->valuestring;
    return result != 0 ? -1 : append_text(context, text, path, limits, ids, err);
}

static int append_files(const struct api_context *context, const struct infill_body *body,
                        const struct prompt_limits *limits, struct byte_buffer *ids,
                        struct api_error *err) {
    const int32_t *marks = tokenizer_fim_marks(context->tokenizer);
    const cJSON *file;
    int index = 0;
    if (marks[FIM_REPO] >= 0 &&
        append_name(context, marks[FIM_REPO], "myproject", "input_extra", limits, ids, err) != 0)
        return -1;
    cJSON_ArrayForEach(file, body->files) {
        if (append_file(context, file, index++, limits, ids, err) != 0)
            return -1;
    }
    return marks[FIM_FILE] < 0
               ? 0
               : append_name(context, marks[FIM_FILE], "filename", "input_extra", limits, ids, err);
}

/* Makes the buffer's memory that of the tokens. */
static int take_ids(struct byte_buffer *ids, struct prompt_tokens *out, struct api_error *err) {
    if (ids->failed) {
        byte_buffer_finish(ids);
        return api_error_set_memory(err);
    }
    *out = (struct prompt_tokens){.ids = (int32_t *)(void *)ids->data,
                                  .count = (int32_t)(ids->length / sizeof(int32_t))};
    return 0;
}

/* The prompt is not cut: it is next to the gap. */
static int check_prompt(const struct api_context *context, const struct prompt_limits *limits,
                        const struct infill_body *body, struct api_error *err) {
    int before = 0, behind = 0;
    tokenizer_num_added(context->tokenizer, &before, &behind);
    int64_t most = prompt_truncation_limit(context, limits) - before - NUM_FIM_PARTS;
    if (body->between.count == 0 || body->between.count <= most)
        return 0;
    return bad_request(err, "context_length_exceeded", "prompt",
                       "prompt has %d tokens and is not truncated: at most %lld fit in addition to "
                       "the output",
                       (int)body->between.count, (long long)(most > 0 ? most : 0));
}

int infill_body_read_tokens(const struct api_context *context, const struct prompt_limits *limits,
                            struct infill_body *body, struct api_error *err) {
    struct byte_buffer ids = {0}, between = {0};
    const char *prompt = body->prompt != NULL ? body->prompt->valuestring : "";
    if (append_files(context, body, limits, &ids, err) != 0 ||
        append_text(context, prompt, "prompt", limits, &between, err) != 0) {
        byte_buffer_finish(&ids);
        byte_buffer_finish(&between);
        return -1;
    }
    int result = take_ids(&ids, &body->in_front, err);
    if (take_ids(&between, &body->between, err) != 0)
        result = -1;
    return result == 0 ? check_prompt(context, limits, body, err) : -1;
}

void infill_body_finish(struct infill_body *body) {
    cJSON_Delete(body->files);
    free(body->between.ids);
    free(body->in_front.ids);
    *body = (struct infill_body){0};
}
