#include "server/tls/tls_connection.h"

#include "config/base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RECORDS 8 /* carried in each direction before others have their turn */

enum flow { FLOW_BLOCKED, FLOW_ON };

/* Hides the end of the client's bytes from GnuTLS, which would not let us send any more. */
static ssize_t pull(gnutls_transport_ptr_t context, void *out, size_t capacity) {
    struct tls_connection *connection = context;
    ssize_t length = recv(connection->outer, out, capacity, MSG_DONTWAIT);
    if (length == 0)
        connection->is_outer_ended = true;
    if (length <= 0)
        gnutls_transport_set_errno(connection->session, length == 0 ? EAGAIN : errno);
    return length == 0 ? -1 : length;
}

struct tls_connection *tls_connection_create(int outer, struct tls_credentials *credentials) {
    struct tls_connection *connection = calloc(1, sizeof(*connection));
    gnutls_session_t session = connection != NULL ? tls_credentials_start(credentials) : NULL;
    if (session == NULL) {
        free(connection);
        return NULL;
    }
    connection->outer = outer;
    connection->inner = -1;
    connection->session = session;
    gnutls_transport_set_ptr2(session, connection, (gnutls_transport_ptr_t)(intptr_t)outer);
    gnutls_transport_set_pull_function(session, pull);
    connection->credentials = tls_credentials_ref(credentials);
    return connection;
}

void tls_connection_destroy(struct tls_connection *connection) {
    gnutls_deinit(connection->session);
    tls_credentials_unref(connection->credentials);
    byte_buffer_finish(&connection->to_inner);
    byte_buffer_finish(&connection->to_outer);
    close(connection->outer);
    if (connection->inner >= 0)
        close(connection->inner);
    free(connection);
}

static bool is_again(ssize_t code) {
    return code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED;
}

static bool would_block(void) {
    return errno == EAGAIN || errno == EINTR;
}

/* Closing a socket with unread bytes resets it, and the client may lose the end of its answer: so
 * only our half is closed. */
static void linger(struct tls_connection *connection) {
    if (connection->inner >= 0)
        close(connection->inner);
    connection->inner = -1;
    byte_buffer_finish(&connection->to_inner);
    byte_buffer_finish(&connection->to_outer);
    shutdown(connection->outer, SHUT_WR);
    connection->state = connection->is_outer_ended ? TLS_CLOSED : TLS_LINGER;
}

int tls_connection_handshake(struct tls_connection *connection) {
    int status = gnutls_handshake(connection->session);
    for (int i = 0; i < MAX_RECORDS && status < 0 && !is_again(status); i++) {
        if (gnutls_error_is_fatal(status) != 0)
            break;
        status = gnutls_handshake(connection->session);
    }
    if (status == GNUTLS_E_SUCCESS)
        return 1;
    if (is_again(status) && !connection->is_outer_ended)
        return 0;
    log_debug("TLS handshake: %s", gnutls_strerror(status));
    gnutls_alert_send_appropriate(connection->session, status);
    linger(connection);
    return -1;
}

/* Drops what the HTTP side does not want any more. */
static enum flow flush_to_inner(struct tls_connection *connection) {
    struct byte_buffer *bytes = &connection->to_inner;
    ssize_t sent = send(connection->inner, bytes->data, bytes->length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_block())
        return FLOW_BLOCKED;
    byte_buffer_consume(bytes, sent < 0 ? bytes->length : (size_t)sent);
    if (bytes->length == 0)
        byte_buffer_finish(bytes);
    return FLOW_ON;
}

static enum flow read_record(struct tls_connection *connection) {
    char record[TLS_MAX_RECORD_BYTES];
    ssize_t length = gnutls_record_recv(connection->session, record, sizeof(record));
    if (length > 0) {
        byte_buffer_append(&connection->to_inner, record, (size_t)length);
        if (connection->to_inner.failed)
            connection->state = TLS_CLOSED;
        return FLOW_ON;
    }
    /* Many clients close without TLS's farewell; HTTP says whether its messages are complete. */
    if (length == 0 || (is_again(length) && connection->is_outer_ended)) {
        connection->is_outer_ended = true;
        shutdown(connection->inner, SHUT_WR);
        return FLOW_BLOCKED;
    }
    if (is_again(length))
        return FLOW_BLOCKED;
    if (length == GNUTLS_E_WARNING_ALERT_RECEIVED)
        return FLOW_ON;
    connection->state = TLS_CLOSED;
    return FLOW_BLOCKED;
}

static enum flow carry_inward(struct tls_connection *connection) {
    if (connection->to_inner.length > 0)
        return flush_to_inner(connection);
    return connection->is_outer_ended ? FLOW_BLOCKED : read_record(connection);
}

/* A client may take smaller records than ours (RFC 8449). Returns how many of the bytes are sent.
 * The ones that GnuTLS began to send it keeps, and says how many they were once they are out. */
static size_t send_record(struct tls_connection *connection, const char *bytes, size_t length) {
    ssize_t sent = connection->is_sending ? gnutls_record_send(connection->session, NULL, 0)
                                          : gnutls_record_send(connection->session, bytes, length);
    connection->is_sending = is_again(sent);
    if (sent < 0 && !connection->is_sending)
        connection->state = TLS_CLOSED;
    return sent > 0 ? (size_t)sent : 0;
}

static enum flow flush_to_outer(struct tls_connection *connection) {
    struct byte_buffer *bytes = &connection->to_outer;
    size_t sent = send_record(connection, bytes->data, bytes->length);
    byte_buffer_consume(bytes, sent);
    if (bytes->length == 0)
        byte_buffer_finish(bytes);
    return sent > 0 ? FLOW_ON : FLOW_BLOCKED;
}

static enum flow carry_outward(struct tls_connection *connection) {
    char record[TLS_MAX_RECORD_BYTES];
    if (connection->to_outer.length > 0)
        return flush_to_outer(connection);
    ssize_t length = recv(connection->inner, record, sizeof(record), MSG_DONTWAIT);
    if (length < 0 && would_block())
        return FLOW_BLOCKED;
    if (length <= 0) {
        if (!is_again(gnutls_bye(connection->session, GNUTLS_SHUT_WR)))
            linger(connection);
        return FLOW_BLOCKED;
    }
    size_t sent = send_record(connection, record, (size_t)length);
    byte_buffer_append(&connection->to_outer, record + sent, (size_t)length - sent);
    if (connection->to_outer.failed)
        connection->state = TLS_CLOSED;
    return sent > 0 ? FLOW_ON : FLOW_BLOCKED;
}

/* What still comes is of no interest. */
static bool discard(struct tls_connection *connection) {
    char bytes[TLS_MAX_RECORD_BYTES];
    for (int i = 0; i < MAX_RECORDS; i++) {
        ssize_t length = recv(connection->outer, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (length < 0 && would_block())
            return false;
        if (length <= 0) {
            connection->state = TLS_CLOSED;
            return false;
        }
    }
    return true;
}

static bool is_carrying(const struct tls_connection *connection) {
    return connection->state == TLS_RELAY || connection->state == TLS_ENDING;
}

bool tls_connection_relay(struct tls_connection *connection) {
    enum flow inward = FLOW_ON, outward = FLOW_ON;
    if (connection->is_outer_gone)
        connection->state = TLS_CLOSED;
    for (int i = 0; i < MAX_RECORDS && (inward == FLOW_ON || outward == FLOW_ON); i++) {
        if (is_carrying(connection))
            inward = carry_inward(connection);
        if (is_carrying(connection))
            outward = carry_outward(connection);
    }
    if (connection->state == TLS_LINGER)
        return discard(connection);
    return is_carrying(connection) && (inward == FLOW_ON || outward == FLOW_ON);
}
