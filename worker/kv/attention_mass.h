// How much attention every slot of one cache got so far, from all queries of its KV head's group:
// methods keep the tokens that got most (H2O). Forks share it until one of them adds to it.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "model/heads/attention_sums.h"

namespace longhaul {

// Used by one thread.
class AttentionMass {
 public:
  // Of n_slots slots, for adding to; those that came since the last time have none.
  std::span<double> own(std::int64_t n_slots) {
    if (sums_ == nullptr || sums_.use_count() > 1)
      sums_ =
          std::make_shared<std::vector<double>>(sums_ == nullptr ? std::vector<double>() : *sums_);
    if (static_cast<std::size_t>(n_slots) > sums_->capacity())
      sums_->reserve(static_cast<std::size_t>(room_for_sums(n_slots)));
    sums_->resize(static_cast<std::size_t>(n_slots));
    return *sums_;
  }
  std::span<const double> sums() const {
    return sums_ == nullptr ? std::span<const double>() : std::span<const double>(*sums_);
  }
  // As HeadCache does with its slots.
  void keep(std::span<const SlotIndex> slots) {
    if (sums_ == nullptr) return;
    auto kept = std::make_shared<std::vector<double>>();
    kept->reserve(slots.size());
    for (const SlotIndex slot : slots)
      kept->push_back((*sums_)[static_cast<std::size_t>(slot.value)]);
    sums_ = std::move(kept);
  }
  void forget(SlotIndex slot) {
    if (sums_ == nullptr) return;
    const std::span<double> sums = own(static_cast<std::int64_t>(sums_->size()));
    sums[static_cast<std::size_t>(slot.value)] = sums.back();
    sums_->pop_back();
  }
  // Of sums that this one has alone or shares.
  std::size_t bytes() const {
    return sums_ == nullptr ? 0 : sums_->capacity() * static_cast<std::size_t>(kAttentionSumBytes);
  }

 private:
  std::shared_ptr<std::vector<double>> sums_;
};

}  // namespace longhaul
