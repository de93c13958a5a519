/* A client's TLS connection, from accept to close: the handshake, then relaying bytes between the
 * client's socket (outer) and one end of a socket pair (inner), whose other end carries plain HTTP
 * as if it were the client's own socket. What one side ends is ended on the other: when a client
 * closes its writing half, or the connection, the other end of the pair sees the same. Whether it
 * does so with a TLS close_notify or without, what is written to it is still sent, until its socket
 * is known to be closed.
 *
 * Both sockets are non-blocking and registered edge-triggered with the front's epoll set, so each
 * call does what it can until nothing moves. Memory is held for what one side has sent and the
 * other has not taken: at most one record. The front's thread only. */
#ifndef QUIRE_SERVER_TLS_TLS_CONNECTION_H
#define QUIRE_SERVER_TLS_TLS_CONNECTION_H

#include "config/base/byte_buffer.h"
#include "server/tls/tls_credentials.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define TLS_MAX_RECORD_BYTES 16384 /* RFC 8446 section 5.1 */

enum tls_state {
    TLS_HANDSHAKE,
    TLS_RELAY,
    TLS_ENDING, /* inner has ended: what it wrote is still relayed */
    TLS_LINGER, /* nothing more is sent; waits for the client to close */
    TLS_CLOSED, /* to be destroyed */
};
#define TLS_NUM_STATES (TLS_CLOSED + 1)

/* Of a client. */
struct tls_address {
    union {
        struct sockaddr any;
        struct sockaddr_storage storage;
    } value;
    socklen_t length;
};

struct tls_connection {
    enum tls_state state;
    int64_t since_ms;                   /* when this state began */
    struct tls_connection *prev, *next; /* the front's: in the list of its state */
    struct tls_connection *next_ready;  /* the front's */
    bool is_ready;                      /* the front's */

    int outer;
    int inner; /* -1: not yet, or no longer */
    gnutls_session_t session;
    struct tls_credentials *credentials; /* a reference */
    struct tls_address address;

    struct byte_buffer to_inner; /* decrypted, and not taken yet */
    struct byte_buffer to_outer; /* of the answer, and not sent yet */
    bool is_sending;             /* GnuTLS has the beginning of to_outer, encrypted and not sent */
    bool is_outer_ended; /* nothing more arrives: after a TLS close_notify, or the end of its socket
                          */
    bool is_outer_gone;  /* the front's: nothing more can be sent either */
};

/* Takes over the client's socket. Returns NULL when memory is short; the socket then stays open. */
struct tls_connection *tls_connection_create(int outer, struct tls_credentials *credentials);
void tls_connection_destroy(struct tls_connection *connection);

/* Continues the handshake as far as the client's bytes allow, which takes a millisecond or more of
 * computing. Returns 1 once it is complete: the caller then gives it an inner socket. 0: it waits
 * for the client. -1: it failed, and the client is told why; the state is LINGER, or CLOSED if the
 * client is gone. */
int tls_connection_handshake(struct tls_connection *connection);

/* Relays what there is, but only a few records at a time. Returns whether there may be more right
 * now. Any state from RELAY to LINGER; may change it. */
bool tls_connection_relay(struct tls_connection *connection);

#endif
