/* A call is P prompts, each one engine request with n choices; choice i of prompt p answers as
 * index p * n + i. Every event of a request adds to one choice's text and logprobs. A stream sends
 * what has been added after each event and empties it; otherwise it grows until the last choice has
 * finished and is then written whole. */
#include "server/api/completion_call.h"

#include "config/check.h"
#include "server/api/completion_format.h"
#include "server/api/completion_request.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Logprob entries one call may bring forth, of prompt and output; each is some 25 bytes of JSON
 * that are held until the call ends. */
#define MAX_LOGPROB_ENTRIES (8 << 20)

struct choice {
    struct byte_buffer text;      /* not yet sent */
    struct logprob_list logprobs; /* not yet sent */
    struct completion_finish finish;
    bool is_finished;
    bool has_started; /* the prompt's echo, if any, was added */
    int32_t num_generated;
};

struct prompt {
    struct request *request;
    struct byte_buffer text;      /* echo only */
    struct logprob_list logprobs; /* echo with logprobs only */
    bool is_text;                 /* given as text: special tokens were added around it */
    int32_t num_cached_tokens;
};

struct completion_call {
    const struct tokenizer *tokenizer;
    struct completion_head head;
    struct byte_buffer ignored; /* NUL-terminated; empty: none */
    bool is_stream, include_usage, echo, has_logprobs, skip_special_tokens;
    int32_t num_prompts, num_choices; /* num_choices: per prompt */
    int32_t num_unfinished;           /* choices, of all prompts */
    struct prompt *prompts;           /* [num_prompts] */
    struct choice *choices;           /* [num_prompts * num_choices] */
    struct token_buffer events;
    bool is_done, has_error;
    bool has_sent; /* a stream's first frame */
    struct api_error error;
};

static int fail_memory(struct api_error *err) {
    return api_error_set(err, 500, "server_error", NULL, NULL,
                         "Not enough memory to take the request");
}

/* SplitMix64's output function (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): neighbouring counters become unrelated seeds. */
static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A given seed is used as it is for every prompt of the call, so that a prompt draws the same
 * tokens alone and in a list. Without one each prompt gets its own. */
static uint64_t choose_seed(const struct api_context *context,
                            const struct completion_request *request) {
    static atomic_uint_fast64_t num_drawn;
    if (request->seed != COMPLETION_NO_SEED)
        return (uint64_t)request->seed;
    return mix(context->seed ^ mix(atomic_fetch_add(&num_drawn, 1)));
}

static int fill_head(const struct api_context *context, struct completion_head *head,
                     struct api_error *err) {
    unsigned char random[16];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return api_error_set(err, 500, "server_error", NULL, NULL, "No random bytes for an id");
    int length = snprintf(head->id, sizeof(head->id), "cmpl-");
    for (size_t i = 0; i < sizeof(random); i++)
        length += snprintf(head->id + length, sizeof(head->id) - (size_t)length, "%02x", random[i]);
    head->created = (int64_t)time(NULL);
    head->model = context->model_names[0];
    head->system_fingerprint = context->system_fingerprint;
    return 0;
}

/* The echoed text: as it was given, or the written form of every given token. */
static void fill_prompt_text(const struct tokenizer *tokenizer, const cJSON *item,
                             const struct prompt_tokens *tokens, struct prompt *prompt) {
    if (prompt->is_text) {
        byte_buffer_append_text(&prompt->text, item->valuestring);
        return;
    }
    for (int32_t i = 0; i < tokens->count; i++) {
        struct text piece = tokenizer_piece(tokenizer, tokens->ids[i]);
        byte_buffer_append(&prompt->text, piece.data, piece.length);
    }
}

static int create_prompt(const struct api_context *context,
                         const struct completion_request *request, const cJSON *item,
                         const char *path, struct prompt *prompt, struct api_error *err) {
    struct prompt_tokens tokens;
    if (prompt_read_tokens(context, item, path, request->add_special_tokens, request->max_tokens,
                           &tokens, err) != 0)
        return -1;
    struct sampling_params params =
        completion_request_params(request, context, tokens.count, choose_seed(context, request));
    prompt->is_text = cJSON_IsString(item);
    if (request->echo)
        fill_prompt_text(context->tokenizer, item, &tokens, prompt);
    prompt->request = request_create(tokens.ids, tokens.count, &params);
    free(tokens.ids);
    if (prompt->request == NULL || prompt->text.failed)
        return fail_memory(err);
    prompt->request->priority = (int32_t)request->priority;
    return 0;
}

/* A call that could never be queued as a whole is told so at once, before more is encoded. */
static int check_total(const struct api_context *context, const struct completion_call *call,
                       int64_t num_tokens, struct api_error *err) {
    if (call->num_prompts == 1 || num_tokens <= context->max_prompt_tokens)
        return 0;
    return api_error_set(err, 400, "invalid_request_error", "out_of_range", "prompt",
                         "the prompts of one call may have %lld tokens together, and these have "
                         "more; send them in several calls",
                         (long long)context->max_prompt_tokens);
}

static int check_logprobs(const struct completion_request *request,
                          const struct completion_call *call, struct api_error *err) {
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < call->num_prompts; i++) {
        const struct request *prompt = call->prompts[i].request;
        num_tokens += prompt->params.max_tokens;
        num_tokens += request->echo ? prompt->num_prompt_tokens : 0;
    }
    int64_t num_entries = num_tokens * request->n * (request->logprobs + 1);
    if (num_entries <= MAX_LOGPROB_ENTRIES)
        return 0;
    return api_error_set(err, 400, "invalid_request_error", "out_of_range", "logprobs",
                         "the call may bring forth %lld logprob entries: at most %d are allowed; "
                         "ask for fewer logprobs, tokens, choices or prompts",
                         (long long)num_entries, MAX_LOGPROB_ENTRIES);
}

static int create_prompts(const struct api_context *context,
                          const struct completion_request *request, struct completion_call *call,
                          struct api_error *err) {
    const cJSON *item = request->prompts.first;
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < call->num_prompts; i++, item = item->next) {
        char path[PROMPT_PATH_BYTES];
        prompt_list_path(&request->prompts, i, path);
        if (create_prompt(context, request, item, path, &call->prompts[i], err) != 0)
            return -1;
        num_tokens += call->prompts[i].request->num_prompt_tokens;
        if (check_total(context, call, num_tokens, err) != 0)
            return -1;
    }
    return check_logprobs(request, call, err);
}

static int fill_call(const struct api_context *context, struct completion_request *request,
                     struct completion_call *call, struct api_error *err) {
    call->tokenizer = context->tokenizer;
    call->is_stream = request->stream;
    call->include_usage = request->include_usage;
    call->echo = request->echo;
    call->has_logprobs = request->logprobs >= 0;
    call->skip_special_tokens = request->skip_special_tokens;
    call->num_prompts = request->prompts.num_prompts;
    call->num_choices = (int32_t)request->n;
    call->num_unfinished = call->num_prompts * call->num_choices;
    call->prompts = calloc((size_t)call->num_prompts, sizeof(*call->prompts));
    call->choices = calloc((size_t)call->num_unfinished, sizeof(*call->choices));
    if (request->ignored.length > 0)
        byte_buffer_append(&request->ignored, "", 1);
    call->ignored = request->ignored;
    request->ignored = (struct byte_buffer){0};
    if (call->prompts == NULL || call->choices == NULL || call->ignored.failed)
        return fail_memory(err);
    if (fill_head(context, &call->head, err) != 0)
        return -1;
    return create_prompts(context, request, call, err);
}

int completion_call_parse(const struct api_context *context, const char *body, size_t length,
                          struct completion_call **out, struct api_error *err) {
    struct completion_request request;
    if (completion_request_parse(context, body, length, &request, err) != 0)
        return -1;
    struct completion_call *call = calloc(1, sizeof(*call));
    int result = call != NULL ? fill_call(context, &request, call, err) : fail_memory(err);
    completion_request_finish(&request);
    if (result != 0) {
        completion_call_destroy(call);
        return -1;
    }
    *out = call;
    return 0;
}

static void finish_prompt(struct prompt *prompt) {
    request_unref(prompt->request);
    byte_buffer_finish(&prompt->text);
    logprob_list_finish(&prompt->logprobs);
}

static void finish_choice(struct choice *choice) {
    byte_buffer_finish(&choice->text);
    logprob_list_finish(&choice->logprobs);
}

void completion_call_destroy(struct completion_call *call) {
    if (call == NULL)
        return;
    for (int32_t i = 0; call->prompts != NULL && i < call->num_prompts; i++)
        finish_prompt(&call->prompts[i]);
    for (int32_t i = 0; call->choices != NULL && i < call->num_prompts * call->num_choices; i++)
        finish_choice(&call->choices[i]);
    free(call->prompts);
    free(call->choices);
    byte_buffer_finish(&call->ignored);
    token_buffer_finish(&call->events);
    free(call);
}

bool completion_call_is_stream(const struct completion_call *call) {
    return call->is_stream;
}

const char *completion_call_ignored_params(const struct completion_call *call) {
    return call->ignored.data;
}

int completion_call_num_requests(const struct completion_call *call) {
    return call->num_prompts;
}

struct request *completion_call_request(struct completion_call *call, int index) {
    CHECK(index >= 0 && index < call->num_prompts);
    return call->prompts[index].request;
}

bool completion_call_is_done(const struct completion_call *call) {
    return call->is_done;
}

bool completion_call_error(const struct completion_call *call, struct api_error *err) {
    if (!call->has_error || call->has_sent)
        return false;
    *err = call->error;
    return true;
}

static struct completion_usage total_usage(const struct completion_call *call) {
    struct completion_usage usage = {0};
    for (int32_t i = 0; i < call->num_prompts; i++) {
        usage.prompt_tokens += call->prompts[i].request->num_prompt_tokens;
        usage.cached_tokens += call->prompts[i].num_cached_tokens;
    }
    for (int32_t i = 0; i < call->num_prompts * call->num_choices; i++)
        usage.completion_tokens += call->choices[i].num_generated;
    return usage;
}

static void write_choice(const struct completion_call *call, int32_t index,
                         struct byte_buffer *out) {
    const struct choice *choice = &call->choices[index];
    completion_format_choice(index, &choice->text, call->has_logprobs ? &choice->logprobs : NULL,
                             &choice->finish, out);
}

static const char done_frame[] = "data: [DONE]\n\n";

/* The whole call ends with an error: as the last event of a stream that has begun, or as its
 * answer. */
static void fail_call(struct completion_call *call, struct byte_buffer *out) {
    call->is_done = true;
    call->has_error = true;
    if (!call->has_sent)
        return;
    byte_buffer_append_text(out, "data: ");
    api_error_format(&call->error, out);
    byte_buffer_append_text(out, "\n\n");
    byte_buffer_append_text(out, done_frame);
}

static void write_chunk(struct completion_call *call, int32_t index, struct byte_buffer *out) {
    call->has_sent = true;
    byte_buffer_append_text(out, "data: ");
    completion_format_begin(&call->head, out);
    write_choice(call, index, out);
    if (call->include_usage)
        completion_format_end_null_usage(&call->head, out);
    else
        completion_format_end_no_usage(&call->head, out);
    byte_buffer_append_text(out, "\n\n");
}

static void write_usage_chunk(const struct completion_call *call, struct byte_buffer *out) {
    struct completion_usage usage = total_usage(call);
    byte_buffer_append_text(out, "data: ");
    completion_format_begin(&call->head, out);
    completion_format_end(&call->head, &usage, out);
    byte_buffer_append_text(out, "\n\n");
}

static void write_whole(const struct completion_call *call, struct byte_buffer *out) {
    struct completion_usage usage = total_usage(call);
    completion_format_begin(&call->head, out);
    for (int32_t i = 0; i < call->num_prompts * call->num_choices; i++) {
        if (i > 0)
            byte_buffer_append(out, ",", 1);
        write_choice(call, i, out);
    }
    completion_format_end(&call->head, &usage, out);
}

static void send_choice(struct completion_call *call, int32_t index, struct byte_buffer *out) {
    struct choice *choice = &call->choices[index];
    if (choice->text.length == 0 && logprob_list_is_empty(&choice->logprobs) &&
        !choice->is_finished)
        return;
    write_chunk(call, index, out);
    byte_buffer_clear(&choice->text);
    logprob_list_clear(&choice->logprobs);
}

static void finish_call(struct completion_call *call, struct byte_buffer *out) {
    call->is_done = true;
    if (!call->is_stream) {
        write_whole(call, out);
        return;
    }
    if (call->include_usage)
        write_usage_chunk(call, out);
    byte_buffer_append_text(out, done_frame);
}

/* Special tokens that were added around a text prompt are not part of its text. */
static void add_prompt_logprobs(struct completion_call *call, struct prompt *prompt,
                                const struct token_event *event) {
    if (!call->echo || !call->has_logprobs)
        return;
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        bool in_text = !prompt->is_text || !tokenizer_is_special(call->tokenizer, record->token);
        logprob_list_add(&prompt->logprobs, call->tokenizer, record, event->top + record->first_top,
                         in_text);
    }
}

static void set_finish(const struct request *request, const struct token_event *event,
                       struct completion_finish *finish) {
    finish->reason = event->finish;
    finish->stop_token = event->stop_token;
    if (event->stop_string >= 0 && event->stop_string < request->params.num_stop_strings) {
        const struct stop_string *stop = &request->params.stop_strings[event->stop_string];
        finish->stop_string = (struct text){.data = stop->data, .length = stop->length};
    }
}

static void add_to_choice(struct completion_call *call, const struct prompt *prompt,
                          const struct token_event *event, struct choice *choice) {
    if (!choice->has_started) {
        choice->has_started = true;
        byte_buffer_append(&choice->text, prompt->text.data, prompt->text.length);
        logprob_list_append(&choice->logprobs, &prompt->logprobs);
    }
    byte_buffer_append(&choice->text, event->text, event->text_bytes);
    choice->num_generated = event->num_generated;
    if (!call->has_logprobs)
        return;
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        bool in_text =
            !call->skip_special_tokens || !tokenizer_is_special(call->tokenizer, record->token);
        logprob_list_add(&choice->logprobs, call->tokenizer, record, event->top + record->first_top,
                         in_text);
    }
}

/* Fills call->error for an event after which the call cannot go on. */
static bool is_fatal(struct completion_call *call, const struct prompt *prompt,
                     const struct choice *choice, const struct token_event *event) {
    if (event->finish == FINISH_ERROR)
        api_error_set(&call->error, 503, "server_error", "engine_error", NULL,
                      "The engine failed while it generated the completion");
    else if (event->finish == FINISH_ABORT)
        api_error_set(&call->error, 503, "server_error", "request_aborted", NULL,
                      "The request was aborted before it finished");
    else if (choice->text.failed || logprob_list_has_failed(&choice->logprobs) ||
             logprob_list_has_failed(&prompt->logprobs))
        api_error_set(&call->error, 500, "server_error", NULL, NULL,
                      "Not enough memory for the completion");
    else
        return false;
    return true;
}

static void read_event(struct completion_call *call, int32_t prompt_index,
                       const struct token_event *event, struct byte_buffer *out) {
    struct prompt *prompt = &call->prompts[prompt_index];
    CHECK(event->choice >= 0 && event->choice < call->num_choices);
    int32_t index = prompt_index * call->num_choices + event->choice;
    struct choice *choice = &call->choices[index];
    prompt->num_cached_tokens = event->num_cached_tokens;
    if (event->kind == TOKEN_EVENT_PROMPT) {
        add_prompt_logprobs(call, prompt, event);
        return;
    }
    if (choice->is_finished)
        return;
    add_to_choice(call, prompt, event, choice);
    if (is_fatal(call, prompt, choice, event)) {
        fail_call(call, out);
        return;
    }
    if (event->finish != FINISH_NONE) {
        choice->is_finished = true;
        set_finish(prompt->request, event, &choice->finish);
        call->num_unfinished--;
    }
    if (call->is_stream)
        send_choice(call, index, out);
    if (call->num_unfinished == 0)
        finish_call(call, out);
}

void completion_call_read(struct completion_call *call, struct request *request,
                          struct byte_buffer *out) {
    int32_t prompt_index = 0;
    while (prompt_index < call->num_prompts && call->prompts[prompt_index].request != request)
        prompt_index++;
    CHECK(prompt_index < call->num_prompts);
    token_stream_take(&request->stream, &call->events);
    struct token_event event;
    while (!call->is_done && token_buffer_next(&call->events, &event))
        read_event(call, prompt_index, &event, out);
}
