/* Private to chat_template/: the filter tojson, which is Python's json.dumps. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_JSON_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_JSON_H

#include "models/chat_template/template_call.h"

/* Parameters "ensure_ascii indent separators sort_keys". */
int template_json_filter(struct template_run *run, const struct template_call *call,
                         struct template_value *out);

#endif
