// Runs a test suite once with each instruction set that this machine has, and small conversions
// that all kernel tests share.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "kernels/tensor.h"
#include "tests/support/random.h"

namespace longhaul::test {

class EachIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { set_active_isa(GetParam()); }
  void TearDown() override {
    set_active_isa(supported_isas().back());
    set_kernel_threads(0);
  }
};

inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(name_of(info.param));
}

// NOLINTNEXTLINE: a macro because GoogleTest's is one
#define LONGHAUL_WITH_EACH_ISA(Suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, testing::ValuesIn(::longhaul::supported_isas()), \
                           ::longhaul::test::isa_test_name)

inline std::vector<double> widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

inline std::vector<float> rounded_to_bf16(std::vector<float> x) {
  for (float& value : x) value = to_float(to_bf16(value));
  return x;
}

// A weight matrix with its own memory; `values` are what it holds after rounding to its type.
struct Weight {
  DType dtype = DType::kF32;
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  std::vector<float> values;
  std::vector<BFloat16> halves;

  Weight(DType type, std::int64_t outputs, std::int64_t inputs, std::vector<float> x)
      : dtype(type), n_out(outputs), n_in(inputs), values(std::move(x)) {
    if (dtype != DType::kBf16) return;
    for (float& value : values) {
      halves.push_back(to_bf16(value));
      value = to_float(halves.back());
    }
  }
  std::span<const std::byte> bytes() const {
    return dtype == DType::kBf16 ? std::as_bytes(std::span(halves))
                                 : std::as_bytes(std::span(values));
  }
  WeightView view() const { return view_at(bytes().data()); }
  // Of a copy of bytes() elsewhere.
  WeightView view_at(const void* data) const { return {data, dtype, n_out, n_in}; }
};

}  // namespace longhaul::test
