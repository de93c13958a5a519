/* Batches of events: their form in memory, vLLM's published form, and their number on the wire. */
#ifndef QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_FORMAT_H
#define QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_FORMAT_H

#include "config/base/byte_buffer.h"
#include "engine/kv/kv_event_sink.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* --- A batch in memory --- */

/* The changes of one step, passed from the engine's thread to the publisher's as an item of an
 * outbox (outbox.h): a header followed by the events. kv_event_batch_begin starts a batch in a
 * byte_buffer, kv_event_batch_add appends events; an iterator reads it. */

enum kv_event_kind {
    KV_EVENT_STORED,
    KV_EVENT_REMOVED,
    KV_EVENT_KEPT,    /* in host memory */
    KV_EVENT_DROPPED, /* from there */
    KV_EVENT_CLEARED,
};

struct kv_event {
    enum kv_event_kind kind;
    bool is_first, is_private;    /* of a stored block, see struct stored_block */
    struct block_key key;         /* except for KV_EVENT_CLEARED */
    struct block_key previous;    /* of a stored block: its predecessor's key, or the root */
    struct block_adapter adapter; /* of a stored block; read, its name lies in the batch */
};

struct kv_event_batch {
    uint64_t sequence; /* the number of the batch, from 0 */
    double time_s;     /* since 1970 */
    size_t num_bytes;  /* of the events that follow */
};

/* Position of the next event. */
struct kv_event_iterator {
    const char *at, *end;
    int32_t block_size;
};

/* Empties the buffer and leaves room for the header. */
void kv_event_batch_begin(struct byte_buffer *buffer);
/* tokens: [block_size] for a stored block, otherwise NULL. A buffer that has failed stays
 * failed. */
void kv_event_batch_add(struct byte_buffer *buffer, const struct kv_event *event,
                        const int32_t *tokens, int32_t block_size);
/* Returns whether nothing was added; false where adding failed. */
bool kv_event_batch_is_empty(const struct byte_buffer *buffer);
/* Writes the header into a buffer that has not failed. */
void kv_event_batch_end(struct byte_buffer *buffer, uint64_t sequence, double time_s);

/* Reads the batch at the front of *data, and advances *data past it. */
struct kv_event_iterator kv_event_batch_read(const char **data, int32_t block_size,
                                             struct kv_event_batch *out);
/* Returns false at the end. *out_tokens: [block_size], in the batch; NULL for events other than
 * stored blocks. */
bool kv_event_iterator_next(struct kv_event_iterator *iterator, struct kv_event *out,
                            const int32_t **out_tokens);

/* --- A batch on the wire --- */

/* Writes a batch of events as vLLM publishes it: MessagePack of the structs of its
 * vllm/distributed/kv_events.py, in the encoding that vLLM has had since its pull request 42892
 * (June 2026; v0.28.0 is what was compared with): the batch is an array, each event a map.
 * Subscribers select fields by name; the fields that vLLM leaves out at their defaults are left out
 * here too.
 *
 *   batch            [ts: float, seconds since 1970; events; data_parallel_rank: 0]
 *   BlockStored      {type: "BlockStored",
 *                     block_hashes: [uint64], of a run of blocks, each the next one's predecessor;
 *                     parent_block_hash: uint64 of the block before the run, nil: there is none;
 *                     token_ids: [int], block_size for each block of the run;
 *                     block_size: int; lora_id: int, nil: no adapter; medium: "GPU";
 *                     lora_name: str, nil: no adapter;
 *                     extra_keys: [[str] for the first block, nil for each other], only where a run
 *                     begins a history that not everybody's prompts find}
 *   BlockRemoved     {type: "BlockRemoved", block_hashes: [uint64], medium: "GPU"}
 *   BlockStored      {type: "BlockStored", block_hashes: [uint64], parent_block_hash: nil,
 *                     token_ids: [], block_size: int, lora_id: nil, medium: "CPU", lora_name: nil}
 *   BlockRemoved     {type: "BlockRemoved", block_hashes: [uint64], medium: "CPU"}
 *   AllBlocksCleared {type: "AllBlocksCleared"}
 *
 * A block's hash is the lower half of its key (block_key.h): a number that names its content until
 * the server ends. As in vLLM, whose seed is random too, it is meaningless for another server:
 * subscribers that compare servers hash token_ids themselves.
 *
 * medium names the tier: "GPU" is the memory that steps compute from, on a CPU as well (vLLM's CPU
 * backend says so too). "CPU" is host memory in which blocks are found that the other has lost
 * (--kv-host-bytes, --kv-store); its events name blocks by their hashes alone, as those of vLLM's
 * offloading connector do. Blocks that only files have are not published.
 *
 * lora_id counts the adapters that were loaded since the start, from 1; lora_name is the adapter's
 * name.
 *
 * extra_keys: a history with a cache_salt, of an adapter, or of one of several API keys, is found
 * only by prompts with the same salt, adapter and key. vLLM publishes salt and name; here it is a
 * keyed digest, 32 hexadecimal digits, of the salt, the adapter's digest and the API key's number,
 * which reveals none of them. */

/* Appends the batch whose events the iterator has yet to read. */
void kv_event_format(const struct kv_event_batch *batch, struct kv_event_iterator events,
                     struct byte_buffer *out);

/* A batch's number on the wire: 8 bytes, big-endian. */

#define KV_EVENT_NUMBER_BYTES sizeof(uint64_t)

static inline void kv_event_number_write(uint64_t number, unsigned char *out) {
    const uint64_t bytes = htobe64(number);
    memcpy(out, &bytes, sizeof(bytes));
}

static inline uint64_t kv_event_number_read(const unsigned char *data) {
    uint64_t bytes;
    memcpy(&bytes, data, sizeof(bytes));
    return be64toh(bytes);
}

#endif
