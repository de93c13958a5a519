/* ZeroMQ: the library, and how the publisher's sockets connect to subscribers. */
#ifndef QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_SOCKET_H
#define QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_SOCKET_H

#include "config/base/error.h"
#include "server/net/listen_socket.h"
#include "server/telemetry/kv_events/kv_event_config.h"

#include <zmq.h>

/* --- The library --- */

/* ZeroMQ's library, loaded when needed: with its own dependencies (PGM, NORM, sodium, C++) it takes
 * some 2 ms and 3 MiB, which a server without events does not pay, and the program runs without it
 * being installed. */

/* The functions in use, as declared by zmq.h, without their prefix. */
#define ZMQ_LIBRARY_FUNCTIONS(X)                                                                   \
    X(bind)                                                                                        \
    X(close)                                                                                       \
    X(connect)                                                                                     \
    X(ctx_new)                                                                                     \
    X(ctx_shutdown)                                                                                \
    X(ctx_term)                                                                                    \
    X(errno)                                                                                       \
    X(getsockopt)                                                                                  \
    X(recv)                                                                                        \
    X(send)                                                                                        \
    X(setsockopt)                                                                                  \
    X(socket)                                                                                      \
    X(strerror)

struct zmq_library {
#define ZMQ_LIBRARY_MEMBER(name) __typeof__(zmq_##name) *name##_;
    ZMQ_LIBRARY_FUNCTIONS(ZMQ_LIBRARY_MEMBER)
#undef ZMQ_LIBRARY_MEMBER
};

/* ERROR_CONFIG: the library is not installed, or lacks a function. It is never unloaded. */
int zmq_library_open(struct zmq_library *out, struct error *err);

/* --- Sockets --- */

/* How the publisher's sockets connect to subscribers. ZeroMQ is given a socket that already
 * listens: before binding one itself, it lists the names of all network interfaces, and ends the
 * process if the system refuses that (a unit's RestrictAddressFamilies= without AF_NETLINK). */

/* Maximum bytes of a subscriber's message: a request, or the topic that it subscribes to. */
#define KV_EVENT_MAX_RECEIVED 256

/* Creates a socket of ZeroMQ's type with these options; NULL with ERROR_IO. Closing it does not
 * block. */
void *kv_event_socket_create(const struct zmq_library *zmq, void *context, int type, int send_hwm,
                             struct error *err);

/* Both functions: ERROR_CONFIG names the endpoint and what is wrong with it. field: the field that
 * contains it. */
/* The caller closes *out after the socket's context has ended. Warns if other machines may
 * connect. */
int kv_event_socket_listen(const struct zmq_library *zmq, void *socket, const char *field,
                           const struct kv_event_endpoint *endpoint, struct listen_socket *out,
                           struct error *err);
/* Retries until the peer exists, and again when the connection is lost. */
int kv_event_socket_connect(const struct zmq_library *zmq, void *socket, const char *field,
                            const struct kv_event_endpoint *endpoint, struct error *err);

/* Writes "tcp://HOST:PORT" or "unix:PATH" of a listening socket. */
void kv_event_socket_name(const struct listen_socket *listener, char out[LISTEN_NAME_BYTES]);

#endif
