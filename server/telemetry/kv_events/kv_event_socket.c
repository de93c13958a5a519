#include "server/telemetry/kv_events/kv_event_socket.h"

#include "config/base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- The library --- */

#define FILE_NAME "libzmq.so.5"

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define ENTRY(function) {"zmq_" #function, offsetof(struct zmq_library, function##_)},
    ZMQ_LIBRARY_FUNCTIONS(ENTRY)
#undef ENTRY
};

int zmq_library_open(struct zmq_library *out, struct error *err) {
    void *handle = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return error_set(err, ERROR_CONFIG,
                         "ZeroMQ cannot be loaded, which Debian has as libzmq5: %.300s", dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(handle, functions[i].name);
        if (function == NULL)
            return error_set(err, ERROR_CONFIG, FILE_NAME " has no function %s", functions[i].name);
        memcpy((char *)out + functions[i].offset, &function, sizeof(function));
    }
    return 0;
}

/* --- Sockets --- */

#define SOCKET_FILE_MODE 0660

static int set_option(const struct zmq_library *zmq, void *socket, int option, int value) {
    return zmq->setsockopt_(socket, option, &value, sizeof(value));
}

void *kv_event_socket_create(const struct zmq_library *zmq, void *context, int type, int send_hwm,
                             struct error *err) {
    const int64_t max_received = KV_EVENT_MAX_RECEIVED;
    void *socket = zmq->socket_(context, type);
    if (socket != NULL && set_option(zmq, socket, ZMQ_SNDHWM, send_hwm) == 0 &&
        set_option(zmq, socket, ZMQ_LINGER, 0) == 0 &&
        set_option(zmq, socket, ZMQ_TCP_KEEPALIVE, 1) == 0 &&
        set_option(zmq, socket, ZMQ_IPV6, 1) == 0 &&
        zmq->setsockopt_(socket, ZMQ_MAXMSGSIZE, &max_received, sizeof(max_received)) == 0)
        return socket;
    error_set(err, ERROR_IO, "kv-events: cannot make a socket: %s", zmq->strerror_(zmq->errno_()));
    if (socket != NULL)
        zmq->close_(socket);
    return NULL;
}

static int open_listener(const struct kv_event_endpoint *endpoint, struct listen_socket *out,
                         struct error *err) {
    if (endpoint->path[0] != '\0')
        return listen_socket_open_unix("ipc", endpoint->path, SOCKET_FILE_MODE, out, err);
    if (listen_socket_open_tcp(endpoint->host, endpoint->port, out, err) != 0)
        return -1;
    if (listen_socket_listen(out, err) == 0)
        return 0;
    listen_socket_close(out);
    return -1;
}

/* ZeroMQ closes the descriptor that it gets. */
static int hand_over(const struct zmq_library *zmq, void *socket, const char *endpoint, int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return -1;
    if (set_option(zmq, socket, ZMQ_USE_FD, copy) == 0 && zmq->bind_(socket, endpoint) == 0)
        return 0;
    int reason = zmq->errno_();
    close(copy);
    errno = reason;
    return -1;
}

int kv_event_socket_listen(const struct zmq_library *zmq, void *socket, const char *field,
                           const struct kv_event_endpoint *endpoint, struct listen_socket *out,
                           struct error *err) {
    struct error why;
    if (open_listener(endpoint, out, &why) != 0)
        return error_set(err, ERROR_CONFIG, "kv-events: %s %s: %.300s", field, endpoint->text,
                         why.message);
    if (hand_over(zmq, socket, endpoint->text, out->fd) == 0) {
        if (endpoint->path[0] == '\0' && !listen_socket_is_loopback(out))
            log_warning(
                "kv-events: %s %s: anyone who can reach it gets the token ids of all prompts",
                field, endpoint->text);
        return 0;
    }
    error_set(err, ERROR_CONFIG, "kv-events: %s %s: %s", field, endpoint->text,
              zmq->strerror_(errno));
    listen_socket_close(out);
    return -1;
}

int kv_event_socket_connect(const struct zmq_library *zmq, void *socket, const char *field,
                            const struct kv_event_endpoint *endpoint, struct error *err) {
    if (zmq->connect_(socket, endpoint->text) == 0)
        return 0;
    return error_set(err, ERROR_CONFIG, "kv-events: %s %s: %s", field, endpoint->text,
                     zmq->strerror_(zmq->errno_()));
}

void kv_event_socket_name(const struct listen_socket *listener, char out[LISTEN_NAME_BYTES]) {
    const char *address = strstr(listener->name, "//");
    if (address != NULL)
        snprintf(out, LISTEN_NAME_BYTES, "tcp:%.150s", address);
    else
        snprintf(out, LISTEN_NAME_BYTES, "%s", listener->name);
}
