// What a given form costs for each token: 200 answers for each of several forms are drawn from
// their masks, over a vocabulary of 150,000 tokens (made up: single bytes, numbers, runs of signs
// and blanks, and words of one to five syllables with and without a space, as large vocabularies
// have them). Prints the processor's time: of making the tree and the form, and of a token's mask
// and step (mean, the slowest 1%, the slowest).
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/split_mix.h"
#include "model/forms/form.h"

namespace longhaul {
namespace {

using forms::Form;
using forms::FormCursor;
using forms::FormKind;
using forms::FormSource;
using forms::TokenTrie;

constexpr std::size_t kVocabSize = 150'000;
constexpr int kAnswers = 200;
constexpr int kMaxTokens = 400;

double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Draws {
 public:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(split_mix(++count_) % n); }

 private:
  std::uint64_t count_ = 0;
};

std::vector<std::string> made_up_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int n = 0; n < 1000; ++n) tokens.push_back(fmt::format("{:0{}}", n, n % 3 + 1));
  for (std::size_t n = 2; n <= 128; ++n) tokens.emplace_back(n, ' ');
  Draws draws;
  constexpr std::string_view kSigns = "\"'{}[]():,.;!?-_=+*/\\<>#@$%&|\n\t ";
  const std::vector<std::string> starts = {"",  "b",  "c",  "d",  "f",        "g",       "h",
                                           "l", "m",  "n",  "p",  "r",        "s",       "t",
                                           "v", "st", "tr", "ch", "\xc3\xa9", "\xe2\x82"};
  const std::vector<std::string> ends = {"a",  "e",  "i",   "o",  "u",       "an",
                                         "er", "in", "ion", "al", "\xc3\xb6"};
  std::set<std::string> unique(tokens.begin(), tokens.end());
  while (unique.size() < kVocabSize) {
    std::string token;
    if (draws.below(12) == 0) {
      for (std::size_t n = 2 + draws.below(4); n > 0; --n)
        token += kSigns[draws.below(kSigns.size())];
    } else {
      if (draws.below(2) == 0) token = ' ';
      for (std::size_t n = 1 + draws.below(5); n > 0; --n) {
        token += starts[draws.below(starts.size())] + ends[draws.below(ends.size())];
      }
      if (draws.below(40) == 0) token += kSigns[draws.below(kSigns.size())];
    }
    if (unique.insert(token).second) tokens.push_back(token);
  }
  tokens.resize(kVocabSize);
  return tokens;
}

struct Case {
  std::string name;
  FormSource source;
};

// One token of those that the mask allows.
std::int64_t draw(const IdSet& mask, Draws& draws) {
  std::int64_t picked = -1;
  auto left = static_cast<std::int64_t>(draws.below(static_cast<std::size_t>(mask.count())));
  mask.for_each([&](std::int64_t id) {
    if (left-- == 0) picked = id;
  });
  return picked;
}

void run(const Case& c, const std::vector<std::string>& vocabulary,
         const std::shared_ptr<const TokenTrie>& trie) {
  const double begin = cpu_seconds();
  const auto form = std::make_shared<Form>(c.source, trie);
  const double made = cpu_seconds() - begin;
  std::vector<double> micros;
  Draws draws;
  for (int answer = 0; answer < kAnswers; ++answer) {
    FormCursor cursor(form);
    for (int i = 0; i < kMaxTokens; ++i) {
      const double before = cpu_seconds();
      const auto mask = cursor.allowed();
      const bool ends = cursor.must_end();
      double used = cpu_seconds() - before;
      if (ends || mask->count() == 0) break;
      const std::int64_t id = draw(*mask, draws);
      const double drawn = cpu_seconds();
      require(cursor.advance(vocabulary[static_cast<std::size_t>(id)]), "a mask is wrong");
      used += cpu_seconds() - drawn;
      micros.push_back(used * 1e6);
    }
  }
  std::sort(micros.begin(), micros.end());
  const double mean =
      std::accumulate(micros.begin(), micros.end(), 0.0) / static_cast<double>(micros.size());
  fmt::print("{:<34} {:>8.2f} {:>8} {:>9.1f} {:>9.1f} {:>9.1f}\n", c.name, made * 1e3,
             micros.size(), mean, micros[micros.size() * 99 / 100], micros.back());
}

void run_all() {
  const std::vector<std::string> vocabulary = made_up_vocabulary();
  const double begin = cpu_seconds();
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  fmt::print("{} tokens, {} nodes, made in {:.0f} ms\n", trie->vocab_size(), trie->n_nodes(),
             (cpu_seconds() - begin) * 1e3);
  fmt::print("{:<34} {:>8} {:>8} {:>9} {:>9} {:>9}\n", "form", "made ms", "tokens", "mean us",
             "99% us", "most us");
  const std::vector<Case> cases = {
      {"json_object", {FormKind::kJsonObject, ""}},
      {"schema: strings of up to 60",
       {FormKind::kJsonSchema,
        R"({"type":"object","properties":{"a":{"type":"string","maxLength":60},"b":{"type":"string","maxLength":60},
            "c":{"type":"integer"}},"required":["a","b","c"]})"}},
      {"schema: nested lists, patterns",
       {FormKind::kJsonSchema,
        R"({"type":"array","minItems":3,"maxItems":6,"items":{"type":"object","properties":{"id":{"type":"string",
            "pattern":"^[A-Z]{2}-\\d{4}$"},"text":{"type":"string"},"at":{"type":"string","format":"date-time"},
            "n":{"type":"number","minimum":0,"maximum":100}},"required":["id","text","at","n"]}})"}},
      {"regex: words", {FormKind::kRegex, R"((?:[A-Za-z]{1,20}[ ,.]){1,200})"}},
      {"regex: anything", {FormKind::kRegex, R"([\s\S]*)"}},
      {"choice of 1000",
       {FormKind::kChoice,
        [] {
          std::string list = "[";
          for (int i = 0; i < 1000; ++i)
            list += fmt::format("{}\"class {}\"", i == 0 ? "" : ",", i * i);
          return list + "]";
        }()}},
  };
  for (const Case& c : cases) run(c, vocabulary, trie);
}

}  // namespace
}  // namespace longhaul

int main() {
  try {
    longhaul::run_all();
  } catch (const longhaul::Error& error) {
    std::fprintf(stderr, "forms_bench: %s\n", error.what());
    return 1;
  }
}
