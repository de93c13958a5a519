#include "kernels/cuda/attention/attention.cuh"

ATTENTION_DEFINE(64, 4, 3)
