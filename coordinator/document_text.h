// The text of a document: read into memory whole, so that what is hashed is what is read, and
// refused when it is no text.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/patient_read.h"
#include "coordinator/requests.h"

namespace longhaul {

struct TextLimits {
  std::size_t max_bytes = std::size_t{1} << 30;  // of one document; larger ones are not opened
  bool lossy = false;  // bytes that are no UTF-8 are accepted; each becomes U+FFFD
  std::function<bool()> stop_requested = {};                // asked while a document is read
  std::chrono::milliseconds read_limit = kLongestFileWait;  // of reading one document
};

ReadPatience patience_of(const TextLimits& limits);

// What the bytes look like when they are no UTF-8 text, and where: "a PDF file", "UTF-16 text",
// "invalid UTF-8 at byte 17 (0xE9)"; nullopt for text. Pure.
std::optional<std::string> why_no_text(std::string_view bytes);

// The document's bytes. Throws kInvalidArgument for a file that cannot be read or is larger than
// the limit, kIo when the machine fails, kCancelled when a stop was asked for, kTimeout at the
// limit; a file that does not come is spoken of and left behind (base/patient_read.h).
std::string read_document(const DocumentRef& document, const TextLimits& limits);

}  // namespace longhaul
