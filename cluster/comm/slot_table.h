// Values named by small integers that are used again once released. Not thread-safe.
#pragma once
#include <utility>
#include <vector>

namespace longhaul {

template <typename T>
class SlotTable {
 public:
  int add(T value) {
    if (free_.empty()) {
      values_.push_back(std::move(value));
      free_.reserve(values_.size());  // so that release() never allocates
      return static_cast<int>(values_.size()) - 1;
    }
    const int slot = free_.back();
    free_.pop_back();
    values_[static_cast<std::size_t>(slot)] = std::move(value);
    return slot;
  }
  T& operator[](int slot) { return values_[static_cast<std::size_t>(slot)]; }
  void release(int slot) noexcept {
    values_[static_cast<std::size_t>(slot)] = T();
    free_.push_back(slot);
  }

 private:
  std::vector<T> values_;
  std::vector<int> free_;
};

}  // namespace longhaul
