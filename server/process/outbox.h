/* Passes items from the I/O thread to a separate thread, which may block on their destination: a
 * disk, a pipe, a collector. Putting an item in never blocks: the waiting items are bounded, and
 * items beyond the bound are lost and counted. */
#ifndef QUIRE_SERVER_PROCESS_OUTBOX_H
#define QUIRE_SERVER_PROCESS_OUTBOX_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct outbox;

struct outbox_config {
    const char *name;  /* of the thread; at most 15 characters */
    size_t max_bytes;  /* of waiting items */
    int32_t max_items; /* that wait */
    int64_t gather_ms; /* how long the first item waits for more; 0: not at all */
    /* Takes all waiting items, in order and consecutive; called on the outbox's thread. Called
     * without items after outbox_wake. Returns how many of the items are lost. It must not block
     * for long once outbox_is_stopping. */
    int32_t (*deliver)(void *context, const struct byte_buffer *items, int32_t num_items);
    void *context;
};

/* The name and the context outlive the outbox. */
int outbox_create(const struct outbox_config *config, struct outbox **out, struct error *err);

/* Any thread; never blocks. The bytes of an item are copied. */
void outbox_put(struct outbox *outbox, const void *data, size_t length);
/* Any thread. Counts an item that could not even be created as lost. */
void outbox_count_lost(struct outbox *outbox);
/* Any thread. Makes the thread call `deliver` soon, even without items. */
void outbox_wake(struct outbox *outbox);
/* Any thread. Returns how many items were lost since the start. */
uint64_t outbox_num_lost(struct outbox *outbox);
bool outbox_is_stopping(struct outbox *outbox);

/* Delivers what waits, if that takes no longer than wait_ms, and ends the thread. Returns false
 * when it takes longer: the thread then still runs and uses the context, and the process should
 * end. Accepts NULL. */
bool outbox_destroy(struct outbox *outbox, int64_t wait_ms);

#endif
