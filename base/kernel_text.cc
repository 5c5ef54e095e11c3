#include "base/kernel_text.h"

#include <fstream>
#include <sstream>
#include <utility>

namespace longhaul {

std::string kernel_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  // Ends at an error of reading; an iterator over `in` would throw it.
  text << in.rdbuf();
  return std::move(text).str();
}

}  // namespace longhaul
