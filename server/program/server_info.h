/* The contents of /server_info: the options in effect, and the resulting values. It contains no
 * secret: for an option that holds one (options_get), only that it was given. */
#ifndef QUIRE_SERVER_PROGRAM_SERVER_INFO_H
#define QUIRE_SERVER_PROGRAM_SERVER_INFO_H

#include "config/base/byte_buffer.h"
#include "config/options.h"
#include "server/api/call/api_context.h"
#include "server/program/memory_table.h"

/* Everything here outlives the server. */
struct server_info {
    const struct options *options;
    const struct memory_table *memory; /* with its executor */
    const struct api_context *context;
    const char *draft_path;       /* of the draft model; NULL: none */
    const char *activation_dtype; /* its name; static */
};

/* Appends one JSON object. */
void server_info_write(const struct server_info *info, struct byte_buffer *out);

#endif
