#include "server/tls/tls_lists.h"

#include "config/base/clock.h"

void tls_lists_remove(struct tls_lists *lists, struct tls_connection *connection,
                      enum tls_state state) {
    struct tls_state_list *list = &lists->states[state];
    *(connection->prev ? &connection->prev->next : &list->first) = connection->next;
    *(connection->next ? &connection->next->prev : &list->last) = connection->prev;
}

void tls_lists_add(struct tls_lists *lists, struct tls_connection *connection) {
    struct tls_state_list *list = &lists->states[connection->state];
    connection->since_ms = clock_now_ms();
    connection->prev = list->last;
    connection->next = NULL;
    *(list->last ? &list->last->next : &list->first) = connection;
    list->last = connection;
}

static struct tls_ready_list *ready_list_of(struct tls_lists *lists,
                                            const struct tls_connection *connection) {
    return connection->state == TLS_HANDSHAKE ? &lists->handshakes : &lists->relays;
}

void tls_lists_mark_ready(struct tls_lists *lists, struct tls_connection *connection) {
    struct tls_ready_list *list = ready_list_of(lists, connection);
    if (connection->is_ready)
        return;
    connection->is_ready = true;
    connection->next_ready = NULL;
    *(list->last ? &list->last->next_ready : &list->first) = connection;
    list->last = connection;
}

struct tls_connection *tls_lists_pop_ready(struct tls_ready_list *list) {
    struct tls_connection *connection = list->first;
    if (!connection)
        return NULL;
    list->first = connection->next_ready;
    if (!list->first)
        list->last = NULL;
    connection->is_ready = false;
    return connection;
}

void tls_lists_forget_ready(struct tls_lists *lists, struct tls_connection *connection) {
    struct tls_ready_list *list = ready_list_of(lists, connection);
    struct tls_connection *before = NULL, **link = &list->first;
    if (!connection->is_ready)
        return;
    while (*link && *link != connection) {
        before = *link;
        link = &before->next_ready;
    }
    if (!*link)
        return;
    *link = connection->next_ready;
    if (list->last == connection)
        list->last = before;
    connection->is_ready = false;
}
