/* The field `kv_transfer_params`, by which a gateway has one server compute a prompt and another
 * one continue it (--kv-role). The names are those of vLLM's NixlConnector, as its proxies
 * (tests/v1/kv_connector/nixl_integration/toy_proxy_server.py at 030ea52e) and llm-d's routing
 * sidecar (pkg/sidecar/proxy/connector_nixlv2.go at 05399b3d) send and copy them:
 *
 *   1. to the server that prefills: do_remote_decode is true, the rest null or false, and
 * max_tokens is 1. It answers once the blocks of the prompt are in the store (--kv-store-mode
 * shared), and with its own kv_transfer_params: do_remote_prefill is true, remote_engine_id is the
 * name of the store, remote_num_tokens how much of the prompt it has.
 *   2. to the server that decodes: the request as the client sent it, with these.
 *
 * They are a hint that says when to look: blocks are found by their content, under the store's
 * secret, the API key, the salt and the adapter, like all others. So nobody gets with them what
 * they would not find without, remote_host and remote_port are never connected to, and what is not
 * there is computed. */
#ifndef QUIRE_SERVER_API_CALL_KV_TRANSFER_H
#define QUIRE_SERVER_API_CALL_KV_TRANSFER_H

#include "config/json/json_field.h"
#include "engine/request/request.h"
#include "server/api/call/api_context.h"

struct kv_transfer {
    bool is_given;
    bool hands_over;         /* see struct request */
    int32_t num_handed_over; /* INT32_MAX: it does not say how many */
};

/* Reads the field of a body. A 400 if it requests what the server's role does not do. */
int kv_transfer_read(const struct api_context *context, const cJSON *json, struct kv_transfer *out,
                     struct api_error *err);
/* Refuses the field at endpoints that do not have it, unless it requests nothing. */
int kv_transfer_refuse(const cJSON *json, struct api_error *err);
/* Appends the names of its members that are not known (json_fields_list_unknown). */
void kv_transfer_list_unknown(const cJSON *json, struct byte_buffer *out);
void kv_transfer_set(const struct kv_transfer *transfer, struct request *request);
/* Writes the member of the answer to a request that was to hand over. */
void kv_transfer_format(const char *store_name, int32_t num_stored_tokens, struct byte_buffer *out);

#endif
