#include "server/http/http_memory.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOL 1000

static struct http_memory *create(void) {
    struct http_memory *memory = calloc(1, sizeof(*memory));
    memory->budget_bytes = POOL;
    return memory;
}

static struct http_owner *use_tenant(struct http_memory *memory, int32_t tenant) {
    struct http_owner_id id = http_owner_of_tenant(tenant);
    return http_owner_use(memory, &id);
}

static void test_one_owner_gets_half(void **state) {
    struct http_memory *memory = create();
    struct http_owner *owner = use_tenant(memory, 0);
    assert_true(http_memory_take(memory, owner, 500));
    assert_false(http_memory_take(memory, owner, 1));
    assert_int_equal(memory->used_bytes, 500);
    http_memory_give(memory, owner, 500);
    http_owner_leave(memory, owner);
    free(memory);
}

/* However many are greedy, the next one finds as much as each of them has. */
static void test_newcomers_find_room(void **state) {
    struct http_memory *memory = create();
    struct http_owner *owners[20];
    for (int32_t i = 0; i < 20; i++) {
        size_t left = memory->budget_bytes - memory->used_bytes;
        owners[i] = use_tenant(memory, i);
        assert_true(http_memory_take(memory, owners[i], left / 2));
        while (http_memory_take(memory, owners[i], 1))
            ;
    }
    assert_true(memory->used_bytes <= POOL);
    for (int32_t i = 0; i < 20; i++) {
        http_memory_give(memory, owners[i], owners[i]->bytes);
        http_owner_leave(memory, owners[i]);
    }
    assert_int_equal(memory->used_bytes, 0);
    free(memory);
}

static void test_huge_sizes_do_not_wrap(void **state) {
    struct http_memory *memory = create();
    struct http_owner *owner = use_tenant(memory, 3);
    assert_false(http_memory_take(memory, owner, SIZE_MAX));
    assert_true(http_memory_take(memory, owner, 400));
    assert_false(http_memory_take(memory, owner, SIZE_MAX - 100));
    http_memory_give(memory, owner, 400);
    http_owner_leave(memory, owner);
    free(memory);
}

static void test_pressure_is_the_share_in_use(void **state) {
    struct http_memory *memory = create();
    struct http_owner *owner = use_tenant(memory, 3);
    assert_true(http_memory_pressure(memory) == 0);
    assert_true(http_memory_take(memory, owner, 250));
    assert_true(http_memory_pressure(memory) == 0.25);
    http_memory_give(memory, owner, 250);
    http_owner_leave(memory, owner);
    free(memory);
}

static struct http_owner_id of_ipv4(const char *text) {
    union {
        struct sockaddr any;
        struct sockaddr_in ipv4;
    } address = {.ipv4 = {.sin_family = AF_INET, .sin_port = (in_port_t)rand()}};
    assert_int_equal(inet_pton(AF_INET, text, &address.ipv4.sin_addr), 1);
    return http_owner_of_address(&address.any);
}

static struct http_owner_id of_ipv6(const char *text) {
    union {
        struct sockaddr any;
        struct sockaddr_in6 ipv6;
    } address = {.ipv6 = {.sin6_family = AF_INET6, .sin6_port = (in_port_t)rand()}};
    assert_int_equal(inet_pton(AF_INET6, text, &address.ipv6.sin6_addr), 1);
    return http_owner_of_address(&address.any);
}

static void test_owners_are_addresses_and_keys(void **state) {
    struct http_memory *memory = create();
    struct http_owner_id ids[] = {
        of_ipv4("127.0.0.1"),        of_ipv4("127.0.0.2"),        of_ipv6("2001:db8::1"),
        of_ipv6("2001:db8:0:1::1"),  of_ipv6("::ffff:192.0.2.1"), of_ipv6("::ffff:192.0.2.2"),
        http_owner_of_address(NULL), http_owner_of_tenant(0),     http_owner_of_tenant(1),
    };
    struct http_owner_id again[] = {
        of_ipv4("127.0.0.1"),         of_ipv4("127.0.0.2"),        of_ipv6("2001:db8::1:2:3"),
        of_ipv6("2001:db8:0:1:9::1"), of_ipv6("::ffff:192.0.2.1"), of_ipv6("::ffff:192.0.2.2"),
        http_owner_of_address(NULL),  http_owner_of_tenant(0),     http_owner_of_tenant(1),
    };
    size_t count = sizeof(ids) / sizeof(ids[0]);
    struct http_owner *owners[sizeof(ids) / sizeof(ids[0])];
    for (size_t i = 0; i < count; i++) {
        owners[i] = http_owner_use(memory, &ids[i]);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(owners[i], owners[j]);
    }
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(http_owner_use(memory, &again[i]), owners[i]);
        assert_int_equal(owners[i]->num_users, 2);
        http_owner_leave(memory, owners[i]);
        http_owner_leave(memory, owners[i]);
    }
    for (size_t i = 0; i < HTTP_OWNER_BUCKETS; i++)
        assert_null(memory->buckets[i]);
    free(memory);
}

/* One alone gets half of the places; the next one finds as many as are left. */
static void test_room_in_ones(void **state) {
    int64_t own = 0, other = 0;
    while (http_owner_has_room(own, own, 100))
        own++;
    assert_int_equal(own, 50);
    while (http_owner_has_room(other, own + other, 100))
        other++;
    assert_int_equal(other, 25);
    assert_true(http_owner_has_room(0, 99, 100));
    assert_false(http_owner_has_room(0, 100, 100));
    assert_true(http_owner_has_room(0, 0, 1));
}

static bool is_local(int family, const char *text) {
    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    bool is_ipv4 = family == AF_INET;
    assert_int_equal(
        inet_pton(family, text, is_ipv4 ? (void *)&ipv4.sin_addr : (void *)&ipv6.sin6_addr), 1);
    const void *address = is_ipv4 ? (const void *)&ipv4 : (const void *)&ipv6;
    struct http_owner_id id = http_owner_of_address(address);
    return http_owner_is_local(&id);
}

static void test_clients_on_this_machine(void **state) {
    struct http_owner_id unix_socket = http_owner_of_address(NULL), key = http_owner_of_tenant(127);
    assert_true(http_owner_is_local(&unix_socket));
    assert_false(http_owner_is_local(&key));
    assert_true(is_local(AF_INET, "127.0.0.1") && is_local(AF_INET, "127.255.0.9"));
    assert_true(is_local(AF_INET6, "::1") && is_local(AF_INET6, "::ffff:127.0.0.1"));
    assert_false(is_local(AF_INET, "128.0.0.1") || is_local(AF_INET, "0.0.0.127"));
    assert_false(is_local(AF_INET6, "2001:db8::1") || is_local(AF_INET6, "::ffff:192.0.2.1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room_in_ones),
        cmocka_unit_test(test_clients_on_this_machine),
        cmocka_unit_test(test_one_owner_gets_half),
        cmocka_unit_test(test_newcomers_find_room),
        cmocka_unit_test(test_huge_sizes_do_not_wrap),
        cmocka_unit_test(test_pressure_is_the_share_in_use),
        cmocka_unit_test(test_owners_are_addresses_and_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
