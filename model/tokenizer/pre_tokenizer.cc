#include "model/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/tokenizer/unsupported.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

// GPT-2's pattern (Radford et al., 2019).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The library runs this one with another engine, whose \w is Unicode's (UTS 18): Alphabetic
// (letters, letter numbers and circled letters), marks, decimal digits, connectors, joiners.
constexpr std::string_view kWhitespacePattern =
    R"([\p{L}\p{Nl}\u24b6-\u24e9\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}\p{M}\p{Nd}\p{Pc}\u200c\u200d]+|)"
    R"([^\p{L}\p{Nl}\u24b6-\u24e9\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}\p{M}\p{Nd}\p{Pc}\u200c\u200d\s]+)";

SplitBehavior behavior_of(const JsonField& field) {
  const std::string& name = field.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  field.fail(fmt::format("no such behavior: \"{}\"", name));
}

class Builder {
 public:
  void add(const JsonField& field) {
    const JsonField type_field = field.at("type");
    const std::string& type = type_field.as_string();
    if (type == "Sequence") {
      const JsonField list = field.at("pretokenizers");
      for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
      return;
    }
    if (result_.byte_level) refuse(type_field, "a pre-tokenizer after ByteLevel is not supported");
    if (type == "ByteLevel") {
      add_byte_level(field);
    } else if (type == "Split") {
      result_.steps.emplace_back(SplitStep{Pattern::from_json(field.at("pattern")),
                                           behavior_of(field.at("behavior")),
                                           field.bool_or("invert", false)});
    } else if (type == "Digits") {
      add_regex(field.bool_or("individual_digits", false) ? "\\p{N}" : "\\p{N}+", field);
    } else if (type == "Metaspace") {
      add_metaspace(field);
    } else if (type == "Whitespace") {
      add_regex(kWhitespacePattern, field, SplitBehavior::kRemoved, /*invert=*/true);
    } else if (type == "WhitespaceSplit") {
      add_regex("\\s", field, SplitBehavior::kRemoved);
    } else if (type == "Punctuation") {
      const auto behavior = field.find("behavior");
      add_regex("[\\p{P}$+<=>^`|~]", field,
                behavior ? behavior_of(*behavior) : SplitBehavior::kIsolated);
    } else {
      refuse(type_field, fmt::format("the pre-tokenizer \"{}\" is not supported", type));
    }
  }

  PreTokenizer take() { return std::move(result_); }

 private:
  void add_regex(std::string_view expression, const JsonField& field,
                 SplitBehavior behavior = SplitBehavior::kIsolated, bool invert = false) {
    result_.steps.emplace_back(SplitStep{Pattern::regex(expression, field), behavior, invert});
  }

  void add_byte_level(const JsonField& field) {
    if (field.at("add_prefix_space").as_bool())
      result_.steps.emplace_back(RewriteStep{" ", PrefixScheme::kAlways});
    if (field.bool_or("use_regex", true)) add_regex(kGpt2Pattern, field);
    result_.byte_level = true;
  }

  void add_metaspace(const JsonField& field) {
    const std::string& replacement = field.at("replacement").as_string();
    if (replacement.empty() || char_length(replacement[0]) != replacement.size())
      field.at("replacement").fail("expected one character");
    RewriteStep rewrite{replacement, PrefixScheme::kAlways};
    if (const auto scheme = field.find("prepend_scheme")) {
      const std::string& name = scheme->as_string();
      if (name != "always" && name != "first" && name != "never")
        scheme->fail(fmt::format("no such scheme: \"{}\"", name));
      rewrite.prefix = name == "always"  ? PrefixScheme::kAlways
                       : name == "first" ? PrefixScheme::kFirst
                                         : PrefixScheme::kNever;
    } else if (!field.bool_or("add_prefix_space", true)) {  // files before 2024
      rewrite.prefix = PrefixScheme::kNever;
    }
    result_.steps.emplace_back(std::move(rewrite));
    if (field.bool_or("split", true)) {
      result_.steps.emplace_back(
          SplitStep{Pattern::literal(replacement), SplitBehavior::kMergedWithNext, false});
    }
  }

  PreTokenizer result_;
};

struct Part {
  Match range;
  bool is_match = false;
};

}  // namespace

PreTokenizer PreTokenizer::from_json(const JsonField& field) {
  Builder builder;
  builder.add(field);
  return builder.take();
}

std::string RewriteStep::apply(std::string_view piece, bool is_first) const {
  std::string text;
  text.reserve(piece.size() + piece.size() / 4 + space.size());
  const bool wanted =
      prefix == PrefixScheme::kAlways || (prefix == PrefixScheme::kFirst && is_first);
  const bool has_prefix = piece.starts_with(' ') || piece.starts_with(space);
  if (wanted && !has_prefix) text += space;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t blank = std::min(piece.find(' ', at), piece.size());
    text.append(piece.substr(at, blank - at));
    if (blank < piece.size()) text += space;
    at = blank + 1;
  }
  return text;
}

WordSplitter::WordSplitter(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(&pre_tokenizer) {
  static const Pattern kIdle = Pattern::literal("");
  for (const SplitterStep& step : pre_tokenizer.steps) {
    const auto* search = std::get_if<SplitStep>(&step);
    matchers_.emplace_back(search != nullptr ? search->pattern : kIdle);
  }
}

// The behaviors that look at the neighbour, as the `tokenizers` library defines them: a match joins
// its neighbour unless that is a match, too; Contiguous joins matches with matches.
std::vector<Match> WordSplitter::merged_parts(std::size_t step, std::string_view piece) {
  const auto& search = std::get<SplitStep>(pre_tokenizer_->steps[step]);
  std::vector<Part> parts;
  std::size_t done = 0;
  MatchWalk walk(matchers_[step], piece);
  while (const auto match = walk.next()) {
    if (done < match->begin) parts.push_back({{done, match->begin}, search.invert});
    parts.push_back({*match, !search.invert});
    done = match->end;
  }
  if (done < piece.size()) parts.push_back({{done, piece.size()}, search.invert});
  const bool backwards = search.behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());

  std::vector<Match> merged;
  bool previous_match = false;
  for (const Part& part : parts) {
    const bool joins = search.behavior == SplitBehavior::kContiguous
                           ? part.is_match == previous_match
                           : part.is_match && !previous_match;
    if (joins && !merged.empty()) {
      (backwards ? merged.back().begin : merged.back().end) =
          backwards ? part.range.begin : part.range.end;
    } else {
      merged.push_back(part.range);
    }
    previous_match = part.is_match;
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  return merged;
}

}  // namespace longhaul::tokenization
