#include "tools/bench/machine.h"

#include "base/kernel_text.h"

namespace longhaul::bench {

std::string cpu_name_in(std::string_view cpuinfo) {
  const std::size_t key = cpuinfo.find("model name");
  if (key == std::string_view::npos) return "";
  const std::string_view line = cpuinfo.substr(key, cpuinfo.find('\n', key) - key);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return "";
  const std::size_t begin = line.find_first_not_of(' ', colon + 1);
  return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
}

std::string cpu_name() {
  const std::string name = cpu_name_in(kernel_text("/proc/cpuinfo"));
  return name.empty() ? "unknown CPU" : name;
}

}  // namespace longhaul::bench
