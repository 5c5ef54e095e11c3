// What operators do with a CUDA stream in a build without CUDA. The one place that says so.
#pragma once
#include <string_view>

namespace longhaul {

// Throws kUnsupported: "kernels: <name> on CUDA is not in this build ...".
[[noreturn]] void cuda_absent(std::string_view name);

}  // namespace longhaul
