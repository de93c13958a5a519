/* The endpoints that http_routes.c lists, each in a file with its name. All are pure: const context
 * in, bytes out, on any thread. */
#ifndef QUIRE_SERVER_API_CALL_ENDPOINTS_H
#define QUIRE_SERVER_API_CALL_ENDPOINTS_H

#include "config/base/text.h"
#include "server/api/call/api_call.h"
#include "config/json/json_field.h"

struct response_reader; /* response_store.h */

/* POST, through the engine: the body becomes an API call. */
api_call_parse completion_endpoint_parse; /* /v1/completions */
/* /infill: a completion with a suffix, in llama.cpp's format (infill_body.h). */
api_call_parse completion_endpoint_parse_infill;
api_call_parse completion_endpoint_parse_llama; /* /completion: llama.cpp's (llama_body.h) */
/* /completions, which is llama.cpp's if the body has n_predict, otherwise /v1/completions. */
api_call_parse completion_endpoint_parse_either;
api_call_parse chat_endpoint_parse; /* /v1/chat/completions */
/* /v1/responses: a chat in the format of OpenAI's Responses API. Responses that have ended are kept
 * in api_context.responses, unless that is NULL. */
api_call_parse responses_endpoint_parse;
/* /v1/messages: a chat in the format of Anthropic's Messages API. */
api_call_parse messages_endpoint_parse;
api_call_parse embedding_endpoint_parse; /* /v1/embeddings */
/* /api/chat, /api/generate, /api/embed and /api/embeddings: chats, completions and embeddings in
 * the format of Ollama's API. */
api_call_parse ollama_endpoint_parse_chat;
api_call_parse ollama_endpoint_parse_generate;
api_call_parse ollama_embed_parse;
api_call_parse ollama_embed_parse_old;
/* /v1/score; /v1/rerank and /v2/rerank: how similar texts are, by their embeddings, or what a
 * classifier of pairs says. */
api_call_parse score_endpoint_parse;
api_call_parse score_endpoint_parse_rerank;
/* /slots/{id}?action=save or restore, in llama.cpp's format: of administrators. */
api_call_parse slots_endpoint_parse;
api_call_parse classify_endpoint_parse; /* /classify: what a classifier says of each prompt */

/* POST, from body to body. `ignored` receives the comma-separated names of unknown fields. On
 * failure returns -1 and fills *err; `out` may then hold a part. API_TRANSFORM_PARSES: nothing was
 * done, the body is for the route's parse function. */
#define API_TRANSFORM_PARSES 1
typedef int api_transform(const struct api_context *context, const char *body, size_t length,
                          struct byte_buffer *out, struct byte_buffer *ignored,
                          struct api_error *err);
/* /tokenize: encodes a prompt, or the messages of a chat and whatever else its prompt depends on,
 * in vLLM's format or llama.cpp's. */
api_transform tokenize_endpoint_encode;
/* /apply-template: the text of the prompt that these messages give the model, in llama.cpp's
 * format. */
api_transform tokenize_endpoint_apply_template;
/* /v1/chat/completions/render and /v1/completions/render: what such a body gives to the engine, in
 * vLLM's format; for the second, a list of them. */
api_transform render_endpoint_chat;
api_transform render_endpoint_completion;
/* /detokenize: the text of token ids. */
api_transform tokenize_endpoint_decode;
/* /v1/messages/count_tokens and /v1/responses/input_tokens: the tokens of the prompt that such a
 * body gives the model. */
api_transform messages_count_tokens;
api_transform responses_input_tokens;
/* /v1/load_lora_adapter and /v1/unload_lora_adapter, in vLLM's format: of administrators. */
api_transform adapter_endpoint_load;
api_transform adapter_endpoint_unload;
/* The same with action=erase; another is left to slots_endpoint_parse. */
api_transform slots_endpoint_erase;
/* /api/show, in Ollama's format. */
api_transform ollama_models_show;
/* The table of /tokenize's fields; static. */
struct json_table tokenize_endpoint_table(void);

/* GET: these append one JSON object, or open a reader for it (response_store.h). */
/* /v1/responses/{id} and the like, for responses that have ended. A parameter of the query is its
 * text, or NULL. On failure they return -1 and fill *err: 404 for an id that is not kept, 400 for a
 * parameter. */
int responses_stored_get(const struct api_context *context, struct text id,
                         struct response_reader *out, struct api_error *err);
int responses_stored_delete(const struct api_context *context, struct text id,
                            struct byte_buffer *out, struct api_error *err);
/* POST /v1/responses/{id}/cancel, when there is nothing left to cancel: like get, but a 400 for a
 * response that was not in the background. */
int responses_stored_cancel(const struct api_context *context, struct text id,
                            struct response_reader *out, struct api_error *err);
/* Reads what GET /v1/responses/{id} says about a stream: whether it is one, and the number of the
 * event that it starts after, or -1. */
int responses_stored_read_query(const char *stream, const char *starting_after, bool *out_is_stream,
                                int64_t *out_after, struct api_error *err);
/* Refuses to stream a response that has no events. */
int responses_stored_refuse_stream(struct api_error *err);
/* Finds where the events after the one with this number begin. `events` are numbered from 0, and
 * the last one is complete. */
int responses_stored_find_event(struct text events, int64_t after, size_t *out_at,
                                struct api_error *err);
/* Like get, but opens the events after this one. */
int responses_stored_events(const struct api_context *context, struct text id, int64_t after,
                            struct response_reader *out, struct api_error *err);
struct response_items_query {
    const char *limit; /* 1 to 100; NULL: 20 */
    const char *order; /* "asc" or "desc"; NULL: desc */
    const char *after; /* id of an item; NULL: from the beginning */
};
/* /v1/responses/{id}/input_items: the items that the response was made from. */
int responses_stored_items(const struct api_context *context, struct text id,
                           const struct response_items_query *query, struct byte_buffer *out,
                           struct api_error *err);
/* /v1/models, in OpenAI's format or Anthropic's; of several models, each as the key sees it. */
void models_endpoint_list(const struct api_context *const *contexts, int count, bool is_anthropic,
                          struct byte_buffer *out);
/* /v1/models/{id}; -1 with a 404 for an unknown id. */
int models_endpoint_get(const struct api_context *context, const char *id, bool is_anthropic,
                        struct byte_buffer *out, struct api_error *err);
/* /api/tags or, of those that are loaded, /api/ps, in Ollama's format. */
void ollama_models_list(const struct api_context *const *contexts, int count, bool are_loaded,
                        struct byte_buffer *out);
/* /props in llama.cpp's format: the server's sampling defaults, and what the model is. model_path
 * is the model's name: paths are not revealed. */
void models_endpoint_props(const struct api_context *context, bool is_asleep,
                           struct byte_buffer *out);
/* /tokenizer_info in vLLM's format: what a tokenizer_config.json says, for programs without their
 * own tokenizer. A model of any format has all keys; bos_token, eos_token and chat_template are
 * null if it has none. */
void models_endpoint_tokenizer_info(const struct api_context *context, struct byte_buffer *out);

#endif
