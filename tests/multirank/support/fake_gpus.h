// Tests over the made-up GPUs of tests/cuda_on_host: how many there are, and a kernel.
#pragma once
#include <chrono>

#include "cluster/comm/gpu_communicator.h"

namespace longhaul::test {

// Before anything asks for a GPU.
void set_fake_gpus(int count);

// How long their work may make no progress before the test's program ends.
void set_fake_gpus_patience(std::chrono::milliseconds limit);

// Adds rows by rank, when the stream comes to it.
SumRows sum_rows_on_fake_gpu();

}  // namespace longhaul::test
