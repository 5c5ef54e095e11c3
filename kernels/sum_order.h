// In which order an operator adds up the numbers of one row of its result. Sums of floats depend on
// it; the fastest order depends on how many rows there are, and with it a row's last bits on which
// rows are computed together. The other two are always the same: a row then has the same bits
// beside any rows and however many they are, with any number of threads, on one instruction set.
#pragma once
#include <cstdint>

namespace longhaul {

enum class SumOrder : std::uint8_t {
  kFastest,     // whatever is fastest for these rows
  kOfManyRows,  // as for many rows, however many there are
  kOfFewRows    // as for few
};

}  // namespace longhaul
