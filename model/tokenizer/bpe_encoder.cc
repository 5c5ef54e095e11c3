#include "model/tokenizer/bpe_encoder.h"

#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {

void BpeEncoder::encode(std::string_view word, std::vector<std::int32_t>& out) {
  if (model_->byte_level() || model_->ignore_merges()) return encode_cached(word, out);
  // Here a word is often a line or the whole text: cut it where no token crosses.
  std::size_t begin = 0;
  BpeModel::Ends previous;
  for (std::size_t at = 0; at < word.size(); at += char_length(word[at])) {
    const BpeModel::Ends here = model_->ends_at(word, at);
    if (at > begin && previous.last != kNoToken && here.first != kNoToken &&
        model_->cuts().never_merged(previous.last, here.first)) {
      encode_cached(word.substr(begin, at - begin), out);
      begin = at;
    }
    previous = here;
  }
  if (begin < word.size()) encode_cached(word.substr(begin), out);
}

void BpeEncoder::encode_cached(std::string_view word, std::vector<std::int32_t>& out) {
  if (word.size() > WordCache::kMaxWordBytes) return encode_plain(word, out);
  const std::uint64_t hash = WordCache::hash_of(word);
  if (const auto known = cache_.find(word, hash)) {
    out.insert(out.end(), known->begin(), known->end());
    return;
  }
  const std::size_t before = out.size();
  encode_plain(word, out);
  cache_.insert(word, hash, std::span(out).subspan(before));
}

void BpeEncoder::encode_plain(std::string_view word, std::vector<std::int32_t>& out) {
  if (model_->ignore_merges()) {
    if (const std::int32_t id = model_->whole_word(word); id != kNoToken) {
      out.push_back(id);
      return;
    }
  }
  symbols_.clear();
  model_->append_symbols(word, symbols_);
  merger_.merge(symbols_, out);
}

}  // namespace longhaul::tokenization
