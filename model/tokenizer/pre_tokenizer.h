// tokenizer.json's `pre_tokenizer`: how a normalized text is split into words. Everything it can
// say becomes a short list of steps; a word never crosses a split of any step.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/pattern.h"

namespace longhaul::tokenization {

// What becomes of a match and of the text between matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and the text between change roles

  // What stands between two matches, and each match itself, is a word for itself: the search can
  // start anew behind any match.
  bool is_memoryless() const {
    return behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved;
  }
  bool removes_match() const { return behavior == SplitBehavior::kRemoved && !invert; }
  bool removes_gap() const { return behavior == SplitBehavior::kRemoved && invert; }
};

// Puts a prefix in front of every piece that lacks it.
enum class PrefixScheme { kAlways, kFirst, kNever };
struct RewriteStep {
  std::string space;  // what " " becomes; " " itself for ByteLevel
  PrefixScheme prefix = PrefixScheme::kNever;

  // The piece rewritten. `is_first`: it starts where the original text starts.
  std::string apply(std::string_view piece, bool is_first) const;
};

using SplitterStep = std::variant<SplitStep, RewriteStep>;

struct PreTokenizer {
  std::vector<SplitterStep> steps;
  bool byte_level = false;  // words are bytes written in GPT-2's alphabet

  static PreTokenizer from_json(const JsonField& field);
};

// The words of pieces of text. One thread; the pre-tokenizer must outlive it.
class WordSplitter {
 public:
  explicit WordSplitter(const PreTokenizer& pre_tokenizer);

  // Calls emit(word) for each word of `piece`, which steps before `first_step` have gone over
  // already.
  template <typename Emit>
  void split(std::string_view piece, bool is_first, std::size_t first_step, const Emit& emit) {
    if (piece.empty()) return;
    if (first_step == pre_tokenizer_->steps.size()) {
      emit(piece);
      return;
    }
    const auto next = [&](std::size_t begin, std::size_t end) {
      split(piece.substr(begin, end - begin), is_first && begin == 0, first_step + 1, emit);
    };
    const SplitterStep& step = pre_tokenizer_->steps[first_step];
    if (const auto* rewrite = std::get_if<RewriteStep>(&step)) {
      const std::string text = rewrite->apply(piece, is_first);
      split(text, is_first, first_step + 1, emit);
      return;
    }
    const auto& search = std::get<SplitStep>(step);
    if (!search.is_memoryless()) {
      for (const Match& part : merged_parts(first_step, piece)) next(part.begin, part.end);
      return;
    }
    MatchWalk walk(matchers_[first_step], piece);
    std::size_t done = 0;
    while (const auto match = walk.next()) {
      if (done < match->begin && !search.removes_gap()) next(done, match->begin);
      if (match->begin < match->end && !search.removes_match()) next(match->begin, match->end);
      done = match->end;
    }
    if (done < piece.size() && !search.removes_gap()) next(done, piece.size());
  }

  Matcher& matcher(std::size_t step) { return matchers_[step]; }

 private:
  std::vector<Match> merged_parts(std::size_t step, std::string_view piece);

  const PreTokenizer* pre_tokenizer_;
  std::vector<Matcher> matchers_;  // one per step; idle for a rewrite
};

}  // namespace longhaul::tokenization
