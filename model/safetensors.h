// Reads safetensors files: header checked in full before anything is used, tensors as views of the
// mapped file. Rules enforced: header length <= min(100 MB, file - 8), a JSON object without
// duplicate keys, known dtypes, products without overflow, extents that match shape and dtype, no
// overlap and no hole, last one ends the file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace longhaul {

// One tensor as it lies in the file. `bytes` is valid while the file is mapped and may lie at any
// alignment (the format does not promise one): copy elements out, do not cast the pointer.
struct TensorBytes {
  DType dtype = DType::kF32;  // F32, F16, BF16, F64, I8, F8_E4M3; tensors of other dtypes are
                              // checked but cannot be taken
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(
      const std::filesystem::path& path);  // throws kCorruptData with path, tensor and offset

  const std::filesystem::path& path() const { return file_.path(); }
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  TensorBytes tensor(
      std::string_view name) const;  // throws kCorruptData when missing, kUnsupported for its dtype

  // As parsed; exposed for tests and fuzzing.
  struct Entry {
    std::string dtype_name;
    std::vector<std::int64_t> shape;
    std::size_t begin = 0;  // of the data section
    std::size_t end = 0;
  };
  struct Header {
    std::map<std::string, Entry, std::less<>> entries;
    std::size_t data_offset = 0;
  };
  const Header& header() const { return header_; }
  static Header parse_header(std::span<const std::byte> file, std::string_view source);

 private:
  MappedFile file_;
  Header header_;
};

}  // namespace longhaul
