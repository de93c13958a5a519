/* Fails the first, second, third ... allocation of parsing and rendering until one run needs no
 * more: each run succeeds or says ERROR_MEMORY, and frees what it took. And what nests deepest
 * within the bounds runs on a small stack. */
#include "tests/unit/failing_allocations.h"
#include "tests/unit/models/chat_template/chat_template_fixture.h"

#include <pthread.h>
#include <stdlib.h>

/* Uses a little of everything, with values beyond an arena's first chunks. */
static const char everything[] =
    "{# c #}{% macro m(a, b=2, c={}, d=3) %}{{ a }}{{ b }}{{ c }}{{ d }}{{ caller }}{% endmacro %}"
    "{% set ns = namespace(s='', l=[]) %}"
    "{% for i in range(1500) if i is even %}{% set ns.s = ns.s ~ loop.index ~ client %}"
    "{% set ns.l = ns.l + [i] %}{% endfor %}"
    "{{ m(1, 2, 3, d=5) }}{{ ns.s | length }}{{ ns.l | sort(reverse=true) | first }}"
    "{% call(x) m(1) %}{{ x }}{% endcall %}{% set t %}{{ ns.s * 20 }}{% endset %}"
    "{% filter upper %}{{ t | replace('1', 'one') | length }}{% endfilter %}"
    "{% set a = tool %}{{ a | tojson(indent=2) }}{{ a.items() | list }}"
    "{{ '%s-%5.2f' % (client, 3.14159) }}{{ '{}'.format(mixed) }}{{ client.split('i') }}"
    "{{ [3, 1, 2] | map('string') | join(',') }}{{ mixed | unique | list }}{{ client[::-1] }}"
    "{{ {'a': [1, (2, none)]} }}{{ ('<' | e) + client }}{{ (tool, mixed) | tojson }}";

struct result {
    int status;
    size_t length;
    struct error err;
};

static int fill_and_render(struct template_arena *arena, const struct chat_template *chat,
                           struct result *result) {
    struct chat_text text;
    struct template_value *variables = template_map(arena), *tool = template_map(arena);
    struct template_value *mixed = template_list(arena);
    struct template_value *client = template_string(arena, "Client", 6, TEMPLATE_ORIGIN_CLIENT);
    mixed = template_list_append(arena, mixed, client);
    for (int i = 0; i < 40; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        tool = template_map_set(arena, tool, (struct text){key, strlen(key)},
                                TEMPLATE_ORIGIN_CLIENT, template_int(arena, i));
    }
    variables = template_map_set(arena, variables, (struct text){"client", 6},
                                 TEMPLATE_ORIGIN_CLIENT, client);
    variables = template_map_set(arena, variables, (struct text){"mixed", 5},
                                 TEMPLATE_ORIGIN_CLIENT, mixed);
    variables =
        template_map_set(arena, variables, (struct text){"tool", 4}, TEMPLATE_ORIGIN_CLIENT, tool);
    int status = chat_template_render(chat, arena, variables, 0, &text, &result->err);
    result->length = status == 0 ? text.length : 0;
    return status;
}

static struct result run(long num_allocations) {
    struct result result = {.status = -1, .err = {.code = ERROR_MEMORY}};
    struct chat_template *chat = NULL;
    allocations_left = num_allocations;
    struct template_arena *arena = template_arena_create(FIXTURE_ARENA_BYTES);
    if (arena != NULL)
        result.status = chat_template_create(everything, strlen(everything), &chat, &result.err);
    if (result.status == 0)
        result.status = fill_and_render(arena, chat, &result);
    allocations_left = -1;
    chat_template_destroy(chat);
    template_arena_destroy(arena);
    return result;
}

static void test_every_failure_is_survived(void **state) {
    struct result good = run(-1);
    if (good.status != 0)
        fail_msg("%s", good.err.message);
    for (long count = 0;; count++) {
        struct result result = run(count);
        if (result.status == 0) {
            assert_int_equal(result.length, good.length);
            assert_in_range(count, 8, 1000);
            break;
        }
        if (result.err.code != ERROR_MEMORY)
            fail_msg("after %ld allocations: %s", count, result.err.message);
    }
}

/* So many bytes of an arena more, until they are enough. */
static void test_every_limit_is_survived(void **state) {
    struct chat_template *chat = NULL;
    struct result result = {.status = -1};
    assert_int_equal(chat_template_create(everything, strlen(everything), &chat, &result.err), 0);
    int num_failed = 0;
    for (size_t bytes = 0; bytes < FIXTURE_ARENA_BYTES; bytes = bytes * 9 / 8 + 64) {
        struct template_arena *arena = template_arena_create(bytes);
        result.status = fill_and_render(arena, chat, &result);
        num_failed += result.status != 0;
        if (result.status != 0) {
            assert_int_equal(result.err.code, ERROR_SYNTAX);
            assert_non_null(strstr(result.err.message, "need more than"));
            assert_true(template_arena_is_full(arena));
        }
        template_arena_destroy(arena);
    }
    assert_int_equal(result.status, 0);
    assert_in_range(num_failed, 20, 1000);
    chat_template_destroy(chat);
}

/* --- A small stack -----------------------------------------------------------------------------
 */

static void append_times(char **at, const char *text, int times) {
    for (int i = 0; i < times; i++)
        *at = stpcpy(*at, text);
}

/* A template that ends, or is refused, at each kind of depth. */
static void *render_deep_ones(void *argument) {
    static const struct {
        const char *begin, *part, *middle, *end, *last;
        int times;
    } sources[] = {
        {"{{ ", "(", "1", ")", " }}", 2000},
        {"{{ ", "(", "1", ")", " }}", 48},
        {"{{ ", "[[1],[1,", "1", "]]", " }}", 40},
        {"{{ ", "1 if 0 else ", "1", "", " }}", 90},
        {"{{ ", "-", "1", "", " }}", 90},
        {"{{ ", "(1 + 2 * ~ ", "1", ")", " }}", 48},
        {"{{ ", "", "tool", ".a", " }}", 2000},
        {"{{ ", "", "client", "|upper", " }}", 390},
        {"{{ ", "dict(a=", "1", ")", " }}", 48},
        {"", "{% if 1 %}", "x", "{% endif %}", "", 98},
        {"", "{% for i in [1] %}", "x", "{% endfor %}", "", 98},
        {"", "{% filter upper %}", "x", "{% endfilter %}", "", 98},
        {"", "{% set x %}", "x", "{% endset %}", "", 98},
        {"", "{% macro m() %}", "x", "{% endmacro %}", "", 98},
        {"{% macro m(n) %}{% for i in [n] %}{% if i %}{% filter trim %}"
         "{{ [m(n + 1)] | first }}{% endfilter %}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}",
         "", "", "", "", 0},
        {"{% macro m(n) %}{{ caller() }}{% endmacro %}{% macro r(n) %}{% call m(1) %}{{ r(n) }}"
         "{% endcall %}{% endmacro %}{{ r(1) }}",
         "", "", "", "", 0},
        {"{% set ns = namespace(s=1) %}{% for i in range(98) %}{% set ns.s = [ns.s] %}{% endfor %}"
         "{{ ns.s }}{{ ns.s | tojson }}{{ ns.s == [ns.s] }}{{ ns.s in [ns.s] }}{{ [ns.s] < [ns.s] "
         "}}",
         "", "", "", "", 0},
    };
    char *source = malloc(1 << 16), got[4096];
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        char *at = stpcpy(source, sources[i].begin);
        append_times(&at, sources[i].part, sources[i].times);
        at = stpcpy(at, sources[i].middle);
        append_times(&at, sources[i].end, sources[i].times);
        stpcpy(at, sources[i].last);
        fixture_render(source, got, sizeof(got));
    }
    free(source);
    return argument;
}

static void test_a_small_stack_is_enough(void **state) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attributes, render_deep_ones, &result), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &result);
    pthread_attr_destroy(&attributes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure_is_survived),
        cmocka_unit_test(test_every_limit_is_survived),
        cmocka_unit_test(test_a_small_stack_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
