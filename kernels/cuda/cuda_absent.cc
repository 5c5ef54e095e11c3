// Stands in for kernels/cuda/ in a build without CUDA, so that nobody else needs an #ifdef: every
// operator throws kUnsupported.
#include <string_view>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

[[noreturn]] void absent(std::string_view name) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("kernels: {} on CUDA is not in this build; run on the CPU", name));
}

}  // namespace

#define LONGHAUL_OPERATOR(name, ...) \
  void name(Stream&, __VA_ARGS__) { absent(#name); }
#include "kernels/operators.def"

}  // namespace longhaul::cuda
