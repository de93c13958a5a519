#include "engine/record/record_codec.h"

#include "models/files/content_hash.h"

#include <errno.h>
#include <string.h>

/* --- Values --- */

void record_put_unsigned(struct byte_buffer *out, uint64_t value) {
    unsigned char bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[count++] = (unsigned char)(value | 0x80);
    bytes[count++] = (unsigned char)value;
    byte_buffer_append(out, bytes, count);
}

void record_put_signed(struct byte_buffer *out, int64_t value) {
    uint64_t bits = (uint64_t)value;
    record_put_unsigned(out, value < 0 ? ~(bits << 1) : bits << 1);
}

void record_put_bool(struct byte_buffer *out, bool value) {
    record_put_unsigned(out, value);
}

/* Lowest byte first. */
static void put_fixed(struct byte_buffer *out, uint64_t bits, size_t count) {
    unsigned char bytes[8];
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(bits >> 8 * i);
    byte_buffer_append(out, bytes, count);
}

void record_put_float(struct byte_buffer *out, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_fixed(out, bits, sizeof(bits));
}

void record_put_double(struct byte_buffer *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_fixed(out, bits, sizeof(bits));
}

void record_put_bytes(struct byte_buffer *out, const void *data, size_t length) {
    record_put_unsigned(out, length);
    byte_buffer_append(out, data, length);
}

void record_put_text(struct byte_buffer *out, const char *text) {
    record_put_bytes(out, text, strlen(text));
}

struct record_input record_input_of(struct text bytes) {
    const unsigned char *at = (const unsigned char *)bytes.data;
    return (struct record_input){.at = at, .end = at + bytes.length};
}

int record_peek(const struct record_input *in) {
    return in->at < in->end ? *in->at : -1;
}

void record_input_refuse(struct record_input *in, const char *name) {
    if (in->wrong == NULL)
        in->wrong = name;
    in->at = in->end;
}

static bool read_unsigned(struct record_input *in, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint64_t bits = *in->at & 0x7f;
        if (shift == 63 && bits > 1)
            return false;
        value |= bits << shift;
        if (*in->at++ < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

uint64_t record_get_unsigned(struct record_input *in, const char *name, uint64_t max) {
    uint64_t value;
    if (in->wrong == NULL && read_unsigned(in, &value) && value <= max)
        return value;
    record_input_refuse(in, name);
    return 0;
}

int64_t record_get_signed(struct record_input *in, const char *name, int64_t min, int64_t max) {
    uint64_t bits = record_get_unsigned(in, name, UINT64_MAX);
    int64_t value = (int64_t)(bits >> 1);
    if (bits & 1)
        value = -1 - value;
    if (in->wrong == NULL && value >= min && value <= max)
        return value;
    record_input_refuse(in, name);
    return 0;
}

int32_t record_get_int32(struct record_input *in, const char *name, int32_t min, int32_t max) {
    return (int32_t)record_get_signed(in, name, min, max);
}

bool record_get_bool(struct record_input *in, const char *name) {
    return record_get_unsigned(in, name, 1) != 0;
}

static uint64_t get_fixed(struct record_input *in, const char *name, size_t count) {
    uint64_t bits = 0;
    if (in->wrong != NULL || (size_t)(in->end - in->at) < count) {
        record_input_refuse(in, name);
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        bits |= (uint64_t)*in->at++ << 8 * i;
    return bits;
}

float record_get_float(struct record_input *in, const char *name, float min, float max) {
    uint32_t bits = (uint32_t)get_fixed(in, name, sizeof(bits));
    float value;
    memcpy(&value, &bits, sizeof(value));
    if (in->wrong == NULL && value >= min && value <= max)
        return value;
    record_input_refuse(in, name);
    return 0;
}

double record_get_double(struct record_input *in, const char *name, double min, double max) {
    uint64_t bits = get_fixed(in, name, sizeof(bits));
    double value;
    memcpy(&value, &bits, sizeof(value));
    if (in->wrong == NULL && value >= min && value <= max)
        return value;
    record_input_refuse(in, name);
    return 0;
}

struct text record_get_bytes(struct record_input *in, const char *name, size_t max_length) {
    size_t length = (size_t)record_get_unsigned(in, name, max_length);
    if (in->wrong == NULL && length <= (size_t)(in->end - in->at)) {
        struct text bytes = {(const char *)in->at, length};
        in->at += length;
        return bytes;
    }
    record_input_refuse(in, name);
    return (struct text){"", 0};
}

void record_get_text(struct record_input *in, const char *name, char *out, size_t capacity) {
    struct text text = record_get_bytes(in, name, capacity - 1);
    if (memchr(text.data, '\0', text.length) != NULL)
        record_input_refuse(in, name);
    memcpy(out, text.data, text.length);
    out[text.length] = '\0';
}

int32_t record_get_count(struct record_input *in, const char *name, int32_t max) {
    int32_t count = record_get_int32(in, name, 0, max);
    if (count <= in->end - in->at)
        return count;
    record_input_refuse(in, name);
    return 0;
}

int record_input_finish(const struct record_input *in, const char *what, struct error *err) {
    if (in->wrong != NULL)
        return error_set(err, ERROR_SYNTAX, "%s: %s is cut off or outside of its bounds", what,
                         in->wrong);
    if (in->at < in->end)
        return error_set(err, ERROR_SYNTAX, "%s: %td bytes too many", what, in->end - in->at);
    return 0;
}

/* --- Frames --- */

#define HEAD_BYTES 5 /* kind, length */
#define CHECKSUM_BYTES 8

_Static_assert(RECORD_FRAME_EXTRA_BYTES == HEAD_BYTES + CHECKSUM_BYTES, "all that is not values");

void record_frame_begin(struct byte_buffer *frame, enum record_kind kind) {
    byte_buffer_clear(frame);
    put_fixed(frame, (uint64_t)kind, 1);
    put_fixed(frame, 0, HEAD_BYTES - 1);
}

bool record_frame_end(struct byte_buffer *frame) {
    if (frame->failed || frame->length - HEAD_BYTES > RECORD_MAX_FRAME_BYTES)
        return false;
    size_t length = frame->length - HEAD_BYTES;
    for (size_t i = 1; i < HEAD_BYTES; i++)
        frame->data[i] = (char)(unsigned char)(length >> 8 * (i - 1));
    put_fixed(frame, content_hash_short(frame->data, frame->length), CHECKSUM_BYTES);
    return !frame->failed;
}

size_t record_frame_bytes(const void *frame) {
    struct record_input head = record_input_of((struct text){frame, HEAD_BYTES});
    get_fixed(&head, "", 1);
    return (size_t)get_fixed(&head, "", HEAD_BYTES - 1) + RECORD_FRAME_EXTRA_BYTES;
}

static bool is_kind(int byte) {
    return byte == RECORD_HEADER || byte == RECORD_REQUEST || byte == RECORD_FLUSH ||
           byte == RECORD_LOAD || byte == RECORD_UNLOAD || byte == RECORD_REWRITE ||
           byte == RECORD_STEP;
}

/* Appends that many bytes of the file. Returns 0 if it ends before. */
static int read_more(struct record_frames *frames, size_t count, struct error *err) {
    struct byte_buffer *buffer = &frames->buffer;
    byte_buffer_reserve(buffer, buffer->length + count);
    if (buffer->failed)
        return error_set(err, ERROR_MEMORY, "no memory for a record of %zu bytes", count);
    size_t got = fread(buffer->data + buffer->length, 1, count, frames->file);
    buffer->length += got;
    if (got < count && ferror(frames->file))
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    frames->cut = got < count ? buffer->length : 0;
    return got == count;
}

static int damaged(const struct record_frames *frames, const char *what, struct error *err) {
    return error_set(err, ERROR_SYNTAX, "%s of the record at byte %llu is damaged", what,
                     (unsigned long long)frames->read);
}

int record_frames_next(struct record_frames *frames, enum record_kind *kind,
                       struct record_input *values, struct error *err) {
    struct byte_buffer *buffer = &frames->buffer;
    byte_buffer_clear(buffer);
    int status = read_more(frames, HEAD_BYTES, err);
    if (status <= 0)
        return status;
    struct record_input head = record_input_of((struct text){buffer->data, HEAD_BYTES});
    int byte = (int)get_fixed(&head, "", 1);
    size_t length = (size_t)get_fixed(&head, "", HEAD_BYTES - 1);
    if (!is_kind(byte))
        return damaged(frames, "the kind", err);
    if (length > RECORD_MAX_FRAME_BYTES)
        return damaged(frames, "the length", err);
    status = read_more(frames, length + CHECKSUM_BYTES, err);
    if (status <= 0)
        return status;
    size_t checked = HEAD_BYTES + length;
    struct record_input tail =
        record_input_of((struct text){buffer->data + checked, CHECKSUM_BYTES});
    if (get_fixed(&tail, "", CHECKSUM_BYTES) != content_hash_short(buffer->data, checked))
        return damaged(frames, "the checksum", err);
    frames->read += buffer->length;
    *kind = (enum record_kind)byte;
    *values = record_input_of((struct text){buffer->data + HEAD_BYTES, length});
    return 1;
}

void record_frames_finish(struct record_frames *frames) {
    byte_buffer_finish(&frames->buffer);
}
