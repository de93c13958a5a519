/* Values and frames: what is written is read, and nothing beyond its bounds or its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/record/record_codec.h"

#include <float.h>
#include <math.h>
#include <string.h>

static struct record_input input_of(const struct byte_buffer *bytes) {
    assert_false(bytes->failed);
    return record_input_of((struct text){bytes->data, bytes->length});
}

static void numbers_come_back(void **state) {
    static const int64_t numbers[] = {0,         1,         -1,        63,        -64,     64,
                                      INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20, -12345};
    const size_t count = sizeof(numbers) / sizeof(numbers[0]);
    struct byte_buffer bytes = {0};
    struct error err;
    for (size_t i = 0; i < count; i++) {
        record_put_signed(&bytes, numbers[i]);
        record_put_unsigned(&bytes, (uint64_t)numbers[i]);
    }
    struct record_input in = input_of(&bytes);
    for (size_t i = 0; i < count; i++) {
        assert_true(record_get_signed(&in, "n", INT64_MIN, INT64_MAX) == numbers[i]);
        assert_true(record_get_unsigned(&in, "n", UINT64_MAX) == (uint64_t)numbers[i]);
    }
    assert_int_equal(record_input_finish(&in, "test", &err), 0);
    byte_buffer_finish(&bytes);
}

static void floats_keep_their_bits(void **state) {
    struct byte_buffer bytes = {0};
    record_put_float(&bytes, -0.0F);
    record_put_float(&bytes, -INFINITY);
    record_put_double(&bytes, 0.1);
    record_put_float(&bytes, NAN);
    struct record_input in = input_of(&bytes);
    assert_true(signbit(record_get_float(&in, "f", -1, 1)));
    assert_true(record_get_float(&in, "f", -INFINITY, 0) == -INFINITY);
    assert_true(record_get_double(&in, "f", 0, 1) == 0.1);
    assert_null(in.wrong);
    record_get_float(&in, "not a number", -INFINITY, INFINITY);
    assert_string_equal(in.wrong, "not a number");
    byte_buffer_finish(&bytes);
}

static void the_first_wrong_value_is_named(void **state) {
    struct byte_buffer bytes = {0};
    struct error err;
    record_put_signed(&bytes, 5);
    record_put_signed(&bytes, 11);
    record_put_signed(&bytes, 3);
    struct record_input in = input_of(&bytes);
    assert_int_equal(record_get_int32(&in, "first", 0, 10), 5);
    assert_int_equal(record_get_int32(&in, "second", 0, 10), 0);
    assert_int_equal(record_get_int32(&in, "third", 0, 10), 0);
    assert_int_equal(record_input_finish(&in, "test", &err), -1);
    assert_int_equal(err.code, ERROR_SYNTAX);
    assert_string_equal(err.message, "test: second is cut off or outside of its bounds");
    byte_buffer_finish(&bytes);
}

static void bytes_that_are_left_are_refused(void **state) {
    struct byte_buffer bytes = {0};
    struct error err;
    record_put_text(&bytes, "one");
    record_put_text(&bytes, "two");
    struct record_input in = input_of(&bytes);
    char word[4];
    record_get_text(&in, "word", word, sizeof(word));
    assert_string_equal(word, "one");
    assert_int_equal(record_input_finish(&in, "test", &err), -1);
    byte_buffer_finish(&bytes);
}

static void lengths_stay_within_the_input(void **state) {
    static const unsigned char too_long[] = {5, 'a', 'b'};
    static const unsigned char endless[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    struct record_input in = record_input_of((struct text){(const char *)too_long, 3});
    assert_int_equal(record_get_bytes(&in, "bytes", 100).length, 0);
    assert_string_equal(in.wrong, "bytes");
    in = record_input_of((struct text){(const char *)endless, sizeof(endless)});
    assert_true(record_get_unsigned(&in, "number", UINT64_MAX) == 0);
    assert_string_equal(in.wrong, "number");
    in = record_input_of((struct text){"\x7e", 1}); /* 63 items, of which none is there */
    assert_int_equal(record_get_count(&in, "items", 100), 0);
    assert_string_equal(in.wrong, "items");
}

/* --- Frames --- */

static struct byte_buffer two_frames(void) {
    struct byte_buffer all = {0}, frame = {0};
    for (int i = 0; i < 2; i++) {
        record_frame_begin(&frame, i == 0 ? RECORD_REQUEST : RECORD_STEP);
        record_put_text(&frame, i == 0 ? "first" : "second");
        assert_true(record_frame_end(&frame));
        assert_int_equal(record_frame_bytes(frame.data), frame.length);
        byte_buffer_append(&all, frame.data, frame.length);
    }
    byte_buffer_finish(&frame);
    return all;
}

/* Returns how many frames were read before the end, or before the error whose message is filled
 * in. */
static int read_all(void *data, size_t length, struct record_frames *frames, struct error *err) {
    enum record_kind kind;
    struct record_input in;
    int status, count = 0;
    err->code = ERROR_NONE;
    *frames = (struct record_frames){.file = fmemopen(data, length, "r")};
    assert_non_null(frames->file);
    while ((status = record_frames_next(frames, &kind, &in, err)) > 0) {
        char word[8];
        record_get_text(&in, "word", word, sizeof(word));
        assert_string_equal(word, count == 0 ? "first" : "second");
        assert_int_equal(kind, count == 0 ? RECORD_REQUEST : RECORD_STEP);
        count++;
    }
    fclose(frames->file);
    record_frames_finish(frames);
    return count;
}

static void frames_come_back(void **state) {
    struct byte_buffer all = two_frames();
    struct record_frames frames;
    struct error err;
    assert_int_equal(read_all(all.data, all.length, &frames, &err), 2);
    assert_int_equal(err.code, ERROR_NONE);
    assert_int_equal(frames.read, all.length);
    assert_int_equal(frames.cut, 0);
    byte_buffer_finish(&all);
}

static void a_frame_that_is_cut_off_ends_the_file(void **state) {
    struct byte_buffer all = two_frames();
    struct record_frames frames;
    struct error err;
    size_t first = record_frame_bytes(all.data);
    for (size_t length = first + 1; length < all.length; length++) {
        assert_int_equal(read_all(all.data, length, &frames, &err), 1);
        assert_int_equal(err.code, ERROR_NONE);
        assert_int_equal(frames.read, first);
        assert_int_equal(frames.cut, length - first);
    }
    byte_buffer_finish(&all);
}

/* A changed length can look like an end; nothing that was changed is ever read. */
static void any_changed_bit_is_found(void **state) {
    struct byte_buffer all = two_frames();
    struct record_frames frames;
    struct error err;
    size_t first = record_frame_bytes(all.data);
    for (size_t bit = 8 * first; bit < 8 * all.length; bit++) {
        all.data[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(read_all(all.data, all.length, &frames, &err), 1);
        assert_true(err.code == ERROR_SYNTAX || frames.cut > 0);
        all.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    byte_buffer_finish(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(floats_keep_their_bits),
        cmocka_unit_test(the_first_wrong_value_is_named),
        cmocka_unit_test(bytes_that_are_left_are_refused),
        cmocka_unit_test(lengths_stay_within_the_input),
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(a_frame_that_is_cut_off_ends_the_file),
        cmocka_unit_test(any_changed_bit_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
