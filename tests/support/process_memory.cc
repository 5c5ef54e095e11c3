#include "tests/support/process_memory.h"

#include <malloc.h>

#include <charconv>
#include <fstream>
#include <string>

namespace longhaul::test {
namespace {

// A line of /proc/self/status, such as "VmHWM", in bytes.
std::int64_t memory_line(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":")) continue;
    const std::size_t digit = line.find_first_of("0123456789");
    std::int64_t kib = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

// The peak (VmHWM) becomes what is resident now; false where the system does not let us.
bool forget_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5";
  refs.flush();
  return refs.good() && memory_line("VmHWM") - memory_line("VmRSS") < (1 << 20);
}

}  // namespace

std::optional<std::int64_t> peak_of(const std::function<void()>& warm_up,
                                    const std::function<void()>& run) {
#if defined(LONGHAUL_SANITIZES_ADDRESS) || defined(LONGHAUL_SANITIZES_THREADS)
  return std::nullopt;
#endif
  // What is freed goes back to the system: malloc would keep more and more of it, otherwise, the
  // larger what was freed before.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 17);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 17);
  warm_up();
  ::malloc_trim(0);
  if (!forget_peak()) return std::nullopt;
  const std::int64_t before = memory_line("VmRSS");
  run();
  return memory_line("VmHWM") - before;
}

}  // namespace longhaul::test
