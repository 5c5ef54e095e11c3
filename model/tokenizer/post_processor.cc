#include "model/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <limits>

#include "model/tokenizer/unsupported.h"

namespace longhaul::tokenization {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kMaxIds = 1024;  // far above any tokenizer

Ids ids_of(const JsonField& special_tokens, const JsonField& name) {
  const Json* entry = special_tokens.json().find(name.as_string());
  if (entry == nullptr)
    name.fail(fmt::format("\"{}\" is not among special_tokens", name.as_string()));
  const JsonField list = special_tokens.at(name.as_string()).at("ids");
  Ids ids;
  for (std::size_t i = 0; i < list.size(); ++i) {
    ids.push_back(static_cast<std::int32_t>(
        list.at(i).as_integer(0, std::numeric_limits<std::int32_t>::max())));
  }
  return ids;
}

PostProcessor from_template(const JsonField& field) {
  PostProcessor result;
  const JsonField pieces = field.at("single");
  bool text_seen = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const JsonField piece = pieces.at(i);
    if (piece.find("Sequence")) {
      if (text_seen) refuse(piece, "a template that has the text twice is not supported");
      text_seen = true;
      continue;
    }
    const Ids ids = ids_of(field.at("special_tokens"), piece.at("SpecialToken").at("id"));
    Ids& side = text_seen ? result.after : result.before;
    side.insert(side.end(), ids.begin(), ids.end());
    if (side.size() > kMaxIds)
      refuse(piece, fmt::format("more than {} tokens before or after each text", kMaxIds));
  }
  if (!text_seen) refuse(pieces, "a template without the text is not supported");
  return result;
}

}  // namespace

PostProcessor PostProcessor::from_json(const JsonField& field) {
  const JsonField type_field = field.at("type");
  const std::string& type = type_field.as_string();
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return from_template(field);
  if (type != "Sequence")
    refuse(type_field, fmt::format("the post-processor \"{}\" is not supported", type));
  PostProcessor all;
  const JsonField list = field.at("processors");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const PostProcessor outer = from_json(list.at(i));
    all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
    all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
  }
  return all;
}

}  // namespace longhaul::tokenization
