/* Carries items from the I/O thread to a thread of its own, which may wait for whoever takes them:
 * a disk, a pipe, a collector. Whoever puts them in never waits: of what waits to go out there is a
 * bound, and beyond it items are lost and counted. */
#ifndef QUIRE_SERVER_OUTBOX_H
#define QUIRE_SERVER_OUTBOX_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct outbox;

struct outbox_config {
    const char *name;  /* of the thread; 15 characters at most */
    size_t max_bytes;  /* of the items that wait */
    int32_t max_items; /* that wait */
    int64_t gather_ms; /* how long the first item waits for others; 0: not at all */
    /* Takes everything that waited, in order and one after the other; on the outbox's thread.
     * Called with none after outbox_wake. Returns how many of the items are lost. What it waits for
     * must end soon once outbox_is_stopping. */
    int32_t (*deliver)(void *context, const struct byte_buffer *items, int32_t num_items);
    void *context;
};

/* The name and the context outlive the outbox. */
int outbox_create(const struct outbox_config *config, struct outbox **out, struct error *err);

/* Any thread; never waits. The bytes of an item are copied. */
void outbox_put(struct outbox *outbox, const void *data, size_t length);
/* Any thread. Counts an item as lost that could not even be made. */
void outbox_count_lost(struct outbox *outbox);
/* Any thread. Has `deliver` called soon, whether there are items or not. */
void outbox_wake(struct outbox *outbox);
/* Any thread. Returns how many items were lost since the start. */
uint64_t outbox_num_lost(struct outbox *outbox);
bool outbox_is_stopping(struct outbox *outbox);

/* Delivers what waits, if that takes no longer than wait_ms, and ends the thread. Returns false
 * when it did not: the thread then still runs, with the context, and the process had better end.
 * Accepts NULL. */
bool outbox_destroy(struct outbox *outbox, int64_t wait_ms);

#endif
