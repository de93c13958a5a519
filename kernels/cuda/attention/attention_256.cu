#include "kernels/cuda/attention/attention.cuh"

ATTENTION_DEFINE(256, 2, 1)
