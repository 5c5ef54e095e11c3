#include "model/chat/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "model/chat/parser.h"

namespace longhaul::chat {

struct ChatTemplate::Impl {
  std::string source;
  std::string text;
  Syntax syntax;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

const std::string& ChatTemplate::source() const { return impl_->source; }
const std::string& ChatTemplate::text() const { return impl_->text; }

ChatTemplate ChatTemplate::parse(std::string_view text, std::string_view source) {
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  impl->text = text;
  impl->syntax = parse_template(text, source);
  return ChatTemplate(std::move(impl));
}

namespace {

bool is_content(const Expression& e) {
  if (e.kind == ExpressionKind::kAttribute) return e.name == "content";
  if (e.kind == ExpressionKind::kItem) {
    const Expression& key = *e.parts[1];
    return key.kind == ExpressionKind::kConstant && key.constant.text() != nullptr &&
           key.constant.text()->bytes() == "content";
  }
  // A name that was set to a message's content, as many templates do.
  return e.kind == ExpressionKind::kName && e.name == "content";
}

}  // namespace

bool ChatTemplate::takes_content_parts() const {
  return std::any_of(impl_->syntax.statements.begin(), impl_->syntax.statements.end(),
                     [](const Statement& statement) {
                       return statement.kind == StatementKind::kFor &&
                              is_content(*statement.expression);
                     });
}

Text ChatTemplate::render(const RenderRequest& request, const RenderLimits& limits) const {
  require(request.variables != nullptr && request.variables->is_object(),
          "a chat template is rendered with an object");
  std::vector<std::pair<std::string, Value>> variables = {
      {"add_generation_prompt", request.add_generation_prompt}};
  if (!request.bos_token.empty())
    variables.emplace_back("bos_token", Value::of_template(request.bos_token));
  if (!request.eos_token.empty())
    variables.emplace_back("eos_token", Value::of_template(request.eos_token));
  for (const auto& [name, value] : std::get<JsonObject>(request.variables->value()))
    if (name != "add_generation_prompt") variables.emplace_back(name, Value::from_json(value));
  Evaluator evaluator(impl_->syntax, impl_->source, request.now, limits);
  return evaluator.render(variables);
}

}  // namespace longhaul::chat
