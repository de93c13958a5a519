/* URLs, and answers that a peer of the test's sends. */
#include "server/http_client.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void check_url(const char *text, const char *host, const char *port, const char *path) {
    struct http_url url;
    struct error err;
    int status = http_url_parse(text, &url, &err);
    assert_int_equal(status, host != NULL ? 0 : -1);
    if (host == NULL)
        return;
    assert_string_equal(url.host, host);
    assert_string_equal(url.port, port);
    assert_string_equal(url.path, path);
}

static void test_urls(void **state) {
    char long_path[2048] = "http://a/";
    check_url("http://localhost:4318/v1/traces", "localhost", "4318", "/v1/traces");
    check_url("HTTP://a", "a", "80", "");
    check_url("http://a/", "a", "80", "/");
    check_url("http://[::1]:99/x?y=z", "::1", "99", "/x?y=z");
    check_url("http://a?b", "a", "80", "/?b");
    static const char *const bad[] = {"",           "a",           "https://a",  "http://",
                                      "http://:1",  "http://a:",   "http://a:0", "http://a:65536",
                                      "http://[a",  "http://[]:1", "http://a b", "http://a/#b",
                                      "http://u@a", "http://a:1x", "http://[a]b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_url(bad[i], NULL, NULL, NULL);
    memset(long_path + 9, 'x', sizeof(long_path) - 10);
    check_url(long_path, NULL, NULL, NULL);
}

struct peer {
    int fd;
    pthread_t thread;
    const char *answer; /* NULL: none, and the connection stays open */
    const char *end;    /* of the request */
    char received[4096];
    char url[64];
};

static void *serve(void *context) {
    struct peer *peer = context;
    int fd = accept(peer->fd, NULL, NULL);
    size_t length = 0;
    while (strstr(peer->received, peer->end) == NULL) {
        ssize_t count = recv(fd, peer->received + length, sizeof(peer->received) - 1 - length, 0);
        if (count <= 0)
            break;
        length += (size_t)count;
    }
    if (peer->answer != NULL)
        send(fd, peer->answer, strlen(peer->answer), MSG_NOSIGNAL);
    else
        recv(fd, peer->received, 1, 0); /* until the client gives up */
    close(fd);
    return NULL;
}

static void start(struct peer *peer, const char *answer, const char *end) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    void *any = &address;
    *peer = (struct peer){.answer = answer, .end = end};
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(peer->fd, any, sizeof(address)), 0);
    assert_int_equal(listen(peer->fd, 1), 0);
    getsockname(peer->fd, any, &length);
    snprintf(peer->url, sizeof(peer->url), "http://127.0.0.1:%d/path", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&peer->thread, NULL, serve, peer), 0);
}

/* Returns the status, and the body as text. */
static int ask(const char *answer, const char *body, int64_t timeout_ms, struct peer *peer,
               char *out, size_t capacity, struct error *err) {
    struct http_url url;
    struct byte_buffer received;
    start(peer, answer, body != NULL ? "END" : "\r\n\r\n");
    assert_int_equal(http_url_parse(peer->url, &url, err), 0);
    const struct http_client_request request = {.url = &url,
                                                .path = url.path,
                                                .fields = "X-A: b\r\n",
                                                .body = body,
                                                .body_bytes = body != NULL ? strlen(body) : 0,
                                                .timeout_ms = timeout_ms,
                                                .max_answer_bytes = 1000};
    int status = http_client_send(&request, &received, err);
    if (status >= 0) {
        snprintf(out, capacity, "%.*s", (int)received.length, received.data);
        byte_buffer_finish(&received);
    }
    pthread_join(peer->thread, NULL);
    close(peer->fd);
    return status;
}

static void check(const char *answer, int status, const char *body) {
    struct peer peer;
    struct error err;
    char text[1024];
    assert_int_equal(ask(answer, NULL, 60000, &peer, text, sizeof(text), &err), status);
    if (status >= 0)
        assert_string_equal(text, body);
}

static void test_answers(void **state) {
    char large[2000] = "HTTP/1.1 200 OK\r\n\r\n";
    memset(large + strlen(large), 'x', 1500);
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    check("HTTP/1.1 503 No\r\n\r\n", 503, "");
    check("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n",
          200, "abcde");
    check("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", -1, NULL);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc\r\n", -1, NULL);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc\r\n", -1,
          NULL);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", -1, NULL);
    check("HTTP/1.1 200 OK\r\n", -1, NULL);
    check("SSH-2.0\r\n\r\n", -1, NULL);
    check("HTTP/1.1 -20 No\r\n\r\n", -1, NULL);
    check(large, -1, NULL);
}

static void test_request(void **state) {
    struct peer peer;
    struct error err;
    char text[64], expected[256];
    assert_int_equal(
        ask("HTTP/1.1 202 Yes\r\n\r\n", "the END", 60000, &peer, text, sizeof(text), &err), 202);
    snprintf(expected, sizeof(expected),
             "POST /path HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\nX-A: b\r\n"
             "Content-Length: 7\r\n\r\nthe END",
             (int)(strlen(peer.url) - strlen("http:///path")), peer.url + strlen("http://"));
    assert_string_equal(peer.received, expected);
}

static void test_silence_ends(void **state) {
    struct peer peer;
    struct error err;
    char text[64];
    assert_int_equal(ask(NULL, NULL, 50, &peer, text, sizeof(text), &err), -1);
    assert_int_equal(err.code, ERROR_IO);
    assert_non_null(strstr(err.message, "no answer in time"));
}

static void test_nobody_listens(void **state) {
    struct peer peer;
    struct http_url url;
    struct error err;
    struct byte_buffer out;
    char text[64];
    ask("HTTP/1.1 200 OK\r\n\r\n", NULL, 60000, &peer, text, sizeof(text), &err);
    assert_int_equal(http_url_parse(peer.url, &url, &err), 0);
    const struct http_client_request request = {
        .url = &url, .path = "", .fields = "", .timeout_ms = 60000, .max_answer_bytes = 1000};
    assert_int_equal(http_client_send(&request, &out, &err), -1);
    assert_non_null(strstr(err.message, "cannot connect: Connection refused"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),           cmocka_unit_test(test_answers),
        cmocka_unit_test(test_request),        cmocka_unit_test(test_silence_ends),
        cmocka_unit_test(test_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
