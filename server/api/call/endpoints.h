/* The endpoints that http_routes.c lists, each in a file of its own name. All are pure: const
 * context in, bytes out, on any thread. */
#ifndef QUIRE_SERVER_API_CALL_ENDPOINTS_H
#define QUIRE_SERVER_API_CALL_ENDPOINTS_H

#include "config/base/text.h"
#include "server/api/call/api_call.h"
#include "config/json/json_field.h"

struct response_reader; /* response_store.h */

/* POST, by way of the engine: the body becomes an API call. */
api_call_parse completion_endpoint_parse; /* /v1/completions */
/* /infill: a completion with a suffix in llama.cpp's words (infill_body.h). */
api_call_parse completion_endpoint_parse_infill;
api_call_parse completion_endpoint_parse_llama; /* /completion: llama.cpp's (llama_body.h) */
/* /completions, which is that in llama.cpp where it has n_predict, else /v1/completions. */
api_call_parse completion_endpoint_parse_either;
api_call_parse chat_endpoint_parse; /* /v1/chat/completions */
/* /v1/responses: a chat in the words of OpenAI's Responses API. What has ended is kept where
 * api_context.responses is. */
api_call_parse responses_endpoint_parse;
/* /v1/messages: a chat in the words of Anthropic's Messages API. */
api_call_parse messages_endpoint_parse;
api_call_parse embedding_endpoint_parse; /* /v1/embeddings */
/* /v1/score; /v1/rerank and /v2/rerank: how much alike texts are, by their embeddings. */
api_call_parse score_endpoint_parse;
api_call_parse score_endpoint_parse_rerank;

/* POST, from body to body. `ignored` takes the comma-separated names of unknown fields. On failure
 * -1 and *err; `out` may hold a part then. */
typedef int api_transform(const struct api_context *context, const char *body, size_t length,
                          struct byte_buffer *out, struct byte_buffer *ignored,
                          struct api_error *err);
/* /tokenize: a prompt, or the messages of a chat with what else makes its prompt, in vLLM's shape
 * or llama.cpp's. */
api_transform tokenize_endpoint_encode;
/* /apply-template: the text of the prompt that these messages give the model, in llama.cpp's shape.
 */
api_transform tokenize_endpoint_apply_template;
/* /v1/chat/completions/render and /v1/completions/render: what such a body gives the engine, in
 * vLLM's shape; a list of them for the second. */
api_transform render_endpoint_chat;
api_transform render_endpoint_completion;
/* /detokenize: the text of token ids. */
api_transform tokenize_endpoint_decode;
/* /v1/messages/count_tokens and /v1/responses/input_tokens: the tokens of the prompt that such a
 * body gives the model. */
api_transform messages_count_tokens;
api_transform responses_input_tokens;
/* The table of /tokenize's fields; static. */
struct json_table tokenize_endpoint_table(void);

/* GET: these append one JSON object, or open a reader of it (response_store.h). */
/* /v1/responses/{id} and the like, of responses that have ended; query: NULL, or the text of the
 * parameter. -1 and *err: 404 for an id that is not kept, 400 for a parameter. */
int responses_stored_get(const struct api_context *context, struct text id,
                         struct response_reader *out, struct api_error *err);
int responses_stored_delete(const struct api_context *context, struct text id,
                            struct byte_buffer *out, struct api_error *err);
/* POST /v1/responses/{id}/cancel, where nothing is left to be cancelled: as get, but a 400 for a
 * response that was not in the background. */
int responses_stored_cancel(const struct api_context *context, struct text id,
                            struct response_reader *out, struct api_error *err);
/* Read what GET /v1/responses/{id} says of a stream: whether it is one, and the number of the event
 * that it starts after, or -1. */
int responses_stored_read_query(const char *stream, const char *starting_after, bool *out_is_stream,
                                int64_t *out_after, struct api_error *err);
/* Refuses the stream of a response that has no events. */
int responses_stored_refuse_stream(struct api_error *err);
/* Finds where the events begin that follow the one of this number, among events from the number 0
 * on, the last of them whole. */
int responses_stored_find_event(struct text events, int64_t after, size_t *out_at,
                                struct api_error *err);
/* As get, but the events after this one. */
int responses_stored_events(const struct api_context *context, struct text id, int64_t after,
                            struct response_reader *out, struct api_error *err);
struct response_items_query {
    const char *limit; /* 1 to 100; NULL: 20 */
    const char *order; /* "asc" or "desc"; NULL: desc */
    const char *after; /* id of an item; NULL: from the beginning */
};
/* /v1/responses/{id}/input_items: those that the response was made from. */
int responses_stored_items(const struct api_context *context, struct text id,
                           const struct response_items_query *query, struct byte_buffer *out,
                           struct api_error *err);
/* /v1/models, in OpenAI's shape or Anthropic's. */
void models_endpoint_list(const struct api_context *context, bool is_anthropic,
                          struct byte_buffer *out);
/* /v1/models/{id}; -1 with a 404 for an unknown id. */
int models_endpoint_get(const struct api_context *context, const char *id, bool is_anthropic,
                        struct byte_buffer *out, struct api_error *err);
/* /props in llama.cpp's shape: the server's defaults of sampling, and what the model is. model_path
 * is the model's name: paths are not told. */
void models_endpoint_props(const struct api_context *context, bool is_asleep,
                           struct byte_buffer *out);
/* /tokenizer_info in vLLM's shape: what a tokenizer_config.json says, for programs that have no
 * tokenizer of their own. A model of any format has all keys; bos_token, eos_token and
 * chat_template are null where it has none. */
void models_endpoint_tokenizer_info(const struct api_context *context, struct byte_buffer *out);

#endif
