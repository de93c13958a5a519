#include "server/api/responses/responses_output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void add(struct responses_output *output, enum output_part_kind kind, const char *text,
                struct byte_buffer *events) {
    const struct output_part part = {.kind = kind, .text = text, .length = strlen(text)};
    assert_int_equal(responses_output_add(output, &part, NULL, events), 0);
}

static int count(const struct byte_buffer *text, const char *word) {
    int found = 0;
    for (const char *at = text->data; (at = strstr(at, word)) != NULL; at++)
        found++;
    return found;
}

/* Also where the answer goes on behind it. */
static void half_a_call_is_incomplete(void **state) {
    struct responses_output output = {0};
    struct byte_buffer events = {0}, items = {0};
    add(&output, OUTPUT_PART_TOOL_CALL, "f", &events);
    add(&output, OUTPUT_PART_TOOL_ARGUMENTS, "{\"a\": {}}", &events);
    add(&output, OUTPUT_PART_TOOL_CALL, "f", &events);
    add(&output, OUTPUT_PART_TOOL_ARGUMENTS, "{\"a\": {}", &events);
    add(&output, OUTPUT_PART_CONTENT, "b", &events);
    assert_int_equal(responses_output_close(&output, false, &events), 0);
    responses_output_format(&output, false, &items);
    byte_buffer_append(&events, "", 1);
    byte_buffer_append(&items, "", 1);
    assert_int_equal(count(&items, "\"status\":\"completed\""), 2);
    assert_int_equal(count(&items, "\"status\":\"incomplete\""), 1);
    assert_int_equal(count(&events, "\"status\":\"incomplete\""), 1);
    byte_buffer_finish(&events);
    byte_buffer_finish(&items);
    responses_output_finish(&output);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(half_a_call_is_incomplete)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
