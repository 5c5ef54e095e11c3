#include "kernels/cpu/isa/probe.h"

#include "kernels/cpu/isa/int8_products.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Enough independent sums to hide the latency of two units.
constexpr int kSums = kWidth == 16 ? 24 : 12;

LONGHAUL_INLINE float total(const Vec (&sums)[kSums]) {
  Vec all{};
  for (const Vec& sum : sums) all += sum;
  return sum_of(all);
}

template <int kStreams>
ProbeResult read_streams(const float* x, std::int64_t n) {
  constexpr int kVectors = 8 / kStreams;  // of each stream at a time
  const std::int64_t share = n / kStreams;
  Vec sums[kSums] = {};
  for (std::int64_t i = 0; i + kVectors * kWidth <= share; i += kVectors * kWidth) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s)
      sums[s] += load(x + s / kVectors * share + i + s % kVectors * kWidth);
  }
  return {n * 4, total(sums)};
}

}  // namespace

// Multiply-adds of floats from registers.
ProbeResult probe_float_products(std::int64_t n_rounds, float x) {
  const Vec a = broadcast(x);
  const Vec b = broadcast(x * 0.5F);
  Vec sums[kSums];  // all different, or the compiler would keep only one of them
  for (int s = 0; s < kSums; ++s) sums[s] = broadcast(x * static_cast<float>(s));
  for (std::int64_t i = 0; i < n_rounds; ++i) {
#pragma GCC unroll 32
    for (int s = 0; s < kSums; ++s) sums[s] = sums[s] * a + b;
  }
  return {n_rounds * kSums * kWidth * 2, total(sums)};
}

// Multiply-adds of pairs of bf16 from registers; of floats where the machine has none.
ProbeResult probe_bf16_products(std::int64_t n_rounds, float x) {
#if defined(__AVX512BF16__)
  const Words a = to_bf16_bits(broadcast(x));
  const Words b = to_bf16_bits(broadcast(x * 0.5F));
  Vec sums[kSums];  // all different, or the compiler would keep only one of them
  for (int s = 0; s < kSums; ++s) sums[s] = broadcast(x * static_cast<float>(s));
  for (std::int64_t i = 0; i < n_rounds; ++i) {
#pragma GCC unroll 32
    for (int s = 0; s < kSums; ++s) sums[s] = add_pair_products(sums[s], a, b);
  }
  return {n_rounds * kSums * kWidth * 4, total(sums)};
#else
  return probe_float_products(n_rounds, x);
#endif
}

// Multiply-adds of int8 from registers, as products with int8 weights do them: by VPDPBUSD, or in
// pairs of 16 bits.
ProbeResult probe_int8_products(std::int64_t n_rounds, float x) {
  Ints sums[kSums];  // all different, or the compiler would keep only one of them
  for (int s = 0; s < kSums; ++s) sums[s] = static_cast<std::int32_t>(x * 1e3F) + s - Ints{};
  const Words weights = reinterpret_cast<Words>(sums[3]) | 0x01010101U;
  const Int8Left left = load_int8_left(&sums[1]);
  for (std::int64_t i = 0; i < n_rounds; ++i) {
#pragma GCC unroll 32
    for (int s = 0; s < kSums; ++s) {
      // Where products are of their own, they must not be the same in every round.
      const Words right = kHasInt8Dot ? weights : reinterpret_cast<Words>(sums[s]);
      sums[s] = add_int8_products(sums[s], unpack_int8(right), left);
    }
  }
  Ints all{};
  for (const Ints& sum : sums) all += sum;
  return {n_rounds * kSums * kWidth * 8, sum_of(__builtin_convertvector(all, Vec))};
}

ProbeResult probe_read(const float* x, std::int64_t n, ReadOrder order) {
  return order == ReadOrder::kOneStream ? read_streams<1>(x, n) : read_streams<4>(x, n);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
