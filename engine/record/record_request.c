#include "engine/record/record_request.h"

#include "config/base/numbers.h"
#include "config/base/utf8.h"
#include "engine/grammar/machine/grammar.h"
#include "engine/schedule/kv_demand.h"
#include "models/config/sampling_fields.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MARKER_BYTES 64
#define MAX_SALT_BYTES (1 << 20)
#define MAX_CHOICES 16384 /* the most of --max-n */

/* --- Writing --- */

static void write_tokens(const int32_t *tokens, int32_t count, struct byte_buffer *out) {
    record_put_signed(out, count);
    for (int32_t i = 0; i < count; i++)
        record_put_signed(out, tokens[i]);
}

/* In the table's order, which is part of the format (RECORD_VERSION). */
#define PUT_FLOAT(value) record_put_float(out, value)
#define PUT_INT32(value) record_put_signed(out, value)
#define WRITE(member, type, min, least, max, key) PUT_##type(settings->member);

static void write_settings(const struct sampling_settings *settings, struct byte_buffer *out) {
    FOR_SAMPLING_FIELDS(WRITE)
}

static void write_texts(const struct stop_string *texts, int32_t count, struct byte_buffer *out) {
    record_put_signed(out, count);
    for (int32_t i = 0; i < count; i++)
        record_put_bytes(out, texts[i].data, texts[i].length);
}

static void write_arrays(const struct sampling_params *params, struct byte_buffer *out) {
    write_texts(params->stop_strings, params->num_stop_strings, out);
    write_texts(params->dry_breakers, params->num_dry_breakers, out);
    record_put_signed(out, params->num_biases);
    for (int32_t i = 0; i < params->num_biases; i++) {
        record_put_signed(out, params->biases[i].token);
        record_put_float(out, params->biases[i].bias);
    }
    record_put_signed(out, params->num_bad_runs);
    for (int32_t i = 0; i < params->num_bad_runs; i++)
        write_tokens(params->bad_runs[i].tokens, params->bad_runs[i].count, out);
    write_tokens(params->stop_tokens, params->num_stop_tokens, out);
    write_tokens(params->allowed_tokens, params->num_allowed_tokens, out);
    write_tokens(params->logprob_tokens, params->num_logprob_tokens, out);
}

static void write_thinking(const struct thinking_budget *thinking, struct byte_buffer *out) {
    write_tokens(thinking->end_tokens, thinking->num_end_tokens, out);
    if (thinking->num_end_tokens == 0)
        return;
    record_put_text(out, thinking->begin);
    record_put_text(out, thinking->end);
    record_put_bool(out, thinking->begins_inside);
    record_put_signed(out, thinking->max_tokens);
}

static void write_params(const struct sampling_params *params, const struct grammar *last,
                         struct byte_buffer *out) {
    record_put_signed(out, (int64_t)params->pooling);
    record_put_signed(out, params->num_choices);
    record_put_signed(out, params->beam_width);
    record_put_double(out, params->length_penalty);
    record_put_signed(out, (int64_t)params->early_stopping);
    record_put_signed(out, params->max_tokens);
    record_put_signed(out, params->min_tokens);
    write_settings(&params->settings, out);
    record_put_unsigned(out, params->seed);
    record_put_signed(out, params->num_logprobs);
    record_put_signed(out, params->num_prompt_logprobs);
    record_put_bool(out, params->ignore_eos);
    record_put_bool(out, params->include_stop_string);
    record_put_bool(out, params->skip_special_tokens);
    write_arrays(params, out);
    write_thinking(&params->thinking, out);
    if (params->grammar == NULL)
        return;
    record_put_bool(out, params->grammar == last);
    if (params->grammar != last)
        grammar_write(params->grammar, out);
}

void record_request_write(const struct request *request, const struct grammar *last,
                          struct byte_buffer *out) {
    record_put_unsigned(out, request->id);
    record_put_signed(out, request->arrival_ns);
    record_put_signed(out, request->deadline_ns);
    record_put_signed(out, request->queue_deadline_ns);
    record_put_signed(out, request->priority);
    record_put_signed(out, request->share);
    record_put_signed(out, request->weight);
    record_put_signed(out, request->tenant);
    record_put_bytes(out, request->cache_salt, request->cache_salt_bytes);
    record_put_signed(out, request->adapter != NULL ? request->adapter->slot : -1);
    write_tokens(request->prompt, request->num_prompt_tokens, out);
    write_params(&request->params, last, out);
}

/* --- Reading --- */

/* What a request is made from. */
struct request_parts {
    const struct record_header *header;
    struct record_markers *markers;
    struct sampling_params params;
    int32_t *prompt, *stop_tokens, *allowed, *logprob_tokens;
    int32_t num_prompt_tokens;
    int32_t run_tokens[MAX_BAD_RUNS][MAX_BAD_RUN_TOKENS];
    struct token_run runs[MAX_BAD_RUNS];
    struct stop_string stops[MAX_STOP_STRINGS];
    struct stop_string breakers[MAX_DRY_BREAKERS];
    struct token_bias biases[MAX_LOGIT_BIASES];
    bool lacks_memory;
};

static void free_parts(struct request_parts *parts) {
    free(parts->prompt);
    free(parts->stop_tokens);
    free(parts->allowed);
    free(parts->logprob_tokens);
    grammar_unref(parts->params.grammar);
    free(parts);
}

static int32_t read_token(const struct request_parts *parts, struct record_input *in,
                          const char *name) {
    return record_get_int32(in, name, 0, parts->header->limits.vocab_size - 1);
}

/* Returns a list of min..max tokens; NULL: there are none, or something was wrong. */
static int32_t *read_tokens(struct request_parts *parts, struct record_input *in, const char *name,
                            int32_t min, int32_t max, int32_t *out_count) {
    int32_t count = record_get_count(in, name, max);
    if (count < min)
        record_input_refuse(in, name);
    if (count == 0 || in->wrong != NULL)
        return NULL;
    int32_t *tokens = malloc((size_t)count * sizeof(*tokens));
    if (tokens == NULL) {
        parts->lacks_memory = true;
        record_input_refuse(in, name);
        return NULL;
    }
    for (int32_t i = 0; i < count; i++)
        tokens[i] = read_token(parts, in, name);
    *out_count = count;
    return tokens;
}

#define GET_FLOAT(name, least, max) record_get_float(in, name, (float)(least), (float)(max))
#define GET_INT32(name, least, max) record_get_int32(in, name, least, max)
#define READ(member, type, min, least, max, key) out->member = GET_##type(#member, least, max);

static void read_settings(struct record_input *in, struct sampling_settings *out) {
    FOR_SAMPLING_FIELDS(READ)
}

static bool is_utf8(struct text text) {
    size_t at = 0, bytes = 1;
    for (; at < text.length && bytes > 0; at += bytes)
        bytes = utf8_char_bytes(text.data + at, text.length - at);
    return bytes > 0;
}

/* Returns the number of texts, no more than max of no more than max_bytes each. */
static int32_t read_texts(struct record_input *in, const char *name, int32_t max, size_t max_bytes,
                          struct stop_string *out) {
    int32_t count = record_get_count(in, name, max);
    for (int32_t i = 0; i < count; i++) {
        struct text text = record_get_bytes(in, name, max_bytes);
        if (text.length == 0 || !is_utf8(text))
            record_input_refuse(in, name);
        out[i] = (struct stop_string){text.data, text.length};
    }
    return count;
}

static void read_biases(struct request_parts *parts, struct record_input *in) {
    struct sampling_params *params = &parts->params;
    int32_t count = record_get_count(in, "biases", MAX_LOGIT_BIASES);
    for (int32_t i = 0; i < count; i++) {
        parts->biases[i].token = read_token(parts, in, "a bias");
        parts->biases[i].bias = record_get_float(in, "a bias", -INFINITY, FLT_MAX);
        for (int32_t j = 0; j < i; j++)
            if (parts->biases[j].token == parts->biases[i].token)
                record_input_refuse(in, "a second bias of a token");
    }
    params->biases = parts->biases;
    params->num_biases = count;
}

static void read_bad_runs(struct request_parts *parts, struct record_input *in) {
    struct sampling_params *params = &parts->params;
    int32_t count = record_get_count(in, "bad_runs", MAX_BAD_RUNS);
    for (int32_t i = 0; i < count; i++) {
        int32_t length = record_get_count(in, "a bad run", MAX_BAD_RUN_TOKENS);
        if (length == 0)
            record_input_refuse(in, "a bad run");
        for (int32_t j = 0; j < length; j++)
            parts->run_tokens[i][j] = read_token(parts, in, "a bad run");
        parts->runs[i] = (struct token_run){parts->run_tokens[i], length};
    }
    params->bad_runs = parts->runs;
    params->num_bad_runs = count;
}

static void read_logprob_tokens(struct request_parts *parts, struct record_input *in) {
    struct sampling_params *params = &parts->params;
    int32_t count = 0;
    int32_t *tokens = read_tokens(parts, in, "logprob_tokens", 0, MAX_LOGPROB_TOKENS, &count);
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < i; j++)
            if (tokens[j] == tokens[i])
                record_input_refuse(in, "a second logprob of a token");
    parts->logprob_tokens = tokens;
    params->logprob_tokens = tokens;
    params->num_logprob_tokens = count;
    if (count > 0 && params->num_logprobs < 0)
        record_input_refuse(in, "num_logprobs");
}

static void read_arrays(struct request_parts *parts, struct record_input *in) {
    struct sampling_params *params = &parts->params;
    params->stop_strings = parts->stops;
    params->num_stop_strings =
        read_texts(in, "stop_strings", MAX_STOP_STRINGS, MAX_STOP_STRING_BYTES, parts->stops);
    params->dry_breakers = parts->breakers;
    params->num_dry_breakers =
        read_texts(in, "dry_breakers", MAX_DRY_BREAKERS, MAX_DRY_BREAKER_BYTES, parts->breakers);
    read_biases(parts, in);
    read_bad_runs(parts, in);
    parts->stop_tokens =
        read_tokens(parts, in, "stop_tokens", 0, MAX_STOP_TOKENS, &params->num_stop_tokens);
    parts->allowed =
        read_tokens(parts, in, "allowed_tokens", 0, INT32_MAX, &params->num_allowed_tokens);
    params->stop_tokens = parts->stop_tokens;
    params->allowed_tokens = parts->allowed;
    read_logprob_tokens(parts, in);
}

void record_markers_finish(struct record_markers *markers) {
    for (int32_t i = 0; i < markers->count; i++)
        free(markers->markers[i]);
    grammar_unref(markers->grammar);
    *markers = (struct record_markers){.count = 0};
}

/* Its first character occurs in it only once. */
static const char *read_marker(struct request_parts *parts, struct record_input *in,
                               const char *name) {
    struct record_markers *known = parts->markers;
    char marker[MAX_MARKER_BYTES];
    record_get_text(in, name, marker, sizeof(marker));
    if (marker[0] == '\0' || strchr(marker + 1, marker[0]) != NULL)
        record_input_refuse(in, name);
    for (int32_t i = 0; i < known->count; i++)
        if (strcmp(known->markers[i], marker) == 0)
            return known->markers[i];
    char *copy = known->count < RECORD_MAX_MARKERS ? strdup(marker) : NULL;
    if (copy == NULL) {
        record_input_refuse(in, name);
        return "";
    }
    return known->markers[known->count++] = copy;
}

static void read_thinking(struct request_parts *parts, struct record_input *in) {
    struct thinking_budget *thinking = &parts->params.thinking;
    int32_t count = record_get_count(in, "thinking.end_tokens", MAX_THINKING_END_TOKENS);
    if (count == 0)
        return;
    for (int32_t i = 0; i < count; i++)
        thinking->end_tokens[i] = read_token(parts, in, "thinking.end_tokens");
    thinking->num_end_tokens = count;
    thinking->begin = read_marker(parts, in, "thinking.begin");
    thinking->end = read_marker(parts, in, "thinking.end");
    thinking->begins_inside = record_get_bool(in, "thinking.begins_inside");
    thinking->max_tokens = record_get_int32(in, "thinking.max_tokens", 0, INT32_MAX);
}

static int read_new_grammar(struct request_parts *parts, struct record_input *in,
                            struct error *err) {
    struct text bytes = {(const char *)in->at, (size_t)(in->end - in->at)};
    struct grammar **known = &parts->markers->grammar;
    in->at = in->end;
    grammar_unref(*known);
    *known = NULL;
    return grammar_read(bytes, parts->header->limits.vocab_size, known, err);
}

/* What is left is the grammar, if there is one. */
static void read_grammar(struct request_parts *parts, struct record_input *in) {
    struct error err = {0};
    if (in->wrong != NULL || in->at == in->end)
        return;
    bool is_last = record_get_bool(in, "shares_grammar");
    if (in->wrong == NULL && (is_last || read_new_grammar(parts, in, &err) == 0) &&
        parts->markers->grammar != NULL) {
        parts->params.grammar = grammar_ref(parts->markers->grammar);
        return;
    }
    parts->lacks_memory = parts->lacks_memory || err.code == ERROR_MEMORY;
    record_input_refuse(in, "grammar");
}

static void read_params(struct request_parts *parts, struct record_input *in) {
    const struct serving_limits *limits = &parts->header->limits;
    struct sampling_params *params = &parts->params;
    int32_t max_logprobs = max_int32(limits->max_logprobs, SAMPLE_MAX_LOGPROBS);
    params->pooling = (enum pooling)record_get_int32(in, "pooling", POOLING_NONE, POOLING_LAST);
    params->num_choices = record_get_int32(in, "num_choices", 1, MAX_CHOICES);
    params->beam_width = record_get_int32(in, "beam_width", 0, BEAM_MAX_CANDIDATES);
    params->length_penalty = record_get_double(in, "length_penalty", -DBL_MAX, DBL_MAX);
    params->early_stopping = (enum early_stopping)record_get_int32(
        in, "early_stopping", EARLY_STOPPING_FALSE, EARLY_STOPPING_NEVER);
    params->max_tokens = record_get_int32(in, "max_tokens", 0, INT32_MAX);
    params->min_tokens = record_get_int32(in, "min_tokens", 0, INT32_MAX);
    read_settings(in, &params->settings);
    params->seed = record_get_unsigned(in, "seed", UINT64_MAX);
    params->num_logprobs = record_get_int32(in, "num_logprobs", -1, max_logprobs);
    params->num_prompt_logprobs = record_get_int32(in, "num_prompt_logprobs", -1, max_logprobs);
    params->ignore_eos = record_get_bool(in, "ignore_eos");
    params->include_stop_string = record_get_bool(in, "include_stop_string");
    params->skip_special_tokens = record_get_bool(in, "skip_special_tokens");
    read_arrays(parts, in);
    read_thinking(parts, in);
    read_grammar(parts, in);
}

/* --- What may not come together --- */

static bool edits_logits(const struct sampling_params *params) {
    const struct sampling_settings *settings = &params->settings;
    return settings->temperature != 0 || settings->presence_penalty != 0 ||
           settings->frequency_penalty != 0 || settings->repetition_penalty != 1 ||
           settings->dry_multiplier != 0 || params->num_biases > 0 ||
           params->num_allowed_tokens > 0 || params->num_bad_runs > 0 || params->grammar != NULL ||
           params->thinking.num_end_tokens > 0;
}

static bool is_beam_search(const struct sampling_params *params, int32_t num_end_tokens) {
    int32_t num_ends = (params->ignore_eos ? 0 : num_end_tokens) + params->num_stop_tokens;
    return params->beam_width >= params->num_choices && params->max_tokens >= 1 &&
           !edits_logits(params) && params->num_stop_strings == 0 &&
           params->num_prompt_logprobs < 0 && params->num_logprobs <= SAMPLE_MAX_LOGPROBS &&
           params->beam_width + num_ends <= BEAM_MAX_CANDIDATES;
}

/* See sampling_params.h. */
static void check_params(const struct request_parts *parts, int32_t num_end_tokens,
                         struct record_input *in) {
    const struct sampling_params *params = &parts->params;
    bool is_pooled = params->pooling != POOLING_NONE;
    if (is_pooled && (params->num_choices != 1 || params->max_tokens != 0 ||
                      params->num_prompt_logprobs >= 0 || params->beam_width > 0))
        record_input_refuse(in, "pooling");
    if (is_pooled && parts->header->limits.hidden_size == 0)
        record_input_refuse(in, "pooling");
    if (params->beam_width > 0 && !is_beam_search(params, num_end_tokens))
        record_input_refuse(in, "beam_width");
}

static int create(struct request_parts *parts, const struct request *scope, struct text salt,
                  struct request **out, struct error *err) {
    struct request *request =
        request_create(parts->prompt, parts->num_prompt_tokens, &parts->params);
    if (request == NULL ||
        request_set_cache_scope(request, scope->tenant, salt.data, salt.length) != 0) {
        request_unref(request);
        return error_set(err, ERROR_MEMORY, "no memory for request %llu",
                         (unsigned long long)scope->id);
    }
    request_set_share(request, scope->share, scope->weight);
    if (scope->adapter != NULL)
        request_set_adapter(request, scope->adapter);
    request->id = scope->id;
    request->arrival_ns = scope->arrival_ns;
    request->deadline_ns = scope->deadline_ns;
    request->queue_deadline_ns = scope->queue_deadline_ns;
    request->priority = scope->priority;
    const struct kv_demand demand = kv_demand_of(request, &parts->header->limits);
    if (!kv_demand_fits(&demand, &parts->header->limits)) {
        request_unref(request);
        return error_set(err, ERROR_SYNTAX, "request %llu: is larger than the engine takes",
                         (unsigned long long)scope->id);
    }
    *out = request;
    return 0;
}

/* Returns the adapter of a slot; NULL: none. */
static struct adapter *read_adapter(const struct request_parts *parts, struct record_input *in) {
    int32_t num_slots = parts->header->core.lora.num_slots;
    int32_t slot = record_get_int32(in, "adapter", -1, num_slots - 1);
    if (slot < 0 || in->wrong != NULL)
        return NULL;
    if (parts->markers->adapters[slot] == NULL)
        record_input_refuse(in, "adapter");
    return parts->markers->adapters[slot];
}

static int read_parts(struct request_parts *parts, struct record_input *in, int32_t num_end_tokens,
                      struct request **out, struct error *err) {
    const struct record_header *header = parts->header;
    struct request scope = {.id = record_get_unsigned(in, "id", UINT64_MAX)};
    scope.arrival_ns = record_get_signed(in, "arrival_ns", 0, RECORD_MAX_NS);
    scope.deadline_ns = record_get_signed(in, "deadline_ns", 0, RECORD_MAX_NS);
    scope.queue_deadline_ns = record_get_signed(in, "queue_deadline_ns", 0, RECORD_MAX_NS);
    scope.priority = record_get_int32(in, "priority", INT32_MIN, INT32_MAX);
    scope.share = record_get_int32(in, "share", 0, header->core.schedule.num_shares - 1);
    scope.weight = record_get_int32(in, "weight", 1, REQUEST_MAX_WEIGHT);
    scope.tenant = record_get_int32(in, "tenant", 0, INT32_MAX);
    struct text salt = record_get_bytes(in, "cache_salt", MAX_SALT_BYTES);
    scope.adapter = read_adapter(parts, in);
    parts->prompt = read_tokens(parts, in, "prompt", 1, INT32_MAX / 2, &parts->num_prompt_tokens);
    read_params(parts, in);
    if (in->wrong == NULL)
        check_params(parts, num_end_tokens, in);
    if (parts->lacks_memory)
        return error_set(err, ERROR_MEMORY, "no memory for a request");
    if (record_input_finish(in, "request", err) != 0)
        return -1;
    return create(parts, &scope, salt, out, err);
}

int record_request_read(struct record_input *in, const struct record_header *header,
                        int32_t num_end_tokens, struct record_markers *markers,
                        struct request **out, struct error *err) {
    struct request_parts *parts = calloc(1, sizeof(*parts));
    if (parts == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a request");
    parts->header = header;
    parts->markers = markers;
    int status = read_parts(parts, in, num_end_tokens, out, err);
    free_parts(parts);
    return status;
}
