// The stored strings, tokenizers and results of make_tokenizer_goldens.py, which says how they are
// laid out.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::test {

std::vector<std::string> golden_strings();

// tokenizer.json of a family or variant.
std::string golden_tokenizer(std::string_view name);

struct GoldenHashes {
  std::uint64_t as_text, parsed, decoded;
};
struct GoldenResults {
  std::vector<GoldenHashes> hashes;             // per string
  std::vector<std::vector<std::int32_t>> full;  // parsed ids of the first strings
};
GoldenResults golden_results(std::string_view name);

// FNV-1a, 64 bits; of ids as little-endian int32.
std::uint64_t hash_of(std::string_view bytes);
std::uint64_t hash_of(std::span<const std::int32_t> ids);

// Ids that no text gave, as the script draws them for string `index`.
std::vector<std::int32_t> random_ids(std::uint64_t index, std::int64_t n_ids);

}  // namespace longhaul::test
