/* Private to chat_template/: strings in other case. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CASE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CASE_H

#include "models/chat_template/template_run.h"

int template_case_upper(struct template_run *run, const struct template_value *string,
                        struct template_value *out);
int template_case_lower(struct template_run *run, const struct template_value *string,
                        struct template_value *out);
/* str.capitalize and str.title of Python, and Jinja's filter title, whose words end only at white
 * space, dashes and opening brackets. */
int template_case_capitalize(struct template_run *run, const struct template_value *string,
                             struct template_value *out);
int template_case_title(struct template_run *run, const struct template_value *string,
                        struct template_value *out);
int template_case_title_words(struct template_run *run, const struct template_value *string,
                              struct template_value *out);

#endif
