#include "base/print_stderr.h"

#include <cstdio>

namespace longhaul {

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);  // unbuffered
}

}  // namespace longhaul
