// project on CPUs: the operators that it stands for, one after the other.
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

void make_rows(const NormedInput& input, const TensorView<float, 2>& rows) {
  rms_norm({.x = input.x, .weight = input.weight, .eps = input.eps, .out = rows});
}
void make_rows(const ActivatedInput& input, const TensorView<float, 2>& rows) {
  swiglu({.gate = input.gate, .up = input.up, .out = rows});
}
void make_rows(const AttendedInput& input, const TensorView<float, 2>& rows) {
  finish_attention({.state = input.state,
                    .sink_logits = input.sink_logits,
                    .out = {rows.data(), input.state.o.shape()}});
}
void make_rows(const StoredInput&, const TensorView<float, 2>&) {}

}  // namespace

void project(const ProjectArgs& args) {
  std::visit([&](const auto& input) { make_rows(input, args.rows); }, args.input);
  for (const ProjectedPart& part : args.parts) {
    linear({.x = args.rows,
            .weight = part.weight,
            .bias = part.bias,
            .out = part.out,
            .output = part.output,
            .order = args.order});
  }
}

}  // namespace longhaul::cpu
