// Runs one kernel of `longhaul bench kernels` once, on one thread and without probes, for tools
// that count its instructions (tools/dev/count_instructions.py). usage: run_kernel NAME     prints
// the operations of the run
#include <fmt/format.h>

#include <cstdlib>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "tools/bench/kernel_cases.h"

int main(int argc, char** argv) {
  using namespace longhaul;
  if (const char* isa = std::getenv("LONGHAUL_ISA"); isa != nullptr) set_active_isa(isa_named(isa));
  set_kernel_threads(1);
  for (const bench::KernelCase& c : bench::kernel_cases({.max_length = 512})) {
    if (argc != 2 || c.name.rfind(argv[1], 0) != 0) continue;
    c.prepare()();
    fmt::print("{:.0f}\n", c.work.operations());
    return 0;
  }
  fmt::print(stderr,
             "usage: run_kernel NAME, as in longhaul bench kernels --list --max-length 512\n");
  return 2;
}
