#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace longhaul {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

struct KnownDType {
  std::string_view name;
  std::size_t bits;
  std::optional<DType> taken;  // what tensor() gives it as
};
constexpr std::array<KnownDType, 22> kDTypes = {{
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBf16},
    {"I8", 8, DType::kI8},
    {"F64", 64, DType::kF64},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F8_E4M3", 8, DType::kF8E4m3},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
}};

const KnownDType* find_dtype(std::string_view name) {
  const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                   [&](const KnownDType& known) { return known.name == name; });
  return found == kDTypes.end() ? nullptr : found;
}

[[noreturn]] void corrupt(std::string_view source, const std::string& reason) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", source, reason));
}

// Integers must be written as integers here: 1e3 is no shape.
std::size_t exact_integer(const JsonField& field) {
  const auto* value = std::get_if<std::int64_t>(&field.json().value());
  if (value == nullptr) {
    field.fail(fmt::format("expected an integer, found {}", field.json().kind_name()));
  }
  return static_cast<std::size_t>(field.as_integer(0, std::numeric_limits<std::int64_t>::max()));
}

// The header's text: bytes [8, 8 + length).
std::string_view header_text(std::span<const std::byte> file, std::string_view source) {
  if (file.size() < kLengthBytes) {
    corrupt(source, fmt::format("byte 0: the file has {} bytes, a safetensors file at least 8; "
                                "copy or download it again",
                                file.size()));
  }
  const std::string_view head(reinterpret_cast<const char*>(file.data()), kLengthBytes);
  if (head == "version ") {
    corrupt(source,
            "this is a git-lfs pointer and not the file itself; fetch it with `git lfs pull`");
  }
  if (head.starts_with("GGUF"))
    corrupt(source, "this is a GGUF file; only safetensors are read: download the original model");
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  const std::size_t rest = file.size() - kLengthBytes;
  if (length > kMaxHeaderBytes) {
    corrupt(source, fmt::format("byte 0: the header would be {} bytes long, at most {} are "
                                "accepted; this is no safetensors file or it is damaged",
                                length, kMaxHeaderBytes));
  }
  if (length > rest) {
    corrupt(source, fmt::format("byte 0: the header would be {} bytes long, but only {} follow; "
                                "the file is cut off, copy or download it again",
                                length, rest));
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || text[0] != '{') {
    corrupt(source, "byte 8: the header does not start with '{'; this is no safetensors file");
  }
  return {text, static_cast<std::size_t>(length)};
}

void check_metadata(const JsonField& metadata) {
  const auto* members = std::get_if<JsonObject>(&metadata.json().value());
  if (members == nullptr) {
    metadata.fail(fmt::format("expected an object, found {}", metadata.json().kind_name()));
  }
  for (const auto& [key, value] : *members) {
    if (!value.is_string()) {
      metadata.fail(fmt::format("\"{}\": expected a string, found {}", key, value.kind_name()));
    }
  }
}

std::size_t checked_product(const JsonField& where, std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) where.fail("the number of bits overflows 64 bits");
  return product;
}

SafetensorsFile::Entry read_entry(const JsonField& field) {
  const auto* members = std::get_if<JsonObject>(&field.json().value());
  if (members == nullptr) {
    field.fail(fmt::format("expected an object, found {}", field.json().kind_name()));
  }
  for (const auto& [key, value] : *members) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      field.fail(fmt::format("\"{}\" is not a field of a tensor", key));
    }
  }
  SafetensorsFile::Entry entry;
  entry.dtype_name = field.at("dtype").as_string();
  const KnownDType* dtype = find_dtype(entry.dtype_name);
  if (dtype == nullptr) {
    field.at("dtype").fail(fmt::format("{} is not a dtype of the safetensors format",
                                       to_text(Json(entry.dtype_name))));
  }
  const JsonField shape = field.at("shape");
  std::size_t n_bits = dtype->bits;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t extent = exact_integer(shape.at(i));
    n_bits = checked_product(shape, n_bits, extent);
    entry.shape.push_back(static_cast<std::int64_t>(extent));
  }
  if (n_bits % 8 != 0) shape.fail("the elements do not fill whole bytes");
  const JsonField offsets = field.at("data_offsets");
  if (offsets.size() != 2) {
    offsets.fail(fmt::format("expected two offsets, found {}", offsets.size()));
  }
  entry.begin = exact_integer(offsets.at(0));
  entry.end = exact_integer(offsets.at(1));
  if (entry.end < entry.begin) {
    offsets.fail(fmt::format("the end {} lies before the begin {}", entry.end, entry.begin));
  }
  if (entry.end - entry.begin != n_bits / 8) {
    offsets.fail(fmt::format("{} bytes from {} to {}, but shape and dtype {} need {}",
                             entry.end - entry.begin, entry.begin, entry.end, entry.dtype_name,
                             n_bits / 8));
  }
  return entry;
}

// Sorted by place, each tensor must begin where the one before it ends, from the first byte of the
// data to the last.
void check_coverage(const SafetensorsFile::Header& header, std::size_t file_bytes,
                    std::string_view source) {
  using Item = std::pair<const std::string, SafetensorsFile::Entry>;
  std::vector<const Item*> items;
  for (const Item& item : header.entries) items.push_back(&item);
  std::sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  const std::size_t data_bytes = file_bytes - header.data_offset;
  std::size_t covered = 0;
  for (const Item* item : items) {
    const auto& [name, entry] = *item;
    if (entry.end > data_bytes) {
      corrupt(source, fmt::format("tensor {}: ends at byte {} of the data, but the file has only "
                                  "{} bytes of data; it is cut off, copy or download it again",
                                  name, entry.end, data_bytes));
    }
    if (entry.begin != covered) {
      corrupt(source, fmt::format("tensor {}: begins at byte {} of the data, but the tensors "
                                  "before it end at {}: {}",
                                  name, entry.begin, covered,
                                  entry.begin < covered ? "they overlap" : "there is a hole"));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    corrupt(source, fmt::format("byte {}: {} bytes follow the last tensor",
                                header.data_offset + covered, data_bytes - covered));
  }
}

}  // namespace

SafetensorsFile::Header SafetensorsFile::parse_header(std::span<const std::byte> file,
                                                      std::string_view source) {
  const std::string_view text = header_text(file, source);
  Header header;
  header.data_offset = kLengthBytes + text.size();
  const std::string name = fmt::format("{}: header (from byte 8)", source);
  const Json json = parse_json(text, name, {.max_bytes = kMaxHeaderBytes, .max_depth = 8});
  for (const auto& [key, value] : std::get<JsonObject>(json.value())) {
    if (key == "__metadata__") {
      check_metadata(JsonField(value, name, key));
    } else {
      header.entries.emplace(key, read_entry(JsonField(value, name, "tensor " + key)));
    }
  }
  check_coverage(header, file.size(), source);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), header_(parse_header(file_.bytes(), path.string())) {}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : header_.entries) names.push_back(name);
  return names;
}

bool SafetensorsFile::contains(std::string_view name) const {
  return header_.entries.find(name) != header_.entries.end();
}

TensorBytes SafetensorsFile::tensor(std::string_view name) const {
  const auto found = header_.entries.find(name);
  if (found == header_.entries.end()) {
    corrupt(file_.path().string(),
            fmt::format("tensor {} is missing; do the weights belong to this config.json?", name));
  }
  const Entry& entry = found->second;
  const KnownDType* dtype = find_dtype(entry.dtype_name);
  if (dtype == nullptr || !dtype->taken) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: tensor {}: dtype {} is not supported; convert the model to BF16, "
                            "F16 or F32",
                            file_.path().string(), name, entry.dtype_name));
  }
  return {
      .dtype = *dtype->taken,
      .shape = entry.shape,
      .bytes = file_.bytes().subspan(header_.data_offset + entry.begin, entry.end - entry.begin)};
}

}  // namespace longhaul
