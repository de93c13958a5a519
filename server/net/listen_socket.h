/* The listening socket: non-blocking, close-on-exec, stream. */
#ifndef QUIRE_SERVER_NET_LISTEN_SOCKET_H
#define QUIRE_SERVER_NET_LISTEN_SOCKET_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LISTEN_NAME_BYTES 160

struct listen_socket {
    int fd;
    bool is_passed;               /* adopted: whoever passed it has it open too */
    char name[LISTEN_NAME_BYTES]; /* "http://127.0.0.1:8000", "unix:/run/quire.sock" */
    char path[108]; /* UNIX socket that we created, removed at the end; otherwise empty */
};

/* Binds the socket, for listen_socket_listen: until then connections are refused, and nobody else
 * gets the port. IPv4 or IPv6; a host name's first address is taken. Port 0: any free port, see
 * name. ERROR_IO names the address and the reason. */
int listen_socket_open_tcp(const char *host, int64_t port, struct listen_socket *out,
                           struct error *err);
/* Listens at once, so that others see that the file is in use. A socket file on which nobody
 * listens is removed first; one in use is an error. option: the option with the path, for messages.
 */
int listen_socket_open_unix(const char *option, const char *path, mode_t mode,
                            struct listen_socket *out, struct error *err);
/* Takes over a socket that already listens. */
int listen_socket_adopt(int fd, struct listen_socket *out, struct error *err);
/* Makes a socket listen that does not yet. */
int listen_socket_listen(const struct listen_socket *socket, struct error *err);

/* Sets the options of every accepted connection; fails harmlessly on UNIX sockets. */
void listen_socket_set_options(int connection_fd);

/* Makes the name show that TLS is used. */
void listen_socket_set_tls(struct listen_socket *socket);

/* Returns whether it accepts TCP connections from this machine only. */
bool listen_socket_is_loopback(const struct listen_socket *socket);

/* Closes the socket, and removes its file if we created it. Accepts a closed one (fd -1). */
void listen_socket_close(struct listen_socket *socket);

#endif
