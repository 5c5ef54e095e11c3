// Reads tokenizer.json. `truncation` and `padding` are not looked at: they belong to a training or
// serving set-up, and `transformers` switches both off when it encodes.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace longhaul::tokenization {
namespace {

AddedToken read_added(const JsonField& field) {
  return {.id = static_cast<std::int32_t>(field.at("id").as_integer(0, kMaxTokenId)),
          .content = field.at("content").as_string(),
          .single_word = field.bool_or("single_word", false),
          .lstrip = field.bool_or("lstrip", false),
          .rstrip = field.bool_or("rstrip", false),
          .normalized = field.bool_or("normalized", false),
          .special = field.bool_or("special", false)};
}

// The `tokenizers` library numbers added tokens itself: a text of the vocabulary keeps its id,
// others follow the vocabulary, or the added tokens before them, in order. A file that says
// otherwise would get other ids there than are written.
class Numbering {
 public:
  explicit Numbering(const BpeModel& model) : model_(&model) {}

  void check(const JsonField& field, const AddedToken& token) {
    const auto n_vocab = static_cast<std::int32_t>(model_->vocab().size());
    const auto found = model_->vocab().find(token.content);
    const std::int32_t expected =
        found != model_->vocab().end() ? found->second : std::max(n_vocab, greatest_ + 1);
    if (token.id != expected) {
      field.at("id").fail(fmt::format("\"{}\" has id {}, but its place in the list makes it {}",
                                      token.content, token.id, expected));
    }
    greatest_ = std::max(greatest_, token.id);
  }

 private:
  const BpeModel* model_;
  std::int32_t greatest_ = -1;
};

std::vector<AddedToken> read_added_tokens(const JsonField& list, const TokenizerParts& parts) {
  std::vector<AddedToken> all;
  Numbering numbering(parts.model);
  std::unordered_map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonField field = list.at(i);
    AddedToken token = read_added(field);
    if (token.content.empty()) continue;
    if (!seen.emplace(token.content, i).second)
      field.at("content").fail(fmt::format("\"{}\" is listed twice", token.content));
    numbering.check(field, token);
    all.push_back(std::move(token));
  }
  // Special tokens come first where two match the same text.
  std::stable_partition(all.begin(), all.end(), [](const AddedToken& t) { return t.special; });
  return all;
}

void add_tokens(const JsonField& list, TokenizerParts& parts) {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_texts, normalized_texts;
  for (AddedToken& token : read_added_tokens(list, parts)) {
    const auto index = static_cast<std::size_t>(token.id);
    if (index >= parts.tokens.size()) parts.tokens.resize(index + 1);
    parts.tokens[index] = {token.content, /*exists=*/true, token.special};
    if (token.normalized) {
      std::string text = parts.normalizer.apply(token.content).text;
      if (text.empty())
        list.fail(fmt::format("\"{}\" is empty once it is normalized", token.content));
      if (text != token.content) parts.normalized_texts.emplace(token.id, text);
      normalized_texts.push_back(std::move(text));
      normalized.push_back(std::move(token));
    } else {
      raw_texts.push_back(token.content);
      raw.push_back(std::move(token));
    }
  }
  parts.raw_added = AddedTokenSet(std::move(raw), raw_texts);
  parts.normalized_added = AddedTokenSet(std::move(normalized), normalized_texts);
}

void check_post_processor(const JsonField& field, const TokenizerParts& parts) {
  for (const auto* side : {&parts.post_processor.before, &parts.post_processor.after}) {
    for (const std::int32_t id : *side) {
      const auto index = static_cast<std::size_t>(id);
      if (index >= parts.tokens.size() || !parts.tokens[index].exists)
        field.fail(fmt::format("the id {} is not in the vocabulary", id));
    }
  }
}

}  // namespace

TokenizerParts parse_tokenizer(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  const JsonField root(json, std::string(source));
  TokenizerParts parts;
  if (const auto field = root.find("normalizer")) parts.normalizer = Normalizer::from_json(*field);
  if (const auto field = root.find("pre_tokenizer"))
    parts.pre_tokenizer = PreTokenizer::from_json(*field);
  parts.model = BpeModel::from_json(root.at("model"), parts.pre_tokenizer.byte_level);
  if (const auto field = root.find("decoder")) parts.decoder = Decoder::from_json(*field);
  for (const auto& [token, id] : parts.model.vocab()) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= parts.tokens.size()) parts.tokens.resize(index + 1);
    parts.tokens[index] = {token, /*exists=*/true};
  }
  if (const auto field = root.find("added_tokens")) add_tokens(*field, parts);
  if (const auto field = root.find("post_processor")) {
    parts.post_processor = PostProcessor::from_json(*field);
    check_post_processor(*field, parts);
  }
  return parts;
}

}  // namespace longhaul::tokenization
