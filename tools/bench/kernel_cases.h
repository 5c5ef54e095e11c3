// What `longhaul bench kernels` measures: matrix products and attention of the sizes that models of
// 1 and 8 billion parameters have, each with the work that it is.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

struct KernelCase {
  std::string name;         // "attention/causal_8K/d128/bf16"
  std::string family = {};  // cases of a family differ in length only; empty: of none
  std::int64_t length = 0;  // keys or tokens, in a family
  Work work;                // of one run
  DType dtype = DType::kF32;
  // Makes the case's memory; what it returns holds that and runs the kernel once. Its caller's
  // thread is that of the kernels.
  std::function<std::function<void()>()> prepare;
};

struct KernelChoice {
  std::string only = {};  // cases whose name contains this
  // Causal attention goes to this length or 64K, streaming heads to this length.
  std::int64_t max_length = std::int64_t{1} << 20;
  std::int64_t chunk_len = 2048;  // tokens that streaming heads get at a time; the engine's default
  bool all_paths = false;  // every way to compute a product, not only the one that linear() takes
};
std::vector<KernelCase> kernel_cases(const KernelChoice& choice);

// Those of one file each.
std::vector<KernelCase> linear_cases(bool all_paths);
std::vector<KernelCase> attention_cases(std::int64_t max_length, std::int64_t chunk_len);

}  // namespace longhaul::bench
