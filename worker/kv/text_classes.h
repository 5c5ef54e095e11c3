// What kinds of tokens a sequence has, by position (model/token_class.h). Forks share it until one
// of them goes on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/token_class.h"

namespace longhaul {

// Used by one thread.
class TextClasses {
 public:
  // Tokens from `first` on; what was there of these positions, because tokens were taken back, is
  // forgotten.
  void set(TokenPos first, const TokenClasses& of_ids, std::span<const std::int32_t> tokens) {
    if (classes_ == nullptr || classes_.use_count() > 1) {
      classes_ = std::make_shared<std::vector<TokenClass>>(
          classes_ == nullptr ? std::vector<TokenClass>() : *classes_);
    }
    classes_->resize(static_cast<std::size_t>(first.value));
    for (const std::int32_t token : tokens)
      classes_->push_back(of_ids[static_cast<std::size_t>(token)]);
  }
  TokenClass at(std::int64_t position) const {
    return classes_->at(static_cast<std::size_t>(position));
  }

 private:
  std::shared_ptr<std::vector<TokenClass>> classes_;
};

}  // namespace longhaul
