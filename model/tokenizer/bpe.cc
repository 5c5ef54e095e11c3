#include "model/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/unsupported.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kBmpEnd = 0x10000;

}  // namespace

BpeModel BpeModel::from_json(const JsonField& field, bool byte_level) {
  if (const auto type = field.find("type"); type && type->as_string() != "BPE")
    refuse(*type, fmt::format("the model \"{}\" is not supported; BPE is", type->as_string()));
  if (const auto dropout = field.find("dropout"); dropout && dropout->as_number() > 0)
    refuse(*dropout, "dropout makes ids random; it is not supported");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto text = field.find(affix); text && !text->as_string().empty())
      refuse(*text, fmt::format("{} is not supported", affix));
  }
  BpeModel model;
  model.byte_level_ = byte_level;
  model.fuse_unknown_ = field.bool_or("fuse_unk", false);
  model.byte_fallback_ = field.bool_or("byte_fallback", false);
  model.ignore_merges_ = field.bool_or("ignore_merges", false);
  if (const auto unknown = field.find("unk_token")) {
    model.unknown_text_ = unknown->as_string();
    model.source_field_ = unknown->path();
  }
  model.read_vocab(field.at("vocab"));
  model.read_merges(field.at("merges"));
  model.index_symbols(field.at("vocab"));
  return model;
}

void BpeModel::read_vocab(const JsonField& field) {
  const auto* object = std::get_if<JsonObject>(&field.json().value());
  if (object == nullptr)
    field.fail(fmt::format("expected an object, found {}", field.json().kind_name()));
  vocab_.reserve(object->size());
  std::vector<bool> taken;
  for (const auto& [text, value] : *object) {
    const auto* id = std::get_if<std::int64_t>(&value.value());
    if (id == nullptr || *id < 0 || *id > kMaxTokenId)
      field.fail(fmt::format("the id of \"{}\" is not an integer in [0, {}]", text, kMaxTokenId));
    const auto index = static_cast<std::size_t>(*id);
    if (index >= taken.size()) taken.resize(index + 1);
    if (taken[index]) field.fail(fmt::format("the id {} of \"{}\" is given twice", *id, text));
    taken[index] = true;
    vocab_.emplace(text, static_cast<std::int32_t>(*id));
    if (!byte_level_) continue;
    if (auto bytes = bytes_of(text))
      words_.emplace(std::move(*bytes), static_cast<std::int32_t>(*id));
  }
  if (vocab_.empty()) field.fail("the vocabulary is empty");
  if (unknown_text_) {
    const auto unknown = vocab_.find(*unknown_text_);
    if (unknown != vocab_.end()) unknown_ = unknown->second;
  }
}

void BpeModel::read_merges(const JsonField& field) {
  const std::size_t n_merges = field.size();
  merges_ = MergeTable(n_merges);
  const auto& list = std::get<JsonArray>(field.json().value());
  const auto fail = [&](std::size_t rank, const std::string& reason) {
    field.at(rank).fail(reason);
  };
  for (std::size_t rank = 0; rank < n_merges; ++rank) {
    std::string_view left, right;
    if (const auto* text = std::get_if<std::string>(&list[rank].value())) {
      const std::size_t blank = text->find(' ');
      if (blank == std::string::npos || text->find(' ', blank + 1) != std::string::npos)
        fail(rank, "expected two tokens with one space between");
      left = std::string_view(*text).substr(0, blank);
      right = std::string_view(*text).substr(blank + 1);
    } else {
      const JsonField pair = field.at(rank);
      if (pair.size() != 2) pair.fail("expected two tokens");
      left = pair.at(std::size_t{0}).as_string();
      right = pair.at(std::size_t{1}).as_string();
    }
    const std::string whole = std::string(left).append(right);
    const auto id_of = [&](const std::string& text) {
      const auto found = vocab_.find(text);
      if (found == vocab_.end()) fail(rank, fmt::format("\"{}\" is not in the vocabulary", text));
      return found->second;
    };
    const std::int32_t left_id = id_of(std::string(left));
    const std::int32_t right_id = id_of(std::string(right));
    const Merge merge{static_cast<std::int32_t>(rank), id_of(whole)};
    if (!left.empty() && !right.empty()) merges_.set(left_id, right_id, merge);  // "" never occurs
  }
}

void BpeModel::index_symbols(const JsonField& field) {
  std::vector<std::int32_t> symbols;
  std::vector<std::size_t> lengths;
  byte_symbols_.fill(kNoToken);
  if (!byte_level_) bmp_symbols_.assign(kBmpEnd, kNoToken);
  for (const auto& [text, id] : vocab_) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= lengths.size()) lengths.resize(index + 1);
    lengths[index] = text.size();
    if (text.empty() || byte_level_ || char_length(text[0]) != text.size()) continue;
    const char32_t character = char_at(text, 0);
    (character < kBmpEnd ? bmp_symbols_[character] : astral_symbols_[character]) = id;
    symbols.push_back(id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::int32_t id = kNoToken;
    if (byte_level_) {
      id = whole_word(std::string(1, static_cast<char>(byte)));
    } else if (byte_fallback_) {
      const auto found = vocab_.find(fmt::format("<0x{:02X}>", byte));
      if (found != vocab_.end()) id = found->second;
    }
    byte_symbols_[static_cast<std::size_t>(byte)] = id;
    if (id != kNoToken) symbols.push_back(id);
  }
  const bool complete =
      std::find(byte_symbols_.begin(), byte_symbols_.end(), kNoToken) == byte_symbols_.end();
  all_bytes_ = byte_fallback_ && complete;
  if (byte_level_ && byte_fallback_ && !complete)
    field.fail("a byte is missing; byte_fallback beside ByteLevel cannot make up for it");
  if (unknown_ != kNoToken) symbols.push_back(unknown_);
  if (lengths.empty()) field.fail("the vocabulary is empty");
  cuts_ = CutPairs(merges_, symbols, lengths);
}

std::int32_t BpeModel::whole_word(std::string_view word) const {
  const auto& words = byte_level_ ? words_ : vocab_;
  const auto found = words.find(std::string(word));
  return found == words.end() ? kNoToken : found->second;
}

std::int32_t BpeModel::symbol_of(std::string_view character) const {
  const char32_t code = char_at(character, 0);
  if (code < kBmpEnd) return bmp_symbols_[code];
  const auto found = astral_symbols_.find(code);
  return found == astral_symbols_.end() ? kNoToken : found->second;
}

void BpeModel::append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  const bool has_unknown = unknown_text_.has_value();
  if (byte_level_) {
    bool unknown = false;  // a byte is known or there is one unknown token for it
    for (const char byte : word) {
      const std::int32_t id = byte_symbols_[static_cast<unsigned char>(byte)];
      const bool repeated = unknown && fuse_unknown_;
      unknown = id == kNoToken && has_unknown;
      if (id != kNoToken) {
        symbols.push_back(id);
      } else if (has_unknown && !repeated) {
        symbols.push_back(unknown_);
      }
    }
  } else {
    int waiting = 0;  // unknown characters that are not written yet
    const auto write_unknown = [&] {
      for (; waiting > 0; --waiting) symbols.push_back(unknown_);
    };
    for (std::size_t at = 0; at < word.size();) {
      const std::string_view character = word.substr(at, char_length(word[at]));
      at += character.size();
      if (const std::int32_t id = symbol_of(character); id != kNoToken) {
        write_unknown();
        symbols.push_back(id);
        continue;
      }
      const bool as_bytes =
          byte_fallback_ && std::all_of(character.begin(), character.end(), [&](char byte) {
            return byte_symbols_[static_cast<unsigned char>(byte)] != kNoToken;
          });
      if (as_bytes) {  // the library lets them overtake an unknown character that waits
        for (const char byte : character)
          symbols.push_back(byte_symbols_[static_cast<unsigned char>(byte)]);
      } else if (has_unknown) {
        if (!fuse_unknown_) write_unknown();
        waiting = 1;
      }
    }
    write_unknown();
  }
  if (has_unknown && unknown_ == kNoToken &&
      std::find(symbols.begin(), symbols.end(), kNoToken) != symbols.end()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: \"{}\" is not in the vocabulary, but this text needs it",
                            source_field_, *unknown_text_));
  }
}

BpeModel::Ends BpeModel::ends_at(std::string_view text, std::size_t at) const {
  if (byte_level_) {
    const std::int32_t id = byte_symbols_[static_cast<unsigned char>(text[at])];
    return {id, id};
  }
  const std::string_view character = text.substr(at, char_length(text[at]));
  if (const std::int32_t id = symbol_of(character); id != kNoToken) return {id, id};
  if (!all_bytes_) return {};
  return {byte_symbols_[static_cast<unsigned char>(character.front())],
          byte_symbols_[static_cast<unsigned char>(character.back())]};
}

bool BpeModel::can_cut(std::string_view text, std::size_t at) const {
  const std::size_t before = byte_level_ ? at - 1 : last_char(text.substr(0, at));
  const Ends left = ends_at(text, before);
  const Ends right = ends_at(text, at);
  return left.last != kNoToken && right.first != kNoToken &&
         cuts_.never_merged(left.last, right.first);
}

}  // namespace longhaul::tokenization
