// How fast a piece of work can be at best: its arithmetic at the rate that registers allow, or its
// reading at the rate that memory allows, whichever takes longer (the roofline of Williams,
// Waterman and Patterson 2009). Pure.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/rates.h"

namespace longhaul::bench {

struct Work {
  double flops = 0;     // of floats or bf16; a multiply and an add are two
  double int8_ops = 0;  // of products with weights of int8 or int4, likewise
  double bytes = 0;     // that must come from memory
  double operations() const { return flops + int8_ops; }
};

enum class Limit { kArithmetic, kMemory };
std::string_view name_of(Limit limit);  // "arithmetic", "memory"

struct Bound {
  double seconds = 0;
  Limit limit = Limit::kArithmetic;
};
Bound bound_of(const Work& work, const Rates& rates, DType dtype);

// Of steps that follow each other; the limit is that of the longer part.
Bound bound_of(std::span<const Work> steps, const Rates& rates, DType dtype);

// "f32 71.2 GFLOP/s, bf16 71.0 GFLOP/s, int8 280.1 Gop/s, memory 11.4 GB/s"
std::string describe(const Rates& rates);

}  // namespace longhaul::bench
