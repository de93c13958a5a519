/* The chat page and the API's description, compiled in: files of this folder as bytes, written to a
 * C source by embed_page.py during the build. Constants; nothing here is ever freed. */
#ifndef QUIRE_SERVER_PAGE_PAGE_H
#define QUIRE_SERVER_PAGE_PAGE_H

#include <stddef.h>

/* HTML in UTF-8, compressed by gzip; not NUL-terminated. */
extern const unsigned char page_chat[];
extern const size_t page_chat_bytes;

/* A strong entity tag in its quotes: a hash of the page. */
extern const char page_chat_etag[];

/* The Content-Security-Policy it must be served with: it contains the hashes of the page's own
 * style and scripts and forbids everything else. */
extern const char page_chat_policy[];

/* openapi.json, with what embed_page.py adds. JSON, not NUL-terminated, without the fields of the
 * server's tables: see openapi.h. */
extern const unsigned char page_openapi[];
extern const size_t page_openapi_bytes;

#endif
