/* /v1/completions, and through it llama.cpp's /completion and /infill. Adds what completions need
 * to an API call: echoed prompts, logprobs in the legacy form, and the best of several choices. */
#include "server/api/call/endpoints.h"

#include "server/api/call/api_call_format.h"
#include "server/api/completions/completion_body.h"
#include "server/api/completions/llama_format.h"
#include "server/api/call/logprob_format.h"
#include "server/api/call/logprob_list.h"
#include "config/json/json_write.h"

#include <stdlib.h>
#include <string.h>

/* Logprob entries that one API call may produce, for prompt and output. Each takes about 25 bytes
 * of JSON, which are held until the call ends. */
#define MAX_LOGPROB_ENTRIES (8 << 20)

/* A choice's output that is not sent yet. */
struct choice_output {
    struct byte_buffer text;
    struct logprob_list logprobs;
    struct byte_buffer token_ids;
    struct byte_buffer probabilities; /* llama.cpp's form only */
    bool has_new_line;                /* somewhere in its whole text */
    bool has_started;                 /* the prompt's echo, if any, was added */
    bool has_sent;
};

struct prompt_output {
    struct byte_buffer text;      /* echo only */
    struct logprob_list logprobs; /* echo with logprobs only */
    struct byte_buffer scores;    /* prompt_logprobs only */
    struct byte_buffer ids;       /* return_token_ids only */
    /* The prompt's tokens that belong to the echoed text: all except those that were added around a
     * text, or that mark the parts of a prompt with a suffix. */
    int32_t text_begin, text_end;
    int32_t num_scored;
    bool is_cut; /* by truncate_prompt_tokens */
};

struct completion_api_call {
    struct api_call base; /* first: see api_call_type.h */
    bool include_usage, continuous_usage, echo, skip_special_tokens, return_token_ids;
    bool has_timings;
    enum completion_form form;
    cJSON *response_fields; /* in llama.cpp's forms: of a whole answer, or of /completion's last
                               frame */
    int32_t max_model_len;
    int32_t num_logprobs, num_prompt_logprobs; /* as requested; -1: none */
    int64_t num_entries;                       /* logprobs per generated token */
    int32_t num_returned;                      /* n */
    struct prompt_output *prompts;             /* [num_prompts] */
    struct choice_output *choices;             /* [num_prompts * num_choices] */
};

/* --- From a body to requests --- */

/* Fills in the echoed text: as it was given, or the text of every token that was given or is left
 * after truncation. */
static void fill_prompt_text(const struct tokenizer *tokenizer, const cJSON *item,
                             const struct request *request, struct prompt_output *prompt) {
    if (cJSON_IsString(item) && !prompt->is_cut) {
        byte_buffer_append_text(&prompt->text, item->valuestring);
        return;
    }
    for (int32_t i = prompt->text_begin; i < prompt->text_end; i++) {
        struct text piece = tokenizer_piece(tokenizer, request->prompt[i]);
        byte_buffer_append(&prompt->text, piece.data, piece.length);
    }
}

static int create_prompt(const struct api_context *context, const struct completion_body *body,
                         const cJSON *item, const char *path, struct prompt_output *prompt,
                         struct request **out, struct api_error *err) {
    struct prompt_tokens tokens;
    if (completion_body_tokens(context, body, item, path, &tokens, &prompt->text_begin,
                               &prompt->text_end, err) != 0)
        return -1;
    if (sampling_body_check_room(&body->sampling, context, path, tokens.count, err) != 0) {
        free(tokens.ids);
        return -1;
    }
    prompt->is_cut = tokens.is_cut;
    struct sampling_params params = completion_body_params(
        body, context, tokens.count, sampling_body_seed(context, &body->sampling));
    *out = request_create(tokens.ids, tokens.count, &params);
    free(tokens.ids);
    if (*out == NULL)
        return api_error_set_memory(err);
    (*out)->reports_progress = body->return_progress && body->sampling.stream;
    return api_call_set_scope(context, *out, body->sampling.model, body->sampling.priority,
                              body->sampling.cache_salt, err);
}

static int add_prompt(const struct api_context *context, const struct completion_body *body,
                      const cJSON *item, int32_t index, struct completion_api_call *call,
                      struct api_error *err) {
    char path[PROMPT_PATH_BYTES];
    struct prompt_output *prompt = &call->prompts[index];
    prompt_list_path(&body->prompts, index, path);
    if (create_prompt(context, body, item, path, prompt, &call->base.prompts[index].request, err) !=
        0)
        return -1;
    if (body->echo)
        fill_prompt_text(context->tokenizer, item, call->base.prompts[index].request, prompt);
    if (body->sampling.return_token_ids)
        api_call_add_prompt_ids(call->base.prompts[index].request, &prompt->ids);
    return prompt->text.failed || prompt->ids.failed ? api_error_set_memory(err) : 0;
}

static int check_logprobs(const struct completion_api_call *call,
                          const struct completion_body *body, struct api_error *err) {
    int64_t num_entries = 0;
    for (int32_t i = 0; i < call->base.num_prompts; i++) {
        const struct request *prompt = call->base.prompts[i].request;
        int64_t echoed = call->echo ? prompt->num_prompt_tokens : 0;
        num_entries +=
            (prompt->params.max_tokens * call->num_entries + echoed * (call->num_logprobs + 1)) *
            call->base.num_choices;
        num_entries += (int64_t)prompt->num_prompt_tokens * (call->num_prompt_logprobs + 1) *
                       call->num_returned;
    }
    if (num_entries <= MAX_LOGPROB_ENTRIES)
        return 0;
    const char *field = call->num_logprobs >= 0 ? "logprobs" : "prompt_logprobs";
    return bad_request(err, "out_of_range",
                       body_names_field(body->sampling.names, body->json, field),
                       "the call may produce %lld logprob entries: at most %d are allowed; "
                       "request fewer logprobs, tokens, choices or prompts",
                       (long long)num_entries, MAX_LOGPROB_ENTRIES);
}

static int add_prompts(const struct api_context *context, const struct completion_body *body,
                       struct completion_api_call *call, struct api_error *err) {
    const cJSON *item = body->prompts.first;
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < call->base.num_prompts; i++, item = item->next) {
        if (add_prompt(context, body, item, i, call, err) != 0)
            return -1;
        num_tokens += call->base.prompts[i].request->num_prompt_tokens;
        if (prompt_list_check_total(context, &body->prompts, num_tokens, err) != 0)
            return -1;
    }
    return check_logprobs(call, body, err);
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct completion_api_call *call = (struct completion_api_call *)base;
    struct completion_body *body = parsed;
    const struct sampling_body *sampling = &body->sampling;
    int32_t num_choices = sampling_body_num_choices(sampling);
    int32_t num_prompts = body->prompts.num_prompts;
    api_call_set_ignored_params(base, &body->ignored);
    base->is_stream = sampling->stream;
    base->timeout_ms = sampling->timeout_ms;
    call->include_usage = sampling->include_usage;
    call->continuous_usage = sampling->continuous_usage_stats;
    call->return_token_ids =
        sampling->return_token_ids || (sampling->stream && body->form == COMPLETION_LLAMA);
    call->skip_special_tokens = sampling->skip_special_tokens;
    call->echo = body->echo;
    call->has_timings = body->timings_per_token;
    call->form = body->form;
    call->response_fields = body->response_fields;
    body->response_fields = NULL;
    call->max_model_len = context->limits->max_model_len;
    call->num_logprobs = (int32_t)body->logprobs;
    call->num_entries = sampling_body_logprob_entries(sampling, call->num_logprobs);
    call->num_prompt_logprobs = (int32_t)sampling->prompt_logprobs;
    call->num_returned = (int32_t)sampling->n;
    if (api_call_set_id(base, sampling->request_id, err) != 0 ||
        api_call_set_size(base, num_prompts, num_choices, err) != 0 ||
        api_call_set_slot(context, base, sampling->id_slot, err) != 0)
        return -1;
    call->prompts = calloc((size_t)num_prompts, sizeof(*call->prompts));
    call->choices = calloc((size_t)num_prompts * (size_t)num_choices, sizeof(*call->choices));
    if (call->prompts == NULL || call->choices == NULL || base->ignored.failed)
        return api_error_set_memory(err);
    for (int32_t i = 0; i < num_prompts; i++) {
        call->prompts[i].logprobs.shows_ids = sampling->return_tokens_as_token_ids;
        call->prompts[i].logprobs.begins_with_own = true;
    }
    for (int32_t i = 0; i < num_prompts * num_choices; i++)
        call->choices[i].logprobs.shows_ids = sampling->return_tokens_as_token_ids;
    if (add_prompts(context, body, call, err) != 0)
        return -1;
    api_call_set_transfer(context, base, &sampling->transfer);
    return 0;
}

static void finish(struct api_call *base) {
    struct completion_api_call *call = (struct completion_api_call *)base;
    for (int32_t i = 0; call->prompts != NULL && i < base->num_prompts; i++) {
        byte_buffer_finish(&call->prompts[i].text);
        logprob_list_finish(&call->prompts[i].logprobs);
        byte_buffer_finish(&call->prompts[i].scores);
        byte_buffer_finish(&call->prompts[i].ids);
    }
    for (int32_t i = 0; call->choices != NULL && i < base->num_prompts * base->num_choices; i++) {
        byte_buffer_finish(&call->choices[i].text);
        logprob_list_finish(&call->choices[i].logprobs);
        byte_buffer_finish(&call->choices[i].token_ids);
        byte_buffer_finish(&call->choices[i].probabilities);
    }
    cJSON_Delete(call->response_fields);
    free(call->prompts);
    free(call->choices);
}

static size_t held_bytes(const struct api_call *base) {
    const struct completion_api_call *call = (const struct completion_api_call *)base;
    size_t bytes = 0;
    for (int32_t i = 0; i < base->num_prompts; i++) {
        const struct prompt_output *prompt = &call->prompts[i];
        bytes += prompt->text.capacity + logprob_list_bytes(&prompt->logprobs) +
                 prompt->scores.capacity + prompt->ids.capacity;
    }
    for (int32_t i = 0; i < base->num_prompts * base->num_choices; i++) {
        const struct choice_output *choice = &call->choices[i];
        bytes += choice->text.capacity + logprob_list_bytes(&choice->logprobs) +
                 choice->token_ids.capacity + choice->probabilities.capacity;
    }
    return bytes;
}

/* --- From events to the answer --- */

static int add_scores(struct api_call *base, int32_t index, const struct token_event *event) {
    struct completion_api_call *call = (struct completion_api_call *)base;
    struct prompt_output *prompt = &call->prompts[index];
    if (call->num_prompt_logprobs >= 0)
        logprob_format_prompt(base->tokenizer, event, call->num_prompt_logprobs, &prompt->scores);
    for (int32_t i = 0; i < event->num_tokens && call->echo && call->num_logprobs >= 0; i++) {
        struct token_record record = event->tokens[i];
        int32_t place = prompt->num_scored++;
        bool in_text = place >= prompt->text_begin && place < prompt->text_end;
        if (record.num_top > call->num_logprobs)
            record.num_top = call->num_logprobs;
        logprob_list_add(&prompt->logprobs, base->tokenizer, &record, event->top + record.first_top,
                         in_text);
    }
    return prompt->scores.failed || logprob_list_has_failed(&prompt->logprobs) ? -1 : 0;
}

static void start_choice(const struct prompt_output *prompt, struct choice_output *choice) {
    choice->has_started = true;
    byte_buffer_append(&choice->text, prompt->text.data, prompt->text.length);
    logprob_list_append(&choice->logprobs, &prompt->logprobs);
}

static int add_text(struct api_call *base, int32_t index, const struct token_event *event) {
    struct completion_api_call *call = (struct completion_api_call *)base;
    struct choice_output *choice = &call->choices[index];
    if (!choice->has_started)
        start_choice(&call->prompts[index / base->num_choices], choice);
    byte_buffer_append(&choice->text, event->text, event->text_bytes);
    if (call->return_token_ids)
        api_call_add_token_ids(event->tokens, event->num_tokens, &choice->token_ids);
    if (event->text_bytes > 0 && memchr(event->text, '\n', event->text_bytes) != NULL)
        choice->has_new_line = true;
    if (call->form != COMPLETION_OPENAI && call->num_logprobs >= 0)
        logprob_format_chat(base->tokenizer, event, call->num_logprobs, LOGPROB_NAMES_AND_IDS,
                            &choice->probabilities);
    for (int32_t i = 0;
         i < event->num_tokens && call->num_logprobs >= 0 && call->form != COMPLETION_LLAMA; i++) {
        const struct token_record *record = &event->tokens[i];
        bool in_text =
            !call->skip_special_tokens || !tokenizer_is_special(base->tokenizer, record->token);
        logprob_list_add(&choice->logprobs, base->tokenizer, record, event->top + record->first_top,
                         in_text);
    }
    bool failed = choice->text.failed || choice->token_ids.failed || choice->probabilities.failed ||
                  logprob_list_has_failed(&choice->logprobs);
    return failed ? -1 : 0;
}

/* --- From the answer to bytes: a text_completion object or chunk, with vLLM's keys --- */

/* Writes choice number `index` as number `shown` of the answer. */
static void write_choice(const struct completion_api_call *call, int32_t index, int32_t shown,
                         bool with_prompt, struct byte_buffer *out) {
    const struct choice_output *choice = &call->choices[index];
    const struct prompt_output *prompt = &call->prompts[index / call->base.num_choices];
    bool with_ids = call->return_token_ids;
    bool with_scores = with_prompt && call->num_prompt_logprobs >= 0;
    json_write_begin_object(out);
    json_write_int_member(out, "index", shown);
    json_write_string_member(out, "text", &choice->text);
    json_write_key(out, "logprobs");
    if (call->num_logprobs >= 0)
        logprob_list_format(&choice->logprobs, out);
    else
        json_write_null(out);
    api_call_format_finish(&call->base.choices[index].finish, NULL, out);
    if (with_scores || !call->base.is_stream)
        json_write_array_member(out, "prompt_logprobs", with_scores ? &prompt->scores : NULL);
    json_write_array_member(out, "token_ids", with_ids ? &choice->token_ids : NULL);
    json_write_array_member(out, "prompt_token_ids", with_prompt && with_ids ? &prompt->ids : NULL);
    json_write_end_object(out);
}

static struct llama_answer answer_of(const struct completion_api_call *call, int32_t index) {
    const struct choice_output *choice = &call->choices[index];
    const struct prompt_output *prompt = &call->prompts[index / call->base.num_choices];
    return (struct llama_answer){
        .call = &call->base,
        .choice = index,
        .content = &choice->text,
        .tokens = &choice->token_ids,
        .probabilities = call->num_logprobs >= 0 ? &choice->probabilities : NULL,
        .prompt_scores = call->num_prompt_logprobs >= 0 ? &prompt->scores : NULL,
        .max_model_len = call->max_model_len,
        .has_new_line = choice->has_new_line,
        .has_timings = call->has_timings,
    };
}

/* Writes what llama.cpp's form says of a choice, after all choices; otherwise the timings of
 * `count` choices from `first` on. */
static void write_others(const struct completion_api_call *call, int32_t index, int32_t first,
                         int32_t count, struct byte_buffer *out) {
    const struct llama_answer answer = answer_of(call, index);
    if (call->form == COMPLETION_INFILL)
        llama_format_members(&answer, call->base.choices[index].is_finished, out);
    else if (call->has_timings)
        api_call_format_timings(&call->base, first, count, out);
}

static bool has_output(const struct completion_api_call *call, int32_t index) {
    const struct choice_output *choice = &call->choices[index];
    return choice->text.length > 0 || !logprob_list_is_empty(&choice->logprobs) ||
           choice->token_ids.length > 0 || call->base.choices[index].is_finished;
}

static void clear(struct choice_output *choice) {
    byte_buffer_clear(&choice->text);
    logprob_list_clear(&choice->logprobs);
    byte_buffer_clear(&choice->token_ids);
    byte_buffer_clear(&choice->probabilities);
}

static void write_update(struct api_call *base, int32_t index, struct byte_buffer *out) {
    struct completion_api_call *call = (struct completion_api_call *)base;
    struct choice_output *choice = &call->choices[index];
    if (!has_output(call, index))
        return;
    bool is_first = !choice->has_sent;
    choice->has_sent = true;
    base->choices[index].num_sent = base->choices[index].num_generated;
    struct api_call_usage usage = api_call_sent_usage(base);
    api_call_begin_frame(out);
    api_call_format_begin(&base->head, "text_completion", out);
    write_choice(call, index, index, is_first, out);
    api_call_format_end_choices(&base->head, out);
    write_others(call, index, index, 1, out);
    if (call->include_usage)
        api_call_format_usage(call->continuous_usage ? &usage : NULL, out);
    json_write_end_object(out);
    api_call_end_frame(out);
    clear(choice);
}

/* first: the first choice of the answer; -1: there is none. */
static void end_with_usage(const struct api_call *base, int32_t first, struct byte_buffer *out) {
    struct api_call_usage usage = api_call_total_usage(base);
    api_call_format_end_choices(&base->head, out);
    if (first >= 0)
        write_others((const struct completion_api_call *)base, first, 0,
                     base->num_prompts * base->num_choices, out);
    api_call_format_usage(&usage, out);
    api_call_format_transfer(base, out);
    json_write_end_object(out);
}

static void write_progress(struct api_call *base, int32_t prompt, const struct token_event *event,
                           struct byte_buffer *out) {
    api_call_begin_frame(out);
    api_call_format_begin(&base->head, "text_completion", out);
    api_call_format_end_choices(&base->head, out);
    api_call_format_progress(base, prompt, event, out);
    json_write_end_object(out);
    api_call_end_frame(out);
}

static void write_end(struct api_call *base, struct byte_buffer *out) {
    const struct completion_api_call *call = (const struct completion_api_call *)base;
    if (call->include_usage) {
        api_call_begin_frame(out);
        api_call_format_begin(&base->head, "text_completion", out);
        end_with_usage(base, -1, out);
        api_call_end_frame(out);
    }
    api_call_write_done(out);
}

/* Writes the answer: with best_of the best choices of each prompt first, otherwise all in order. */
static void write_whole(struct api_call *base, struct byte_buffer *out) {
    const struct completion_api_call *call = (const struct completion_api_call *)base;
    bool selects = call->num_returned < base->num_choices;
    int32_t first = selects ? api_call_rank_choices(base, 0)[0].choice : 0;
    api_call_format_begin(&base->head, "text_completion", out);
    for (int32_t prompt = 0; prompt < base->num_prompts; prompt++) {
        const struct api_call_rank *ranks = selects ? api_call_rank_choices(base, prompt) : NULL;
        for (int32_t i = 0; i < call->num_returned; i++) {
            int32_t choice = selects ? ranks[i].choice : i;
            write_choice(call, prompt * base->num_choices + choice, prompt * call->num_returned + i,
                         true, out);
        }
    }
    end_with_usage(base, first, out);
}

static void write_body(struct api_call *base, struct byte_buffer *out) {
    const struct completion_api_call *call = (const struct completion_api_call *)base;
    if (call->response_fields == NULL) {
        write_whole(base, out);
        return;
    }
    struct byte_buffer whole = {0};
    write_whole(base, &whole);
    llama_format_select(&whole, call->response_fields, out);
    byte_buffer_finish(&whole);
}

/* --- llama.cpp's /completion: an object for each choice, or for each of its updates --- */

/* Writes choice number `index` as number `shown` of the answer; is_end: nothing of it follows. */
static void write_llama_choice(const struct completion_api_call *call, int32_t index, int32_t shown,
                               bool is_end, struct byte_buffer *out) {
    const struct llama_answer answer = answer_of(call, index);
    if (!is_end || call->response_fields == NULL) {
        llama_format_answer(&answer, shown, is_end, out);
        return;
    }
    struct byte_buffer whole = {0};
    llama_format_answer(&answer, shown, true, &whole);
    llama_format_select(&whole, call->response_fields, out);
    byte_buffer_finish(&whole);
}

static void write_llama_frame(struct completion_api_call *call, int32_t index, bool is_end,
                              struct byte_buffer *out) {
    api_call_begin_frame(out);
    write_llama_choice(call, index, index, is_end, out);
    api_call_end_frame(out);
    clear(&call->choices[index]);
}

/* What is written at the end goes into a separate frame, without text. */
static void write_llama_update(struct api_call *base, int32_t index, struct byte_buffer *out) {
    struct completion_api_call *call = (struct completion_api_call *)base;
    const struct choice_output *choice = &call->choices[index];
    base->choices[index].num_sent = base->choices[index].num_generated;
    if (choice->text.length > 0 || (choice->token_ids.length > 0))
        write_llama_frame(call, index, false, out);
    if (base->choices[index].is_finished)
        write_llama_frame(call, index, true, out);
}

static void write_llama_progress(struct api_call *base, int32_t prompt,
                                 const struct token_event *event, struct byte_buffer *out) {
    int32_t index = prompt * base->num_choices;
    const struct llama_answer answer = answer_of((struct completion_api_call *)base, index);
    api_call_begin_frame(out);
    json_write_begin_object(out);
    json_write_int_member(out, "index", index);
    llama_format_members(&answer, false, out);
    api_call_format_progress(base, prompt, event, out);
    json_write_end_object(out);
    api_call_end_frame(out);
}

static void write_llama_end(struct api_call *base, struct byte_buffer *out) {
    (void)base;
    (void)out;
}

static void write_llama_error(struct api_call *call, struct byte_buffer *out) {
    api_call_begin_frame(out);
    api_error_format(&call->error, out);
    api_call_end_frame(out);
}

static void write_llama_choices(struct api_call *base, struct byte_buffer *out) {
    const struct completion_api_call *call = (const struct completion_api_call *)base;
    bool selects = call->num_returned < base->num_choices;
    for (int32_t prompt = 0; prompt < base->num_prompts; prompt++) {
        const struct api_call_rank *ranks = selects ? api_call_rank_choices(base, prompt) : NULL;
        for (int32_t i = 0; i < call->num_returned; i++) {
            int32_t choice = prompt * base->num_choices + (selects ? ranks[i].choice : i);
            write_llama_choice(call, choice, prompt * call->num_returned + i, true, out);
        }
    }
}

/* Writes one object, or a list if there are several. */
static void write_llama_body(struct api_call *base, struct byte_buffer *out) {
    const struct completion_api_call *call = (const struct completion_api_call *)base;
    bool is_list = base->num_prompts * call->num_returned > 1;
    if (is_list)
        json_write_begin_array(out);
    write_llama_choices(base, out);
    if (is_list)
        json_write_end_array(out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct completion_api_call),
    .id_prefix = "cmpl-",
    .fill = fill,
    .add_prompt = add_scores,
    .write_progress = write_progress,
    .add = add_text,
    .write_update = write_update,
    .write_end = write_end,
    .write_error = api_call_write_error,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

static const struct api_call_operations llama_operations = {
    .size = sizeof(struct completion_api_call),
    .id_prefix = "cmpl-",
    .fill = fill,
    .add_prompt = add_scores,
    .write_progress = write_llama_progress,
    .add = add_text,
    .write_update = write_llama_update,
    .write_end = write_llama_end,
    .write_error = write_llama_error,
    .write_body = write_llama_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

static int parse(const struct api_context *context, const char *text, size_t length,
                 enum completion_form form, struct api_call **out, struct api_error *err) {
    struct completion_body body;
    if (completion_body_parse(context, text, length, form, &body, err) != 0)
        return -1;
    int result = api_call_create(body.form == COMPLETION_LLAMA ? &llama_operations : &operations,
                                 context, &body, out, err);
    completion_body_finish(&body);
    return result;
}

int completion_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                              struct api_call **out, struct api_error *err) {
    return parse(context, text, length, COMPLETION_OPENAI, out, err);
}

int completion_endpoint_parse_infill(const struct api_context *context, const char *text,
                                     size_t length, struct api_call **out, struct api_error *err) {
    return parse(context, text, length, COMPLETION_INFILL, out, err);
}

int completion_endpoint_parse_llama(const struct api_context *context, const char *text,
                                    size_t length, struct api_call **out, struct api_error *err) {
    return parse(context, text, length, COMPLETION_LLAMA, out, err);
}

int completion_endpoint_parse_either(const struct api_context *context, const char *text,
                                     size_t length, struct api_call **out, struct api_error *err) {
    return parse(context, text, length, COMPLETION_EITHER, out, err);
}
