#include "server/api/call/conversation_slots.h"

#include "config/base/check.h"
#include "config/base/log.h"
#include "server/api/call/served_adapters.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FORM 1                       /* of what is saved */
#define MAX_BYTES ((size_t)64 << 20) /* of all slots */

/* A conversation in bytes, the same in a slot and in a file: this, the tokens, the salt, and the
 * name of the adapter. */
struct conversation_head {
    int32_t form;
    int32_t num_tokens;
    int32_t salt_bytes;
    int32_t adapter_bytes; /* 0: no adapter */
    int32_t has_owner;
    uint8_t owner[REQUEST_OWNER_BYTES];
    uint8_t adapter[CONTENT_HASH_BYTES];
};

struct conversation_slots {
    int32_t num_slots;
    const struct engine *engine;
    struct kv_store *store;
    pthread_mutex_t lock;
    struct byte_buffer *conversations; /* [num_slots]; empty: none */
    size_t num_bytes;                  /* of these */
};

struct conversation_slots *conversation_slots_create(int32_t num_slots, const struct engine *engine,
                                                     struct kv_store *store) {
    struct conversation_slots *slots = calloc(1, sizeof(*slots));
    if (slots == NULL)
        return NULL;
    slots->num_slots = num_slots;
    slots->engine = engine;
    slots->store = store;
    slots->conversations = calloc((size_t)num_slots, sizeof(*slots->conversations));
    CHECK(pthread_mutex_init(&slots->lock, NULL) == 0);
    if (slots->conversations != NULL)
        return slots;
    conversation_slots_destroy(slots);
    return NULL;
}

void conversation_slots_destroy(struct conversation_slots *slots) {
    if (slots == NULL)
        return;
    for (int32_t i = 0; slots->conversations != NULL && i < slots->num_slots; i++)
        byte_buffer_finish(&slots->conversations[i]);
    free(slots->conversations);
    pthread_mutex_destroy(&slots->lock);
    free(slots);
}

size_t conversation_slots_max_bytes(const struct serving_limits *limits) {
    size_t most = (size_t)limits->max_num_seqs * (size_t)limits->max_model_len * sizeof(int32_t);
    return most < MAX_BYTES ? most : MAX_BYTES;
}

int32_t conversation_slots_count(const struct conversation_slots *slots) {
    return slots->num_slots;
}

size_t conversation_slots_block_bytes(const struct conversation_slots *slots) {
    struct kv_store_counts counts;
    kv_store_get_counts(slots->store, &counts);
    return counts.block_bytes;
}

/* --- Slots --- */

static void write_conversation(const struct request *request, const int32_t *generated,
                               int32_t num_generated, struct byte_buffer *out) {
    const struct adapter *adapter = request->adapter;
    struct conversation_head head = {
        .form = FORM,
        .num_tokens = request->num_prompt_tokens + num_generated,
        .salt_bytes = (int32_t)request->cache_salt_bytes,
        .adapter_bytes = adapter != NULL ? (int32_t)strlen(adapter->name) : 0,
        .has_owner = request->has_owner,
    };
    memcpy(head.owner, request->owner, sizeof(head.owner));
    if (adapter != NULL)
        memcpy(head.adapter, lora_adapter_digest(adapter->lora), sizeof(head.adapter));
    byte_buffer_append(out, &head, sizeof(head));
    byte_buffer_append(out, request->prompt,
                       (size_t)request->num_prompt_tokens * sizeof(*request->prompt));
    if (num_generated > 0)
        byte_buffer_append(out, generated, (size_t)num_generated * sizeof(*generated));
    if (head.salt_bytes > 0)
        byte_buffer_append(out, request->cache_salt, request->cache_salt_bytes);
    if (head.adapter_bytes > 0)
        byte_buffer_append(out, adapter->name, (size_t)head.adapter_bytes);
}

/* Takes ownership of the conversation. Returns the one before, the caller's. */
static struct byte_buffer put(struct conversation_slots *slots, int32_t slot,
                              struct byte_buffer *conversation) {
    CHECK(slot >= 0 && slot < slots->num_slots);
    pthread_mutex_lock(&slots->lock);
    struct byte_buffer before = slots->conversations[slot];
    slots->num_bytes -= before.length;
    bool is_full = conversation->length > MAX_BYTES - slots->num_bytes;
    if (is_full)
        byte_buffer_finish(conversation);
    slots->conversations[slot] = *conversation;
    slots->num_bytes += conversation->length;
    pthread_mutex_unlock(&slots->lock);
    if (is_full)
        log_warning("slot %d: all slots together have no room for the conversation", (int)slot);
    return before;
}

static void replace(struct conversation_slots *slots, int32_t slot,
                    struct byte_buffer *conversation) {
    struct byte_buffer before = put(slots, slot, conversation);
    byte_buffer_finish(&before);
}

void conversation_slots_set(struct conversation_slots *slots, int32_t slot,
                            const struct request *request, const int32_t *generated,
                            int32_t num_generated) {
    struct byte_buffer conversation = {0};
    write_conversation(request, generated, num_generated, &conversation);
    if (conversation.failed)
        byte_buffer_finish(&conversation);
    replace(slots, slot, &conversation);
}

/* Copies what is in a slot: nothing, or a whole conversation. */
static void copy(struct conversation_slots *slots, int32_t slot, struct byte_buffer *out) {
    CHECK(slot >= 0 && slot < slots->num_slots);
    pthread_mutex_lock(&slots->lock);
    const struct byte_buffer *conversation = &slots->conversations[slot];
    if (conversation->length > 0)
        byte_buffer_append(out, conversation->data, conversation->length);
    pthread_mutex_unlock(&slots->lock);
}

int32_t conversation_slots_clear(struct conversation_slots *slots, int32_t slot) {
    struct byte_buffer empty = {0}, before = put(slots, slot, &empty);
    struct conversation_head head = {0};
    if (before.length > 0)
        memcpy(&head, before.data, sizeof(head));
    byte_buffer_finish(&before);
    return head.num_tokens;
}

/* --- From bytes to a request --- */

/* Returns whether the head is of so many bytes that come after it. */
static bool is_whole(const struct conversation_head *head, size_t num_bytes) {
    uint64_t bytes = (uint64_t)head->num_tokens * sizeof(int32_t) + (uint64_t)head->salt_bytes +
                     (uint64_t)head->adapter_bytes;
    return head->form == FORM && head->num_tokens >= 1 && head->salt_bytes >= 0 &&
           head->adapter_bytes >= 0 && head->adapter_bytes <= MAX_ADAPTER_NAME_BYTES &&
           bytes == num_bytes;
}

static bool are_tokens(const struct api_context *context, const int32_t *tokens, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= tokenizer_vocab_size(context->tokenizer))
            return false;
    return true;
}

static int set_adapter(const struct api_context *context, const struct conversation_head *head,
                       const char *name_bytes, struct request *request, struct api_error *err) {
    char name[MAX_ADAPTER_NAME_BYTES + 1] = {0};
    if (head->adapter_bytes == 0)
        return 0;
    memcpy(name, name_bytes, (size_t)head->adapter_bytes);
    struct adapter *adapter =
        context->adapters != NULL ? served_adapters_find(context->adapters, name) : NULL;
    bool is_same = adapter != NULL && memcmp(lora_adapter_digest(adapter->lora), head->adapter,
                                             sizeof(head->adapter)) == 0;
    if (is_same)
        request_set_adapter(request, adapter);
    adapter_unref(adapter);
    return is_same ? 0
                   : api_error_set(err, 404, "invalid_request_error", "model_not_found", NULL,
                                   "the conversation is one with the adapter \"%s\", which is not "
                                   "loaded",
                                   name);
}

static int read_scope(const struct api_context *context, const struct conversation_head *head,
                      const char *salt, struct request *request, struct api_error *err) {
    if (head->has_owner)
        request_set_owner(request, head->owner);
    if (request_set_cache_scope(request, request->tenant, salt, (size_t)head->salt_bytes) != 0)
        return api_error_set_memory(err);
    return set_adapter(context, head, salt + head->salt_bytes, request, err);
}

static int read_conversation(const struct api_context *context, const char *bytes, size_t num_bytes,
                             struct request **out, struct api_error *err) {
    static const struct sampling_params no_tokens = {
        .num_choices = 1,
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
    };
    struct conversation_head head = {0};
    if (num_bytes >= sizeof(head))
        memcpy(&head, bytes, sizeof(head));
    const int32_t *tokens = (const int32_t *)(const void *)(bytes + sizeof(head));
    if (!is_whole(&head, num_bytes - sizeof(head)) || !are_tokens(context, tokens, head.num_tokens))
        return api_error_set(err, 500, "server_error", NULL, NULL,
                             "what was saved is not a conversation of this server");
    if (head.num_tokens > context->limits->max_model_len)
        return bad_request(err, "context_length_exceeded", NULL,
                           "the conversation has %d tokens: at most %d are allowed "
                           "(--max-model-len)",
                           (int)head.num_tokens, (int)context->limits->max_model_len);
    struct request *request = request_create(tokens, head.num_tokens, &no_tokens);
    if (request == NULL)
        return api_error_set_memory(err);
    if (read_scope(context, &head, (const char *)(tokens + head.num_tokens), request, err) != 0) {
        request_unref(request);
        return -1;
    }
    *out = request;
    return 0;
}

/* --- Saving --- */

static int answer_error(const struct error *error, struct api_error *err) {
    if (error->code == ERROR_MEMORY)
        return api_error_set_memory(err);
    return api_error_set(err, 503, "server_error", "not_saved", NULL, "%s", error->message);
}

/* Lists the keys of its blocks. */
static int fill_saved(const struct conversation_slots *slots, const struct api_context *context,
                      const struct request *request, struct byte_buffer *conversation,
                      struct kv_saved *out, struct api_error *err) {
    int32_t most = request->num_prompt_tokens / context->limits->block_size;
    struct block_key *keys = malloc(((size_t)most + 1) * sizeof(*keys));
    if (keys == NULL)
        return api_error_set_memory(err);
    *out = (struct kv_saved){.keys = keys,
                             .num_keys = engine_list_keys(slots->engine, request, keys),
                             .num_groups = serving_limits_groups(context->limits),
                             .data = (unsigned char *)conversation->data,
                             .num_bytes = conversation->length};
    *conversation = (struct byte_buffer){0};
    return 0;
}

static int save(struct conversation_slots *slots, const struct api_context *context,
                const char *name, struct byte_buffer *conversation, const struct request *request,
                struct api_error *err) {
    struct kv_saved saved;
    struct error error;
    if (fill_saved(slots, context, request, conversation, &saved, err) != 0)
        return -1;
    int status = kv_store_save(slots->store, name, &saved, &error);
    kv_saved_finish(&saved);
    return status == 0 ? 0 : answer_error(&error, err);
}

int conversation_slots_save(struct conversation_slots *slots, const struct api_context *context,
                            int32_t slot, const char *name, struct request **out,
                            struct api_error *err) {
    struct byte_buffer conversation = {0};
    struct request *request = NULL;
    copy(slots, slot, &conversation);
    int status = 0;
    if (conversation.failed)
        status = api_error_set_memory(err);
    else if (conversation.length == 0)
        status = bad_request(err, "slot_empty", NULL,
                             "slot %d has no conversation: a request has to name it before, by "
                             "\"id_slot\": %d",
                             (int)slot, (int)slot);
    if (status == 0)
        status = read_conversation(context, conversation.data, conversation.length, &request, err);
    if (status == 0)
        status = save(slots, context, name, &conversation, request, err);
    byte_buffer_finish(&conversation);
    if (status == 0)
        *out = request;
    else
        request_unref(request);
    return status;
}

int conversation_slots_restore(struct conversation_slots *slots, const struct api_context *context,
                               int32_t slot, const char *name, struct request **out,
                               struct api_error *err) {
    struct kv_saved saved;
    struct error error;
    if (kv_store_read_saved(slots->store, name, &saved, &error) != 0) {
        if (error.code != ERROR_UNAVAILABLE)
            return answer_error(&error, err);
        return api_error_set(err, 404, "invalid_request_error", "not_found", "filename", "%s",
                             error.message);
    }
    int status = read_conversation(context, (const char *)saved.data, saved.num_bytes, out, err);
    if (status == 0) {
        struct byte_buffer conversation = {0};
        byte_buffer_append(&conversation, saved.data, saved.num_bytes);
        replace(slots, slot, &conversation);
    }
    kv_saved_finish(&saved);
    return status;
}

int conversation_slots_erase(struct conversation_slots *slots, const char *name,
                             struct api_error *err) {
    struct error error;
    if (kv_store_erase_saved(slots->store, name, &error) == 0)
        return 0;
    return error.code == ERROR_UNAVAILABLE
               ? api_error_set(err, 404, "invalid_request_error", "not_found", "filename", "%s",
                               error.message)
               : answer_error(&error, err);
}
