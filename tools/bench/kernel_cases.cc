#include "tools/bench/kernel_cases.h"

#include <iterator>

namespace longhaul::bench {

std::vector<KernelCase> kernel_cases(const KernelChoice& choice) {
  std::vector<KernelCase> all = linear_cases(choice.all_paths);
  std::vector<KernelCase> attention = attention_cases(choice.max_length, choice.chunk_len);
  all.insert(all.end(), std::make_move_iterator(attention.begin()),
             std::make_move_iterator(attention.end()));
  std::erase_if(all,
                [&](const KernelCase& c) { return c.name.find(choice.only) == std::string::npos; });
  return all;
}

}  // namespace longhaul::bench
