// Matrix products of many rows with int8 weights by AMX, on one thread: the bits of
// kernels/cpu/isa/int8_linear.cc, and like it compiled without fused multiply-adds.
#include "kernels/cpu/isa/amx_integer_linear.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// A part is a group of inputs, in tiles of 64.
struct Int8Format {
  using Task = Int8LinearTask;
  static constexpr std::int64_t kInputs = kAmxBytes;
  static constexpr std::int64_t kUsualTiles = 2;
  static constexpr std::int64_t kUsualXStride = kUsualTiles * kInputs;
  static constexpr bool kScalesLanes = false;
  static constexpr std::int64_t kCodeBytes = kInt8Panel;
  static constexpr std::int64_t kStepBytes = kInt8Panel * kInt8Step;
  static_assert(kStepBytes == kAmxRowBytes);

  static std::int64_t n_in(const Task& t) { return t.n_in; }
  static std::int64_t n_parts(const Task& t) { return quotient_up(t.n_in, t.group); }
  static std::int64_t part_inputs(const Task& t) { return t.group; }
  static std::int64_t n_tiles(const Task& t) { return quotient_up(t.group, kInputs); }
  static bool is_usual(const Task& t) { return t.group == kUsualXStride; }
  static std::int64_t x_stride(const Task& t) { return t.group; }
  static const std::byte* x(const Task& t, std::int64_t part, std::int64_t row) {
    return t.x.integers + (part * t.x.n_rows + row) * t.group;
  }
  static const float* x_scales(const Task& t, std::int64_t part, std::int64_t row) {
    return t.x.scales + part * t.x.n_rows + row;
  }
  static const std::uint8_t* codes(const Task& t, std::int64_t lane, std::int64_t part) {
    return t.weight + lane / kInt8Panel * t.panel_bytes + part * t.group * kCodeBytes;
  }
  static std::int64_t pair_bytes(std::int64_t n_tiles) {
    return n_tiles * 2 * kAmxBytes * kInt8Panel;
  }

  // Inputs that the part does not have are zero, so that it does not matter what x has there.
  static void copy_panel(const Task& t, std::int64_t lane, std::int64_t part, std::int8_t* pair,
                         std::int64_t column) {
    constexpr std::int64_t kTileBytes = kRightBytes<Int8Format>;
    const std::uint8_t* from = codes(t, lane, part);
    const std::int64_t n_steps = quotient_up(smaller(t.group, t.n_in - part * t.group), kInt8Step);
    std::int8_t* to = pair + column * kTileBytes;
    for (std::int64_t step = 0; step < n_tiles(t) * (kInputs / kInt8Step); ++step) {
      Words signed_bytes{};
      if (step < n_steps) signed_bytes = load_words(from + step * kStepBytes) ^ 0x80808080U;
      __builtin_memcpy(to, &signed_bytes, sizeof signed_bytes);
      to += kStepBytes;
      if (step % (kInputs / kInt8Step) == kInputs / kInt8Step - 1) to += kTileBytes;
    }
  }

  static void finish_lanes(const Task& t, std::int64_t begin, std::int64_t n, const float* c,
                           float* out) {
    const float* scales = t.scales + begin;
    const Vec v = n == kWidth ? load(c) * load(scales) : load_first(c, n) * load_first(scales, n);
    store_outputs(t, begin, n, v, out);
  }
};

}  // namespace

std::size_t amx_int8_scratch_bytes(std::int64_t group) {
  return integer_scratch_bytes<Int8Format>(group, quotient_up(group, kAmxBytes));
}

void amx_int8_linear(const Int8LinearTask& t) { multiply_integers<Int8Format>(t); }

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
