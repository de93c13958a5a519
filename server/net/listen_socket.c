#include "server/net/listen_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define SEND_BUFFER_BYTES (128 * 1024)
/* A silent peer is given up after this. Linux applies it to a closed window as well, also when the
 * peer answers and takes a little now and then, so it leaves slow readers some room. */
#define UNACKED_TIMEOUT_MS 60000
#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

/* One object seen as each kind of address, as the socket calls want it. */
union address {
    struct sockaddr any;
    struct sockaddr_un local;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
};

/* Writes "http://HOST:PORT" or "unix:PATH" of a bound socket. */
static void name_socket(int fd, char out[LISTEN_NAME_BYTES]) {
    union address address;
    socklen_t length = sizeof(address);
    char host[64], port[8];
    if (getsockname(fd, &address.any, &length) != 0) {
        snprintf(out, LISTEN_NAME_BYTES, "descriptor %d", fd);
        return;
    }
    if (address.any.sa_family == AF_UNIX) {
        snprintf(out, LISTEN_NAME_BYTES, "unix:%.107s", address.local.sun_path);
        return;
    }
    if (getnameinfo(&address.any, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, LISTEN_NAME_BYTES, "descriptor %d", fd);
        return;
    }
    snprintf(out, LISTEN_NAME_BYTES,
             address.any.sa_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

static void set_reuse(int fd, int is_on) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &is_on, sizeof(is_on));
}

/* SO_REUSEADDR is for connections that linger of a server that has ended, which have it too. While
 * it is off nobody else can bind a port that is bound and does not listen yet. */
static int bind_address(const struct addrinfo *address, int *out_fd) {
    int fd = socket(address->ai_family, SOCKET_FLAGS, 0);
    if (fd < 0)
        return -1;
    set_reuse(fd, 1);
    int status = bind(fd, address->ai_addr, address->ai_addrlen);
    set_reuse(fd, 0);
    if (status != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    *out_fd = fd;
    return 0;
}

int listen_socket_open_tcp(const char *host, int64_t port, struct listen_socket *out,
                           struct error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *addresses;
    char service[24];
    snprintf(service, sizeof(service), "%lld", (long long)port);
    int rc = getaddrinfo(host, service, &hints, &addresses);
    if (rc != 0)
        return error_set(err, ERROR_CONFIG, "host: cannot resolve '%.200s': %s", host,
                         gai_strerror(rc));
    int fd;
    rc = bind_address(addresses, &fd);
    int reason = errno;
    freeaddrinfo(addresses);
    if (rc != 0)
        return error_set(err, ERROR_IO, "cannot listen on %.200s port %lld: %s", host,
                         (long long)port, strerror(reason));
    *out = (struct listen_socket){.fd = fd};
    name_socket(fd, out->name);
    return 0;
}

int listen_socket_listen(const struct listen_socket *socket, struct error *err) {
    if (socket->is_passed || socket->path[0] != '\0')
        return 0;
    set_reuse(socket->fd, 1);
    if (listen(socket->fd, BACKLOG) != 0)
        return error_set(err, ERROR_IO, "cannot listen on %s: %s", socket->name, strerror(errno));
    return 0;
}

/* True when someone answers at the address. */
static bool is_alive(const union address *address) {
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    if (fd < 0)
        return false;
    bool alive = connect(fd, &address->any, sizeof(address->local)) == 0 || errno == EAGAIN;
    close(fd);
    return alive;
}

/* Removes a socket file left by a process that is gone; anything else stays and makes bind fail. */
static void remove_stale(const union address *address) {
    struct stat info;
    if (lstat(address->local.sun_path, &info) == 0 && S_ISSOCK(info.st_mode) && !is_alive(address))
        unlink(address->local.sun_path);
}

int listen_socket_open_unix(const char *option, const char *path, mode_t mode,
                            struct listen_socket *out, struct error *err) {
    union address address = {.local = {.sun_family = AF_UNIX}};
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(address.local.sun_path))
        return error_set(err, ERROR_CONFIG, "%s: path of %zu bytes; allowed are 1 to %zu", option,
                         length, sizeof(address.local.sun_path) - 1);
    memcpy(address.local.sun_path, path, length + 1);
    remove_stale(&address);
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    /* Before listen nobody can connect, so the mode is right from the first connection on. */
    if (fd < 0 || bind(fd, &address.any, sizeof(address.local)) != 0 || chmod(path, mode) != 0 ||
        listen(fd, BACKLOG) != 0) {
        int reason = errno;
        if (fd >= 0)
            close(fd);
        return error_set(err, ERROR_IO, "cannot listen on UNIX socket %s: %s", path,
                         strerror(reason));
    }
    *out = (struct listen_socket){.fd = fd};
    memcpy(out->path, path, length + 1);
    name_socket(fd, out->name);
    return 0;
}

int listen_socket_adopt(int fd, struct listen_socket *out, struct error *err) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(err, ERROR_IO, "socket activation: descriptor %d: %s", fd,
                         strerror(errno));
    *out = (struct listen_socket){.fd = fd, .is_passed = true};
    name_socket(fd, out->name);
    return 0;
}

void listen_socket_set_options(int connection_fd) {
    const int on = 1, send_buffer = SEND_BUFFER_BYTES, unacked_ms = UNACKED_TIMEOUT_MS;
    setsockopt(connection_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(connection_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
    setsockopt(connection_fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
    setsockopt(connection_fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

void listen_socket_set_tls(struct listen_socket *socket) {
    size_t length = strlen(socket->name);
    if (strncmp(socket->name, "http:", 5) != 0 || length + 2 > sizeof(socket->name))
        return;
    memmove(socket->name + 5, socket->name + 4, length - 3);
    socket->name[4] = 's';
}

bool listen_socket_is_loopback(const struct listen_socket *socket) {
    union address address;
    socklen_t length = sizeof(address);
    if (getsockname(socket->fd, &address.any, &length) != 0)
        return false;
    if (address.any.sa_family == AF_INET)
        return ntohl(address.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (address.any.sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &address.v6.sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

void listen_socket_close(struct listen_socket *socket) {
    if (socket->fd < 0)
        return;
    close(socket->fd);
    if (socket->path[0])
        unlink(socket->path);
    socket->fd = -1;
}
