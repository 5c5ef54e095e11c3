#include "tests/golden/tokenizer/golden_data.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

static_assert(std::endian::native == std::endian::little);

std::string stored(std::string_view name) {
  return read_file(source_path(fmt::format("tests/golden/tokenizer/stored/{}", name)), 1 << 24);
}

// Reads values from the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}
  bool at_end() const { return rest_.empty(); }
  std::string_view bytes(std::size_t n) {
    require(n <= rest_.size(), "a stored file of the tokenizer goldens is cut short");
    const std::string_view value = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return value;
  }
  template <typename T>
  T value() {
    T number;
    std::memcpy(&number, bytes(sizeof number).data(), sizeof number);
    return number;
  }

 private:
  std::string_view rest_;
};

// Puts `member` in place of the one with its key, or behind the others.
void set_member(JsonObject& object, const JsonObject::value_type& member) {
  for (auto& [key, value] : object) {
    if (key == member.first) {
      value = member.second;
      return;
    }
  }
  object.push_back(member);
}

}  // namespace

std::vector<std::string> golden_strings() {
  const std::string file = stored("strings.bin");
  Reader reader(file);
  std::vector<std::string> strings(reader.value<std::uint32_t>());
  for (std::string& text : strings) text = reader.bytes(reader.value<std::uint32_t>());
  return strings;
}

std::string golden_tokenizer(std::string_view name) {
  const std::string text = stored(fmt::format("{}.json", name));
  const Json spec = parse_json(text, name);
  const JsonField root(spec, std::string(name));
  if (!root.find("base")) return text;
  Json json = parse_json(golden_tokenizer(root.at("base").as_string()), name);
  auto& object = std::get<JsonObject>(json.value());
  for (const auto& member : std::get<JsonObject>(root.at("replace").json().value())) {
    if (member.first != "unknown") {
      set_member(object, member);
      continue;
    }
    for (auto& [key, model] : object) {
      if (key != "model") continue;
      for (const auto& field : std::get<JsonObject>(member.second.value()))
        set_member(std::get<JsonObject>(model.value()), field);
    }
  }
  return to_text(json);
}

GoldenResults golden_results(std::string_view name) {
  GoldenResults results;
  const std::string hashes = stored(fmt::format("{}.hashes", name));
  for (Reader reader(hashes); !reader.at_end();)
    results.hashes.push_back(reader.value<GoldenHashes>());
  const std::string ids = stored(fmt::format("{}.ids", name));
  for (Reader reader(ids); !reader.at_end();) {
    auto& list = results.full.emplace_back(reader.value<std::uint16_t>());
    for (std::int32_t& id : list) id = reader.value<std::uint16_t>();
  }
  return results;
}

std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
  return hash;
}

std::uint64_t hash_of(std::span<const std::int32_t> ids) {
  return hash_of(std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size_bytes()));
}

std::vector<std::int32_t> random_ids(std::uint64_t index, std::int64_t n_ids) {
  std::uint64_t state = index * 2654435761U + 12345;
  std::vector<std::int32_t> ids(index % 24);
  for (std::int32_t& id : ids) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    id = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(n_ids));
  }
  return ids;
}

}  // namespace longhaul::test
