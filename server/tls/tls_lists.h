/* The connections of the TLS thread by their state, those longest in it first, and those that have
 * something to go on with. Nothing is allocated: a connection has the links of both kinds of list.
 * Used by that thread alone. */
#ifndef QUIRE_SERVER_TLS_TLS_LISTS_H
#define QUIRE_SERVER_TLS_TLS_LISTS_H

#include "server/tls/tls_connection.h"

struct tls_state_list {
    struct tls_connection *first, *last;
};

struct tls_ready_list {
    struct tls_connection *first, *last;
};

/* Zeroed: empty. */
struct tls_lists {
    struct tls_state_list states[TLS_NUM_STATES];
    struct tls_ready_list handshakes, relays; /* ready, by what is to be done */
};

/* Adds a connection to those of its state, and notes the time. */
void tls_lists_add(struct tls_lists *lists, struct tls_connection *connection);
/* Removes one from those of the state that it had when it was added. */
void tls_lists_remove(struct tls_lists *lists, struct tls_connection *connection,
                      enum tls_state state);

/* Adds it to those that are ready, by its state, unless it is there. */
void tls_lists_mark_ready(struct tls_lists *lists, struct tls_connection *connection);
/* Returns the first, which is ready no more; NULL: there is none. */
struct tls_connection *tls_lists_pop_ready(struct tls_ready_list *list);
/* Makes it ready no more, if it is, before its state changes. Walks those that are. */
void tls_lists_forget_ready(struct tls_lists *lists, struct tls_connection *connection);

#endif
