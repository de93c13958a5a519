/* Private to chat_template/: the filters, which template_filters.c lists. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_FILTERS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_FILTERS_H

#include "models/chat_template/template_call.h"

/* Filters over items (template_item_filters.c). NULL: none of that name. */
const struct template_function *template_item_filters_find(struct text name);
/* Filters over strings and numbers (template_text_filters.c). */
const struct template_function *template_text_filters_find(struct text name);

#endif
