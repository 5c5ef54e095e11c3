// Words to ids: a BpeModel with the scratch memory and the cache of one thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/merge_symbols.h"
#include "model/tokenizer/word_cache.h"

namespace longhaul::tokenization {

class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model)
      : model_(&model), merger_(model.merges(), model.cuts()) {}

  // Appends the ids of `word`, which may be a whole document.
  void encode(std::string_view word, std::vector<std::int32_t>& out);

 private:
  void encode_cached(std::string_view word, std::vector<std::int32_t>& out);
  void encode_plain(std::string_view word, std::vector<std::int32_t>& out);

  const BpeModel* model_;
  SymbolMerger merger_;
  WordCache cache_;
  std::vector<std::int32_t> symbols_;
};

}  // namespace longhaul::tokenization
