/* What a server presents in a TLS handshake, and what it requires of clients: certificates and a
 * key from PEM files, and the accepted protocol versions and ciphers. Never changes once loaded;
 * any thread may hold a reference. */
#ifndef QUIRE_SERVER_TLS_TLS_CREDENTIALS_H
#define QUIRE_SERVER_TLS_TLS_CREDENTIALS_H

#include "config/base/error.h"

#include <gnutls/gnutls.h>

struct tls_files {
    const char *certfile; /* the server's certificate, then those that lead to a known authority */
    const char *keyfile;  /* its private key; NULL: in certfile too */
    const char *ca_certs; /* whose certificates clients must have; NULL: none */
};

struct tls_credentials;

/* ERROR_CONFIG names the file and what is wrong with it, including a key that does not match the
 * certificate. Logs until when the certificate is valid, and warns when others may read the key. */
int tls_credentials_load(const struct tls_files *files, struct tls_credentials **out,
                         struct error *err);
struct tls_credentials *tls_credentials_ref(struct tls_credentials *credentials);
/* Accepts NULL. */
void tls_credentials_unref(struct tls_credentials *credentials);

/* Returns a session that has no transport yet; the credentials outlive it. NULL: no memory. */
gnutls_session_t tls_credentials_start(const struct tls_credentials *credentials);

#endif
