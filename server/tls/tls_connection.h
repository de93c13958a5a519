/* A client's connection in TLS, from accept to close: the handshake, then bytes carried between the
 * client's socket (outer) and one end of a socket pair (inner), whose other end speaks plain HTTP
 * as if it were the client's own socket. What one side ends is ended on the other: a client that
 * closes its writing half, or all of it, is seen as such behind the pair. Whether it does so with
 * TLS's farewell or without, what is written to it still goes out, until its socket is known to be
 * closed.
 *
 * Both sockets are non-blocking and registered edge-triggered with the front's epoll set, so each
 * call does what it can until nothing moves. Memory is held for what one side has sent and the
 * other does not take: at most one record. The front's thread only. */
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
    TLS_ENDING, /* inner has ended: what it wrote is still carried */
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
    int64_t since_ms;                   /* in this state */
    struct tls_connection *prev, *next; /* the front's: in the list of its state */
    struct tls_connection *next_ready;  /* the front's */
    bool is_ready;                      /* the front's */

    int outer;
    int inner; /* -1: not yet, or no more */
    gnutls_session_t session;
    struct tls_credentials *credentials; /* a reference */
    struct tls_address address;

    struct byte_buffer to_inner; /* decrypted, and not taken yet */
    struct byte_buffer to_outer; /* of the answer, and not sent yet */
    bool is_sending;             /* GnuTLS has to_outer's beginning, encrypted and not taken */
    bool is_outer_ended;         /* nothing more comes: by TLS's farewell, or its socket's end */
    bool is_outer_gone;          /* the front's: nothing more can be sent either */
};

/* Takes over the client's socket. NULL: no memory; the socket stays open. */
struct tls_connection *tls_connection_create(int outer, struct tls_credentials *credentials);
void tls_connection_destroy(struct tls_connection *connection);

/* Goes on with the handshake as far as the client's bytes allow: a millisecond or more of
 * computing. Returns 1 once it is complete: the caller then gives it an inner socket. 0: it waits
 * for the client. -1: it failed, the client is told why; state LINGER, or CLOSED where it has
 * gone. */
int tls_connection_handshake(struct tls_connection *connection);

/* Carries what there is, but no more than some records at a time. Returns whether there may be more
 * right now. Any state from RELAY to LINGER; may change it. */
bool tls_connection_relay(struct tls_connection *connection);

#endif
