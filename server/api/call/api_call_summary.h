/* What an API call was and how far it got, for logs and traces. */
#ifndef QUIRE_SERVER_API_CALL_API_CALL_SUMMARY_H
#define QUIRE_SERVER_API_CALL_API_CALL_SUMMARY_H

#include "config/base/text.h"
#include "server/api/call/api_call.h"

#include <stdbool.h>
#include <stdint.h>

/* Texts belong to the call or are static. */
struct api_call_summary {
    const char *id, *model; /* of the answer */
    bool is_stream;
    int32_t num_choices; /* of all prompts */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    /* Of the first choice: "stop"; "length", also for a deadline; "abort": it had not ended;
     * "error": the call failed. */
    const char *finish_reason;
    struct text stop_text;                /* a stop string, or "deadline"; data NULL: neither */
    int32_t stop_token;                   /* -1: none */
    const char *error_code;               /* of a call that failed; NULL: it did not */
    const struct sampling_params *params; /* of the first prompt */
    /* Of the first prompt: see struct request and request_times. */
    int64_t arrival_ns, scheduled_ns, first_token_ns, last_token_ns;
};

/* Returns how far the call has got so far. */
struct api_call_summary api_call_summary_of(const struct api_call *call);

#endif
