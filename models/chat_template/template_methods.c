/* Methods of maps and of the variable `loop`. */
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_compare.h"
#include "models/chat_template/template_library.h"
#include "models/chat_template/template_type.h"

/* --- Maps --------------------------------------------------------------------------------------
 */

static int get(struct template_run *run, const struct template_call *call,
               struct template_value *out) {
    const struct template_value *item = NULL;
    if (template_mapping_is_key(&call->given[0]))
        item = template_mapping_find(run->arena, call->self->mapping, &call->given[0]);
    else if (call->given[0].kind != TEMPLATE_UNDEFINED)
        return template_run_fail(run, "unhashable type: '%s'", template_type_name(&call->given[0]));
    if (item != NULL)
        *out = *item;
    else
        *out = call->given[1].kind == TEMPLATE_MISSING ? template_data_none() : call->given[1];
    return 0;
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS }; /* as template_repr.c names them */

static int make_view(struct template_run *run, const struct template_call *call, enum view view,
                     struct template_value *out) {
    const struct template_mapping *map = call->self->mapping;
    struct template_value made;
    if (template_run_charge(run, map->length / 4) != 0)
        return -1;
    if (!template_data_sequence(run->arena, TEMPLATE_VIEW, &made) ||
        !template_data_reserve(run->arena, made.sequence, map->length))
        return template_run_fail_memory(run);
    for (size_t i = 0; i < map->length; i++) {
        struct template_value pair[2] = {map->entries[i].key, map->entries[i].item};
        struct template_value *item = &made.sequence->items[i];
        if (view != VIEW_ITEMS)
            *item = pair[view == VIEW_VALUES];
        else if (!template_data_items(run->arena, TEMPLATE_TUPLE, pair, 2, item))
            return template_run_fail_memory(run);
    }
    made.sequence->length = map->length;
    made.origin = (uint8_t)view;
    *out = made;
    return 0;
}

static int keys(struct template_run *run, const struct template_call *call,
                struct template_value *out) {
    return make_view(run, call, VIEW_KEYS, out);
}

static int values(struct template_run *run, const struct template_call *call,
                  struct template_value *out) {
    return make_view(run, call, VIEW_VALUES, out);
}

static int items(struct template_run *run, const struct template_call *call,
                 struct template_value *out) {
    return make_view(run, call, VIEW_ITEMS, out);
}

/* --- Loops --------------------------------------------------------------------------------------
 */

static int cycle(struct template_run *run, const struct template_call *call,
                 struct template_value *out) {
    size_t num = call->arguments->num;
    if (num == 0)
        return template_run_fail(run, "no items for cycling given");
    *out = call->arguments->items[call->self->loop->index % num];
    return 0;
}

static int changed(struct template_run *run, const struct template_call *call,
                   struct template_value *out) {
    struct template_loop *loop = call->self->loop;
    struct template_value seen;
    bool same = false;
    if (!template_data_items(run->arena, TEMPLATE_TUPLE, call->arguments->items,
                             call->arguments->num, &seen))
        return template_run_fail_memory(run);
    if (loop->last_seen.kind != TEMPLATE_MISSING &&
        template_compare_equal(run, &loop->last_seen, &seen, &same) != 0)
        return -1;
    loop->last_seen = seen;
    *out = template_data_bool(!same);
    return 0;
}

/* --- Tables ------------------------------------------------------------------------------------
 */

const struct template_function template_map_methods[] = {
    {"get", get, "key default", 1}, {"keys", keys, "", 0}, {"values", values, "", 0},
    {"items", items, "", 0},        {NULL, NULL, NULL, 0},
};

const struct template_function template_loop_methods[] = {
    {"cycle", cycle, NULL, 0},
    {"changed", changed, NULL, 0},
    {NULL, NULL, NULL, 0},
};
