/* A batch's number on the wire: 8 bytes, the highest first. */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_NUMBER_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_NUMBER_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

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
