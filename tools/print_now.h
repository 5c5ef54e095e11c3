// Standard output that people watch: a row appears when it is known.
#pragma once
#include <cstdio>
#include <string_view>

namespace longhaul {

inline void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace longhaul
