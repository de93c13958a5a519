#include "server/api/completions/llama_format.h"

#include "models/config/sampling_fields.h"
#include "server/api/call/api_call_format.h"
#include "config/json/json_write.h"

#include <string.h>

void llama_format_settings(const struct sampling_settings *settings, struct byte_buffer *out) {
    int count = 0;
    const struct sampling_field *fields = sampling_fields(&count);
    for (int i = 0; i < count; i++) {
        double value = sampling_field_value(&fields[i], settings);
        bool is_repetition = strcmp(fields[i].name, "repetition_penalty") == 0;
        json_write_key(out, is_repetition ? "repeat_penalty" : fields[i].name);
        if (fields[i].type == SAMPLING_FIELD_INT32)
            json_write_int(out, (int64_t)value);
        else
            json_write_float(out, (float)value);
    }
}

static void write_settings(const struct llama_answer *answer, const struct request *request,
                           struct byte_buffer *out) {
    const struct sampling_params *params = &request->params;
    json_write_key(out, "generation_settings");
    json_write_begin_object(out);
    json_write_int_member(out, "n_predict", params->max_tokens);
    json_write_int_member(out, "max_tokens", params->max_tokens);
    json_write_int_member(out, "n_ctx", answer->max_model_len);
    json_write_int_member(out, "seed", (int64_t)params->seed);
    llama_format_settings(&params->settings, out);
    json_write_key(out, "stop");
    json_write_begin_array(out);
    for (int32_t i = 0; i < params->num_stop_strings; i++)
        json_write_string(out, params->stop_strings[i].data, params->stop_strings[i].length);
    json_write_end_array(out);
    json_write_key(out, "ignore_eos");
    json_write_bool(out, params->ignore_eos);
    json_write_int_member(out, "n_probs", params->num_logprobs > 0 ? params->num_logprobs : 0);
    json_write_key(out, "stream");
    json_write_bool(out, answer->call->is_stream);
    json_write_end_object(out);
}

/* Writes the prompt as the model gets it. */
static void write_prompt(const struct llama_answer *answer, const struct request *request,
                         struct byte_buffer *out) {
    struct byte_buffer text = {0};
    for (int32_t i = 0; i < request->num_prompt_tokens; i++) {
        struct text piece = tokenizer_piece(answer->call->tokenizer, request->prompt[i]);
        byte_buffer_append(&text, piece.data, piece.length);
    }
    out->failed |= text.failed;
    json_write_string_member(out, "prompt", &text);
    byte_buffer_finish(&text);
}

static const char *stop_type(const struct api_call_finish *finish) {
    if (finish->reason == FINISH_STOP)
        return finish->stop_string.data != NULL ? "word" : "eos";
    return finish->reason == FINISH_NONE ? "none" : "limit";
}

/* Writes what is known at the end of a choice. */
static void write_end(const struct llama_answer *answer, int32_t prompt, struct byte_buffer *out) {
    const struct api_call *call = answer->call;
    const struct request *request = call->prompts[prompt].request;
    const struct api_call_choice *choice = &call->choices[answer->choice];
    const struct text *word = &choice->finish.stop_string;
    json_write_text_member(out, "stop_type", stop_type(&choice->finish));
    json_write_key(out, "stopping_word");
    json_write_string(out, word->data != NULL ? word->data : "", word->length);
    json_write_key(out, "has_new_line");
    json_write_bool(out, answer->has_new_line);
    json_write_key(out, "truncated"); /* by the end of the context */
    json_write_bool(out, choice->finish.reason == FINISH_LENGTH &&
                             request->num_prompt_tokens + choice->num_generated >=
                                 answer->max_model_len);
    json_write_int_member(out, "tokens_cached", call->prompts[prompt].num_cached_tokens);
    if (answer->prompt_scores != NULL)
        json_write_array_member(out, "prompt_logprobs", answer->prompt_scores);
    write_settings(answer, request, out);
    write_prompt(answer, request, out);
}

void llama_format_members(const struct llama_answer *answer, bool is_end, struct byte_buffer *out) {
    const struct api_call *call = answer->call;
    int32_t prompt = answer->choice / call->num_choices;
    json_write_string_member(out, "content", answer->content);
    json_write_array_member(out, "tokens", answer->tokens);
    json_write_key(out, "stop");
    json_write_bool(out, is_end);
    json_write_int_member(out, "tokens_predicted", call->choices[answer->choice].num_generated);
    json_write_int_member(out, "tokens_evaluated",
                          call->prompts[prompt].request->num_prompt_tokens);
    if (answer->probabilities != NULL && (answer->probabilities->length > 0 || !call->is_stream))
        json_write_array_member(out, "completion_probabilities", answer->probabilities);
    if (is_end)
        write_end(answer, prompt, out);
    if (is_end || answer->has_timings)
        api_call_format_timings(call, answer->choice, 1, out);
}

void llama_format_answer(const struct llama_answer *answer, int32_t index, bool is_end,
                         struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_int_member(out, "index", index);
    if (is_end)
        json_write_text_member(out, "model", answer->call->head.model);
    llama_format_members(answer, is_end, out);
    json_write_end_object(out);
}

/* Returns the end of the value that begins at `at`. */
static const char *skip_value(const char *at, const char *end) {
    int depth = 0;
    bool in_string = false;
    for (; at < end; at++) {
        if (in_string && *at == '\\')
            at++;
        else if (*at == '"')
            in_string = !in_string;
        else if (!in_string && (*at == '{' || *at == '['))
            depth++;
        else if (!in_string && depth == 0 && (*at == ',' || *at == '}' || *at == ']'))
            break;
        else if (!in_string && (*at == '}' || *at == ']'))
            depth--;
    }
    return at;
}

/* Returns the value of an object's member of that name, which needs no escapes; empty if the object
 * has no such member, or is not an object. */
static struct text find_member(struct text object, struct text name) {
    const char *at = object.data, *end = object.data + object.length;
    if (object.length == 0 || *at != '{')
        return (struct text){0};
    while (++at < end && *at == '"') {
        const char *key = at + 1, *colon = at;
        while (*++colon != '"')
            colon += *colon == '\\';
        const char *value = colon + 2;
        at = skip_value(value, end);
        if ((size_t)(colon - key) == name.length && memcmp(key, name.data, name.length) == 0)
            return (struct text){value, (size_t)(at - value)};
    }
    return (struct text){0};
}

static struct text find_path(struct text value, const char *path) {
    for (const char *name = path; value.length > 0;) {
        size_t length = strcspn(name, "/");
        value = find_member(value, (struct text){name, length});
        if (name[length] == '\0')
            break;
        name += length + 1;
    }
    return value;
}

static bool is_repeated(const cJSON *paths, const cJSON *path) {
    const cJSON *item = paths->child;
    while (item != path && strcmp(item->valuestring, path->valuestring) != 0)
        item = item->next;
    return item != path;
}

void llama_format_select(const struct byte_buffer *whole, const cJSON *paths,
                         struct byte_buffer *out) {
    const cJSON *path;
    out->failed |= whole->failed;
    json_write_begin_object(out);
    cJSON_ArrayForEach(path, paths) {
        struct text value = find_path((struct text){whole->data, whole->length}, path->valuestring);
        if (value.length == 0 || is_repeated(paths, path))
            continue;
        json_write_key(out, path->valuestring);
        json_write_raw(out, "");
        byte_buffer_append(out, value.data, value.length);
    }
    json_write_end_object(out);
}
