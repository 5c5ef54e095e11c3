// How matrices of 4-bit weights are cut: what their bytes are, and which weights share a scale.
// kernels/int4_weights.h has the layout in memory; planning counts with these. Panels of outputs
// and groups of activations are those of int8 weights (base/int8_format.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/int8_format.h"

namespace longhaul {

// Inputs of an output that lie together: a 32-bit word of eight codes.
inline constexpr std::int64_t kInt4Line = 8;
// Neighbouring inputs whose products are added up as integers before they are scaled: so few that
// sums of 16 bits hold them.
inline constexpr std::int64_t kInt4Run = 32;

// What the codes of a matrix stand for: weight = scale * (code - 8), code in [0, 15], with a scale
// in f16 for each output and group of inputs. Another format is another field here, which the view
// of a matrix carries to the kernels: a zero point beside the scale, a table of the codes' values.
struct Int4Layout {
  std::int64_t group = 32;  // neighbouring inputs that share a scale; a multiple of kInt4Run
  bool operator==(const Int4Layout&) const = default;
};

// Codes, and the scales, of whole panels and whole groups.
constexpr std::int64_t int4_matrix_bytes(std::int64_t n_out, std::int64_t n_in,
                                         const Int4Layout& layout = {}) {
  constexpr std::int64_t kScaleBytes = 2;
  const std::int64_t outputs = ceil_div(n_out, kInt8Panel) * kInt8Panel;
  const std::int64_t groups = ceil_div(n_in, layout.group);
  return outputs * groups * (layout.group / 2 + kScaleBytes);
}

}  // namespace longhaul
