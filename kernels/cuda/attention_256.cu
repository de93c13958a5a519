#include "kernels/cuda/attention.cuh"

ATTENTION_DEFINE(256, 2, 1)
