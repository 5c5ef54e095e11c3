// What the process really takes of memory, as the system counts it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

namespace longhaul::test {

// Bytes that the process takes at most while `run` runs, besides what it held before; nothing where
// the system does not forget a peak, and with sanitizers, which keep what is freed. `warm_up` takes
// what libraries and threads take the first time. Nothing else may run in the process.
std::optional<std::int64_t> peak_of(const std::function<void()>& warm_up,
                                    const std::function<void()>& run);

}  // namespace longhaul::test
