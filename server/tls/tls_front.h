/* TLS in front of the HTTP server: a thread that accepts connections, performs their handshakes and
 * relays their bytes. Each connection with a complete handshake is passed to the I/O thread as a
 * plain socket (tls_connection.h), so that nothing there knows about TLS, and everything that it
 * asks of a socket still works: who hung up, what is unread.
 *
 * A handshake takes a millisecond of computing or more, so only one step of one is performed at a
 * time, and every stream with data is relayed in between. */
#ifndef QUIRE_SERVER_TLS_TLS_FRONT_H
#define QUIRE_SERVER_TLS_TLS_FRONT_H

#include "server/tls/tls_connection.h"

#include <stdbool.h>
#include <stdint.h>

/* Maximum memory of a connection here, apart from the kernel's buffers: GnuTLS's session, and a
 * record in each direction. */
#define TLS_CONNECTION_BYTES ((size_t)64 << 10)
#define TLS_CONNECTION_FILES 2 /* in addition to that of the HTTP server */

struct tls_front;

struct tls_client {
    int fd; /* plain, non-blocking; owned by the taker */
    struct tls_address address;
};

/* Starts the thread, on a listening, non-blocking socket that the caller still owns. Takes its own
 * reference to the credentials. max_connections includes those with an incomplete handshake; beyond
 * it, the oldest of these is closed, or if there is none, clients wait. */
int tls_front_create(int listen_fd, int64_t max_connections, struct tls_credentials *credentials,
                     struct tls_front **out, struct error *err);
/* New connections get these; existing ones keep theirs. Any thread. */
void tls_front_set_credentials(struct tls_front *front, struct tls_credentials *credentials);

/* Returns a descriptor that is readable while there is something to take. */
int tls_front_fd(const struct tls_front *front);
/* I/O thread. Returns false when there is nothing. */
bool tls_front_take(struct tls_front *front, struct tls_client *out);

/* Stops accepting: clients wait on the socket for the next server that accepts. */
void tls_front_quiesce(struct tls_front *front);
/* Waits up to two seconds until clients have taken what was written to them. Accepts NULL. */
void tls_front_destroy(struct tls_front *front);

#endif
