/* ZeroMQ's library, loaded when it is needed: with what it is linked with in turn (PGM, NORM, sodium,
 * C++) it takes some 2 ms and 3 MiB, which nobody pays who publishes nothing, and a program that is
 * installed without it runs. */
#ifndef QUIRE_SERVER_KV_EVENTS_ZMQ_LIBRARY_H
#define QUIRE_SERVER_KV_EVENTS_ZMQ_LIBRARY_H

#include "config/base/error.h"

#include <zmq.h>

/* The functions that are used, as zmq.h declares them and without their prefix. */
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

#endif
