/* The endpoints' side of an API call (api_call.h): the outputs of its choices, and how they are
 * written. Only the endpoints' own files include this. An API call has P prompts, each of which is
 * one engine request with n choices; choice i of prompt p is number p * n + i. Every event of a
 * request adds to one choice. A stream writes what has been added after each event; otherwise the
 * output grows until the last choice has finished, and is then written as a whole. */
#ifndef QUIRE_SERVER_API_CALL_API_CALL_TYPE_H
#define QUIRE_SERVER_API_CALL_API_CALL_TYPE_H

#include "config/base/text.h"
#include "server/api/call/api_call.h"
#include "server/api/call/kv_transfer.h"

#include <stdint.h>

#define MAX_CACHE_SALT_BYTES 256
#define MAX_REQUEST_ID_BYTES 128
#define MAX_TIMEOUT_MS 86400000 /* of timeout_ms and of X-Request-Timeout: a day */
#define API_CALL_ID_BYTES (16 + MAX_REQUEST_ID_BYTES)

/* Members that are the same in every chunk of one API call. */
struct api_call_head {
    char id[API_CALL_ID_BYTES]; /* a prefix, then hexadecimal digits or the request's own id */
    int64_t created;
    const char *model;
    const char *system_fingerprint; /* NULL: null */
};

struct api_call_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
    int64_t reasoning_tokens; /* of the completion; 0: none, or unknown */
};

/* The reason why a choice ended; FINISH_NONE: it has not ended. */
struct api_call_finish {
    enum finish_reason reason; /* NONE, STOP, LENGTH or DEADLINE */
    int32_t stop_token;        /* -1: none */
    struct text stop_string;   /* data NULL: none */
};

struct api_call_prompt {
    struct request *request;
    int32_t num_cached_tokens, num_stored_tokens;
};

struct api_call_choice {
    struct api_call_finish finish;
    bool is_finished;
    int32_t num_generated;
    int32_t num_sent;    /* how many of these tokens have been streamed */
    double sum_logprobs; /* of the generated tokens, if logprobs were requested */
};

/* A choice of a prompt, and the mean log probability of its tokens. */
struct api_call_rank {
    double mean_logprob;
    int32_t choice;
};

/* The functions of an endpoint; static. Those that write may leave out->failed set. An `add` that
 * runs out of memory returns -1. */
struct api_call_operations {
    size_t size;           /* of the endpoint's own struct, which begins with its struct api_call */
    const char *id_prefix; /* of the answer's id: "chatcmpl-" */
    /* Reads the parsed body, in the endpoint's own form, into a new call: its size, its own members
     * and prompts[i].request. On failure returns -1 and fills *err; `finish` is called even
     * then. */
    int (*fill)(const struct api_context *context, void *body, struct api_call *call,
                struct api_error *err);
    /* Adds scored tokens of a prompt; NULL: they are never requested. */
    int (*add_prompt)(struct api_call *call, int32_t prompt, const struct token_event *event);
    /* For streams: writes a frame that says how much of a prompt is computed; NULL: it is never
     * requested. */
    void (*write_progress)(struct api_call *call, int32_t prompt, const struct token_event *event,
                           struct byte_buffer *out);
    /* Adds any other event. The api_call_choice is already up to date. */
    int (*add)(struct api_call *call, int32_t index, const struct token_event *event);
    /* For streams: writes frames for what was added to the choice, and then forgets it; may write
     * none. */
    void (*write_update)(struct api_call *call, int32_t index, struct byte_buffer *out);
    /* For streams: writes what follows the last update. */
    void (*write_end)(struct api_call *call, struct byte_buffer *out);
    /* For streams, and calls in the background: writes call->error or is_cancelled, and the end. */
    void (*write_error)(struct api_call *call, struct byte_buffer *out);
    /* For streams: writes what is sent before anything was generated; NULL: nothing is. */
    void (*write_begin)(struct api_call *call, struct byte_buffer *out);
    /* For calls in the background: writes what is known so far; NULL: there are no such calls. */
    void (*write_state)(const struct api_call *call, struct byte_buffer *out);
    /* Writes the response's body. */
    void (*write_body)(struct api_call *call, struct byte_buffer *out);
    /* Returns the capacity of the buffers that grow with the output. */
    size_t (*held_bytes)(const struct api_call *call);
    /* Frees what the endpoint has added, but not the call. Accepts a call that is only partly
     * filled. */
    void (*finish)(struct api_call *call);
};

/* The first member of an endpoint's own struct. */
struct api_call {
    const struct api_call_operations *operations;
    const struct tokenizer *tokenizer;
    struct api_call_head head;
    struct byte_buffer ignored; /* NUL-terminated; empty: none */
    bool is_stream;
    int64_t timeout_ms;               /* of its body; 0: none */
    int32_t num_prompts, num_choices; /* num_choices: per prompt, as in the engine */
    int32_t num_unfinished;           /* choices, of all prompts */
    int64_t num_generated;            /* tokens of all choices */
    struct api_call_prompt *prompts;  /* [num_prompts] */
    struct api_call_choice *choices;  /* [num_prompts * num_choices] */
    struct api_call_rank *ranks;      /* [num_choices], for api_call_rank_choices */
    struct token_buffer events;
    struct conversation_slots *slots; /* that choice 0 of prompt 0 is put into; NULL: none */
    int32_t slot;
    struct byte_buffer slot_tokens; /* that it has generated */
    const char *handed_over_to; /* name of the store to which it hands its prompts over, or NULL */
    bool is_done, has_error, is_cancelled;
    bool is_background;
    struct api_error error;
};

/* Allocates an endpoint's zeroed struct with a random id, and lets operations->fill read the body.
 * On failure returns -1 and fills *err; then there is nothing to free. */
int api_call_create(const struct api_call_operations *operations, const struct api_context *context,
                    void *body, struct api_call **out, struct api_error *err);
/* Sets the answer's id to the prefix and the client's id; NULL keeps the random one. A 400 unless
 * the id is 1 to MAX_REQUEST_ID_BYTES of A-Z a-z 0-9 . _ : - */
int api_call_set_id(struct api_call *call, const char *request_id, struct api_error *err);
/* Allocates the prompts and choices. */
int api_call_set_size(struct api_call *call, int32_t num_prompts, int32_t num_choices,
                      struct api_error *err);
/* Sets a new request's adapter if `model` names one, its priority, and whose cached prefixes it may
 * use, from the fields with these names. model: NULL or a name. cache_salt is NULL or a text; a 400
 * unless it has 1 to MAX_CACHE_SALT_BYTES bytes. */
int api_call_set_scope(const struct api_context *context, struct request *request,
                       const char *model, int64_t priority, const char *cache_salt,
                       struct api_error *err);
/* Has the first choice be put into a slot when it ends. slot: -1 for none, or id_slot; a 400 unless
 * there is such a slot. Without slots does nothing. */
int api_call_set_slot(const struct api_context *context, struct api_call *call, int64_t slot,
                      struct api_error *err);
/* Has the prompts handed over, or taken over. Called when all of them are there. */
void api_call_set_transfer(const struct api_context *context, struct api_call *call,
                           const struct kv_transfer *transfer);
/* Takes ownership of the buffer of names (unknown_fields.h). */
void api_call_set_ignored_params(struct api_call *call, struct byte_buffer *names);

/* Sums up the tokens of all prompts and choices. */
struct api_call_usage api_call_total_usage(const struct api_call *call);
/* Sums up the tokens that were streamed. */
struct api_call_usage api_call_sent_usage(const struct api_call *call);
/* Returns the choices of a prompt by descending mean log probability of their tokens, for best_of;
 * equal ones by number. The array is owned by the call, and valid until this is called again. */
const struct api_call_rank *api_call_rank_choices(const struct api_call *call, int32_t prompt);

/* Write "data: " and the end of a frame; its content is written between the two calls. */
void api_call_begin_frame(struct byte_buffer *out);
void api_call_end_frame(struct byte_buffer *out);
/* Writes `data: [DONE]`. */
void api_call_write_done(struct byte_buffer *out);
/* Writes the error like most endpoints: its object as a frame, then `data: [DONE]`. */
void api_call_write_error(struct api_call *call, struct byte_buffer *out);

#endif
