#include "server/api/fields/unknown_fields.h"

#include <stdio.h>
#include <string.h>

#define MAX_SHOWN_BYTES 300

/* {NAME} stands for what the endpoint calls that field. */
#define USE_FORMS "use structured_outputs or {response_format}"
#define USE_INPUT "nothing is stored here: send the whole input"
#define USE_KWARGS "send it in chat_template_kwargs"
#define USE_LOGPROBS "use logprobs"
#define USE_TOKEN_IDS "use return_token_ids"
#define USE_TRUNCATION "use truncate_prompt_tokens"

static const struct unsupported_field table[] = {
    /* Fields that set the form of the output. */
    {"grammar_lazy", NEUTRAL_FALSE},
    {"grammar_string", NEUTRAL_EMPTY, .instead = USE_FORMS},
    {"grammar_triggers", NEUTRAL_EMPTY},
    {"output_config", NEUTRAL_EMPTY, .instead = "use {response_format} and {reasoning_effort}"},
    {"output_format", NEUTRAL_EMPTY, .instead = "use {response_format}"},
    {"preserved_tokens", NEUTRAL_EMPTY},
    {"structural_tag", NEUTRAL_EMPTY, .instead = USE_FORMS},
    {"n_indent", NEUTRAL_ZERO},

    /* Fields that bound how much is generated. */
    {"n_predict", NEUTRAL_NONE, .instead = "use {max_tokens}"},
    {"max_completion_tokens", NEUTRAL_NONE, .instead = "use {max_tokens}"},
    {"max_new_tokens", NEUTRAL_NONE, .instead = "use {max_tokens}"},
    {"min_new_tokens", NEUTRAL_ZERO, .instead = "use min_tokens"},
    {"n_cmpl", NEUTRAL_ONE, .instead = "use n"},
    {"stop_regex", NEUTRAL_EMPTY, .instead = "use {stop}"},
    {"stop_sequences", NEUTRAL_EMPTY, .instead = "use {stop}"},
    {"no_stop_trim", NEUTRAL_FALSE, .instead = "use include_stop_str_in_output"},
    {"ban_eos_token", NEUTRAL_FALSE, .instead = "use ignore_eos"},
    {"t_max_predict_ms", NEUTRAL_NOT_POSITIVE},
    {"max_repetition_pattern_size", NEUTRAL_ZERO},
    {"repetition_detection", NEUTRAL_EMPTY},
    {"thinking_token_budget", NEUTRAL_NEGATIVE},
    {"thinking_budget_tokens", NEUTRAL_NEGATIVE, .instead = "use {thinking_token_budget}"},
    {"reasoning_budget", NEUTRAL_NEGATIVE, .instead = "use {thinking_token_budget}"},
    {"reasoning_budget_tokens", NEUTRAL_NEGATIVE, .instead = "use {thinking_token_budget}"},
    {"reasoning_control", NEUTRAL_FALSE},
    {"thinking_budget", NEUTRAL_NEGATIVE, .instead = "use {thinking_token_budget}"},

    /* Fields that choose tokens. */
    {"adaptive_target", NEUTRAL_NEGATIVE},
    {"custom_logit_processor", NEUTRAL_EMPTY},
    {"custom_params", NEUTRAL_EMPTY},
    {"do_sample", NEUTRAL_TRUE, .instead = "use temperature: 0"},
    {"dynamic_temperature", NEUTRAL_FALSE, .instead = "use dynatemp_range"},
    {"encoder_repetition_penalty", NEUTRAL_ONE},
    {"epsilon_cutoff", NEUTRAL_ZERO},
    {"eta_cutoff", NEUTRAL_ZERO},
    {"guidance_scale", NEUTRAL_ONE},
    {"logits_processors", NEUTRAL_EMPTY},
    {"min_keep", NEUTRAL_ZERO},
    {"mirostat_mode", NEUTRAL_ZERO, .instead = "use mirostat"},
    {"negative_prompt", NEUTRAL_EMPTY},
    {"no_repeat_ngram_size", NEUTRAL_ZERO},
    {"nsigma", NEUTRAL_ZERO, .instead = "use top_n_sigma"},
    {"num_beams", NEUTRAL_ONE, .instead = "use use_beam_search and best_of"},
    {"penalty_alpha", NEUTRAL_ZERO},
    {"random_seed", NEUTRAL_NONE, .instead = "use seed"},
    {"repeat_penalty", NEUTRAL_ONE, .instead = "use repetition_penalty"},
    {"repeat_last_n", NEUTRAL_NEGATIVE},
    {"sampler_seed", NEUTRAL_NONE, .instead = "use seed"},
    {"sampling_seed", NEUTRAL_NONE, .instead = "use seed"},
    {"smoothing_factor", NEUTRAL_ZERO},
    {"temperature_last", NEUTRAL_FALSE},
    {"tfs", NEUTRAL_ONE},
    {"tfs_z", NEUTRAL_ONE},
    {"top_a", NEUTRAL_ZERO},
    {"typical", NEUTRAL_ONE, .instead = "use typical_p"},
    {"typ_p", NEUTRAL_ONE, .instead = "use typical_p"},
    {"vllm_xargs", NEUTRAL_EMPTY},
    {"watermark", NEUTRAL_FALSE},
    {"watermarking", NEUTRAL_FALSE},

    /* Fields of the prompt. */
    {"audio", NEUTRAL_EMPTY},
    {"chat_template", NEUTRAL_EMPTY, .instead = "the server has the model's, or --chat-template's"},
    {"compaction", NEUTRAL_EMPTY},
    {"container", NEUTRAL_EMPTY},
    {"content", NEUTRAL_EMPTY, .instead = "use prompt, messages or input"},
    {"context_management", NEUTRAL_EMPTY},
    {"embed_overrides", NEUTRAL_EMPTY},
    {"enable_thinking", NEUTRAL_NONE, .instead = USE_KWARGS},
    {"generation_prompt", NEUTRAL_EMPTY},
    {"guideline", NEUTRAL_EMPTY},
    {"image_data", NEUTRAL_EMPTY},
    {"input_ids", NEUTRAL_NONE, .instead = "use the prompt of /v1/completions"},
    {"input_prefix", NEUTRAL_EMPTY},
    {"input_suffix", NEUTRAL_EMPTY},
    {"instruction", NEUTRAL_EMPTY},
    {"late_chunking", NEUTRAL_FALSE},
    {"late_chunking_params", NEUTRAL_EMPTY},
    {"mcp_servers", NEUTRAL_EMPTY},
    {"max_chunks_per_doc", NEUTRAL_NONE, .instead = USE_TRUNCATION},
    {"max_tokens_per_doc", NEUTRAL_NONE, .instead = USE_TRUNCATION},
    {"max_tokens_per_query", NEUTRAL_NONE, .instead = USE_TRUNCATION},
    {"messages", NEUTRAL_EMPTY, .instead = "use /v1/chat/completions"},
    {"multi_modal_data", NEUTRAL_EMPTY},
    {"padding", NEUTRAL_FALSE},
    {"previous_input_messages", NEUTRAL_EMPTY, .instead = USE_INPUT},
    {"previous_response", NEUTRAL_EMPTY, .instead = USE_INPUT},
    {"prompt_embeds", NEUTRAL_EMPTY},
    {"prompt_name", NEUTRAL_EMPTY},
    {"rank_fields", NEUTRAL_EMPTY, .instead = "use documents with a text"},
    {"reasoning", NEUTRAL_EMPTY, .instead = "use {reasoning_effort}"},
    {"system", NEUTRAL_EMPTY, .instead = "use a message whose role is system"},
    {"task", NEUTRAL_EMPTY},
    {"thinking", NEUTRAL_NONE, .instead = USE_KWARGS},
    {"thread", NEUTRAL_EMPTY},
    {"tool_prompt", NEUTRAL_EMPTY},
    {"truncate", NEUTRAL_FALSE, .instead = USE_TRUNCATION},
    {"web_search_options", NEUTRAL_NONE},

    /* Fields of the model. */
    {"adapter_id", NEUTRAL_EMPTY},
    {"adapters", NEUTRAL_EMPTY},
    {"ec_transfer_params", NEUTRAL_EMPTY},
    {"lora", NEUTRAL_EMPTY},
    {"lora_path", NEUTRAL_EMPTY},
    {"lora_request", NEUTRAL_EMPTY},
    {"kv_transfer_params", NEUTRAL_EMPTY},
    {"session_params", NEUTRAL_EMPTY},

    /* Fields that shape the answer. */
    {"chat_format", NEUTRAL_NONE},
    {"chat_parser", NEUTRAL_EMPTY},
    {"decoder_input_details", NEUTRAL_FALSE, .instead = "use prompt_logprobs"},
    {"details", NEUTRAL_FALSE, .instead = USE_LOGPROBS},
    {"embd_normalize", NEUTRAL_NONE, .instead = "use normalize"},
    {"embed_dtype", NEUTRAL_WORD, .word = "float32"},
    {"enable_response_messages", NEUTRAL_FALSE},
    {"endianness", NEUTRAL_WORD, .word = "little"},
    {"moderation", NEUTRAL_EMPTY},
    {"n_probs", NEUTRAL_ZERO, .instead = USE_LOGPROBS},
    {"parse_tool_calls", NEUTRAL_TRUE},
    {"post_sampling_probs", NEUTRAL_FALSE, .instead = USE_LOGPROBS},
    {"reasoning_format", NEUTRAL_WORD, .word = "auto"},
    {"response_fields", NEUTRAL_EMPTY},
    {"return_cached_tokens_details", NEUTRAL_FALSE},
    {"rid", NEUTRAL_EMPTY, .instead = "use request_id"},
    {"return_full_text", NEUTRAL_FALSE, .instead = "use echo"},
    {"return_hidden_states", NEUTRAL_FALSE},
    {"return_logprob", NEUTRAL_FALSE, .instead = USE_LOGPROBS},
    {"return_meta_info", NEUTRAL_FALSE},
    {"return_prompt_text", NEUTRAL_FALSE},
    {"return_prompt_token_ids", NEUTRAL_FALSE, .instead = USE_TOKEN_IDS},
    {"return_routed_experts", NEUTRAL_FALSE},
    {"return_tokens", NEUTRAL_FALSE, .instead = USE_TOKEN_IDS},
    {"separate_reasoning", NEUTRAL_TRUE},
    {"stream_reasoning", NEUTRAL_TRUE},
    {"top_n_tokens", NEUTRAL_ZERO, .instead = USE_LOGPROBS},
    {"verbose", NEUTRAL_FALSE},
};

const struct unsupported_field *unknown_fields_unsupported(size_t *out_count) {
    *out_count = sizeof(table) / sizeof(table[0]);
    return table;
}

static const struct unsupported_field *find(const char *name) {
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static bool is_empty(const cJSON *item) {
    if (cJSON_IsString(item))
        return item->valuestring[0] == '\0';
    return (cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL;
}

static bool is_neutral(const struct unsupported_field *field, const cJSON *item) {
    bool is_number = cJSON_IsNumber(item);
    if (cJSON_IsNull(item))
        return true;
    switch (field->neutral) {
    case NEUTRAL_NONE:
        return false;
    case NEUTRAL_FALSE:
        return cJSON_IsFalse(item);
    case NEUTRAL_TRUE:
        return cJSON_IsTrue(item);
    case NEUTRAL_EMPTY:
        return is_empty(item);
    case NEUTRAL_ZERO:
        return is_number && item->valuedouble == 0;
    case NEUTRAL_ONE:
        return is_number && item->valuedouble == 1;
    case NEUTRAL_NEGATIVE:
        return is_number && item->valuedouble < 0;
    case NEUTRAL_NOT_POSITIVE:
        return is_number && item->valuedouble <= 0;
    case NEUTRAL_WORD:
        return cJSON_IsString(item) && strcmp(item->valuestring, field->word) == 0;
    }
    return false;
}

static bool is_neutral_item(const cJSON *item) {
    const struct unsupported_field *field = find(item->string);
    return field != NULL && is_neutral(field, item);
}

/* " or set it to 0" */
static void describe_neutral(const struct unsupported_field *field, char *out, size_t capacity) {
    static const char *const words[] = {
        [NEUTRAL_FALSE] = "set it to false",    [NEUTRAL_TRUE] = "set it to true",
        [NEUTRAL_EMPTY] = "leave it empty",     [NEUTRAL_ZERO] = "set it to 0",
        [NEUTRAL_ONE] = "set it to 1",          [NEUTRAL_NEGATIVE] = "set it to -1",
        [NEUTRAL_NOT_POSITIVE] = "set it to 0",
    };
    if (field->neutral == NEUTRAL_NONE)
        out[0] = '\0';
    else if (field->neutral == NEUTRAL_WORD)
        snprintf(out, capacity, " or set it to \"%s\"", field->word);
    else
        snprintf(out, capacity, " or %s", words[field->neutral]);
}

/* "; use stop" */
static void describe_instead(const char *instead, const struct json_table *own, char *out,
                             size_t capacity) {
    char name[48];
    int length = 0;
    out[0] = '\0';
    if (instead == NULL)
        return;
    size_t at = (size_t)snprintf(out, capacity, "; ");
    for (; *instead != '\0' && at < capacity; instead += length) {
        bool is_name = sscanf(instead, "{%47[^}]}%n", name, &length) == 1;
        const char *shown = name;
        if (is_name)
            shown = json_aliased_name(NULL, own->aliases, own->num_aliases, name);
        else
            snprintf(name, sizeof(name), "%.*s", length = 1, instead);
        at += (size_t)snprintf(out + at, capacity - at, "%s", shown);
    }
}

static int check_item(const cJSON *item, const struct json_table *own, struct api_error *err) {
    const struct unsupported_field *field = find(item->string);
    char neutral[48], instead[128];
    if (field == NULL || is_neutral(field, item))
        return 0;
    describe_neutral(field, neutral, sizeof(neutral));
    describe_instead(field->instead, own, instead, sizeof(instead));
    return bad_request(err, "unsupported_parameter", field->name,
                       "%s is not supported: leave it out%s%s", field->name, neutral, instead);
}

int unknown_fields_read(const cJSON *json, const struct json_table *tables, int num_tables,
                        struct byte_buffer *names, struct api_error *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, json) {
        if (!json_fields_know(tables, num_tables, item->string) &&
            check_item(item, tables, err) != 0)
            return -1;
    }
    json_fields_list_unknown(json, tables, num_tables, is_neutral_item, "", names);
    return 0;
}

int unknown_fields_check(const struct api_context *context, const struct byte_buffer *names,
                         struct api_error *err) {
    if (names->length == 0 || !context->rejects_unknown_params)
        return 0;
    size_t first = 0;
    while (first < names->length && names->data[first] != ',')
        first++;
    char param[sizeof(err->param)];
    snprintf(param, sizeof(param), "%.*s", (int)first, names->data);
    return bad_request(
        err, "unknown_parameter", param, "this server refuses fields it does not know: %.*s",
        names->length < MAX_SHOWN_BYTES ? (int)names->length : MAX_SHOWN_BYTES, names->data);
}
