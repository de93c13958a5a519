/* Writes and reads the values of a recording: numbers in as many bytes as they need (LEB128, signed
 * ones folded as in Protocol Buffers' sint64), floats by their bits, strings after their length. A
 * reader never passes its end, and accepts no value outside of the bounds that it is given.
 *
 * Values lie in FRAMES, each with a kind, a length and a checksum, so that a truncated file or a
 * changed byte is detected. */
#ifndef QUIRE_ENGINE_RECORD_RECORD_CODEC_H
#define QUIRE_ENGINE_RECORD_RECORD_CODEC_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* --- Values --- */

void record_put_unsigned(struct byte_buffer *out, uint64_t value);
void record_put_signed(struct byte_buffer *out, int64_t value);
void record_put_bool(struct byte_buffer *out, bool value);
void record_put_float(struct byte_buffer *out, float value);
void record_put_double(struct byte_buffer *out, double value);
void record_put_bytes(struct byte_buffer *out, const void *data, size_t length);
void record_put_text(struct byte_buffer *out, const char *text);

/* Bytes being read. After an error, everything read is 0 or empty. */
struct record_input {
    const unsigned char *at, *end;
    const char *wrong; /* static: the first value that is outside of its bounds; NULL: none */
};

struct record_input record_input_of(struct text bytes);
/* Returns the next byte without reading it; -1 at the end, or once something was wrong. */
int record_peek(const struct record_input *in);
/* `name` names the value in the message. */
uint64_t record_get_unsigned(struct record_input *in, const char *name, uint64_t max);
int64_t record_get_signed(struct record_input *in, const char *name, int64_t min, int64_t max);
int32_t record_get_int32(struct record_input *in, const char *name, int32_t min, int32_t max);
bool record_get_bool(struct record_input *in, const char *name);
/* Not NaN. */
float record_get_float(struct record_input *in, const char *name, float min, float max);
double record_get_double(struct record_input *in, const char *name, double min, double max);
/* Points into the input. */
struct text record_get_bytes(struct record_input *in, const char *name, size_t max_length);
/* Copies a string without NUL, and ends it. */
void record_get_text(struct record_input *in, const char *name, char *out, size_t capacity);
/* Returns the number of items (of at least one byte each) that follow: 0..max, and at most the
 * number of bytes left. */
int32_t record_get_count(struct record_input *in, const char *name, int32_t max);
/* Notes that a value is wrong, for a reason that the caller knows. */
void record_input_refuse(struct record_input *in, const char *name);
/* Returns -1 with ERROR_SYNTAX, "WHAT: NAME ...", when something was wrong or bytes are left. */
int record_input_finish(const struct record_input *in, const char *what, struct error *err);

/* --- Frames --- */

#define RECORD_MAX_FRAME_BYTES ((size_t)64 << 20) /* of its values */
#define RECORD_FRAME_EXTRA_BYTES 13               /* around its values */
#define RECORD_MAX_NAME_BYTES 1024                /* of an adapter, with its NUL */

enum record_kind {
    RECORD_HEADER = 'H',  /* record_header.h; the first frame, and no other */
    RECORD_REQUEST = 'R', /* record_request.h: added before the next step */
    RECORD_FLUSH = 'F',   /* the prefix cache was flushed before the next step */
    /* An adapter was given a slot: bool: requests use it already; signed: slot; text: name; bytes:
     * digest. */
    RECORD_LOAD = 'L',
    RECORD_UNLOAD = 'U',  /* signed: the slot of an adapter that was unloaded */
    RECORD_REWRITE = 'W', /* all adapters are written again before anything else runs */
    RECORD_STEP = 'S',    /* a call of engine_core_step: what entered it, see record_mark */
};

/* Precede the values of a RECORD_STEP, in the order in which the core asked for them. */
enum record_mark {
    RECORD_CLOCK = 'c',     /* signed: nanoseconds since the previous reading, of any step */
    RECORD_SIGNAL = 's',    /* unsigned: request, enum request_signal. Only of those that are set */
    RECORD_MASKS = 'm',     /* unsigned: grammar_job.id of a finished job */
    RECORD_COLLECTED = 'w', /* bytes: record_step.h */
    RECORD_ANSWER = 'x',    /* unsigned: enum executor_answer, enum error_code */
    RECORD_END = 'e',       /* bool: what the call returned; unsigned: choices that ended in it */
};

/* Begins a frame in an empty buffer; its values are appended; record_frame_end completes it.
 * Returns false when memory was short or the frame is too large. */
void record_frame_begin(struct byte_buffer *frame, enum record_kind kind);
bool record_frame_end(struct byte_buffer *frame);

/* Returns the size in bytes of the whole frame at `frame`, which record_frame_end made. */
size_t record_frame_bytes(const void *frame);

/* Reads the frames of a file, one after the other. */
struct record_frames {
    FILE *file;    /* the caller's */
    uint64_t read; /* bytes of whole frames */
    uint64_t cut;  /* bytes at the end that are not a whole frame */
    struct byte_buffer buffer;
};

/* Reads the next frame. Returns 1 and its values, valid until the next call; 0 at the end, where
 * `cut` is set; -1 with ERROR_SYNTAX for a wrong checksum or an invalid kind or length, with
 * ERROR_MEMORY or ERROR_IO. */
int record_frames_next(struct record_frames *frames, enum record_kind *kind,
                       struct record_input *values, struct error *err);
void record_frames_finish(struct record_frames *frames);

#endif
