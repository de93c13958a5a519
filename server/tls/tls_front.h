/* TLS in front of the HTTP server: a thread that accepts connections, makes their handshakes and
 * carries their bytes. Each connection whose handshake is complete is given to the I/O thread as a
 * plain socket (tls_connection.h), so that nothing there knows TLS, and everything it asks a socket
 * holds: who hung up, what waits to be taken.
 *
 * A handshake is a millisecond of computing or more, so one step of one is made at a time, and
 * every stream that has something is carried in between. */
#ifndef QUIRE_SERVER_TLS_TLS_FRONT_H
#define QUIRE_SERVER_TLS_TLS_FRONT_H

#include "server/tls/tls_connection.h"

#include <stdbool.h>
#include <stdint.h>

/* What a connection takes here at most, apart from the kernel's buffers: GnuTLS's session, and a
 * record in each direction. */
#define TLS_CONNECTION_BYTES ((size_t)64 << 10)
#define TLS_CONNECTION_FILES 2 /* beside the one that the HTTP server has */

struct tls_front;

struct tls_client {
    int fd; /* plain, non-blocking; the taker's */
    struct tls_address address;
};

/* Starts the thread, on a listening, non-blocking socket that stays the caller's. Takes its own
 * reference of the credentials. max_connections: those whose handshake is not complete included;
 * beyond, the oldest of these is closed, or else clients wait. */
int tls_front_create(int listen_fd, int64_t max_connections, struct tls_credentials *credentials,
                     struct tls_front **out, struct error *err);
/* New connections get these; those that there are keep theirs. Any thread. */
void tls_front_set_credentials(struct tls_front *front, struct tls_credentials *credentials);

/* Returns a descriptor that is readable while there is something to take. */
int tls_front_fd(const struct tls_front *front);
/* I/O thread. Returns false when there is nothing. */
bool tls_front_take(struct tls_front *front, struct tls_client *out);

/* Accepts nothing more: clients wait on the socket for whoever accepts next. */
void tls_front_quiesce(struct tls_front *front);
/* Waits up to two seconds until clients have taken what was written to them. Accepts NULL. */
void tls_front_destroy(struct tls_front *front);

#endif
