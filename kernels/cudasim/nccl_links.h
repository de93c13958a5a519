/* Connections between simulated devices of several processes, on one machine or several: TCP, as
 * NCCL's between machines. */
#ifndef CUDASIM_NCCL_LINKS_H
#define CUDASIM_NCCL_LINKS_H

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace cudasim {

/* Where a process is reached: over loopback by those of the same host. */
struct link_address {
    char host[56];
    uint32_t ips[8]; /* in network order */
    uint16_t num_ips, port;
};

/* Gives a socket that listens, and its address. -1: it cannot. */
int listen_for_links(link_address *out);
/* Gives a socket. -1: nobody answers. */
int connect_link(const link_address &to);
/* Gives the next connection, for which it waits if told to. -1: there is none. */
int accept_link(int listener, bool waits);
/* Wait for all bytes, for minutes at most. False: they do not come. For a start. */
bool send_bytes(int socket, const void *data, size_t bytes);
bool receive_bytes(int socket, void *data, size_t bytes);

/* A connection to a process after the start, which nobody waits for. */
class process_link {
  public:
    std::vector<char> received; /* and not taken yet */

    explicit process_link(int socket);
    process_link(const process_link &) = delete;
    ~process_link();
    void write(const void *data, size_t bytes);
    /* Sends and receives what can be now. */
    void carry();
    bool is_written() const {
        return to_send.empty();
    }
    bool is_lost() const {
        return lost;
    }

  private:
    const int socket;
    bool lost;
    std::vector<char> to_send;
    void send_some();
    void receive_some();
};

} // namespace cudasim

#endif
