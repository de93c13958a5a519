/* A place in a JSON document, as messages name it: messages[3].content[0].text. A reader makes one
 * on its stack for each member or item that it enters; the text is made when an error needs it. */
#ifndef QUIRE_CONFIG_JSON_JSON_PATH_H
#define QUIRE_CONFIG_JSON_JSON_PATH_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

#define JSON_PATH_BYTES 256 /* of the text; a longer one ends in "..." */

struct json_path {
    const struct json_path *parent; /* NULL: the name is a member of the document */
    const char *name;               /* of a member; NULL: an item */
    int index;                      /* of an item */
};

/* Make a path that lives as long as the enclosing block. parent: NULL for a member of the
 * document. */
#define JSON_MEMBER_PATH(parent, name) (&(const struct json_path){(parent), (name), 0})
#define JSON_ITEM_PATH(parent, index) (&(const struct json_path){(parent), NULL, (index)})

/* Writes its text, with a NUL. */
void json_path_text(const struct json_path *path, char out[JSON_PATH_BYTES]);

/* Return -1 and fill *err, like json_refuse and bad_request, with the path as param: "PATH must be
 * ALLOWED, not VALUE", and "PATH" followed by what the format says. */
int json_refuse_at(const cJSON *item, const struct json_path *path, const char *allowed,
                   struct api_error *err);
int bad_request_at(struct api_error *err, const char *code, const struct json_path *path,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
