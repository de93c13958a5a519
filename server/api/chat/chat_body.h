/* The body of POST /v1/chat/completions as native values, every one checked. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_BODY_H
#define QUIRE_SERVER_API_CHAT_CHAT_BODY_H

#include "server/api/chat/chat_prompt.h"
#include "server/api/fields/sampling_body.h"
#include "server/api/tools/tool_fields.h"

/* Absent fields hold their default (sampling_body.h). */
struct chat_body {
    cJSON *json; /* owns every string, the messages and the tools */
    struct sampling_body sampling;
    struct tool_fields tools;
    struct chat_prompt_fields prompt;
    struct byte_buffer ignored;      /* names of unknown fields, comma-separated */
    struct byte_buffer custom_names; /* of custom tools, each with its NUL (custom_tools.h) */
    bool has_functions;              /* it came in the old form of tools (function_form.h) */

    /* read by the field table */
    int64_t max_completion_tokens; /* 0: not given; goes before max_tokens */
    int64_t top_logprobs;
    int64_t thinking_token_budget; /* -1: none */
    const char *reasoning_effort;  /* NULL: not given */
    bool logprobs, echo, include_reasoning, add_special_tokens, timings_per_token, return_progress;
};

/* Takes the old form of tools too. On failure -1 and *err, nothing to free. */
int chat_body_parse(const struct api_context *context, const char *text, size_t length,
                    struct chat_body *out, struct api_error *err);
/* Reads a tree that is parsed already and takes it over, also on failure. */
int chat_body_read(const struct api_context *context, cJSON *json, struct chat_body *out,
                   struct api_error *err);
void chat_body_finish(struct chat_body *body);
/* Renames an error of what was made of the body: custom tools are functions in it. */
void chat_body_rename_error(const struct chat_body *body, struct api_error *err);

/* Returns the logprobs per token: -1 none, else that many of the most probable ones. */
int32_t chat_body_num_logprobs(const struct chat_body *body);

/* Returns the table of the endpoint's own fields; static. */
struct json_table chat_body_table(void);

#endif
