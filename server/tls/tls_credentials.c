#include "server/tls/tls_credentials.h"

#include "config/base/log.h"

#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* TLS 1.2 and 1.3, forward secrecy and authenticated encryption alone (RFC 9325 section 4). Without
 * tickets, so that whoever is let in has shown a certificate that is valid now. */
static const char priorities[] =
    "NONE:+VERS-TLS1.3:+VERS-TLS1.2:+COMP-NULL:+CTYPE-X509:+AEAD:"
    "+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:+ECDHE-ECDSA:+ECDHE-RSA:"
    "+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:"
    "+SIGN-ECDSA-SHA256:+SIGN-ECDSA-SHA384:+SIGN-ECDSA-SHA512:"
    "+SIGN-ECDSA-SECP256R1-SHA256:+SIGN-ECDSA-SECP384R1-SHA384:+SIGN-ECDSA-SECP521R1-SHA512:"
    "+SIGN-EDDSA-ED25519:+SIGN-RSA-PSS-RSAE-SHA256:+SIGN-RSA-PSS-RSAE-SHA384:"
    "+SIGN-RSA-PSS-RSAE-SHA512:+SIGN-RSA-SHA256:+SIGN-RSA-SHA384:+SIGN-RSA-SHA512:"
    "%SERVER_PRECEDENCE:%NO_TICKETS:%SAFE_RENEGOTIATION";

struct tls_credentials {
    atomic_int num_references;
    gnutls_certificate_credentials_t certificate;
    gnutls_priority_t priority;
    bool needs_client_certificate;
};

static int refuse(struct error *err, const char *option, const char *path, int code) {
    return error_set(err, code == GNUTLS_E_MEMORY_ERROR ? ERROR_MEMORY : ERROR_CONFIG,
                     "%s %.200s: %s", option, path, gnutls_strerror(code));
}

static int load_key(struct tls_credentials *credentials, const struct tls_files *files,
                    struct error *err) {
    const char *key = files->keyfile != NULL ? files->keyfile : files->certfile;
    int status = gnutls_certificate_set_x509_key_file(credentials->certificate, files->certfile,
                                                      key, GNUTLS_X509_FMT_PEM);
    if (status < 0 && files->keyfile != NULL)
        return error_set(err, ERROR_CONFIG, "ssl-certfile %.150s, ssl-keyfile %.150s: %s",
                         files->certfile, key, gnutls_strerror(status));
    if (status < 0)
        return refuse(err, "ssl-certfile", files->certfile, status);
    struct stat info;
    if (stat(key, &info) == 0 && (info.st_mode & 0006) != 0)
        log_warning("ssl-keyfile %s: others may read or change it; chmod 640 or 600", key);
    return 0;
}

static int load_authorities(struct tls_credentials *credentials, const struct tls_files *files,
                            struct error *err) {
    if (files->ca_certs == NULL)
        return 0;
    int count = gnutls_certificate_set_x509_trust_file(credentials->certificate, files->ca_certs,
                                                       GNUTLS_X509_FMT_PEM);
    if (count < 0)
        return refuse(err, "ssl-ca-certs", files->ca_certs, count);
    if (count == 0)
        return error_set(err, ERROR_CONFIG, "ssl-ca-certs %.200s: holds no certificate",
                         files->ca_certs);
    credentials->needs_client_certificate = true;
    return 0;
}

static void log_validity(const struct tls_credentials *credentials, const char *path) {
    gnutls_x509_crt_t *chain;
    unsigned length = 0;
    if (gnutls_certificate_get_x509_crt(credentials->certificate, 0, &chain, &length) < 0)
        return;
    time_t end = gnutls_x509_crt_get_expiration_time(chain[0]);
    char day[32] = "?";
    struct tm utc;
    if (gmtime_r(&end, &utc) != NULL)
        strftime(day, sizeof(day), "%Y-%m-%d", &utc);
    if (end < time(NULL))
        log_warning("ssl-certfile %s: it expired on %s", path, day);
    else
        log_info("TLS certificate %s, valid until %s", path, day);
    for (unsigned i = 0; i < length; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
}

static int load(struct tls_credentials *credentials, const struct tls_files *files,
                struct error *err) {
    int status = gnutls_priority_init2(&credentials->priority, priorities, NULL, 0);
    if (status == 0)
        status = gnutls_certificate_allocate_credentials(&credentials->certificate);
    if (status < 0)
        return error_set(err, ERROR_MEMORY, "TLS: %s", gnutls_strerror(status));
    if (load_key(credentials, files, err) != 0 || load_authorities(credentials, files, err) != 0)
        return -1;
    log_validity(credentials, files->certfile);
    return 0;
}

int tls_credentials_load(const struct tls_files *files, struct tls_credentials **out,
                         struct error *err) {
    struct tls_credentials *credentials = calloc(1, sizeof(*credentials));
    if (credentials == NULL)
        return error_set(err, ERROR_MEMORY, "TLS: no memory");
    atomic_init(&credentials->num_references, 1);
    if (load(credentials, files, err) != 0) {
        tls_credentials_unref(credentials);
        return -1;
    }
    *out = credentials;
    return 0;
}

struct tls_credentials *tls_credentials_ref(struct tls_credentials *credentials) {
    atomic_fetch_add(&credentials->num_references, 1);
    return credentials;
}

void tls_credentials_unref(struct tls_credentials *credentials) {
    if (credentials == NULL || atomic_fetch_sub(&credentials->num_references, 1) > 1)
        return;
    if (credentials->certificate != NULL)
        gnutls_certificate_free_credentials(credentials->certificate);
    if (credentials->priority != NULL)
        gnutls_priority_deinit(credentials->priority);
    free(credentials);
}

static int set_up(const struct tls_credentials *credentials, gnutls_session_t session) {
    static const gnutls_datum_t protocol = {(unsigned char *)"http/1.1", 8};
    int status = gnutls_priority_set(session, credentials->priority);
    if (status == 0)
        status = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials->certificate);
    if (status == 0)
        status = gnutls_alpn_set_protocols(session, &protocol, 1, GNUTLS_ALPN_MANDATORY);
    if (status < 0 || !credentials->needs_client_certificate)
        return status;
    /* the usage must be that of a client, where the certificate names any */
    static gnutls_typed_vdata_st usage = {GNUTLS_DT_KEY_PURPOSE_OID,
                                          (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, 0};
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_cert2(session, &usage, 1, 0);
    return 0;
}

gnutls_session_t tls_credentials_start(const struct tls_credentials *credentials) {
    gnutls_session_t session;
    if (gnutls_init(&session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return NULL;
    if (set_up(credentials, session) < 0) {
        gnutls_deinit(session);
        return NULL;
    }
    return session;
}
