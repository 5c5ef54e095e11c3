#include "model/tokenizer/added_tokens.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {

AddedTokenSet::AddedTokenSet(std::vector<AddedToken> tokens, const std::vector<std::string>& texts)
    : tokens_(std::move(tokens)), nodes_(1), starts_(256) {
  for (std::size_t token = 0; token < texts.size(); ++token) {
    std::size_t node = 0;
    for (const char byte : texts[token]) {
      auto& children = nodes_[node].children;
      const auto child = std::find_if(children.begin(), children.end(),
                                      [&](const auto& entry) { return entry.first == byte; });
      if (child != children.end()) {
        node = child->second;
        continue;
      }
      children.emplace_back(byte, nodes_.size());
      node = nodes_.size();
      nodes_.emplace_back();
    }
    if (nodes_[node].token == kNoToken) nodes_[node].token = token;
    const char first = texts[token].front();
    if (first_bytes_.find(first) == std::string::npos) first_bytes_ += first;
    starts_[static_cast<unsigned char>(first)] = true;
  }
}

AddedTokenSet::Found AddedTokenSet::longest_at(std::string_view text) const {
  Found found;
  std::size_t node = 0;
  for (std::size_t length = 0; length < text.size();) {
    const auto& children = nodes_[node].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& entry) { return entry.first == text[length]; });
    if (child == children.end()) break;
    node = child->second;
    ++length;
    if (nodes_[node].token != kNoToken) found = {length, nodes_[node].token};
  }
  return found;
}

std::size_t AddedTokenSet::next_candidate(std::string_view text, std::size_t from) const {
  if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], from), text.size());
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

namespace {

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool word_before = begin > 0 && is_word(char_at(text, last_char(text.substr(0, begin))));
  const bool word_after = end < text.size() && is_word(char_at(text, end));
  return !word_before && !word_after;
}

std::size_t space_begin(std::string_view text, std::size_t begin) {
  while (begin > 0) {
    const std::size_t before = last_char(text.substr(0, begin));
    if (!is_space(char_at(text, before))) break;
    begin = before;
  }
  return begin;
}

std::size_t space_end(std::string_view text, std::size_t end) {
  while (end < text.size() && is_space(char_at(text, end))) end += char_length(text[end]);
  return end;
}

}  // namespace

bool SpecialTokens::counts(std::size_t begin, std::size_t end) const {
  if (!parse) return false;
  const auto after =
      std::partition_point(literal.begin(), literal.end(),
                           [&](const TextRange& range) { return range.end <= begin + offset; });
  return after == literal.end() || after->begin >= end + offset;
}

std::vector<TextPart> AddedTokenSet::split(std::string_view text,
                                           const SpecialTokens& special) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;
  for (std::size_t at = tokens_.empty() ? text.size() : next_candidate(text, 0); at < text.size();
       at = next_candidate(text, at)) {
    const Found found = longest_at(text.substr(at));
    if (found.length == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + found.length;
    at = end;  // white space that a token takes along is still searched for tokens
    const AddedToken& token = tokens_[found.token];
    if (token.special && !special.counts(begin, end)) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(space_begin(text, begin), done);
    if (token.rstrip) end = space_end(text, end);
    if (done < begin) parts.push_back({done, begin});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size()});
  return parts;
}

}  // namespace longhaul::tokenization
