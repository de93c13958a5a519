/* The functions every template sees: Jinja's own, and those Transformers adds. */
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_library.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_type.h"

#include <stdlib.h>
#include <time.h>

/* Jinja's sandbox allows no more either. */
enum { MAX_RANGE = 100000, MAX_TIME_BYTES = 4096 };

TEMPLATE_BODY(make_range) {
    int64_t start, stop, step;
    struct template_value made;
    if (template_call_get_int(run, call, 0, 0, &start) != 0 ||
        template_call_get_int(run, call, 1, 0, &stop) != 0 ||
        template_call_get_int(run, call, 2, 1, &step) != 0)
        return -1;
    if (call->given[1].kind == TEMPLATE_MISSING) {
        stop = start;
        start = 0;
    }
    if (step == 0)
        return template_run_fail(run, "range() arg 3 must not be zero");
    __int128 distance = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 size = step > 0 ? (__int128)step : -(__int128)step;
    __int128 num = distance > 0 ? (distance + size - 1) / size : 0;
    if (num > MAX_RANGE)
        return template_run_fail(run, "a range has at most %d items", MAX_RANGE);
    if (template_run_charge(run, (size_t)num / 4) != 0)
        return -1;
    if (!template_data_sequence(run->arena, TEMPLATE_RANGE, &made) ||
        !template_data_reserve(run->arena, made.sequence, (size_t)num))
        return template_run_fail_memory(run);
    for (int64_t i = 0; i < (int64_t)num; i++)
        made.sequence->items[i] = template_data_int(start + i * step);
    made.sequence->length = (size_t)num;
    *out = made;
    return 0;
}

/* Makes a map of a map's entries and of the keywords. */
static int make_map(struct template_run *run, const struct template_call *call,
                    enum template_kind kind, struct template_value *out) {
    const struct template_arguments *arguments = call->arguments;
    struct template_value made;
    bool has_map = arguments->num == 1 && arguments->items[0].kind == TEMPLATE_MAP;
    if (arguments->num > 0 && !has_map)
        return template_run_fail(run, "a dict is made of at most 1 argument, a mapping");
    if (!template_data_map(run->arena, kind, &made) ||
        (has_map &&
         !template_data_map_update(run->arena, made.mapping, arguments->items[0].mapping)) ||
        (arguments->keywords != NULL &&
         !template_data_map_update(run->arena, made.mapping, arguments->keywords)))
        return template_run_fail_memory(run);
    *out = made;
    return 0;
}

TEMPLATE_BODY(make_dict) {
    return make_map(run, call, TEMPLATE_MAP, out);
}

/* Transformers refuses names that begin with an underscore. */
TEMPLATE_BODY(make_namespace) {
    struct template_value made;
    if (make_map(run, call, TEMPLATE_NAMESPACE, &made) != 0)
        return -1;
    for (size_t i = 0; i < made.mapping->length; i++) {
        struct text name = template_string_text(&made.mapping->entries[i].key);
        if (name.length > 0 && name.data[0] == '_')
            return template_run_fail(run, "a namespace cannot have the attribute '%.*s'",
                                     template_run_shown(name), name.data);
    }
    *out = made;
    return 0;
}

TEMPLATE_BODY(raise_exception) {
    struct template_value message;
    if (template_repr_string(run, &call->given[0], &message) != 0)
        return -1;
    int length = message.string.length < 400 ? (int)message.string.length : 400;
    return template_run_fail(run, "%.*s", length, message.string.data);
}

TEMPLATE_BODY(strftime_now) {
    char format[256], text[MAX_TIME_BYTES];
    struct template_value given;
    struct tm local;
    time_t now = (time_t)run->now;
    if (template_call_get_string(run, call, 0, "", &given) != 0)
        return -1;
    if (given.string.length >= sizeof(format) || localtime_r(&now, &local) == NULL)
        return template_run_fail(run, "strftime_now: the format has more than %zu bytes",
                                 sizeof(format) - 1);
    memcpy(format, given.string.data, given.string.length);
    format[given.string.length] = '\0';
    size_t length = strftime(text, sizeof(text), format, &local);
    return template_run_copy(run, (struct text){text, length}, out);
}

const struct template_function template_functions[] = {
    {"range", make_range, "start stop step", 1}, {"dict", make_dict, NULL, 0},
    {"namespace", make_namespace, NULL, 0},      {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1}, {NULL, NULL, NULL, 0},
};
