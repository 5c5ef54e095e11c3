// Matrix products of many rows with int4 weights by AMX, on one thread: the bits of
// kernels/cpu/isa/int4_linear.cc, and like it compiled without fused multiply-adds.
#include "kernels/cpu/isa/amx_integer_linear.h"
#include "kernels/cpu/isa/int4_linear.h"
#include "kernels/cpu/isa/int4_products.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// A part is a run: half of what a tile could hold, as sums are scaled after each. Behind the tiles
// of two panels lie the scales of their lanes.
struct Int4Format {
  using Task = Int4LinearTask;
  static constexpr std::int64_t kInputs = kInt4Run;
  static constexpr std::int64_t kUsualTiles = 1;
  static constexpr std::int64_t kUsualXStride = kInt8Group;
  static constexpr bool kScalesLanes = true;
  static constexpr std::int64_t kCodeBytes = kInt8Panel / 2;
  static constexpr std::int64_t kLineBytes = kInt4Line * kCodeBytes;
  static constexpr std::int64_t kRunLines = kInt4Run / kInt4Line;
  static constexpr std::uint32_t kZeros = 0x88888888U;  // codes of eight weights that are 0

  static std::int64_t n_in(const Task& t) { return t.cut.n_in; }
  static std::int64_t n_parts(const Task& t) { return quotient_up(t.cut.n_in, kInt4Run); }
  static std::int64_t part_inputs(const Task&) { return kInt4Run; }
  static std::int64_t n_tiles(const Task&) { return 1; }
  static bool is_usual(const Task& t) { return t.cut.group == kUsualXStride; }
  static std::int64_t x_stride(const Task& t) { return t.cut.group; }
  static const std::byte* x(const Task& t, std::int64_t part, std::int64_t row) {
    const std::int64_t runs = t.cut.group / kInt4Run;
    return t.x.integers + (part / runs * t.x.n_rows + row) * t.cut.group + part % runs * kInt4Run;
  }
  static const float* x_scales(const Task& t, std::int64_t part, std::int64_t row) {
    return t.x.scales + part / (t.cut.group / kInt4Run) * t.x.n_rows + row;
  }
  static const std::uint8_t* codes(const Task& t, std::int64_t lane, std::int64_t part) {
    return t.codes + lane / kInt8Panel * t.panel_bytes + run(t, part) * kRunLines * kLineBytes;
  }
  static constexpr std::int64_t pair_bytes(std::int64_t n_tiles) {
    return n_tiles * 2 * kInputs * kInt8Panel + kLanes * static_cast<std::int64_t>(sizeof(float));
  }

  // Inputs that the run does not have are zero, so that it does not matter what x has there.
  static void copy_panel(const Task& t, std::int64_t lane, std::int64_t part, std::int8_t* pair,
                         std::int64_t column) {
    const std::uint8_t* from = codes(t, lane, part);
    const std::int64_t n_lines =
        quotient_up(smaller(kInt4Run, t.cut.n_in - part * kInt4Run), kInt4Line);
    std::int8_t* to = pair + column * kRightBytes<Int4Format>;
    for (std::int64_t line = 0; line < kRunLines; ++line, to += 2 * kAmxRowBytes) {
      const Words both = line < n_lines ? load_words(from + line * kLineBytes) : Words{} + kZeros;
      const Words first = as_signed_bytes(codes_of_step<0>(both));
      const Words second = as_signed_bytes(codes_of_step<1>(both));
      __builtin_memcpy(to, &first, sizeof first);
      __builtin_memcpy(to + kAmxRowBytes, &second, sizeof second);
    }
    auto* scales = reinterpret_cast<float*>(pair + 2 * kRightBytes<Int4Format>);
    store(scales + column * kInt8Panel, load_halves(t.scales + lane / kInt8Panel * t.panel_scales +
                                                    run(t, part) / t.runs_of_scale * kInt8Panel));
  }

  static void finish_lanes(const Task& t, std::int64_t begin, std::int64_t n, const float* c,
                           float* out) {
    store_outputs(t, begin, n, n == kWidth ? load(c) : load_first(c, n), out);
  }

 private:
  // Of the weights, of which the task may lack the first.
  static std::int64_t run(const Task& t, std::int64_t part) {
    return t.cut.first_input / kInt4Run + part;
  }
  LONGHAUL_INLINE static Words as_signed_bytes(Words codes) {
    typedef std::int8_t Bytes __attribute__((vector_size(kWidth * 4)));
    return reinterpret_cast<Words>(reinterpret_cast<Bytes>(codes) - 8);
  }
};

}  // namespace

std::size_t amx_int4_scratch_bytes() { return integer_scratch_bytes<Int4Format>(kInt4Run, 1); }

void amx_int4_linear(const Int4LinearTask& t) { multiply_integers<Int4Format>(t); }

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
