/* Writes and reads the values of a recording: numbers in as many bytes as they need (LEB128, signed
 * ones folded as in Protocol Buffers' sint64), floats by their bits, strings behind their length. A
 * reader never passes its end, and takes no value outside of the bounds it is asked for.
 *
 * Values lie in FRAMES, each with a kind, a length and a checksum, so that a file that ends in the
 * middle of one, or in which a byte was changed, is found out. */
#ifndef QUIRE_ENGINE_RECORD_CODEC_H
#define QUIRE_ENGINE_RECORD_CODEC_H

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

/* Bytes that are being read. Once something was wrong everything read is 0, or empty. */
struct record_input {
    const unsigned char *at, *end;
    const char *wrong; /* static: the first value that is outside of its bounds; NULL: none */
};

struct record_input record_input_of(struct text bytes);
/* Returns the next byte without reading it; -1 at the end, or once something was wrong. */
int record_peek(const struct record_input *in);
/* Each names the value, for the message. */
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
/* Returns how many items of at least one byte follow, 0..max, none more than there are bytes. */
int32_t record_get_count(struct record_input *in, const char *name, int32_t max);
/* Notes that a value is wrong for a reason of the caller's. */
void record_input_refuse(struct record_input *in, const char *name);
/* Returns -1 with ERROR_SYNTAX, "WHAT: NAME ...", when something was wrong or bytes are left. */
int record_input_finish(const struct record_input *in, const char *what, struct error *err);

/* --- Frames --- */

#define RECORD_MAX_FRAME_BYTES ((size_t)64 << 20) /* of its values */
#define RECORD_FRAME_EXTRA_BYTES 13               /* around its values */

enum record_kind {
    RECORD_HEADER = 'H',  /* record_header.h; the first frame, and no other */
    RECORD_REQUEST = 'R', /* record_request.h: added before the next step */
    RECORD_FLUSH = 'F',   /* the prefix cache was made to forget, before the next step */
    RECORD_STEP = 'S',    /* a call of engine_core_step: what entered it, see record_mark */
};

/* Come before the values of a RECORD_STEP, in the order in which the core asked for them. */
enum record_mark {
    RECORD_CLOCK = 'c',     /* signed: nanoseconds since the reading before, of any step */
    RECORD_SIGNAL = 's',    /* unsigned: request, enum request_signal. Only of those that are set */
    RECORD_MASKS = 'm',     /* unsigned: grammar_job.id, of a job that was done */
    RECORD_COLLECTED = 'w', /* bytes: record_step.h */
    RECORD_ANSWER = 'x',    /* unsigned: enum executor_answer, enum error_code */
    RECORD_END = 'e',       /* bool: what the call returned; unsigned: choices that ended in it */
};

/* Begins a frame in an empty buffer; its values are appended; record_frame_end completes it. False:
 * memory was short, or it is larger than a frame may be. */
void record_frame_begin(struct byte_buffer *frame, enum record_kind kind);
bool record_frame_end(struct byte_buffer *frame);

/* Returns how many bytes the whole frame at `frame` has, which record_frame_end made. */
size_t record_frame_bytes(const void *frame);

/* Reads the frames of a file, one after the other. */
struct record_frames {
    FILE *file;    /* the caller's */
    uint64_t read; /* bytes of whole frames */
    uint64_t cut;  /* bytes at the end that are not a whole frame */
    struct byte_buffer buffer;
};

/* Reads the next frame: 1 and its values, which last until the next call; 0 at the end, after which
 * `cut` is known; -1 where a checksum does not fit, or a kind or length makes no sense
 * (ERROR_SYNTAX), ERROR_MEMORY or ERROR_IO. */
int record_frames_next(struct record_frames *frames, enum record_kind *kind,
                       struct record_input *values, struct error *err);
void record_frames_finish(struct record_frames *frames);

#endif
