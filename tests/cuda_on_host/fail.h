// How the emulated GPU says that a chip would not forgive this.
#pragma once
#include <cstdio>
#include <cstdlib>

namespace longhaul::cuda_on_host {

[[noreturn]] inline void fail(const char* what, const char* more = "") {
  std::fprintf(stderr, "cuda_on_host: %s%s\n", what, more);
  std::abort();
}

}  // namespace longhaul::cuda_on_host
