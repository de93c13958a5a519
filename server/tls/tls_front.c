#include "server/tls/tls_front.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/net/listen_socket.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* --- Lists of connections --- */

/* The connections of the TLS thread by their state, those longest in it first, and those that can
 * make progress. Nothing is allocated: a connection has the links of both kinds of list. Used by
 * that thread alone. */

struct state_list {
    struct tls_connection *first, *last;
};

struct ready_list {
    struct tls_connection *first, *last;
};

/* Zeroed: empty. */
struct lists {
    struct state_list states[TLS_NUM_STATES];
    struct ready_list handshakes, relays; /* ready, by what is to be done */
};

/* Removes one from those of the state that it had when it was added. */
static void remove_from_state(struct lists *lists, struct tls_connection *connection,
                              enum tls_state state) {
    struct state_list *list = &lists->states[state];
    *(connection->prev ? &connection->prev->next : &list->first) = connection->next;
    *(connection->next ? &connection->next->prev : &list->last) = connection->prev;
}

/* Adds a connection to those of its state, and notes the time. */
static void add_to_state(struct lists *lists, struct tls_connection *connection) {
    struct state_list *list = &lists->states[connection->state];
    connection->since_ms = clock_now_ms();
    connection->prev = list->last;
    connection->next = NULL;
    *(list->last ? &list->last->next : &list->first) = connection;
    list->last = connection;
}

static struct ready_list *ready_list_of(struct lists *lists,
                                        const struct tls_connection *connection) {
    return connection->state == TLS_HANDSHAKE ? &lists->handshakes : &lists->relays;
}

/* Adds it to those that are ready, by its state, unless it is there. */
static void mark_ready(struct lists *lists, struct tls_connection *connection) {
    struct ready_list *list = ready_list_of(lists, connection);
    if (connection->is_ready)
        return;
    connection->is_ready = true;
    connection->next_ready = NULL;
    *(list->last ? &list->last->next_ready : &list->first) = connection;
    list->last = connection;
}

/* Returns the first, which is then no longer ready; NULL: there is none. */
static struct tls_connection *pop_ready(struct ready_list *list) {
    struct tls_connection *connection = list->first;
    if (!connection)
        return NULL;
    list->first = connection->next_ready;
    if (!list->first)
        list->last = NULL;
    connection->is_ready = false;
    return connection;
}

/* Makes it ready no more, if it is, before its state changes. Walks those that are. */
static void forget_ready(struct lists *lists, struct tls_connection *connection) {
    struct ready_list *list = ready_list_of(lists, connection);
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

/* --- The thread --- */

#define HANDSHAKE_MS 10000 /* accept to the end of the handshake */
#define ENDING_MS 60000    /* for a client to take the end of its answer */
#define LINGER_MS 2000     /* for a client to close after us */
#define TICK_MS 250
#define MAX_EVENTS 256
/* The event's data is the connection's address, and one more for its inner socket. */
#define CONNECTION_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define MAX_ACCEPTED 16 /* at a time */

/* For the I/O thread to take. */
struct handed_over {
    struct handed_over *next;
    struct tls_client client;
};

struct tls_front {
    int listen_fd;
    int64_t max_connections;
    pthread_t thread;
    int wake_fd; /* wakes the thread */
    int handed_fd;

    /* the thread's */
    int epoll_fd;
    struct lists lists;
    int64_t num_connections;
    int64_t tick_ms;
    bool is_listening;

    pthread_mutex_t lock;
    /* guarded by lock */
    struct tls_credentials *credentials;
    struct handed_over *handed_first, **handed_last;
    bool is_quiet, is_ending;
};

static void raise_event(int fd) {
    const uint64_t one = 1;
    CHECK(write(fd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN);
}

static void lower_event(int fd) {
    uint64_t count;
    CHECK(read(fd, &count, sizeof(count)) == sizeof(count) || errno == EAGAIN);
}

/* --- Connections --- */

static int watch(struct tls_front *front, int fd, uint32_t events, void *source) {
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(front->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Puts a connection that `before` was the state of where it belongs now. */
static void settle(struct tls_front *front, struct tls_connection *connection,
                   enum tls_state before) {
    if (connection->state == before)
        return;
    remove_from_state(&front->lists, connection, before);
    if (connection->state == TLS_CLOSED) {
        tls_connection_destroy(connection);
        front->num_connections--;
        return;
    }
    add_to_state(&front->lists, connection);
    mark_ready(&front->lists, connection);
}

static void drop(struct tls_front *front, struct tls_connection *connection) {
    enum tls_state before = connection->state;
    forget_ready(&front->lists, connection);
    connection->state = TLS_CLOSED;
    settle(front, connection, before);
}

/* --- Accepting --- */

static struct tls_credentials *current_credentials(struct tls_front *front) {
    pthread_mutex_lock(&front->lock);
    struct tls_credentials *credentials = tls_credentials_ref(front->credentials);
    pthread_mutex_unlock(&front->lock);
    return credentials;
}

static void begin(struct tls_front *front, int fd, const struct tls_address *address) {
    struct tls_credentials *credentials = current_credentials(front);
    struct tls_connection *connection = tls_connection_create(fd, credentials);
    tls_credentials_unref(credentials);
    if (!connection) {
        close(fd);
        return;
    }
    listen_socket_set_options(fd);
    connection->address = *address;
    if (watch(front, connection->outer, CONNECTION_EVENTS, connection) != 0) {
        tls_connection_destroy(connection);
        return;
    }
    front->num_connections++;
    add_to_state(&front->lists, connection);
}

static void listen_on(struct tls_front *front, bool listens) {
    if (listens == front->is_listening)
        return;
    if (listens)
        front->is_listening = watch(front, front->listen_fd, EPOLLIN, &front->listen_fd) == 0;
    else
        front->is_listening =
            epoll_ctl(front->epoll_fd, EPOLL_CTL_DEL, front->listen_fd, NULL) != 0;
}

/* Returns false where the HTTP server has all connections. */
static bool make_room(struct tls_front *front) {
    static const enum tls_state order[] = {TLS_LINGER, TLS_HANDSHAKE, TLS_ENDING};
    if (front->num_connections < front->max_connections)
        return true;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (front->lists.states[order[i]].first) {
            drop(front, front->lists.states[order[i]].first);
            return true;
        }
    }
    return false;
}

/* Whoever finds no room, or no descriptor, waits in the backlog until the next tick. */
static void accept_clients(struct tls_front *front) {
    for (int i = 0; i < MAX_ACCEPTED; i++) {
        struct tls_address address = {.length = sizeof(address.value)};
        int fd = -1;
        if (make_room(front))
            fd = accept4(front->listen_fd, &address.value.any, &address.length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        else
            errno = EMFILE;
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                listen_on(front, false);
            return;
        }
        begin(front, fd, &address);
    }
}

/* --- What they do --- */

static void hand_over(struct tls_front *front, struct handed_over *entry) {
    pthread_mutex_lock(&front->lock);
    entry->next = NULL;
    *front->handed_last = entry;
    front->handed_last = &entry->next;
    pthread_mutex_unlock(&front->lock);
    raise_event(front->handed_fd);
}

/* Gives a connection its inner socket, and the I/O thread the other end. -1: the system refused. */
static int connect_inner(struct tls_front *front, struct tls_connection *connection) {
    struct handed_over *entry = calloc(1, sizeof(*entry));
    int pair[2];
    if (!entry || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        free(entry);
        return -1;
    }
    connection->inner = pair[0];
    if (watch(front, connection->inner, CONNECTION_EVENTS, (char *)connection + 1) != 0) {
        close(pair[1]);
        free(entry);
        return -1;
    }
    entry->client = (struct tls_client){pair[1], connection->address};
    hand_over(front, entry);
    return 0;
}

static void go_on_with_handshake(struct tls_front *front) {
    struct tls_connection *connection = pop_ready(&front->lists.handshakes);
    if (!connection)
        return;
    if (tls_connection_handshake(connection) > 0)
        connection->state = connect_inner(front, connection) == 0 ? TLS_RELAY : TLS_CLOSED;
    settle(front, connection, TLS_HANDSHAKE);
}

/* Each of those that are ready now has one turn. */
static void relay(struct tls_front *front) {
    struct ready_list ready = front->lists.relays;
    struct tls_connection *connection;
    front->lists.relays = (struct ready_list){NULL, NULL};
    while ((connection = pop_ready(&ready)) != NULL) {
        enum tls_state before = connection->state;
        if (tls_connection_relay(connection))
            mark_ready(&front->lists, connection);
        settle(front, connection, before);
    }
}

static void drop_late(struct tls_front *front, enum tls_state state, int64_t limit_ms,
                      int64_t now_ms) {
    struct tls_connection *first;
    while ((first = front->lists.states[state].first) != NULL &&
           now_ms - first->since_ms > limit_ms)
        drop(front, first);
}

static bool is_quiet(struct tls_front *front) {
    pthread_mutex_lock(&front->lock);
    bool is_quiet = front->is_quiet;
    pthread_mutex_unlock(&front->lock);
    return is_quiet;
}

static bool is_ending(struct tls_front *front) {
    pthread_mutex_lock(&front->lock);
    bool is_ending = front->is_ending;
    pthread_mutex_unlock(&front->lock);
    return is_ending;
}

static void tick(struct tls_front *front) {
    int64_t now_ms = clock_now_ms();
    if (now_ms < front->tick_ms)
        return;
    front->tick_ms = now_ms + TICK_MS;
    drop_late(front, TLS_HANDSHAKE, HANDSHAKE_MS, now_ms);
    drop_late(front, TLS_ENDING, ENDING_MS, now_ms);
    drop_late(front, TLS_LINGER, LINGER_MS, now_ms);
    listen_on(front, !is_quiet(front));
}

static void handle_connection(struct tls_front *front, const struct epoll_event *event) {
    uintptr_t address = (uintptr_t)event->data.ptr;
    bool is_inner = (address & 1) != 0;
    struct tls_connection *connection = (void *)(address - is_inner);
    if (is_inner && (event->events & EPOLLHUP) != 0 && connection->state == TLS_RELAY) {
        connection->state = TLS_ENDING;
        settle(front, connection, TLS_RELAY);
    }
    if (!is_inner && (event->events & (EPOLLHUP | EPOLLERR)) != 0)
        connection->is_outer_gone = true;
    mark_ready(&front->lists, connection);
}

static void handle_event(struct tls_front *front, const struct epoll_event *event) {
    if (event->data.ptr == &front->wake_fd) {
        lower_event(front->wake_fd);
        listen_on(front, !is_quiet(front));
    } else if (event->data.ptr != &front->listen_fd) {
        handle_connection(front, event);
    }
}

/* What comes is marked first and handled then, so that no connection is freed between an event and
 * its handling. */
static void turn(struct tls_front *front) {
    struct epoll_event events[MAX_EVENTS];
    bool has_work = front->lists.relays.first || front->lists.handshakes.first, has_clients = false;
    int count = epoll_wait(front->epoll_fd, events, MAX_EVENTS, has_work ? 0 : TICK_MS);
    CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; i++) {
        has_clients = has_clients || events[i].data.ptr == &front->listen_fd;
        handle_event(front, &events[i]);
    }
    relay(front);
    go_on_with_handshake(front);
    tick(front);
    if (has_clients && front->is_listening)
        accept_clients(front);
}

static void *front_thread(void *context) {
    struct tls_front *front = context;
    pthread_setname_np(pthread_self(), "tls");
    while (!is_ending(front))
        turn(front);
    while (front->lists.states[TLS_HANDSHAKE].first)
        drop(front, front->lists.states[TLS_HANDSHAKE].first);
    int64_t deadline_ms = clock_now_ms() + LINGER_MS;
    while (front->num_connections > 0 && clock_now_ms() < deadline_ms)
        turn(front);
    for (int state = TLS_HANDSHAKE; state < TLS_CLOSED; state++)
        while (front->lists.states[state].first)
            drop(front, front->lists.states[state].first);
    return NULL;
}

/* --- Other threads --- */

static void free_front(struct tls_front *front) {
    struct tls_client client;
    while (front->handed_first && tls_front_take(front, &client))
        close(client.fd);
    int fds[] = {front->epoll_fd, front->wake_fd, front->handed_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    tls_credentials_unref(front->credentials);
    pthread_mutex_destroy(&front->lock);
    free(front);
}

int tls_front_create(int listen_fd, int64_t max_connections, struct tls_credentials *credentials,
                     struct tls_front **out, struct error *err) {
    struct tls_front *front = calloc(1, sizeof(*front));
    if (!front)
        return error_set(err, ERROR_MEMORY, "no memory for TLS");
    int status = 0;
    CHECK(pthread_mutex_init(&front->lock, NULL) == 0);
    front->listen_fd = listen_fd;
    front->max_connections = max_connections;
    front->credentials = tls_credentials_ref(credentials);
    front->handed_last = &front->handed_first;
    front->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    front->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    front->handed_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (front->epoll_fd < 0 || front->wake_fd < 0 || front->handed_fd < 0 ||
        watch(front, front->wake_fd, EPOLLIN, &front->wake_fd) != 0)
        status = errno;
    if (status == 0)
        status = pthread_create(&front->thread, NULL, front_thread, front);
    if (status != 0) {
        free_front(front);
        return error_set(err, ERROR_IO, "cannot start TLS: %s", strerror(status));
    }
    *out = front;
    return 0;
}

void tls_front_set_credentials(struct tls_front *front, struct tls_credentials *credentials) {
    pthread_mutex_lock(&front->lock);
    struct tls_credentials *old = front->credentials;
    front->credentials = tls_credentials_ref(credentials);
    pthread_mutex_unlock(&front->lock);
    tls_credentials_unref(old);
}

int tls_front_fd(const struct tls_front *front) {
    return front->handed_fd;
}

bool tls_front_take(struct tls_front *front, struct tls_client *out) {
    pthread_mutex_lock(&front->lock);
    struct handed_over *entry = front->handed_first;
    if (entry) {
        front->handed_first = entry->next;
        if (!front->handed_first)
            front->handed_last = &front->handed_first;
    } else {
        lower_event(front->handed_fd);
    }
    pthread_mutex_unlock(&front->lock);
    if (!entry)
        return false;
    *out = entry->client;
    free(entry);
    return true;
}

void tls_front_quiesce(struct tls_front *front) {
    pthread_mutex_lock(&front->lock);
    front->is_quiet = true;
    pthread_mutex_unlock(&front->lock);
    raise_event(front->wake_fd);
}

void tls_front_destroy(struct tls_front *front) {
    if (!front)
        return;
    pthread_mutex_lock(&front->lock);
    front->is_quiet = front->is_ending = true;
    pthread_mutex_unlock(&front->lock);
    raise_event(front->wake_fd);
    CHECK(pthread_join(front->thread, NULL) == 0);
    free_front(front);
}
