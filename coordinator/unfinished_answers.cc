#include "coordinator/unfinished_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 32;

// As one text: an answer may have millions.
std::string ids_as_text(const std::vector<PickedToken>& tokens) {
  std::string text;
  for (const PickedToken& token : tokens)
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : " ", token.token);
  return text;
}

std::vector<PickedToken> tokens_from(std::string_view text, std::string_view source) {
  std::vector<PickedToken> tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    PickedToken& token = tokens.emplace_back();
    const auto [next, problem] = std::from_chars(at, end, token.token);
    if (problem != std::errc() || (next != end && *next != ' ')) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: \"tokens\" has no number at byte {}", source, at - text.data()));
    }
    at = next == end ? next : next + 1;
  }
  return tokens;
}

Json scores_of(const std::vector<PickedToken>& tokens) {
  JsonArray scores;
  for (const PickedToken& token : tokens) {
    JsonArray top;
    for (const TokenLogprob& other : token.top) {
      top.emplace_back(JsonArray{std::int64_t{other.token}, static_cast<double>(other.logprob)});
    }
    scores.emplace_back(JsonArray{static_cast<double>(token.logprob), std::move(top)});
  }
  return scores;
}

void add_scores(const JsonField& scores, std::vector<PickedToken>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const JsonField score = scores.at(i);
    tokens[i].logprob = static_cast<float>(score.at(0).as_number());
    const JsonField top = score.at(1);
    for (std::size_t k = 0; k < top.size(); ++k) {
      tokens[i].top.push_back(
          {.token = static_cast<std::int32_t>(top.at(k).at(0).as_integer(0, INT32_MAX)),
           .logprob = static_cast<float>(top.at(k).at(1).as_number())});
    }
  }
}

bool has_scores(const std::vector<PickedToken>& tokens) {
  for (const PickedToken& token : tokens) {
    if (token.logprob != 0.0F || !token.top.empty()) return true;
  }
  return false;
}

}  // namespace

std::string unfinished_line(const RequestIdentity& identity,
                            const std::vector<PickedToken>& tokens) {
  return sealed_line({{"custom_id", identity.custom_id},
                      {"tokens", ids_as_text(tokens)},
                      {"logprobs", has_scores(tokens) ? scores_of(tokens) : Json(nullptr)}},
                     identity);
}

std::vector<PickedToken> tokens_of_line(std::string_view line, std::string_view source) {
  if (state_of_line(line) != LineState::kAsWritten) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the line is not as it was written; without the file its answers "
                            "start over",
                            source));
  }
  const Json json = parse_json(line, source);
  const JsonField root(json, std::string(source));
  std::vector<PickedToken> tokens = tokens_from(root.at("tokens").as_string(), source);
  if (const auto scores = root.find("logprobs")) add_scores(*scores, tokens);
  return tokens;
}

UnfinishedAnswers::UnfinishedAnswers(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return;
  const std::string text = read_file(path_, kMostBytes);
  std::int64_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::string source = fmt::format("{}:{}", path_.string(), number);
    tokens_of_line(line, source);  // throws for what is damaged
    lines_[identity_of_line(line, source).custom_id] = line + "\n";
    begin = end + 1;
  }
}

std::vector<PickedToken> UnfinishedAnswers::find(const RequestIdentity& identity) const {
  const auto found = lines_.find(identity.custom_id);
  if (found == lines_.end()) return {};
  const std::string_view line = std::string_view(found->second).substr(0, found->second.size() - 1);
  const std::string source = path_.string();
  if (identity_of_line(line, source) != identity) return {};  // the request was changed since
  return tokens_of_line(line, source);
}

void UnfinishedAnswers::set(const RequestIdentity& identity,
                            const std::vector<PickedToken>& tokens) {
  lines_[identity.custom_id] = unfinished_line(identity, tokens);
  is_written_ = false;
}

void UnfinishedAnswers::forget(const RequestIdentity& identity) {
  if (lines_.erase(identity.custom_id) > 0) is_written_ = false;
}

void UnfinishedAnswers::keep_only(const std::vector<RequestIdentity>& identities) {
  std::map<std::string, std::string> kept;
  for (const RequestIdentity& identity : identities) {
    if (auto line = lines_.extract(identity.custom_id)) kept.insert(std::move(line));
  }
  if (!lines_.empty()) is_written_ = false;
  lines_ = std::move(kept);
}

void UnfinishedAnswers::write() {
  if (std::exchange(is_written_, true)) return;
  if (lines_.empty()) {
    std::filesystem::remove(path_);
    return;
  }
  std::string text;
  for (const auto& [id, line] : lines_) text += line;
  replace_file(path_, text);
}

}  // namespace longhaul
