#include "coordinator/shared_prefix.h"

#include <algorithm>
#include <utility>

namespace longhaul {

void SharedPrefix::add(std::vector<std::int32_t> ids, std::size_t most) {
  most = std::min(most, ids.size() - 1);
  if (!first_) {
    length_ = most;
    first_.emplace(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(most));
  } else {
    const auto end = first_->begin() + static_cast<std::ptrdiff_t>(std::min(length_, most));
    length_ = static_cast<std::size_t>(std::mismatch(first_->begin(), end, ids.begin()).first -
                                       first_->begin());
  }
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length_));
  rests_.push_back({length_, std::move(ids)});
}

std::vector<std::vector<std::int32_t>> SharedPrefix::take_rests() {
  std::vector<std::vector<std::int32_t>> rests;
  for (Rest& rest : rests_) {
    // What an earlier list shared and a later one does not.
    rest.ids.insert(rest.ids.begin(), first_->begin() + static_cast<std::ptrdiff_t>(length_),
                    first_->begin() + static_cast<std::ptrdiff_t>(rest.begin));
    rests.push_back(std::move(rest.ids));
  }
  return rests;
}

std::vector<std::int32_t> SharedPrefix::take_prefix() {
  if (!first_) return {};
  return {first_->begin(), first_->begin() + static_cast<std::ptrdiff_t>(length_)};
}

}  // namespace longhaul
