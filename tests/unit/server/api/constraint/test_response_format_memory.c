/* Memory that runs out at every allocation in turn while a schema becomes a grammar: always the
 * client's answer is 500, and nothing is lost. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/api/constraint/response_format.h"
#include "tests/unit/failing_allocations.h"

static const char body[] =
    "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
    "\"object\","
    "\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^(a|[b-d]{2,3})+$\"},"
    "\"b\":{\"enum\":[\"x\",1.5,{\"y\":[null]}]},\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#"
    "\"},"
    "\"maxItems\":3},\"d\":{\"allOf\":[{\"$ref\":\"#/$defs/d\"},{\"required\":[\"e\"]}]},"
    "\"f\":{\"type\":\"number\",\"minimum\":-2,\"maximum\":7.5}},\"required\":[\"a\"],"
    "\"additionalProperties\":{\"type\":[\"integer\",\"null\"],\"minimum\":3},"
    "\"$defs\":{\"d\":{\"properties\":{\"e\":{\"const\":\"z\"}}}}}}}}";

static const char choices[] = "{\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}}";
static const char regex[] = "{\"structured_outputs\":{\"regex\":\"a|b{2}\"}}";
static const char text[] = "{\"guided_json\":\"{\\\"type\\\":\\\"integer\\\"}\"}";

static void fail_each(const char *source) {
    struct grammar *grammar = NULL;
    cJSON *json = cJSON_Parse(source);
    assert_non_null(json);
    long first = 0;
    while (grammar == NULL) {
        struct api_error err = {0};
        allocations_left = first++;
        int result = response_format_read(json, &openai_names, NULL, NULL, NULL, &grammar, &err);
        allocations_left = -1;
        assert_int_equal(result, grammar != NULL ? 0 : -1);
        if (result != 0 && err.status != 503)
            fail_msg("allocation %ld: %d %s", first - 1, err.status, err.message);
    }
    assert_true(first > 5);
    grammar_unref(grammar);
    cJSON_Delete(json);
}

static void test_allocations(void **unused) {
    fail_each(body);
    fail_each(choices);
    fail_each(regex);
    fail_each(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
