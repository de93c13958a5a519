/* How the publisher's sockets meet subscribers. ZeroMQ is handed a socket that already listens: it
 * asks for the names of all network interfaces before it binds one by itself, and ends the process
 * where the system refuses that (a unit's RestrictAddressFamilies= without AF_NETLINK). */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_SOCKET_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_SOCKET_H

#include "server/net/listen_socket.h"
#include "server/telemetry/kv_events/kv_event_config.h"
#include "server/telemetry/kv_events/zmq_library.h"

/* Bytes of a message that a subscriber may send: a request, or the topic that it subscribes to. */
#define KV_EVENT_MAX_RECEIVED 256

/* Makes a socket of ZeroMQ's type with these options; NULL with ERROR_IO. It waits for nobody when it
 * is closed. */
void *kv_event_socket_create(const struct zmq_library *zmq, void *context, int type, int send_hwm,
                             struct error *err);

/* Both: ERROR_CONFIG names the endpoint and what is wrong with it; field: whose it is. */
/* The caller closes *out after the socket's context has ended. Warns where others than this machine
 * may connect. */
int kv_event_socket_listen(const struct zmq_library *zmq, void *socket, const char *field,
                           const struct kv_event_endpoint *endpoint, struct listen_socket *out,
                           struct error *err);
/* Goes on trying until the peer is there, and again when it is lost. */
int kv_event_socket_connect(const struct zmq_library *zmq, void *socket, const char *field,
                            const struct kv_event_endpoint *endpoint, struct error *err);

/* Writes "tcp://HOST:PORT" or "unix:PATH" of a socket that listens. */
void kv_event_socket_name(const struct listen_socket *listener, char out[LISTEN_NAME_BYTES]);

#endif
