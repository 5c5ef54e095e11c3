#include "cluster/wire/token_set_codec.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace longhaul {
namespace {

// Numbered because they travel.
enum class TokenSetForm : std::uint8_t { kAll = 0, kIds = 1, kBits = 2 };

constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

AllowedTokens read_ids(ByteReader& in, std::int64_t size) {
  IdSet set(size);
  for (const std::int32_t id : in.list<std::int32_t>()) {
    if (id < 0 || id >= size) in.fail("an allowed token outside its vocabulary");
    set.insert(id);
  }
  return std::make_shared<const IdSet>(std::move(set));
}

AllowedTokens read_bits(ByteReader& in, std::int64_t size) {
  std::vector<std::uint64_t> words = in.list<std::uint64_t>();
  if (words.size() != IdSet(size).words().size()) in.fail("allowed tokens of another size");
  return std::make_shared<const IdSet>(size, std::move(words));
}

}  // namespace

void write(ByteWriter& out, const AllowedTokens& tokens) {
  if (tokens == nullptr) {
    out.number(static_cast<std::uint8_t>(TokenSetForm::kAll));
    return;
  }
  const auto id_bytes = static_cast<std::size_t>(tokens->count()) * sizeof(std::int32_t);
  const bool as_ids = id_bytes < tokens->bytes();
  out.number(static_cast<std::uint8_t>(as_ids ? TokenSetForm::kIds : TokenSetForm::kBits));
  out.number(tokens->size());
  if (!as_ids) {
    out.list(std::span<const std::uint64_t>(tokens->words()));
    return;
  }
  std::vector<std::int32_t> ids;
  tokens->for_each([&](std::int64_t id) { ids.push_back(static_cast<std::int32_t>(id)); });
  out.list(std::span<const std::int32_t>(ids));
}

AllowedTokens read_allowed_tokens(ByteReader& in) {
  const auto form = in.number<std::uint8_t>();
  if (form == static_cast<std::uint8_t>(TokenSetForm::kAll)) return nullptr;
  if (form > static_cast<std::uint8_t>(TokenSetForm::kBits)) {
    in.fail("unknown form of allowed tokens");
  }
  const auto size = in.number<std::int64_t>();
  if (size < 0 || size > kMaxSize) in.fail("allowed tokens of an absurd vocabulary");
  const AllowedTokens tokens = form == static_cast<std::uint8_t>(TokenSetForm::kIds)
                                   ? read_ids(in, size)
                                   : read_bits(in, size);
  if (tokens->count() == 0) in.fail("no token is allowed");
  return tokens;
}

}  // namespace longhaul
