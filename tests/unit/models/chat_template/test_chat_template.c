/* Whose words a rendering's bytes are, its bounds, and its errors. What the language means is
 * compared with Jinja2's own results (tests/golden/chat_templates). */
#include "tests/unit/models/chat_template/chat_template_fixture.h"

#include <stdlib.h>

/* --- Whose words -------------------------------------------------------------------------------
 */

static void test_client_text_keeps_its_mark(void **state) {
    assert_renders("<{{ client }}>", "<«Client»>");
    assert_renders("{{ ours }}", "Server");
    assert_renders("{{ client ~ ours ~ client }}", "«Client»Server«Client»");
    assert_renders("{{ client + '<|end|>' }}", "«Client»<|end|>");
    assert_renders("{{ '<' + client + '>' }}", "<«Client»>");
    assert_renders("{{ client }}{{ client }}", "«ClientClient»");
    assert_renders("{{ client * 2 }}", "«ClientClient»");
    assert_renders("{% for c in client %}{{ c }}-{% endfor %}", "«C»-«l»-«i»-«e»-«n»-«t»-");
}

static void test_what_is_made_of_client_text_is_marked(void **state) {
    assert_renders("{{ client | upper }}{{ client[1:3] }}{{ client[0] }}{{ client[::-1] }}",
                   "«CLIENTliCtneilC»");
    assert_renders("{{ client.replace('i', '#') }}", "«Cl»#«ent»");
    assert_renders("{{ 'a b'.replace(' ', client) }}", "a«Client»b");
    assert_renders("{{ mixed | join(', ') }}", "«Client», Server");
    assert_renders("{{ '-'.join(client.split('i')) }}", "«Cl»-«ent»");
    assert_renders("{{ (' ' ~ client ~ ' ') | trim }}", "«Client»");
    assert_renders("{{ client | title | capitalize | lower }}", "«client»");
    assert_renders("{{ client | indent(2, true) }}", "  «Client»");
    assert_renders("{{ '[%s|%8s]' % (client, client) }}", "[«Client»|  «Client»]");
    assert_renders("{{ '{}{:>8}'.format(ours, client) }}", "Server  «Client»");
    assert_renders("{{ ('{:' ~ client[0] ~ '>3}').format('a') }}", "«CC»a");
    assert_renders("{{ client | reverse }}", "«tneilC»");
    assert_renders("{{ client | e }}", "«Client»");
    assert_renders("{{ client | string | list | first }}", "«C»");
}

static void test_what_is_written_of_values_is_marked(void **state) {
    assert_renders("{{ tool | tojson }}", "{\"«name»\": \"«f»\", \"«n»\": 1}");
    assert_renders("{{ tool }}", "{'«name»': '«f»', '«n»': 1}");
    assert_renders("{{ mixed }}", "['«Client»', 'Server']");
    assert_renders("{{ (client ~ '\\n') | tojson }}", "\"«Client»\\n\"");
    assert_renders("{% for k, v in tool.items() %}{{ k }}={{ v }};{% endfor %}",
                   "«name»=«f»;«n»=1;");
}

static void test_captured_text_keeps_its_marks(void **state) {
    assert_renders("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(client) }}{{ m(ours) }}",
                   "<«Client»><Server>");
    assert_renders("{% set x %}a{{ client }}b{% endset %}{{ x }}", "a«Client»b");
    assert_renders("{% filter upper %}a{{ client }}b{% endfilter %}", "A«CLIENT»B");
    assert_renders("{% set ns = namespace(s='') %}{% for i in range(3) %}"
                   "{% set ns.s = ns.s ~ i ~ client %}{% endfor %}{{ ns.s }}",
                   "0«Client»1«Client»2«Client»");
    assert_renders("{% generation %}{{ client }}{% endgeneration %}!", "«Client»!");
}

static void test_marks_do_not_matter_to_comparisons(void **state) {
    assert_renders("{{ client == 'Client' }} {{ 'lie' in client }} {{ client < 'D' }} "
                   "{{ {'Client': 1}[client] }} {{ tool['name'] == 'f' }}",
                   "True True True 1 True");
}

/* The filters safe and escape make Markup, which escapes what is added to it; `~` does not. */
static void test_markup_escapes_what_is_added(void **state) {
    assert_renders("{{ '\"a\"'|safe + '\"' + client }}", "\"a\"&#34;«Client»");
    assert_renders("{{ '<' + ('a'|safe) * 2 }}{{ ('a'|safe) ~ '<' }}", "&lt;aaa<");
    assert_renders("{% set m = 'a b'|safe %}{{ m.split()[1] + '<' }}{{ m[0] + '<' }}"
                   "{{ m|upper + '<' }}{{ m|title + '<' }}{{ m|list|first + '<' }}",
                   "b&lt;a&lt;A B&lt;A B<a<");
    assert_renders("{{ ('%s'|safe) % '<' }}{{ ('<'|safe).join(['>', 'a']) }}{{ '<'|e|e }}",
                   "&lt;&gt;<a&lt;");
    assert_renders("{{ ('a'|safe) == 'a' }}{{ ['a'|safe] }}", "True[Markup('a')]");
}

/* Texts that have memory of their own in the arena, and grow there. */
static void test_large_texts(void **state) {
    assert_renders("{% set ns = namespace(s='') %}{% for i in range(20) %}"
                   "{% set ns.s = ns.s ~ client * 2000 ~ 'x' %}{% endfor %}"
                   "{{ ns.s|length }}{{ ns.s[-3:] }}{{ ns.s[:1] }}{{ ns.s.count('x') }}",
                   "240020«nt»x«C»20");
    assert_renders(
        "{% set s %}{% for i in range(40) %}{{ 'ab' * 5000 }}{% endfor %}{% endset %}"
        "{{ s|length }}{{ s[-1] }}{% set t %}{{ s }}{{ client }}{% endset %}{{ t[-7:] }}",
        "400000bb«Client»");
}

static void test_strings_are_characters(void **state) {
    assert_renders("{% set s = 'ä€😀a' * 10 %}{{ s|length }}{{ s[-2] }}{{ s[17] }}{{ s[38:] }}"
                   "{{ s[::-9] }}{{ s.find('😀') }}{{ s.rfind('€') }}{{ s|upper|length }}",
                   "40😀€😀aa😀€äa23740");
    assert_renders("{{ 'a' 'b'\n'ä' \"c\" }}", "abäc");
}

/* A list or text that continues where another ends shares its memory; both stay what they are. */
static void test_what_grows_in_place_changes_nothing(void **state) {
    assert_renders("{% set a = [1] + [2] %}{% set b = a + [3] %}{% set c = a + [4] %}"
                   "{% set d = b + b %}{{ a }}{{ b }}{{ c }}{{ d }}{{ [] + [] }}{{ [] + a }}",
                   "[1, 2][1, 2, 3][1, 2, 4][1, 2, 3, 1, 2, 3][][1, 2]");
    assert_renders("{% set a = [1, 2, 3, 4] %}{% set b = a[1:3] %}{% set c = b + [5] %}"
                   "{% set d = a[:0] + [6] %}{{ a }}{{ b }}{{ c }}{{ d }}{{ a[5:] + b[1:] }}",
                   "[1, 2, 3, 4][2, 3][2, 3, 5][6][3]");
    assert_renders("{{ ours + client + 1|string + '' + 'x' }}{{ 1 + 2 - 3 + 0.5 }}"
                   "{{ [1] + [2] + [3] }}{{ 'a' + 'b' + ('<'|safe) + '<' }}",
                   "Server«Client»1x0.5[1, 2, 3]ab<&lt;");
    assert_fails("{{ client + 'a' + 1 }}", "line 1: can only concatenate str (not \"int\") to str");
    assert_renders("{% set a = 'a' ~ 1 %}{% set b = a + 'b' %}{% set c = a + 'c' %}"
                   "{% set d = b + b %}{{ a }} {{ b }} {{ c }} {{ d }}",
                   "a1 a1b a1c a1ba1b");
    assert_renders("{% set a = client ~ 'x' %}{% set b = a ~ 'y' %}{% set c = a + client %}"
                   "{{ a }} {{ b }} {{ c }}",
                   "«Client»x «Client»xy «Client»x«Client»");
}

/* What Python 3.11 makes of them. */
static void test_formats(void **state) {
    assert_renders("{{ '%05d|%-5d|%i|%d|%.3d|%05d' % (42, 42, 42, 4.9, 7, -42) }}",
                   "00042|42   |42|4|007|-0042");
    assert_renders("{{ '%8.3f|%-8.1f|%f|%5s|%.2s|%r|%%' % "
                   "(3.14159, -0.5, 42, 'abc', 'abc', 'x') }}",
                   "   3.142|-0.5    |42.000000|  abc|ab|'x'|%");
    assert_renders("{{ '%(a)s %(b)05.1f' % {'a': client, 'b': 2.25} }}", "«Client» 002.2");
    assert_renders("{{ '{:>5}|{:<5}|{:^7}|{:*^9}|{:05d}|{:<08}'.format("
                   "1, 2, 'a', 'b', 42, 42) }}",
                   "    1|2    |   a   |****b****|00042|42000000");
    assert_renders("{{ '{:.2f}|{:8.3f}|{:.2}|{:5}|{:5}|{:5}|'.format("
                   "3.14159, 3.14159, 'abc', true, 'é', 1.5) }}",
                   "3.14|   3.142|ab|    1|é    |  1.5|");
    assert_renders("{{ '{0}{1}{0} {x} {{}}'.format(1, 2, x=client) }}", "121 «Client» {}");
    assert_fails("{{ '{:d}'.format(1.5) }}", "line 1: a format does not fit a value of type");
    assert_fails("{{ '{:05}'.format('a') }}", "line 1: a format does not fit a value of type");
    assert_fails("{{ '{:5}'.format(none) }}", "line 1: unsupported format string passed to");
    assert_fails("{{ '{} {}'.format(1) }}", "line 1: format(): index 1 out of range");
    assert_fails("{{ '%d' % 'a' }}", "line 1: %d format: a real number is required, not str");
    assert_fails("{{ '%s %s' % 1 }}", "line 1: not enough arguments for format string");
    assert_fails("{{ '%s' % (1, 2) }}", "line 1: not all arguments converted");
}

/* What Python has and published templates do not use. */
static void test_other_formats_are_refused(void **state) {
    static const char *const conversions[] = {"x", "X", "o", "c", "e", "E", "g", "G", "a"};
    for (size_t i = 0; i < sizeof(conversions) / sizeof(conversions[0]); i++) {
        char source[64], expected[64];
        snprintf(source, sizeof(source), "{{ '%%%s' %% 42 }}", conversions[i]);
        snprintf(expected, sizeof(expected), "line 1: unsupported format character '%s'",
                 conversions[i]);
        assert_fails(source, expected);
    }
    assert_fails("{{ '%+d' % 42 }}", "line 1: unsupported format character '+'");
    assert_fails("{{ '%*d' % (4, 7) }}", "line 1: unsupported format character '*'");
    assert_fails("{{ '%#x' % 255 }}", "line 1: unsupported format character '#'");
    assert_fails("{{ '{:+d}'.format(7) }}", "line 1: format(): a field is not understood");
    assert_fails("{{ '{:,}'.format(1234567) }}", "line 1: a format does not fit a value of type");
    assert_fails("{{ '{:e}'.format(1) }}", "line 1: a format does not fit a value of type");
    assert_fails("{{ '{!r}'.format(1) }}", "line 1: format() lacks the argument");
    assert_fails("{{ '{x.n}'.format(x=tool) }}", "line 1: format() lacks the argument");
    assert_fails("{{ '{x[n]}'.format(x=tool) }}", "line 1: format() lacks the argument");
}

static void test_numbers(void **state) {
    assert_renders("{{ 7 // -2 }} {{ -7 % 3 }} {{ 7.5 // -2 }} {{ 7 % -0.5 }} {{ 1 // 0.1 }} "
                   "{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 1e-5 }}",
                   "-4 2 -4.0 -0.0 9.0 1e+16 1000000000000000.0 0.0001 1e-05");
    assert_renders("{{ '12x'|int(7) }} {{ ' 1_0 '|int }} {{ 'ff'|int(0, 16) }} {{ '3.9'|int }} "
                   "{{ 'a'|float(1.5) }}",
                   "7 10 255 3 1.5");
}

/* --- Bounds ------------------------------------------------------------------------------------
 */

static void test_large_results_are_refused(void **state) {
    assert_fails("{% for i in range(1000000000) %}{% endfor %}",
                 "line 1: a range has at most 100000");
    assert_fails("{{ 'a' * 1000000000 }}",
                 "line 1: the template's values and output need more than");
    assert_fails("{{ 'a' * 1000000000000000000 }}",
                 "line 1: the template's values and output need more than");
    assert_fails("{{ [1] * 1000000000000000000 }}", "line 1: the template takes more steps");
    assert_fails("{{ 9999999999 * 9999999999 }}", "line 1: a number exceeds 64 bits");
    assert_fails("{{ '%1000000000d' % 1 }}", "line 1: a format's width");
    assert_fails("{{ 'a' | indent(1000000000000000, true) }}",
                 "line 1: the template's values and output");
    assert_fails("{{ 1 | tojson(indent=1000000000000000) }}", "line 1: tojson: indent");
}

static void test_doubling_ends(void **state) {
    assert_fails("{% set ns = namespace(s='abcdefgh') %}{% for i in range(64) %}"
                 "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 "line 1: the template's values and output need more than 16777216 bytes");
    assert_fails("{% set ns = namespace(s=[1]) %}{% for i in range(64) %}"
                 "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 "line 1: the template");
    assert_fails("{% set ns = namespace(s=[1]) %}{% for i in range(64) %}"
                 "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
                 "line 1: the template");
}

static void test_steps_are_counted(void **state) {
    assert_fails(
        "{% set r = range(10000) %}{% for i in r %}\n{% for j in r %}{% endfor %}{% endfor %}",
        "line 2: the template takes more steps than are allowed");
    assert_fails("{% set s = 'ab' * 1000000 %}{% for i in range(10000) %}"
                 "{{ 'b' if 'x' in s }}{% endfor %}",
                 "line 1: the template takes more steps than are allowed");
}

static void test_recursion_ends(void **state) {
    assert_fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                 "line 1: more than 64 calls within another");
    assert_fails("{% set ns = namespace(s=1) %}{% for i in range(1000) %}"
                 "{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
                 "line 1: values nest too deep to write them");
    assert_fails("{% set ns = namespace(s=1, t=1) %}{% for i in range(1000) %}"
                 "{% set ns.s = [ns.s] %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
                 "line 1: values nest too deep to compare them");
    assert_fails("{% set ns = namespace(s={}) %}{% for i in range(1000) %}"
                 "{% set ns.s = {'a': ns.s} %}{% endfor %}{{ ns.s | tojson }}",
                 "line 1: values nest too deep to write them as JSON");
}

/* `times` times `part`, and then `middle` and `times` times `end`. */
static char *repeated(const char *part, const char *middle, const char *end, size_t times) {
    size_t bytes = (strlen(part) + strlen(end)) * times + strlen(middle) + 1;
    char *text = malloc(bytes), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, part);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, end);
    return text;
}

static void assert_repeated_fails(const char *part, const char *middle, const char *end,
                                  size_t times) {
    char *source = repeated(part, middle, end, times), got[4096];
    if (fixture_render(source, got, sizeof(got)) == 0)
        fail_msg("%s is rendered %zu times", part, times);
    free(source);
}

static void test_deep_sources_are_refused(void **state) {
    assert_repeated_fails("{% if 1 %}", "", "{% endif %}", 50000);
    assert_repeated_fails("{% for x in y %}", "", "{% endfor %}", 30000);
    assert_repeated_fails("{{ ", "", "", 100000);
    assert_repeated_fails("{% macro m() %}", "", "{% endmacro %}", 30000);
    char *nested[] = {repeated("(", "1", ")", 100000),     repeated("[", "1", "]", 100000),
                      repeated("{1:", "1", "}", 100000),   repeated("-", "1", "", 100000),
                      repeated("dict(", "1", ")", 100000), repeated("1 if 1 else ", "1", "", 50000),
                      repeated("a[", "1", "]", 100000),    repeated("", "a", ".a", 100000),
                      repeated("", "a", "|list", 100000),  repeated("", "dict", "()", 100000)};
    for (size_t i = 0; i < sizeof(nested) / sizeof(nested[0]); i++) {
        size_t bytes = strlen(nested[i]) + 16;
        char *source = malloc(bytes), got[4096];
        snprintf(source, bytes, "{{ %s }}", nested[i]);
        assert_int_equal(fixture_render(source, got, sizeof(got)), -1);
        free(source);
        free(nested[i]);
    }
}

static void test_long_sources_are_not_deep(void **state) {
    char *sum = repeated("1+", "1", "", 20000), *words = repeated("true and ", "1", "", 20000);
    char *nots = repeated("not ", "1", "", 20000), *tilde = repeated("''~", "1", "", 20000);
    const struct {
        char *expression;
        const char *expected;
    } cases[] = {{sum, "20001"}, {words, "1"}, {nots, "True"}, {tilde, "1"}};
    for (size_t i = 0; i < 4; i++) {
        size_t bytes = strlen(cases[i].expression) + 16;
        char *source = malloc(bytes);
        snprintf(source, bytes, "{{ %s }}", cases[i].expression);
        assert_renders(source, cases[i].expected);
        free(source);
        free(cases[i].expression);
    }
    char *branches = repeated("{% elif 0 %}x", "{% else %}y{% endif %}", "", 20000);
    char *source = malloc(strlen(branches) + 16);
    sprintf(source, "{%% if 0 %%}%s", branches);
    assert_renders(source, "y");
    free(source);
    free(branches);
}

static void test_source_is_bounded(void **state) {
    char got[4096], *source = repeated("a", "", "", CHAT_TEMPLATE_MAX_BYTES + 1);
    assert_int_equal(fixture_render_source(source, CHAT_TEMPLATE_MAX_BYTES + 1, got, sizeof(got)),
                     -1);
    assert_string_equal(got, "the chat template has 1048577 bytes, more than 1048576");
    free(source);
    assert_fails("\xff", "the chat template is not UTF-8");
}

/* --- Errors ------------------------------------------------------------------------------------
 */

static void test_syntax_errors_name_the_line(void **state) {
    assert_fails("\n\n{{ 1 + }}", "line 3: expected an expression, got the end of the tag");
    assert_fails("{% if 1 %}\n", "line 1: the template ends where 'elif' is expected");
    assert_fails("\n{% frobnicate %}", "line 2: unknown or misplaced tag 'frobnicate'");
    assert_fails("{% endif %}", "line 1: unknown or misplaced tag 'endif'");
    assert_fails("{{ (1] }}", "line 1: unexpected ']', expected ')'");
    assert_fails("{{ 'a }}", "line 1: a string has no end");
    assert_fails("{{ 1", "line 1: expected the end of the output, got the end of the template");
    assert_fails("{# a", "line 1: missing end of comment");
    assert_fails("{% raw %} a", "line 1: unknown or misplaced tag 'raw'");
    assert_fails("{% set 1 = 2 %}", "line 1: expected a name to assign to");
    assert_fails("{{ 9999999999999999999 }}", "line 1: the number 9999999999999999999 is too");
    assert_fails("{{ '\\ud800' }}", "line 1: a string's escape is not understood");
    assert_fails("{{ a is none is true }}", "line 1: tests with 'is' cannot be chained");
}

/* What no value can have is refused before anything is rendered, wherever it stands. */
static void test_unknown_names_are_refused(void **state) {
    assert_fails("\n{% if false %}\n{{ 1 | groupby('a') }}{% endif %}",
                 "line 3: unknown filter 'groupby'");
    assert_fails("{{ mixed | map('groupby') }}", "line 1: unknown filter 'groupby'");
    assert_fails("{% filter nothing %}{% endfilter %}", "line 1: unknown filter 'nothing'");
    assert_fails("{% if false %}\n{{ 1 is prime }}{% endif %}", "line 2: unknown test 'prime'");
    assert_fails("{{ mixed | select('prime') }}", "line 1: unknown test 'prime'");
    assert_fails("{{ mixed | rejectattr('a', 'prime') }}", "line 1: unknown test 'prime'");
    assert_fails("{% macro f() %}\n{{ joiner(', ') }}{% endmacro %}",
                 "line 2: unknown function 'joiner'");
    assert_fails("{% if false %}\n{{ client.zfill(3) }}{% endif %}",
                 "line 2: unknown method 'zfill'");
    assert_fails("{% macro f(a) %}\n{{ varargs }}{% endmacro %}",
                 "line 2: unknown variable 'varargs'");
    assert_fails("{% for x in y\n recursive %}{% endfor %}",
                 "line 2: recursive loops are not supported");
    assert_fails("\n{% with a = 1 %}{% endwith %}", "line 2: unknown or misplaced tag 'with'");
}

/* What the template defines, asks for, or has for other engines is not. */
static void test_names_that_may_be_known(void **state) {
    assert_renders("{% macro g() %}{{ f() }}{% endmacro %}{% macro f() %}x{% endmacro %}{{ g() }}",
                   "x");
    assert_renders("{% macro f() %}x{% endmacro %}{% set ns = namespace(g=f) %}{% set ns.h = f %}"
                   "{{ ns.g() }}{{ ns.h() }}{{ {'i': f}.i() }}",
                   "xxx");
    assert_renders("{% if other is defined %}{{ other() }}{% endif %}"
                   "{% if tool.other is defined %}{{ tool.other() }}{% endif %}",
                   "");
    assert_renders("{% if client is not string %}{{ client | from_json }}{% endif %}"
                   "{% if false %}{% set _ = mixed.append(1) %}{% endif %}",
                   "");
    assert_fails("{{ client | from_json }}", "line 1: from_json is only for other engines");
}

static void test_rendering_errors_name_the_line(void **state) {
    assert_fails("a\nb\n{{ raise_exception('Roles must ' ~ 'alternate') }}",
                 "line 3: Roles must alternate");
    assert_fails("\n{{ missing.field }}", "line 2: 'missing' is undefined");
    assert_fails("{{ tool.args.x }}", "line 1: 'dict object' has no attribute 'args'");
    assert_fails("{% set f = missing %}{{ f() }}", "line 1: 'missing' is undefined");
    assert_fails("{{ [].append(1) }}", "line 1: access to attribute 'append' of 'list' object");
    assert_fails("{{ 1 + 'a' }}", "line 1: unsupported operand type(s) for +: 'int' and 'str'");
    assert_fails("{{ mixed | map('noth' ~ 'ing') | list }}", "line 1: no filter named 'nothing'");
    assert_fails("{{ mixed | select(client) | list }}", "line 1: no test named 'Client'");
    assert_fails("{{ [1].count(1) }}", "line 1: 'list object' has no attribute 'count'");
    assert_fails("{% macro m() %}{% endmacro %}{{ m.name }}", "line 1: macros have no attributes");
    assert_fails("{{ 1 // 0 }}", "line 1: division by zero");
    assert_fails("{% set tool.name = 1 %}", "line 1: cannot assign attribute on non-namespace");
    assert_fails("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
                 "line 1: macro 'm' takes not more than 1 argument(s)");
}

static void test_a_cut_message_is_still_text(void **state) {
    char got[4096];
    assert_int_equal(fixture_render("{{ raise_exception('\xc3\xa4' * 1000) }}", got, sizeof(got)),
                     -1);
    assert_true(strlen(got) > 100 && strlen(got) < sizeof(((struct error *)0)->message));
    assert_int_equal(got[strlen(got) - 1], '\xa4');
}

static void test_time(void **state) {
    assert_renders("{{ strftime_now('%Y-%m-%d %H:%M') }}", "1970-01-01 00:00");
}

/* --- Values ------------------------------------------------------------------------------------
 */

static void test_maps_keep_their_order(void **state) {
    struct template_arena *arena = template_arena_create(FIXTURE_ARENA_BYTES);
    struct template_value *map = template_map(arena);
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "k%d", (i * 7) % 500);
        fixture_set(arena, map, key, template_int(arena, i));
    }
    assert_non_null(template_map_get(map, "k499"));
    assert_null(template_map_get(map, "k500"));
    assert_null(template_map_get(template_none(arena), "k"));
    struct chat_template *chat;
    struct chat_text text;
    struct error err = {0};
    static const char source[] = "{% for k in m %}{{ k if loop.index < 4 }}{% endfor %}"
                                 "{{ m|length }} {{ m.k3 }} {{ m['k499'] }} {{ m.k500 }}";
    struct template_value *variables = template_map(arena);
    fixture_set(arena, variables, "m", map);
    assert_int_equal(chat_template_create(source, strlen(source), &chat, &err), 0);
    assert_int_equal(chat_template_render(chat, arena, variables, 0, &text, &err), 0);
    static const char expected[] = "k0k7k14500 929 857 ";
    assert_int_equal(text.length, strlen(expected));
    assert_memory_equal(text.data, expected, text.length);
    chat_template_destroy(chat);
    template_arena_destroy(arena);
}

static void test_a_tree_is_checked_at_its_end(void **state) {
    struct template_arena *arena = template_arena_create(1 << 16);
    struct template_value *list = template_list(arena);
    for (int i = 0; i < 10000; i++)
        list = template_list_append(arena, list, template_int(arena, i));
    assert_null(list);
    assert_true(template_arena_is_full(arena));
    assert_null(template_none(arena));
    assert_null(template_list_append(arena, NULL, NULL));
    assert_null(template_map_set(arena, NULL, (struct text){"", 0}, 0, NULL));
    struct chat_template *chat;
    struct chat_text text;
    struct error err = {0};
    assert_int_equal(chat_template_create("a", 1, &chat, &err), 0);
    assert_int_equal(chat_template_render(chat, arena, NULL, 0, &text, &err), -1);
    assert_int_equal(err.code, ERROR_SYNTAX);
    chat_template_destroy(chat);
    template_arena_destroy(arena);
}

static void test_readers_accept_anything(void **state) {
    struct template_arena *arena = template_arena_create(FIXTURE_ARENA_BYTES);
    struct template_value *list = template_list(arena), *text = template_string(arena, "ab", 2, 0);
    template_list_append(arena, list, text);
    assert_int_equal(template_list_length(list), 1);
    assert_int_equal(template_string_text(template_list_item(list, 0)).length, 2);
    assert_null(template_list_item(list, 1));
    assert_int_equal(template_list_length(text), 0);
    assert_null(template_string_text(list).data);
    assert_null(template_string_text(NULL).data);
    assert_int_equal(template_list_length(NULL), 0);
    template_arena_destroy(arena);
    template_arena_destroy(NULL);
    chat_template_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_text_keeps_its_mark),
        cmocka_unit_test(test_what_is_made_of_client_text_is_marked),
        cmocka_unit_test(test_what_is_written_of_values_is_marked),
        cmocka_unit_test(test_captured_text_keeps_its_marks),
        cmocka_unit_test(test_marks_do_not_matter_to_comparisons),
        cmocka_unit_test(test_markup_escapes_what_is_added),
        cmocka_unit_test(test_large_texts),
        cmocka_unit_test(test_strings_are_characters),
        cmocka_unit_test(test_what_grows_in_place_changes_nothing),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_other_formats_are_refused),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_large_results_are_refused),
        cmocka_unit_test(test_doubling_ends),
        cmocka_unit_test(test_steps_are_counted),
        cmocka_unit_test(test_recursion_ends),
        cmocka_unit_test(test_deep_sources_are_refused),
        cmocka_unit_test(test_long_sources_are_not_deep),
        cmocka_unit_test(test_source_is_bounded),
        cmocka_unit_test(test_syntax_errors_name_the_line),
        cmocka_unit_test(test_unknown_names_are_refused),
        cmocka_unit_test(test_names_that_may_be_known),
        cmocka_unit_test(test_rendering_errors_name_the_line),
        cmocka_unit_test(test_a_cut_message_is_still_text),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_maps_keep_their_order),
        cmocka_unit_test(test_a_tree_is_checked_at_its_end),
        cmocka_unit_test(test_readers_accept_anything),
    };
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
