#include "engine/executor/rank_message.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

/* Returns the bytes of a message of the kind; 0: there is none. */
static size_t size_of(enum rank_message_kind kind) {
    static const struct rank_message *const m = NULL;
    const size_t head = offsetof(struct rank_message, start);
    switch (kind) {
    case RANK_START:
        return head + sizeof(m->start);
    case RANK_MEMORY:
        return head + sizeof(m->memory);
    case RANK_SUBMIT:
    case RANK_SUPPLY:
        return head + sizeof(m->step);
    case RANK_WAIT:
        return head;
    case RANK_PROGRESS:
        return head + sizeof(m->progress);
    case RANK_READY:
        return head + sizeof(m->info);
    case RANK_FAILED:
    case RANK_DONE:
        return head + sizeof(m->done);
    }
    return 0;
}

int rank_message_send(int fd, const struct rank_message *message) {
    ssize_t sent;
    do
        sent = send(fd, message, size_of(message->kind), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

int rank_message_receive(int fd, struct rank_message *out) {
    ssize_t received;
    do
        received = recv(fd, out, sizeof(*out), 0);
    while (received < 0 && errno == EINTR);
    bool has_kind = received >= (ssize_t)offsetof(struct rank_message, start);
    return has_kind && (size_t)received == size_of(out->kind) ? 0 : -1;
}
