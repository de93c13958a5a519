#include "models/weights/weights_chain.h"

#include "kernels/transport.h"
#include "models/weights/weights_reader.h"

/* Before each piece, whose bytes follow unless there is an error. */
struct piece_header {
    size_t bytes, bytes_left; /* of the piece; behind it */
    struct error error;
};

struct weights_chain weights_chain_begin(struct transport *transport, size_t num_bytes) {
    return (struct weights_chain){.transport = transport, .bytes_left = num_bytes};
}

bool weights_chain_reads(const struct weights_chain *chain) {
    return chain->transport->rank == 0;
}

static int pass_on(struct weights_chain *chain, const struct piece_header *header,
                   const void *chunk, struct error *err) {
    struct transport *t = chain->transport;
    int32_t next = t->rank + 1;
    if (next == t->num_ranks)
        return 0;
    if (transport_send(t, TRANSPORT_SUMS, next, header, sizeof(*header), err) != 0)
        return -1;
    return header->error.code != ERROR_NONE
               ? 0
               : transport_send(t, TRANSPORT_SUMS, next, chunk, header->bytes, err);
}

/* 0 with a piece or an error in the header; -1: the chain is broken. */
static int take(struct weights_chain *chain, struct piece_header *header, void *chunk,
                struct error *err) {
    struct transport *t = chain->transport;
    int32_t before = t->rank - 1;
    if (transport_receive(t, TRANSPORT_SUMS, before, header, sizeof(*header), err) != 0)
        return -1;
    if (header->error.code != ERROR_NONE)
        return 0;
    if (header->bytes > WEIGHTS_CHUNK_BYTES)
        return error_set(err, ERROR_DEVICE, "rank %d sends a piece of %zu bytes", before,
                         header->bytes);
    return transport_receive(t, TRANSPORT_SUMS, before, chunk, header->bytes, err);
}

/* Reads, on rank 0, or takes one piece, and passes it on. */
static int move(struct weights_chain *chain, struct piece_header *header, void *chunk,
                struct error *err) {
    struct transport *t = chain->transport;
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = 0;
    int status = t->rank == 0 ? 0 : take(chain, header, chunk, err);
    if (status == 0)
        status = pass_on(chain, header, chunk, err);
    t->timeout_ns = timeout_ns;
    chain->bytes_left = status == 0 ? header->bytes_left : 0;
    chain->has_ended = chain->bytes_left == 0 || header->error.code != ERROR_NONE;
    return status;
}

int weights_chain_next(struct weights_chain *chain, void *chunk, size_t bytes, struct error *err) {
    struct piece_header header = {.bytes = bytes, .bytes_left = chain->bytes_left - bytes};
    if (chain->has_ended)
        return error_set(err, ERROR_MODEL, "model: rank 0's files have fewer tensors");
    if (move(chain, &header, chunk, err) != 0)
        return -1;
    if (header.error.code != ERROR_NONE)
        return error_set(err, header.error.code, "%s", header.error.message);
    if (header.bytes != bytes)
        return error_set(err, ERROR_MODEL, "model: rank 0's files have other tensors");
    return 0;
}

void weights_chain_abandon(struct weights_chain *chain, void *chunk, const struct error *why) {
    struct piece_header header = {.error = *why};
    struct error unseen;
    if (chain->transport->rank == 0 && !chain->has_ended)
        move(chain, &header, chunk, &unseen);
    while (!chain->has_ended)
        if (move(chain, &header, chunk, &unseen) != 0)
            return;
}
