#include "nccl_links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cudasim {

static const int START_MS = 300000, CONNECT_MS = 2000;

static bool is_ready(int socket, short events, int timeout_ms) {
    pollfd waited = {socket, events, 0};
    return poll(&waited, 1, timeout_ms) == 1;
}

static sockaddr_in address_of(uint32_t ip, uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ip;
    address.sin_port = port;
    return address;
}

static void list_addresses(link_address *out) {
    ifaddrs *all = nullptr;
    if (getifaddrs(&all) != 0)
        return;
    const size_t most = sizeof out->ips / sizeof out->ips[0];
    for (const ifaddrs *each = all; each != nullptr && out->num_ips < most; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET)
            continue;
        sockaddr_in address;
        memcpy(&address, each->ifa_addr, sizeof address);
        if (address.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
            out->ips[out->num_ips++] = address.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

static int new_socket() {
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int listen_for_links(link_address *out) {
    int listener = new_socket();
    sockaddr_in address = address_of(htonl(INADDR_ANY), 0);
    socklen_t size = sizeof address;
    *out = {};
    gethostname(out->host, sizeof out->host - 1);
    list_addresses(out);
    if (listener < 0 || bind(listener, (const sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (sockaddr *)&address, &size) != 0) {
        close(listener);
        return -1;
    }
    out->port = address.sin_port;
    return listener;
}

static int connect_to(uint32_t ip, uint16_t port) {
    int made = new_socket(), error = 0;
    sockaddr_in address = address_of(ip, port);
    socklen_t size = sizeof error;
    if (made >= 0 && (connect(made, (const sockaddr *)&address, sizeof address) == 0 ||
                      (errno == EINPROGRESS && is_ready(made, POLLOUT, CONNECT_MS) &&
                       getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)))
        return made;
    close(made);
    return -1;
}

int connect_link(const link_address &to) {
    char own[sizeof to.host] = "";
    gethostname(own, sizeof own - 1);
    int made = strcmp(own, to.host) == 0 ? connect_to(htonl(INADDR_LOOPBACK), to.port) : -1;
    for (int i = 0; i < to.num_ips && made < 0; i++)
        made = connect_to(to.ips[i], to.port);
    return made;
}

int accept_link(int listener, bool waits) {
    return is_ready(listener, POLLIN, waits ? START_MS : 0)
               ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)
               : -1;
}

bool send_bytes(int socket, const void *data, size_t bytes) {
    const char *from = static_cast<const char *>(data);
    while (bytes > 0) {
        ssize_t sent =
            is_ready(socket, POLLOUT, START_MS) ? send(socket, from, bytes, MSG_NOSIGNAL) : -1;
        if (sent <= 0)
            return false;
        from += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

bool receive_bytes(int socket, void *data, size_t bytes) {
    char *to = static_cast<char *>(data);
    while (bytes > 0) {
        ssize_t got = is_ready(socket, POLLIN, START_MS) ? recv(socket, to, bytes, 0) : -1;
        if (got <= 0)
            return false;
        to += got;
        bytes -= (size_t)got;
    }
    return true;
}

process_link::process_link(int made) : socket(made), lost(false) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

process_link::~process_link() {
    close(socket);
}

void process_link::write(const void *data, size_t bytes) {
    const char *from = static_cast<const char *>(data);
    to_send.insert(to_send.end(), from, from + bytes);
}

void process_link::send_some() {
    size_t done = 0;
    while (!lost && done < to_send.size()) {
        ssize_t sent = send(socket, to_send.data() + done, to_send.size() - done, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        lost = sent < 0;
        done += lost ? 0 : (size_t)sent;
    }
    to_send.erase(to_send.begin(), to_send.begin() + (ptrdiff_t)done);
}

void process_link::receive_some() {
    char part[65536];
    while (!lost) {
        ssize_t got = recv(socket, part, sizeof part, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        lost = got <= 0;
        received.insert(received.end(), part, part + (lost ? 0 : got));
    }
}

void process_link::carry() {
    send_some();
    receive_some();
}

} // namespace cudasim
