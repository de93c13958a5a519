/* The fields of a body that completions, chat and responses share: how tokens are sampled, when a
 * choice ends, and how the answer is sent. */
#ifndef QUIRE_SERVER_API_FIELDS_SAMPLING_BODY_H
#define QUIRE_SERVER_API_FIELDS_SAMPLING_BODY_H

#include "engine/grammar/machine/grammar.h"
#include "server/api/call/api_context.h"
#include "server/api/call/body_names.h"
#include "server/api/call/kv_transfer.h"
#include "server/api/fields/prompt_field.h"
#include "server/api/fields/sampling_lists.h"
#include "config/json/json_field.h"

#define SAMPLING_TO_THE_END (-1) /* for max_tokens: as many as the context holds */

struct sampling_body {
    const struct body_names *names; /* of the endpoint; static */
    struct sampling_lists lists;
    struct grammar *grammar; /* a reference; what the output must match; NULL: anything */
    struct byte_buffer ignored_keywords; /* of its schema, comma-separated */
    enum early_stopping early_stopping;  /* read by beam_fields.h */
    struct prompt_truncation truncation;
    struct kv_transfer transfer;  /* read by the endpoints that have it, before the rest */
    const char *max_tokens_field; /* the one that gave max_tokens; static; NULL: none did */

    /* read by the field table */
    const char *model;      /* NULL: not given */
    const char *cache_salt; /* NULL: not given */
    const char *request_id; /* NULL: not given */
    int64_t n;
    int64_t best_of;    /* 0: not given; with use_beam_search, the width */
    int64_t max_tokens; /* or SAMPLING_TO_THE_END */
    int64_t min_tokens;
    int64_t prompt_logprobs; /* -1: none */
    int64_t seed;
    int64_t priority;
    int64_t id_slot;    /* -1: none */
    int64_t timeout_ms; /* 0: not given */
    struct sampling_settings settings;
    double length_penalty;
    bool use_beam_search, has_seed;
    bool stream, include_usage, continuous_usage_stats;
    bool ignore_eos, include_stop_str_in_output, skip_special_tokens, return_token_ids;
    bool return_tokens_as_token_ids;
};

/* Returns the server's defaults; names and max_tokens are the endpoint's. */
struct sampling_body sampling_body_defaults(const struct api_context *context,
                                            const struct body_names *names, int64_t max_tokens);
/* Reads and checks all of these fields, by their names in body->names, including stream_options,
 * except for what beam_fields.h reads. Strings point into the tree. On failure returns -1 and fills
 * *err; then there is nothing to free. The grammar is that of response_format.h; an endpoint that
 * forces its own form puts it there. */
int sampling_body_read(const struct api_context *context, const cJSON *json,
                       struct sampling_body *body, struct api_error *err);
void sampling_body_finish(struct sampling_body *body);

/* Returns the table of these fields; static. */
struct json_table sampling_body_table(void);
/* Appends the names of the JSON's fields that are neither among these nor in `own`, including those
 * of stream_options, like json_fields_list_unknown; returns -1 and a 400 if there are any and the
 * server refuses them. Then appends those of ignored_keywords. */
int sampling_body_check_unknown(const struct api_context *context, const cJSON *json,
                                const struct sampling_body *body, struct json_table own,
                                struct byte_buffer *out, struct api_error *err);

/* Returns how long its prompts may be. */
struct prompt_limits sampling_body_prompt_limits(const struct sampling_body *body);
/* Returns the number of choices of a prompt in the engine: for a beam search, those that are
 * returned. */
int32_t sampling_body_num_choices(const struct sampling_body *body);
/* Returns the width of the beam search; 0: none. */
int32_t sampling_body_beam_width(const struct sampling_body *body);
/* Returns whether best_of requests more choices than are returned. */
bool sampling_body_has_best_of(const struct sampling_body *body);
/* Returns how many logprobs a generated token produces, including its own. */
int64_t sampling_body_logprob_entries(const struct sampling_body *body, int32_t num_logprobs);
/* Checks that logprob_token_ids may be combined with the other fields: returns -1 and a 400 if not.
 * num_logprobs: the number for each generated token that the endpoint's own field requests, -1 for
 * none. */
int sampling_body_check_logprob_tokens(const struct sampling_body *body, int32_t num_logprobs,
                                       struct api_error *err);
/* Returns the seed of a request. A given one is used unchanged for every prompt of the body, so
 * that a prompt samples the same tokens alone and in a list. Without one, each call returns a
 * different seed. */
uint64_t sampling_body_seed(const struct api_context *context, const struct sampling_body *body);
/* Checks that the requested output fits after a prompt of num_prompt_tokens, which the message
 * calls `prompt`: returns -1 and a 400 (context_length_exceeded) for a given max_tokens, or
 * min_tokens, that does not. */
int sampling_body_check_room(const struct sampling_body *body, const struct api_context *context,
                             const char *prompt, int32_t num_prompt_tokens, struct api_error *err);
/* Returns the engine's parameters for a prompt of num_prompt_tokens. A max_tokens that was not
 * given is cut to what the context has left. num_logprobs: as above. The arrays point into the
 * body. */
struct sampling_params sampling_body_params(const struct sampling_body *body,
                                            const struct api_context *context,
                                            int32_t num_prompt_tokens, int32_t num_logprobs,
                                            uint64_t seed);

#endif
