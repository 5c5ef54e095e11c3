#include "coordinator/document_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/patient_read.h"
#include "model/tokenizer/utf8.h"

namespace longhaul {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;  // at the front of the file
  std::string_view name;
};
// Of files that people give instead of their text, and of what they may give by mistake.
constexpr std::array<Signature, 19> kSignatures = {{
    {"%PDF-"sv, "a PDF file; extract its text first, such as with pdftotext"},
    {"\x1f\x8b"sv, "a gzip file; unpack it first"},
    {"BZh"sv, "a bzip2 file; unpack it first"},
    {"\xfd"
     "7zXZ\0"sv,
     "an xz file; unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "a zstd file; unpack it first"},
    {"7z\xbc\xaf"sv, "a 7z archive; unpack it first"},
    {"PK\x03\x04"sv, "a zip archive or an office document; extract its text first"},
    {"\xd0\xcf\x11\xe0"sv, "an old office document; extract its text first"},
    {"{\\rtf"sv, "an RTF file; convert it to plain text first"},
    {"%!PS"sv, "a PostScript file; extract its text first, such as with ps2ascii"},
    {"\xff\xfe\0\0"sv, "UTF-32 text; convert it: iconv -f UTF-32 -t UTF-8"},
    {"\0\0\xfe\xff"sv, "UTF-32 text; convert it: iconv -f UTF-32 -t UTF-8"},
    {"\xff\xfe"sv, "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff"sv, "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"},
    {"\x89PNG"sv, "a PNG picture"},
    {"\xff\xd8\xff"sv, "a JPEG picture"},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"\x89HDF"sv, "an HDF5 file"},
    {"SQLite format 3"sv, "a database"},
}};

// UTF-16 without its mark: of text in Latin letters every second byte is 0.
bool looks_like_utf16(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, std::min<std::size_t>(bytes.size(), 1024));
  std::array<std::size_t, 2> n_zeros{};
  for (std::size_t i = 0; i < head.size(); ++i) n_zeros[i % 2] += head[i] == '\0' ? 1 : 0;
  return head.size() >= 8 && std::max(n_zeros[0], n_zeros[1]) > head.size() * 2 / 5;
}

}  // namespace

std::optional<std::string> why_no_text(std::string_view bytes) {
  for (const Signature& signature : kSignatures) {
    if (bytes.starts_with(signature.bytes)) return std::string(signature.name);
  }
  if (looks_like_utf16(bytes))
    return "UTF-16 text without a byte order mark; convert it: iconv -f UTF-16LE -t UTF-8";
  const std::size_t valid = tokenization::valid_prefix(bytes);
  if (valid == bytes.size()) return std::nullopt;
  return fmt::format(
      "invalid UTF-8 at byte {} (0x{:02X}); convert it: iconv -f LATIN1 -t UTF-8, "
      "or whatever it is written in",
      valid, static_cast<unsigned char>(bytes[valid]));
}

ReadPatience patience_of(const TextLimits& limits) {
  return {.stop_requested = limits.stop_requested,
          .limit = limits.read_limit,
          .limit_name = "--step-timeout"};
}

std::string read_document(const DocumentRef& document, const TextLimits& limits) {
  if (document.text) return *document.text;
  return read_file_patiently(document.path, limits.max_bytes, patience_of(limits));
}

}  // namespace longhaul
