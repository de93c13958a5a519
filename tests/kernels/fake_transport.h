/* A transport between threads of one process, for tests: as unkind as transport.h lets it be. A
 * message is copied when both sides have begun it, and not before, some time later where it is told
 * to be late; until then neither side's request is done. A message of another size than it is
 * received with ends the process. */
#ifndef QUIRE_TESTS_KERNELS_FAKE_TRANSPORT_H
#define QUIRE_TESTS_KERNELS_FAKE_TRANSPORT_H

#include "kernels/transport.h"

struct fake_network;

/* Ends the process when memory is short. */
struct fake_network *fake_network_create(int32_t num_ranks, int64_t timeout_ns);
void fake_network_destroy(struct fake_network *network);

/* Belongs to the network, which outlives it; its destroy may be called or not. */
struct transport *fake_network_transport(struct fake_network *network, int32_t rank);

/* Any thread, at any time. Every later message takes up to so long, by chance. */
void fake_network_delay(struct fake_network *network, int64_t max_ns);
/* From now on no message of the rank, to it or from it, is ever done. */
void fake_network_silence(struct fake_network *network, int32_t rank);
/* From now on those that are not done fail, and none can be begun: "rank 1 is gone". */
void fake_network_close(struct fake_network *network, int32_t rank);

/* Bytes of all messages from one rank to another that were done. */
size_t fake_network_bytes(struct fake_network *network, int32_t from, int32_t to);

#endif
