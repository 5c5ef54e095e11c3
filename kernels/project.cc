#include "kernels/project.h"

#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const NormedInput& input, const TensorView<float, 2>& rows) {
  require_equal("project", "n_rows of x", input.x.dim(0), rows.dim(0));
  require_equal("project", "width of x", input.x.dim(1), rows.dim(1));
  require_equal("project", "size of the norm's weight",
                static_cast<std::int64_t>(input.weight.size()), rows.dim(1));
}

void check(const ActivatedInput& input, const TensorView<float, 2>& rows) {
  for (const TensorView<const float, 2>& x : {input.gate, input.up}) {
    require_equal("project", "n_rows of gate and up", x.dim(0), rows.dim(0));
    require_equal("project", "d_ff of gate and up", x.dim(1), rows.dim(1));
  }
}

void check(const AttendedInput& input, const TensorView<float, 2>& rows) {
  const TensorView<float, 3>& o = input.state.o;
  require_equal("project", "n_tokens of o", o.dim(0), rows.dim(0));
  require_equal("project", "width of all heads", o.dim(1) * o.dim(2), rows.dim(1));
  if (input.sink_logits.empty()) return;
  require_equal("project", "size of sink_logits",
                static_cast<std::int64_t>(input.sink_logits.size()), o.dim(1));
}

void check(const StoredInput&, const TensorView<float, 2>&) {}

void check(Device device, const ProjectArgs& args) {
  require(!args.parts.empty(), "project: no weights");
  const WeightView& first = args.parts.front().weight;
  const bool may_be_strided = device == Device::kCuda && may_lie_by_side(first.dtype);
  require(may_be_strided || args.rows.is_contiguous(), "project: rows must be contiguous");
  std::visit([&](const auto& input) { check(input, args.rows); }, args.input);
  for (const ProjectedPart& part : args.parts) {
    require(part.weight.dtype == first.dtype && part.weight.group == first.group,
            "project: weights of several types or groups");
    require_equal("project", "n_in of a weight", part.weight.n_in, args.rows.dim(1));
    require_equal("project", "n_rows of out", part.out.dim(0), args.rows.dim(0));
    require_equal("project", "n_out of out", part.out.dim(1), part.weight.n_out);
    if (!part.bias.empty()) {
      require_equal("project", "size of bias", static_cast<std::int64_t>(part.bias.size()),
                    part.weight.n_out);
    }
    require(may_be_strided || part.out.is_contiguous(), "project: out must be contiguous");
  }
}

}  // namespace

void project(StreamRef stream, const ProjectArgs& args) {
  check(stream.device(), args);
  run_on(stream, cpu::project, cuda::project, args);
}

}  // namespace longhaul
