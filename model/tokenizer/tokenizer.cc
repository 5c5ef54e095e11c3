#include "model/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "model/tokenizer/tokenizer_impl.h"

namespace longhaul {

using tokenization::DecoderRun;

namespace {
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_file(const std::filesystem::path& tokenizer_json) {
  return from_json(read_file(tokenizer_json, kMaxFileBytes), tokenizer_json.string());
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view source) {
  auto impl = std::make_unique<Impl>();
  impl->parts = tokenization::parse_tokenizer(text, source);
  return Tokenizer(std::move(impl));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                                            int n_threads) const {
  const auto& parts = impl_->parts;
  const tokenization::SpecialTokens special{.parse = options.parse_special,
                                            .literal = options.literal};
  std::vector<std::int32_t> ids =
      tokenization::encode_text(parts, text, special, {.n_threads = n_threads});
  if (options.add_special_tokens) {
    const auto& [before, after] = parts.post_processor;
    ids.insert(ids.begin(), before.begin(), before.end());
    ids.insert(ids.end(), after.begin(), after.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  DecoderRun run(impl_->parts.decoder);
  std::string text;
  for (const std::int32_t id : ids) {
    if (impl_->is_text(id, skip_special)) run.push(impl_->parts.decoder_text(id), text);
  }
  run.finish(text);
  return text;
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  token_text(id);  // throws for an unknown id
  return impl_->parts.decoder.bytes_of_token(impl_->parts.decoder_text(id));
}

std::string_view Tokenizer::token_text(std::int32_t id) const {
  const auto* token = impl_->token(id);
  if (token == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("token id {} is not in the vocabulary of {}", id, vocab_size()));
  }
  return token->text;
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto* token = impl_->token(id);
  return token != nullptr && token->special;
}

bool Tokenizer::has_text(std::int32_t id) const {
  const auto* token = impl_->token(id);
  return token != nullptr && !token->special;
}

std::int64_t Tokenizer::vocab_size() const {
  return static_cast<std::int64_t>(impl_->parts.tokens.size());
}

}  // namespace longhaul
