#include "kernels/cuda/attention/attention.cuh"

ATTENTION_DEFINE(128, 4, 2)
