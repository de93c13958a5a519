/* Shared by the tests of the simulator: cmocka for C++, arrays on the device, expected deaths. */
#ifndef CUDASIM_SIM_TEST_H
#define CUDASIM_SIM_TEST_H

#include "cudasim.h"
#include "cudasim/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <functional>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#define ASSERT_CUDA(call) assert_int_equal(call, cudaSuccess)

/* An array on the device, 0xff in every byte or a copy of a host's. */
template <class T> class device_array {
  public:
    explicit device_array(size_t num_elements) : count(num_elements) {
        ASSERT_CUDA(cudaMalloc(&data, count * sizeof(T)));
    }
    explicit device_array(const std::vector<T> &source) : device_array(source.size()) {
        ASSERT_CUDA(cudaMemcpy(data, source.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~device_array() {
        cudaFree(data);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;

    T *get() const {
        return data;
    }
    /* Waits for the default stream. */
    std::vector<T> download() const {
        std::vector<T> host(count);
        ASSERT_CUDA(cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }

  private:
    size_t count;
    T *data;
};

/* What a child that runs `body` writes to stderr; out_survived: it came to the end. */
std::string run_child(const std::function<void()> &body, bool *out_survived);

/* The child dies before the end, and writes one of `messages` first. */
static inline void assert_dies(const std::function<void()> &body,
                               const std::vector<std::string> &messages) {
    bool survived;
    std::string text = run_child(body, &survived);
    bool found = messages.empty();
    for (const std::string &message : messages)
        found = found || text.find(message) != std::string::npos;
    if (survived || !found)
        print_error("survived: %d, stderr: %s\n", survived, text.c_str());
    assert_false(survived);
    assert_true(found);
}

/* Runs `body` in the orders forward, reverse and two random ones, and leaves forward. */
static inline void in_every_order(const std::function<void()> &body) {
    for (const char *order : {"forward", "reverse", "random:1", "random:2"}) {
        assert_int_equal(cudasim_set_order(order), 0);
        body();
    }
    assert_int_equal(cudasim_set_order("forward"), 0);
}

#endif
