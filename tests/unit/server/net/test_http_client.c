/* URLs, and answers that a peer of the test's sends. TLS: tests/e2e/operation/test_top.py. */
#include "server/net/http_client.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void check_url(const char *text, const char *origin, const char *path) {
    struct http_url url;
    struct error err;
    int status = http_url_parse(text, &url, &err);
    assert_int_equal(status, origin != NULL ? 0 : -1);
    if (origin == NULL) {
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_non_null(strstr(err.message, "https://HOST"));
        return;
    }
    assert_string_equal(url.origin, origin);
    assert_string_equal(url.path, path);
}

static void test_urls(void **state) {
    char long_path[4096] = "http://a/";
    check_url("http://localhost:4318/v1/traces", "http://localhost:4318", "/v1/traces");
    check_url("HTTPS://a", "https://a", "");
    check_url("http://a/", "http://a", "");
    check_url("http://[::1]:99/x?y=z", "http://[::1]:99", "/x?y=z");
    check_url("http://[fe80::1%25eth0]:99/", "http://[fe80::1%25eth0]:99", "");
    check_url("http://a?b", "http://a", "/?b");
    static const char *const bad[] = {
        "",           "a",          "ftp://a",     "file:///etc/passwd", "localhost:4317",
        "http://",    "http://:1",  "http://a:0x", "http://a:65536",     "http://[a",
        "http://a b", "http://a#b", "http://u@a",  "http://u:p@a",       "http://a:1x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_url(bad[i], NULL, NULL);
    memset(long_path + 9, 'x', 2047 - 9);
    check_url(long_path, "http://a", long_path + 8);
    strcat(long_path, "x");
    check_url(long_path, NULL, NULL);
}

/* Answers all requests of one connection, each with the next of the answers. */
struct peer {
    int fd;
    pthread_t thread;
    const char *const
        *answers;        /* NULL: no more, and the connection stays open until the client closes */
    const char *end;     /* of a request */
    char received[4096]; /* of the last */
    int num_requests;
    struct http_url url;
};

static bool read_request(struct peer *peer, int fd) {
    size_t length = 0;
    memset(peer->received, 0, sizeof(peer->received));
    while (strstr(peer->received, peer->end) == NULL) {
        ssize_t count = recv(fd, peer->received + length, sizeof(peer->received) - 1 - length, 0);
        if (count <= 0)
            return false;
        length += (size_t)count;
    }
    peer->num_requests++;
    return true;
}

static void *serve(void *context) {
    struct peer *peer = context;
    char rest;
    int fd = accept(peer->fd, NULL, NULL);
    const char *const *answer = peer->answers;
    for (; *answer != NULL && read_request(peer, fd); answer++)
        send(fd, *answer, strlen(*answer), MSG_NOSIGNAL);
    if (peer->answers[0] == NULL)
        while (recv(fd, &rest, 1, 0) > 0)
            continue;
    close(fd);
    return NULL;
}

static void start_thread(struct peer *peer) {
    assert_int_equal(listen(peer->fd, 1), 0);
    assert_int_equal(pthread_create(&peer->thread, NULL, serve, peer), 0);
}

static void start(struct peer *peer, const char *const *answers, const char *end) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    void *any = &address;
    *peer = (struct peer){.answers = answers, .end = end};
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(peer->fd, any, sizeof(address)), 0);
    getsockname(peer->fd, any, &length);
    snprintf(peer->url.origin, sizeof(peer->url.origin), "http://127.0.0.1:%d",
             ntohs(address.sin_port));
    start_thread(peer);
}

static void stop(struct peer *peer, struct http_client *client) {
    http_client_destroy(client);
    pthread_join(peer->thread, NULL);
    close(peer->fd);
}

static struct http_client_request request_to(const struct peer *peer) {
    return (struct http_client_request){
        .url = &peer->url, .path = "/path", .timeout_ms = 60000, .max_answer_bytes = 1000};
}

/* text: of the body, or a part of the error. */
static void check(const char *answer, int status, const char *text) {
    struct peer peer;
    struct error err;
    struct http_answer got;
    const char *const answers[] = {answer, NULL};
    start(&peer, answers, "\r\n\r\n");
    struct http_client *client = http_client_create();
    const struct http_client_request request = request_to(&peer);
    int rc = http_client_send(client, &request, &got, &err);
    stop(&peer, client);
    assert_int_equal(rc, status > 0 ? 0 : -1);
    if (rc != 0) {
        assert_int_equal(err.code, ERROR_IO);
        assert_non_null(strstr(err.message, text));
        return;
    }
    assert_int_equal(got.status, status);
    assert_int_equal(got.body.length, strlen(text));
    assert_memory_equal(got.body.data != NULL ? got.body.data : "", text, strlen(text));
    byte_buffer_finish(&got.body);
}

static void test_answers(void **state) {
    char large[2000] = "HTTP/1.1 200 OK\r\n\r\n";
    memset(large + strlen(large), 'x', 1500);
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    check("HTTP/1.1 503 No\r\n\r\n", 503, "");
    check("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end");
    check("HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 301,
          "");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n",
          200, "abcde");
    check("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", -1, "no whole answer");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc\r\n", -1,
          "no whole answer");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", -1, "no whole answer");
    check("SSH-2.0\r\n\r\n", -1, "no whole answer");
    check(large, -1, "longer than 1000 bytes");
}

static void test_requests_use_one_connection(void **state) {
    struct peer peer;
    struct error err;
    struct http_answer got;
    static const char *const answers[] = {
        "HTTP/1.1 202 Yes\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\nok",
        "HTTP/1.1 204 Yes\r\n\r\n", NULL};
    start(&peer, answers, "END");
    struct http_client *client = http_client_create();
    struct http_client_request request = request_to(&peer);
    request.fields[0] = "X-A: b";
    request.fields[1] = "Content-Type: text/plain";
    request.body = "the END";
    request.body_bytes = 7;
    assert_int_equal(http_client_send(client, &request, &got, &err), 0);
    assert_int_equal(got.status, 202);
    assert_int_equal(got.retry_after_s, 7);
    assert_false(got.is_stopped);
    byte_buffer_finish(&got.body);
    assert_int_equal(http_client_send(client, &request, &got, &err), 0);
    assert_int_equal(got.status, 204);
    assert_int_equal(got.retry_after_s, 0);
    byte_buffer_finish(&got.body);
    stop(&peer, client);
    assert_int_equal(peer.num_requests, 2); /* of the one connection that the peer accepts */
    assert_memory_equal(peer.received, "POST /path HTTP/1.1\r\n", 21);
    assert_non_null(strstr(peer.received, "\r\nX-A: b\r\n"));
    assert_non_null(strstr(peer.received, "\r\nContent-Length: 7\r\n"));
    assert_null(strstr(peer.received, "Expect"));
}

struct taken {
    char text[64];
    size_t enough; /* to stop at */
};

static bool take(void *context, const char *data, size_t length) {
    struct taken *taken = context;
    strncat(taken->text, data, length);
    return strlen(taken->text) < taken->enough;
}

static bool is_never_stopped(void *context) {
    return false;
}

static void check_taken(const char *answer, size_t enough, int status, const char *text,
                        const char *body, bool is_stopped) {
    struct peer peer;
    struct error err;
    struct http_answer got;
    struct taken taken = {.enough = enough};
    const char *const answers[] = {answer, NULL};
    start(&peer, answers, "\r\n\r\n");
    struct http_client *client = http_client_create();
    struct http_client_request request = request_to(&peer);
    request.take = take;
    request.is_stopped = is_never_stopped;
    request.context = &taken;
    assert_int_equal(http_client_send(client, &request, &got, &err), 0);
    assert_int_equal(got.status, status);
    assert_string_equal(taken.text, text);
    assert_int_equal(got.body.length, strlen(body));
    assert_memory_equal(got.body.data != NULL ? got.body.data : "", body, strlen(body));
    assert_int_equal(got.is_stopped, is_stopped);
    byte_buffer_finish(&got.body);
    stop(&peer, client);
}

static void test_a_body_is_taken_as_it_comes(void **state) {
    check_taken("HTTP/1.1 200 OK\r\n\r\nhello", 60, 200, "hello", "", false);
    check_taken("HTTP/1.1 200 OK\r\n\r\nhello", 5, 200, "hello", "", true);
    check_taken("HTTP/1.1 429 No\r\n\r\nhello", 60, 429, "", "hello", false);
}

static bool is_stopped(void *context) {
    int *num_asked = context;
    return ++*num_asked > 1;
}

static void test_silence_ends(void **state) {
    struct peer peer;
    struct error err;
    struct http_answer got;
    static const char *const answers[] = {NULL};
    int num_asked = 0;
    start(&peer, answers, "\r\n\r\n");
    struct http_client *client = http_client_create();
    struct http_client_request request = request_to(&peer);
    request.timeout_ms = 50;
    assert_int_equal(http_client_send(client, &request, &got, &err), -1);
    assert_int_equal(err.code, ERROR_IO);
    assert_non_null(strstr(err.message, "no answer in time"));
    stop(&peer, client);

    start(&peer, answers, "\r\n\r\n");
    client = http_client_create();
    request = request_to(&peer);
    request.is_stopped = is_stopped;
    request.context = &num_asked;
    assert_int_equal(http_client_send(client, &request, &got, &err), 0);
    assert_true(got.is_stopped);
    assert_int_equal(got.status, 0);
    byte_buffer_finish(&got.body);
    stop(&peer, client);
}

static void test_nobody_listens(void **state) {
    struct error err;
    struct http_answer got;
    struct http_url url;
    assert_int_equal(http_url_parse("http://127.0.0.1:1", &url, &err), 0); /* tcpmux */
    struct http_client *client = http_client_create();
    const struct http_client_request request = {.url = &url, .path = "", .timeout_ms = 60000};
    assert_int_equal(http_client_send(client, &request, &got, &err), -1);
    assert_string_equal(err.message, "http://127.0.0.1:1: cannot connect: Connection refused");
    http_client_destroy(client);
}

static void test_unix_socket(void **state) {
    struct peer peer = {.end = "\r\n\r\n", .url.origin = "http://localhost"};
    struct error err;
    struct http_answer got;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    void *any = &address;
    char folder[] = "/tmp/quire-client-XXXXXX";
    static const char *const answers[] = {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", NULL};
    peer.answers = answers;
    assert_non_null(mkdtemp(folder));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
    peer.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(peer.fd, any, sizeof(address)), 0);
    start_thread(&peer);
    struct http_client *client = http_client_create();
    struct http_client_request request = request_to(&peer);
    request.socket_path = address.sun_path;
    assert_int_equal(http_client_send(client, &request, &got, &err), 0);
    assert_int_equal(got.status, 200);
    assert_non_null(strstr(peer.received, "\r\nHost: localhost\r\n"));
    byte_buffer_finish(&got.body);
    stop(&peer, client);
    unlink(address.sun_path);
    rmdir(folder);
}

static void test_key_field(void **state) {
    char field[HTTP_KEY_FIELD_BYTES], key[300] = "";
    struct error err;
    unsetenv("QUIRE_TEST_KEY");
    assert_int_equal(http_client_key_field("QUIRE_TEST_KEY", field, &err), 0);
    assert_string_equal(field, "");
    setenv("QUIRE_TEST_KEY", "sk-1", 1);
    assert_int_equal(http_client_key_field("QUIRE_TEST_KEY", field, &err), 0);
    assert_string_equal(field, "Authorization: Bearer sk-1");
    setenv("QUIRE_TEST_KEY", "sk\r\nX: y", 1);
    assert_int_equal(http_client_key_field("QUIRE_TEST_KEY", field, &err), -1);
    memset(key, 'k', 255);
    setenv("QUIRE_TEST_KEY", key, 1);
    assert_int_equal(http_client_key_field("QUIRE_TEST_KEY", field, &err), 0);
    strcat(key, "k");
    setenv("QUIRE_TEST_KEY", key, 1);
    assert_int_equal(http_client_key_field("QUIRE_TEST_KEY", field, &err), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_requests_use_one_connection),
        cmocka_unit_test(test_a_body_is_taken_as_it_comes),
        cmocka_unit_test(test_silence_ends),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_key_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
