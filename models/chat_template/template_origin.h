/* Whose words a byte of a prompt is. Every string of a rendering keeps this for each of its bytes,
 * and whatever is cut out of it, put together with others, changed in case or escaped keeps it as
 * well: bytes of a client's can never become a control token (chat_template.h). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ORIGIN_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ORIGIN_H

enum template_origin {
    TEMPLATE_ORIGIN_SERVER, /* the template's, or ours: a role, a bos token */
    TEMPLATE_ORIGIN_CLIENT, /* content, names, arguments, tool descriptions, ... */
};

#endif
