/* Writes a batch of events as vLLM publishes it: MessagePack of the structs of its
 * vllm/distributed/kv_events.py, in the encoding that vLLM has had since its pull request 42892
 * (June 2026; v0.28.0 is what was compared with): the batch is an array, each event a map. Subscribers
 * select fields by name; the fields that vLLM leaves out at their defaults are left out here too.
 *
 *   batch            [ts: float, seconds since 1970; events; data_parallel_rank: 0]
 *   BlockStored      {type: "BlockStored",
 *                     block_hashes: [uint64], of a run of blocks, each the next one's predecessor;
 *                     parent_block_hash: uint64 of the block before the run, nil: there is none;
 *                     token_ids: [int], block_size for each block of the run;
 *                     block_size: int; lora_id: nil; medium: "GPU"; lora_name: nil;
 *                     extra_keys: [[str] for the first block, nil for each other], only where the run
 *                     begins a history that not everybody's prompts find}
 *   BlockRemoved     {type: "BlockRemoved", block_hashes: [uint64], medium: "GPU"}
 *   AllBlocksCleared {type: "AllBlocksCleared"}
 *
 * A block's hash is the lower half of its key (block_key.h): a number that names its content until
 * the server ends. As in vLLM, whose seed is random too, it says nothing to another server:
 * subscribers that compare servers hash token_ids themselves.
 *
 * medium names the tier: "GPU" is the memory that steps compute from, on a CPU as well (vLLM's CPU
 * backend says so too). A block swapped out to host memory is not found by another prompt's prefix,
 * so no tier but this one is ever published.
 *
 * extra_keys: a history with a cache_salt, or of one API key of several, is found by its like alone.
 * vLLM publishes the salt; here it is a digest under a secret, 32 hexadecimal digits, of the salt and
 * the API key's number, which neither is read from. */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_FORMAT_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_FORMAT_H

#include "server/telemetry/kv_events/kv_event_batch.h"

/* Appends the batch whose events the iterator has ahead of it. */
void kv_event_format(const struct kv_event_batch *batch, struct kv_event_iterator events,
                     struct byte_buffer *out);

#endif
