/* Grammars in GBNF and Lark's notation: what matches, what is refused and where, and the grammars
 * of tests/golden/grammars with the texts that belong to them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/json/json_unescape.h"
#include "engine/grammar/read/grammar_text.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;

static int set_up(void **state) {
    struct error err;
    fixture_init_bytes(&tokenizer);
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

typedef int (*reader)(struct grammar_builder *builder, const char *text, grammar_node *out,
                      struct error *err);

static int read_grammar(reader read, const char *text, struct grammar **out, struct error *err) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node root;
    int result = read(builder, text, &root, err);
    if (result == 0)
        result = grammar_build(builder, root, out, err);
    grammar_builder_destroy(builder);
    return result;
}

static struct grammar *make_by(reader read, const char *text) {
    struct grammar *grammar = NULL;
    struct error err = {0};
    if (read_grammar(read, text, &grammar, &err) != 0)
        fail_msg("%s: %s", text, err.message);
    return grammar;
}

static struct grammar *make(const char *text) {
    return make_by(grammar_text, text);
}

static bool matches(struct grammar *grammar, struct text text) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    size_t i = 0;
    while (i < text.length && grammar_state_accept(state, (uint8_t)text.data[i]) == 0)
        i++;
    bool whole = i == text.length && grammar_state_accept(state, tokenizer.end) == 0;
    grammar_state_destroy(state);
    return whole;
}

struct example {
    const char *grammar, *matched, *refused; /* texts, separated by '\n' unless `one` is set */
    bool one;
};

static void check_texts(const struct example *example, struct grammar *grammar, const char *texts,
                        bool expected) {
    while (texts != NULL) {
        size_t length = example->one ? strlen(texts) : strcspn(texts, "\n");
        if (matches(grammar, (struct text){texts, length}) != expected)
            fail_msg("%s\n'%.*s' must %smatch", example->grammar, (int)length, texts,
                     expected ? "" : "not ");
        texts = texts[length] == '\n' ? texts + length + 1 : NULL;
    }
}

static void check_examples(const struct example *examples, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct grammar *grammar = make(examples[i].grammar);
        check_texts(&examples[i], grammar, examples[i].matched, true);
        check_texts(&examples[i], grammar, examples[i].refused, false);
        grammar_unref(grammar);
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_gbnf(void **unused) {
    static const struct example examples[] = {
        {"root ::= \"a\"", "a", "\nb\naa"},
        {"# first\n\n  root ::= \"a\" # \"b\"\n", "a", "ab"},
        {"root ::= \"a\" | \"b\" \"c\" |", "a\nbc\n", "b\nabc"},
        {"root ::= [a-cx] [^a-c] [\\]\\x41\\u00e9-\\u00ea]", "axA\nxx]\ncdé\nadê", "dxA\naaA\naxa"},
        {"root ::= [-a] [b-]", "-b\na-", "b-"},
        {"root ::= . .", "aé", "a\nabc"},
        {"root ::= \"\\\"\\\\\\x21\\u00e9\\U0001F600\\t\"", "\"\\!é😀\t", "\"\\!é"},
        {"root ::= \"a\"? \"b\"* \"c\"+ \"d\"{2} \"e\"{1,} \"f\"{0,2}", "cdde\nabbccddeeff",
         "cde\nddeff\ncddefff"},
        {"root ::= (\"a\" \n | \"b\" # c\n ) {2}", "ab\nba", "a\naba"},
        {"root ::= (\"a\"*)+ (\"b\"?){2,3}", "\naa\nbbb\nabb", "bbbb"},
        {"root ::= \"a\"+?", "\naa", "b"},
        {"root::=x\nx ::=\n\"b\"", "b", "x"},
        {"root ::= sub-rule_1\nsub-rule_1 ::= \"a\"\n  \"b\"\n  | \"c\"", "ab\nc", "a\nabc"},
        {"root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]", "1\n1+2+3", "1+\n+1"},
        {"root ::= a \"x\"\na ::= b?\nb ::= a \"y\" | \"z\"", "x\nyx\nzyx\nzyyx", "zzx\nxy"},
        {"root ::= \"\"", "", "a"},
        {"root ::= \"(\" root \")\" | root root |", "\n()\n(()())()", "(\n)("},
    };
    check_examples(examples, COUNT(examples));
}

static void test_lark(void **unused) {
    static const struct example examples[] = {
        {"start: \"a\"", "a", "\nb\naa"},
        {"// c\n# d\n\nstart: \"a\" // e\n  | \"b\" # f\n\n  | \"c\"\n", "a\nb\nc", "ab"},
        {"start: A b? [C] ~2\nA: \"x\" | \"y\"\n!b: \"b\"i\n?c.2: b\nC.-1: \"c\"", "xbcc\nyB\nxc",
         "x b\nbcc"},
        {"start: \"a\"~2..3 (\"b\" \"c\")~2", "aabcbc\naaabcbc", "abcbc\naabc"},
        {"start: \"SeLect-é\"", "SeLect-é", "select-é"},
        {"start: \"SeL-1\"i", "sEl-1\nSEL-1", "sel_1"},
        {"start: \"\\x41\\u00e9\\n\\\"\"", "Aé\n\"", "Aé\"", true},
        {"start: \"a\"..\"c\" \"0\" .. \"9\"", "a0\nc9", "d0\n0a"},
        {"start: /[a-c]+x\\/y/ /./ /./s", "abx/y,\n", "abx/y\n,", true},
        {"start: /ab[c-e][^f]/i", "AbDx\naBEg", "abff\nabcF\nabcf"},
        {"start: /(?P<ab>x)(?:y)\\d/i", "xY1\nXy2", "xyz"},
        {"start: /a.b/ms", "a\nb", "ab", true},
        {"start: a -> x\n | \"b\" -> y\na: \"c\"", "b\nc", "bc"},
        {"start: (\"a\"\n|\"b\"\n)", "a\nb", "ab"},
        {"start: |\"a\"", "\na", "aa"},
        {"start: \"a\" \"b\"\n%ignore \" \"", "ab\n a  b \na b", "a c\nba"},
        {"start: AB\nAB: \"a\" \"b\"\n%ignore /\\s+/\n%ignore \"#\" /[^\\n]*/", " ab # x\nab",
         "a b\na"},
        {"start: [start \",\"] \"x\"", "x\nx,x\nx,x,x", ",x\nx,"},
        {"start: e\ne: e \"+\" e | e \"*\" e | \"-\" e | \"(\" e \")\" | \"x\"",
         "x\nx+x*x\n-x+-(x*-x)", "x+\n()\nxx"},
        {"%llguidance {}\nstart: \"a\"", "a", "b"},
        {"start: INT \",\" NAME\n%import common.INT\n%import common.CNAME -> NAME", "12,ab_1",
         "12,1a"},
        {"start: \"a\" \\\n  \"b\"", "ab", "a"},
    };
    check_examples(examples, COUNT(examples));
}

static void test_common_terminals(void **unused) {
    static const struct {
        const char *name, *matched, *refused;
    } terminals[] = {
        {"DIGIT", "7", "77"},
        {"HEXDIGIT", "f", "g"},
        {"INT", "012", "-1"},
        {"SIGNED_INT", "-12", "--1"},
        {"DECIMAL", "1.\n.5\n1.5", ".\n15"},
        {"FLOAT", "1.5e-3\n1e5\n.5", "15\ne5"},
        {"SIGNED_FLOAT", "+1.5", "+1"},
        {"NUMBER", "15\n1.5E+3", "-15"},
        {"SIGNED_NUMBER", "-15\n+1.", "1e"},
        {"ESCAPED_STRING", "\"\"\n\"a\\\"b\\\\\"", "\"\\\"\n\"a\"b\""},
        {"LCASE_LETTER", "a", "A"},
        {"UCASE_LETTER", "A", "a"},
        {"LETTER", "a\nA", "1"},
        {"WORD", "aB", "a1\n"},
        {"CNAME", "_a1", "1a"},
        {"WS_INLINE", " \t", "x"},
        {"SH_COMMENT", "# a", "a"},
        {"CPP_COMMENT", "// a", "/ a"},
        {"C_COMMENT", "/* a **/\n/**/", "/*/\n/* */ */"},
        {"SQL_COMMENT", "--", "-"},
    };
    char grammar[128];
    for (size_t i = 0; i < COUNT(terminals); i++) {
        snprintf(grammar, sizeof(grammar), "start: %s\n%%import common.%s", terminals[i].name,
                 terminals[i].name);
        check_examples(
            &(struct example){grammar, terminals[i].matched, terminals[i].refused, false}, 1);
    }
    static const struct example lines[] = {
        {"start: CR LF\n%import common (CR, LF)", "\r\n", "\n", true},
        {"start: WS\n%import common.WS", " \n\r\f\t", "", true},
        {"start: NEWLINE\n%import common.NEWLINE", "\r\n\n", "\r", true},
    };
    check_examples(lines, COUNT(lines));
}

struct refusal {
    const char *grammar, *message;
};

static void check_refusals(const struct refusal *refusals, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct grammar *grammar = NULL;
        struct error err = {0};
        if (read_grammar(grammar_text, refusals[i].grammar, &grammar, &err) == 0)
            fail_msg("%s must be refused", refusals[i].grammar);
        assert_int_equal(err.code, ERROR_SYNTAX);
        if (strstr(err.message, refusals[i].message) == NULL)
            fail_msg("%s: '%s' and not '%s'", refusals[i].grammar, err.message,
                     refusals[i].message);
        assert_null(grammar);
    }
}

static void test_gbnf_refused(void **unused) {
    static const struct refusal refusals[] = {
        {"root ::= \"a\n", "line 1, column 10: a text without its '\"'"},
        {"root ::= \"é\" x\n", "line 1, column 14: x is not defined"},
        {"x ::= \"a\"", "no rule root"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: root is defined twice"},
        {"root ::= [a", "line 1, column 10: a class without its ']'"},
        {"root ::= []", "a class without characters"},
        {"root ::= [b-a]", "line 1, column 11: an empty range of characters"},
        {"root ::= [\\U00110000]", "an empty range of characters"},
        {"root ::= (\"a\"", "line 1, column 10: a group without its ')'"},
        {"root ::= \"a\")", "line 1, column 13: a ')' without its '('"},
        {"root ::= \"a\"{3,2}", "line 1, column 14: a repetition whose maximum"},
        {"root ::= \"a\"{2", "a repetition without its '}'"},
        {"root ::= \"a\"{65537}", "a repetition of more than 65536"},
        {"root ::= \"a\"{}", "a number is missing"},
        {"root ::= *", "line 1, column 10: '*' where a text"},
        {"root ::= \"\\q\"", "line 1, column 11: an escape that is not supported"},
        {"root ::= \"\\xg0\"", "a hexadecimal digit"},
        {"root ::= \"\\ud800\"", "U+D800 is not a character"},
        {"root ::= \"\\x00\"", "U+0000 is not a character"},
        {"root ::= 'a'", "a text in single quotes is not supported"},
        {"root ::= <[12]>", "tokens \"<...>\" are not supported"},
        {"root ::= !<x>", "tokens \"<...>\" are not supported"},
        {"root ::= \"a\" (= \"b\")", "lookahead \"(=\" is not supported"},
        {"root ::= \"a\"\n= b", "line 2, column 1: '='"},
        {"root ::= e x\ne ::= e \"a\"\nx ::= \"b\" | x e",
         "no text matches the grammar: these rules never come to an end: e, root"},
        {"root ::= \"\xff\"", "not UTF-8"},
    };
    check_refusals(refusals, COUNT(refusals));
}

static void test_lark_refused(void **unused) {
    static const struct refusal refusals[] = {
        {"", "no rule start"},
        {"a: \"a\"", "no rule start"},
        {"start: a", "line 1, column 8: a is not defined"},
        {"start: \"a\"\n\nstart: \"b\"", "line 3, column 1: start is defined twice"},
        {"start: \"a", "line 1, column 8: a text without its '\"'"},
        {"start: /a", "a regular expression without its '/'"},
        {"start: /(/", "line 1, column 8: in the regular expression: "},
        {"start: /a(?=b)/", "in the regular expression: a kind of group"},
        {"start: /^a/", "line 1, column 9: an anchor"},
        {"start: /a/x", "line 1, column 11: the flag x"},
        {"start: /[0-b]/i", "a range of letters and others"},
        {"start: /\\x41/i", "\\x with the flag i"},
        {"start: \"é\"i", "ASCII only"},
        {"start: \"ab\"..\"c\"", "a range must have one character"},
        {"start: \"c\"..\"a\"", "a range must have one character"},
        {"start: \"a\"~3..2", "maximum is below"},
        {"start: (\"a\"", "line 1, column 8: a group without its ')'"},
        {"start: [\"a\")", "a group without its ']'"},
        {"start: \"a\")", "line 1, column 11: ')' where the line must end"},
        {"start \"a\"", "start is not followed by ':'"},
        {"Start: \"a\"", "Start is not a name"},
        {"start: A\nA: b\nb: \"c\"", "line 2, column 4: a terminal is made of the rule b"},
        {"start: A\nA: \"b\" -> c", "an alias in a terminal"},
        {"start: x{\"a\"}\nx{y}: y", "line 1, column 8: templates"},
        {"start: \"a\"\nx{y}: y", "line 2, column 2: templates"},
        {"start[stop=\"x\"]: \"a\"", "attributes of rules are not supported"},
        {"start: %json {}", "line 1, column 8: directives such as %json"},
        {"start: <|end|>", "special tokens \"<...>\" are not supported"},
        {"start: A\nA: \"a\" & \"b\"", "\"&\" between terminals is not supported"},
        {"start: A\nA: ~\"b\"", "\"~\" before a terminal is not supported"},
        {"start: @x", "other grammars \"@name\" are not supported"},
        {"start: 'a'", "single quotes is not supported"},
        {"%declare A\nstart: \"a\"", "line 1, column 1: %declare is not supported"},
        {"%import python.NAME\nstart: \"a\"", "other libraries than common"},
        {"%import common.NAME\nstart: \"a\"", "line 1, column 16: common has no terminal NAME"},
        {"%import common.INT -> int\nstart: \"a\"", "int must be upper case"},
        {"start: \"a\"\n%ignore b", "a terminal is made of the rule b"},
        {"start: start \"a\"", "no text matches"},
    };
    check_refusals(refusals, COUNT(refusals));
}

/* --- Bounds --- */

static char *repeat_text(const char *first, const char *middle, int count, const char *last) {
    size_t bytes = strlen(first) + strlen(middle) * (size_t)count + strlen(last) + 1;
    char *text = malloc(bytes), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", first);
    for (int i = 0; i < count; i++)
        at += sprintf(at, "%s", middle);
    sprintf(at, "%s", last);
    return text;
}

static void test_bounds(void **unused) {
    static const struct {
        const char *first, *middle;
        int count;
        const char *last, *message;
    } cases[] = {
        {"root ::= ", "(", 65, "", "groups are nested deeper than 64"},
        {"start: ", "[", 65, "", "groups are nested deeper than 64"},
        {"root ::= \"", "a", 300000, "\"", "longer than 262144 bytes"},
        {"root ::= ", "[a]", 70000, "", "too large"},
        {"root ::= x\nx ::= ", "\"a\"? ", 40000, "x", "too large"},
        {"root ::= ", "[a]|", 600, "[b]", "601 alternatives"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text = repeat_text(cases[i].first, cases[i].middle, cases[i].count, cases[i].last);
        check_refusals(&(struct refusal){text, cases[i].message}, 1);
        free(text);
    }
    struct byte_buffer many = {0};
    for (int i = 0; i <= GRAMMAR_TEXT_MAX_RULES; i++)
        byte_buffer_printf(&many, "r%d ::= \"a\"\n", i);
    byte_buffer_append(&many, "", 1);
    check_refusals(&(struct refusal){many.data, "more than 8192 rules"}, 1);
    byte_buffer_clear(&many);
    byte_buffer_append_text(&many, "root ::= r0\n");
    for (int i = 0; i < 40; i++)
        byte_buffer_printf(&many, "r%d ::= r%d \"a\" | \"b\"\n", i, (i + 1) % 40);
    byte_buffer_append(&many, "", 1);
    check_refusals(&(struct refusal){many.data, "more than 32 rules are left-recursive"}, 1);
    byte_buffer_finish(&many);
}

/* --- The grammars of files --- */

/* Classes with and without what JSON escapes. */
static void test_json(void **unused) {
    static const struct {
        const char *grammar, *taken[6], *refused[4];
    } cases[] = {
        {"start: /[^a]/",
         {"b", "\\\"", "\\\\", "\\u0000", "\\u001f", "\x7f"},
         {"a", "\"", "\\", "\\u0041"}},
        {"start: /[!-~]/", {"!", "#", "[", "]", "\\\"", "\\\\"}, {"\"", "\\", " ", "\\n"}},
        {"start: /[\"\\\\\\n]/", {"\\\"", "\\\\", "\\n"}, {"\"", "\n", "n", "a"}},
        {"start: \"a\\n\\\"\" start?",
         {"a\\n\\\"", "a\\n\\\"a\\n\\\""},
         {"a\n\\\"", "a", "a\\n", ""}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct grammar *json = make_by(grammar_text_json, cases[i].grammar);
        for (int k = 0; k < 6 && cases[i].taken[k] != NULL; k++)
            if (!matches(json, (struct text){cases[i].taken[k], strlen(cases[i].taken[k])}))
                fail_msg("%s refuses %s", cases[i].grammar, cases[i].taken[k]);
        for (int k = 0; k < 4 && cases[i].refused[k] != NULL; k++)
            if (matches(json, (struct text){cases[i].refused[k], strlen(cases[i].refused[k])}))
                fail_msg("%s takes %s", cases[i].grammar, cases[i].refused[k]);
        grammar_unref(json);
    }
    struct grammar *grammar;
    struct error err = {0};
    assert_int_equal(read_grammar(grammar_text_json, "start: a", &grammar, &err), -1);
    assert_int_equal(err.code, ERROR_SYNTAX);
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_non_null(text);
    size_t length = fread(text, 1, (1 << 20) - 1, file);
    assert_in_range(length, 1, (1 << 20) - 2);
    fclose(file);
    return text;
}

/* Out has room for what is written. */
static struct text unescape(struct text written, char *out) {
    struct json_unescape string = {0};
    size_t length = 0;
    for (size_t i = 0; i < written.length; i++)
        length += json_unescape_push(&string, written.data[i], out + length);
    return (struct text){out, length + json_unescape_end(&string, out + length)};
}

/* What json.dumps(text, ensure_ascii=False) of Python writes between the quotes. Out has room for
 * six times the text. */
static struct text escape(struct text text, char *out) {
    static const char *const shorts[128] = {
        ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r",
        ['\t'] = "\\t", ['"'] = "\\\"", ['\\'] = "\\\\"};
    size_t length = 0;
    for (size_t i = 0; i < text.length; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        if (byte < 128 && shorts[byte] != NULL)
            length += (size_t)sprintf(out + length, "%s", shorts[byte]);
        else if (byte < 0x20)
            length += (size_t)sprintf(out + length, "\\u%04x", byte);
        else
            out[length++] = (char)byte;
    }
    return (struct text){out, length};
}

/* The grammar of the strings that stand for texts takes those alone, and the text itself only where
 * that is the same. */
static void check_json(struct grammar *json, struct text text, bool belongs, const char *path) {
    char escaped[6 * 1024 + 1];
    struct text string = escape(text, escaped);
    bool is_same = string.length == text.length;
    if (matches(json, string) != belongs || matches(json, text) != (belongs && is_same))
        fail_msg("%s as JSON: %.*s", path, (int)string.length, string.data);
}

/* A line is '+' or '-', a space, and the text as JSON writes it between its quotes. */
static void check_file(const char *path, int *inout_num_texts) {
    char texts_path[512], unescaped[1024];
    snprintf(texts_path, sizeof(texts_path), "%s.texts", path);
    char *text = read_file(path), *texts = read_file(texts_path);
    struct grammar *grammar = make(text), *json = make_by(grammar_text_json, text);
    for (char *line = texts, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        struct text written = {line + 2, (size_t)(end - line) - 2};
        assert_true(written.length + JSON_UNESCAPE_MAX_BYTES < sizeof(unescaped));
        struct text plain = unescape(written, unescaped);
        if (matches(grammar, plain) != (*line == '+'))
            fail_msg("%s: %.*s", path, (int)(end - line), line);
        check_json(json, plain, *line == '+', path);
        ++*inout_num_texts;
    }
    grammar_unref(grammar);
    grammar_unref(json);
    free(text);
    free(texts);
}

static void test_files(void **unused) {
    static const char *const patterns[] = {GOLDEN_DIR "/grammars/*.gbnf",
                                           GOLDEN_DIR "/grammars/*.lark"};
    int num_texts = 0;
    for (size_t i = 0; i < COUNT(patterns); i++) {
        glob_t found;
        assert_int_equal(glob(patterns[i], 0, NULL, &found), 0);
        assert_true(found.gl_pathc >= 6);
        for (size_t k = 0; k < found.gl_pathc; k++)
            check_file(found.gl_pathv[k], &num_texts);
        globfree(&found);
    }
    assert_true(num_texts > 900);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_lark),
        cmocka_unit_test(test_common_terminals),
        cmocka_unit_test(test_gbnf_refused),
        cmocka_unit_test(test_lark_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
