// tokenizer.json's `post_processor`: the special tokens around a text. What it says rules; flags
// of tokenizer_config.json (add_bos_token) are not looked at.
#pragma once
#include <cstdint>
#include <vector>

#include "base/json.h"

namespace longhaul::tokenization {

struct PostProcessor {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;

  static PostProcessor from_json(const JsonField& field);
};

}  // namespace longhaul::tokenization
