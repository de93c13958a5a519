/* What a server says arrives whole at clients of every kind: those that take small records, those
 * that read slowly; and what they say arrives at the server. Both ends run in this thread. */
#include "server/tls/tls_connection.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define ANSWER_BYTES 200000
#define MAX_TURNS 100000

struct pair {
    struct tls_credentials *credentials;
    struct tls_connection *connection;
    gnutls_certificate_credentials_t trust;
    gnutls_session_t client;
    int client_fd, server_fd; /* encrypted; plain */
};

static char answer[ANSWER_BYTES], received[ANSWER_BYTES + 1];

static void make_sockets(int fds[2]) {
    int size = 16384; /* as little as the system allows, so that writers wait */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
}

/* record_bytes: the client takes no larger records; 0: any. */
static void start_client(struct pair *p, size_t record_bytes) {
    assert_int_equal(gnutls_certificate_allocate_credentials(&p->trust), 0);
    assert_int_equal(gnutls_init(&p->client, GNUTLS_CLIENT | GNUTLS_NONBLOCK), 0);
    assert_int_equal(gnutls_set_default_priority(p->client), 0);
    assert_int_equal(gnutls_credentials_set(p->client, GNUTLS_CRD_CERTIFICATE, p->trust), 0);
    if (record_bytes > 0)
        assert_int_equal(gnutls_record_set_max_recv_size(p->client, record_bytes), 0);
    gnutls_transport_set_int(p->client, p->client_fd);
}

static void shake_hands(struct pair *p) {
    int ours = 0, theirs = GNUTLS_E_AGAIN;
    for (int i = 0; i < MAX_TURNS && (ours != 1 || theirs != 0); i++) {
        if (theirs != 0)
            theirs = gnutls_handshake(p->client);
        if (ours == 0)
            ours = tls_connection_handshake(p->connection);
    }
    assert_int_equal(ours, 1);
    assert_int_equal(theirs, 0);
}

static void start(struct pair *p, size_t record_bytes) {
    const struct tls_files files = {.certfile = TLS_DATA "/server.pem"};
    int outer[2], inner[2];
    struct error err = {0};
    *p = (struct pair){0};
    assert_int_equal(tls_credentials_load(&files, &p->credentials, &err), 0);
    make_sockets(outer);
    make_sockets(inner);
    p->connection = tls_connection_create(outer[0], p->credentials);
    assert_non_null(p->connection);
    p->client_fd = outer[1];
    start_client(p, record_bytes);
    shake_hands(p);
    p->connection->inner = inner[0];
    p->connection->state = TLS_RELAY;
    p->server_fd = inner[1];
}

static void stop(struct pair *p) {
    gnutls_deinit(p->client);
    gnutls_certificate_free_credentials(p->trust);
    tls_connection_destroy(p->connection);
    tls_credentials_unref(p->credentials);
    close(p->client_fd);
    if (p->server_fd >= 0)
        close(p->server_fd);
}

/* Has the server write the answer and close, and the client read up to `most` bytes in a turn. */
static void carry_answer(struct pair *p, size_t most) {
    size_t num_written = 0, num_received = 0;
    ssize_t length = GNUTLS_E_AGAIN;
    for (int i = 0; i < MAX_TURNS && length != 0; i++) {
        if (p->server_fd >= 0) {
            ssize_t sent =
                send(p->server_fd, answer + num_written, ANSWER_BYTES - num_written, MSG_NOSIGNAL);
            assert_true(sent >= 0 || errno == EAGAIN);
            num_written += sent > 0 ? (size_t)sent : 0;
            if (num_written == ANSWER_BYTES) {
                close(p->server_fd);
                p->server_fd = -1;
            }
        }
        tls_connection_relay(p->connection);
        size_t room = sizeof(received) - num_received;
        length = gnutls_record_recv(p->client, received + num_received, room < most ? room : most);
        assert_true(length >= 0 || gnutls_error_is_fatal((int)length) == 0);
        num_received += length > 0 ? (size_t)length : 0;
    }
    assert_int_equal(length, 0); /* the farewell came */
    assert_int_equal(num_received, ANSWER_BYTES);
    assert_memory_equal(received, answer, ANSWER_BYTES);
}

static void test_answers_arrive_whole(void **state) {
    static const size_t record_sizes[] = {0, 512, 1000, 4096, 16384};
    for (size_t i = 0; i < ANSWER_BYTES; i++)
        answer[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof(record_sizes) / sizeof(record_sizes[0]); i++) {
        for (size_t most = 100; most <= 100000; most *= 1000) {
            struct pair p;
            start(&p, record_sizes[i]);
            carry_answer(&p, most);
            stop(&p);
        }
    }
}

/* Whether with TLS's farewell or without, what the client has ended is its own half alone. */
static void test_answers_after_half_a_close_arrive_whole(void **state) {
    for (int has_farewell = 0; has_farewell < 2; has_farewell++) {
        struct pair p;
        char byte;
        start(&p, 0);
        if (has_farewell)
            assert_int_equal(gnutls_bye(p.client, GNUTLS_SHUT_WR), 0);
        shutdown(p.client_fd, SHUT_WR);
        while (tls_connection_relay(p.connection))
            ;
        assert_int_equal(recv(p.server_fd, &byte, 1, 0), 0);
        carry_answer(&p, 1000);
        stop(&p);
    }
}

static void test_requests_arrive_whole(void **state) {
    struct pair p;
    size_t num_sent = 0, num_received = 0;
    start(&p, 0);
    for (int i = 0; i < MAX_TURNS && num_received < ANSWER_BYTES; i++) {
        if (num_sent < ANSWER_BYTES) {
            ssize_t sent = gnutls_record_send(p.client, answer + num_sent, ANSWER_BYTES - num_sent);
            assert_true(sent >= 0 || gnutls_error_is_fatal((int)sent) == 0);
            num_sent += sent > 0 ? (size_t)sent : 0;
        }
        tls_connection_relay(p.connection);
        ssize_t length = recv(p.server_fd, received + num_received, 1000, 0);
        num_received += length > 0 ? (size_t)length : 0;
    }
    assert_int_equal(num_received, ANSWER_BYTES);
    assert_memory_equal(received, answer, ANSWER_BYTES);
    stop(&p);
}

/* A client that goes away is seen behind the inner socket; one that is not TLS is told off. */
static void test_ends(void **state) {
    struct pair p;
    char byte;
    start(&p, 0);
    shutdown(p.client_fd, SHUT_WR);
    while (tls_connection_relay(p.connection))
        ;
    assert_int_equal(recv(p.server_fd, &byte, 1, 0), 0);
    assert_int_equal(p.connection->state, TLS_RELAY);
    p.connection->is_outer_gone = true;
    assert_false(tls_connection_relay(p.connection));
    assert_int_equal(p.connection->state, TLS_CLOSED);
    stop(&p);

    int fds[2];
    struct error err = {0};
    const struct tls_files files = {.certfile = TLS_DATA "/server.pem"};
    struct tls_credentials *credentials;
    assert_int_equal(tls_credentials_load(&files, &credentials, &err), 0);
    make_sockets(fds);
    struct tls_connection *connection = tls_connection_create(fds[0], credentials);
    assert_int_equal(send(fds[1], "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    assert_int_equal(tls_connection_handshake(connection), -1);
    assert_int_equal(connection->state, TLS_LINGER);
    tls_connection_destroy(connection);
    close(fds[1]);

    make_sockets(fds); /* in the middle of the handshake */
    connection = tls_connection_create(fds[0], credentials);
    assert_int_equal(tls_connection_handshake(connection), 0);
    shutdown(fds[1], SHUT_WR);
    assert_int_equal(tls_connection_handshake(connection), -1);
    assert_int_equal(connection->state, TLS_CLOSED);
    tls_connection_destroy(connection);
    tls_credentials_unref(credentials);
    close(fds[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_arrive_whole),
        cmocka_unit_test(test_answers_after_half_a_close_arrive_whole),
        cmocka_unit_test(test_requests_arrive_whole),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
