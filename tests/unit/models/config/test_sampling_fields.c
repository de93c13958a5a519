/* The table of sampling settings, and how those that are absent are distinguished. */
#include "models/config/sampling_fields.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Every member has a line: each takes four bytes. */
static void every_setting_has_a_field(void **state) {
    int count;
    const struct sampling_field *fields = sampling_fields(&count);
    struct sampling_settings settings = SAMPLING_SETTINGS_NEUTRAL;
    assert_int_equal(count * (int)sizeof(float), sizeof(settings));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            assert_true(fields[i].offset != fields[k].offset &&
                        strcmp(fields[i].name, fields[k].name) != 0);
}

static void absent_settings_are_left(void **state) {
    struct sampling_settings recommended, settings = SAMPLING_SETTINGS_NEUTRAL;
    int count;
    const struct sampling_field *fields = sampling_fields(&count);
    sampling_fields_clear(&recommended);
    for (int i = 0; i < count; i++)
        assert_true(sampling_field_is_absent(&fields[i], &recommended));
    sampling_fields_merge(&recommended, &settings);
    assert_true(settings.temperature == 1 && settings.top_p == 1 && settings.top_k == -1);
    recommended.top_k = 20;
    recommended.min_p = 0;
    recommended.temperature = 0.6F;
    settings.min_p = 0.5F;
    sampling_fields_merge(&recommended, &settings);
    assert_true(settings.temperature == 0.6F && settings.top_k == 20 && settings.min_p == 0);
    assert_true(settings.top_p == 1 && settings.repetition_penalty == 1);
}

static void defaults_are_the_models_or_llamas(void **state) {
    struct sampling_settings recommended;
    sampling_fields_clear(&recommended);
    assert_false(sampling_fields_recommend(&recommended));
    struct sampling_settings settings = sampling_fields_defaults(&recommended);
    assert_true(settings.temperature == 0.8F && settings.top_k == 40 && settings.top_p == 0.95F);
    assert_true(settings.min_p == 0.05F && settings.repetition_penalty == 1);
    recommended.top_p = 0.5F; /* whoever recommends something has thought of the rest */
    assert_true(sampling_fields_recommend(&recommended));
    settings = sampling_fields_defaults(&recommended);
    assert_true(settings.temperature == 1 && settings.top_k == -1 && settings.top_p == 0.5F);
    assert_true(settings.min_p == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_has_a_field),
        cmocka_unit_test(absent_settings_are_left),
        cmocka_unit_test(defaults_are_the_models_or_llamas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
