#include "server/net/listen_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_tcp_binds_any_free_port(void **state) {
    struct listen_socket socket;
    struct error err;
    assert_int_equal(listen_socket_open_tcp("127.0.0.1", 0, &socket, &err), 0);
    assert_memory_equal(socket.name, "http://127.0.0.1:", 17);
    assert_true(fcntl(socket.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(socket.fd, F_GETFD) & FD_CLOEXEC);
    listen_socket_close(&socket);
    listen_socket_close(&socket);
}

static void test_taken_port_names_address_and_port(void **state) {
    struct listen_socket first, second = {.fd = -7};
    struct error err;
    assert_int_equal(listen_socket_open_tcp("127.0.0.1", 0, &first, &err), 0);
    int port = atoi(first.name + 17);
    assert_int_equal(listen_socket_open_tcp("127.0.0.1", port, &second, &err), -1);
    assert_int_equal(err.code, ERROR_IO);
    assert_non_null(strstr(err.message, "127.0.0.1"));
    assert_non_null(strstr(err.message, first.name + 17));
    assert_non_null(strstr(err.message, "in use"));
    assert_int_equal(second.fd, -7);
    listen_socket_close(&first);
}

/* Returns -1 if the connection is refused. */
static int connect_to(int port) {
    const union {
        struct sockaddr any;
        struct sockaddr_in v4;
    } address = {.v4 = {.sin_family = AF_INET,
                        .sin_port = htons((uint16_t)port),
                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, &address.any, sizeof(address.v4)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A port is kept from being bound to being listened on, and afterwards although connections of the
 * server that had it linger. */
static void test_listening_begins_later(void **state) {
    struct listen_socket first, second = {.fd = -7};
    struct error err;
    for (int i = 0, port = 0; i < 3; i++) {
        assert_int_equal(listen_socket_open_tcp("127.0.0.1", port, &first, &err), 0);
        port = atoi(first.name + 17);
        assert_int_equal(listen_socket_open_tcp("127.0.0.1", port, &second, &err), -1);
        assert_int_equal(connect_to(port), -1);
        assert_int_equal(listen_socket_listen(&first, &err), 0);
        int client = connect_to(port);
        assert_true(client >= 0);
        close(accept(first.fd, NULL, NULL)); /* whoever closes first has it linger */
        close(client);
        assert_int_equal(listen_socket_open_tcp("127.0.0.1", port, &second, &err), -1);
        listen_socket_close(&first);
    }
}

static void test_bad_host_is_a_config_error(void **state) {
    struct listen_socket socket;
    struct error err;
    assert_int_equal(listen_socket_open_tcp("999.1.1.1.", 0, &socket, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "999.1.1.1."));
}

static void test_loopback(void **state) {
    static const struct {
        const char *host;
        bool is_loopback;
    } cases[] = {{"127.0.0.1", true}, {"localhost", true}, {"127.1.2.3", true}, {"0.0.0.0", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct listen_socket socket;
        struct error err;
        assert_int_equal(listen_socket_open_tcp(cases[i].host, 0, &socket, &err), 0);
        assert_int_equal(listen_socket_is_loopback(&socket), cases[i].is_loopback);
        listen_socket_close(&socket);
        assert_false(listen_socket_is_loopback(&socket));
    }
}

static void test_unix_socket_life(void **state) {
    char folder[] = "/tmp/quire-test-XXXXXX", path[64];
    struct listen_socket socket, again;
    struct error err;
    struct stat info;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/s", folder);
    assert_int_equal(listen_socket_open_unix("uds", path, 0660, &socket, &err), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
    assert_false(listen_socket_is_loopback(&socket));
    assert_int_equal(listen_socket_open_unix("uds", path, 0660, &again, &err),
                     -1); /* it is alive */
    assert_int_equal(err.code, ERROR_IO);
    close(socket.fd); /* as a crash would leave it */
    assert_int_equal(listen_socket_open_unix("uds", path, 0660, &again, &err), 0);
    listen_socket_close(&again);
    assert_int_equal(access(path, F_OK), -1);
    rmdir(folder);
}

static void test_unix_path_that_is_a_file_stays(void **state) {
    char path[] = "/tmp/quire-test-XXXXXX";
    struct listen_socket socket;
    struct error err;
    close(mkstemp(path));
    assert_int_equal(listen_socket_open_unix("uds", path, 0660, &socket, &err), -1);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
}

static void test_unix_path_too_long(void **state) {
    char path[200];
    struct listen_socket socket;
    struct error err;
    memset(path, 'a', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(listen_socket_open_unix("uds", path, 0660, &socket, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp_binds_any_free_port),
        cmocka_unit_test(test_taken_port_names_address_and_port),
        cmocka_unit_test(test_listening_begins_later),
        cmocka_unit_test(test_bad_host_is_a_config_error),
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_unix_socket_life),
        cmocka_unit_test(test_unix_path_that_is_a_file_stays),
        cmocka_unit_test(test_unix_path_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
