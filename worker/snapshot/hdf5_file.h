// HDF5 with errors as exceptions and handles that close themselves: what the files of this
// folder need, no more. Private to this folder. Callers hold an Hdf5Lock.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"

namespace longhaul {

// HDF5 is not safe for threads: ranks that are threads of one process enter it one at a time.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::unique_lock<std::mutex> lock_;
};

// Owns what an identifier names.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id() = default;
  Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Id() {
    if (id_ >= 0) close_(id_);
  }
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  operator hid_t() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// A file, created or open for reading, and operations on objects in it. Every failure throws kIo
// (kCorruptData for what was read) with the file's path and HDF5's reason.
class Hdf5File {
 public:
  // Replaces what is there. No HDF5 file locks: they fail on some cluster file systems, and each of
  // our files has one writer, which renames it when it is complete.
  // HDF5's part of the file begins after `user_block_bytes` of the caller's (0, 512, 1024, ...).
  static Hdf5File create(const std::filesystem::path& path, std::size_t user_block_bytes = 0);
  static Hdf5File open(const std::filesystem::path& path);

  hid_t id() const { return id_; }
  // Throws where `result` is a failure; else returns it.
  template <typename T>
  T check(T result, std::string_view what) const {
    if (result < 0) fail(what);
    return result;
  }
  // Everything is on its way to the system, and the file no longer than HDF5 made it; throws if
  // that failed. No other id may be open.
  void close();
  // Bytes of the file as HDF5 has laid it out so far.
  std::int64_t n_bytes() const;

  // --- Writing ---

  Hdf5Id make_group(const std::string& name) const;  // with the groups above it
  void write_attribute(hid_t object, const std::string& name, const std::string& text) const;
  void write_attribute(hid_t object, const std::string& name,
                       const std::vector<std::string>& texts) const;
  void write_attribute(hid_t object, const std::string& name, std::int64_t value) const;
  void write_attribute(hid_t object, const std::string& name, double value) const;
  // A data set of rows [n_rows, n_columns] in checksummed chunks; a vector where n_columns is 0.
  struct RowsSpec {
    std::string name;
    hid_t type = -1;
    std::int64_t n_rows = 0;
    std::int64_t n_columns = 0;
    std::int64_t chunk_rows = 0;
  };
  Hdf5Id make_rows(const RowsSpec& spec) const;
  void write_rows(hid_t dataset, Extent rows, const void* data) const;
  // The place of the chunk that begins with this row, from the file's first byte on: where the
  // caller then writes its bytes as they are to stand there, checksum included, apart from HDF5.
  std::int64_t reserve_chunk(hid_t dataset, std::int64_t first_row, std::int64_t n_bytes) const;
  // After a failure of writing apart from HDF5, before the file is removed: what HDF5 has left goes
  // nowhere.
  void abandon() const;

  // --- Reading ---

  Hdf5Id open_object(const std::string& name) const;
  Hdf5Id open_dataset(const std::string& name) const;
  bool has(const std::string& name) const;
  bool has_attribute(hid_t object, const std::string& attribute) const;
  std::string read_text(hid_t object, const std::string& attribute) const;
  std::int64_t read_number(hid_t object, const std::string& attribute) const;
  double read_real(hid_t object, const std::string& attribute) const;
  std::vector<std::int64_t> shape(hid_t dataset) const;
  std::int64_t chunk_rows(hid_t dataset) const;  // all rows of one that has no chunks
  // Rows as they are stored, which must be of `type`. `name` is for errors.
  void read_rows(hid_t dataset, const std::string& name, hid_t type, Extent rows, void* to) const;
  const std::string& path() const { return path_; }

 private:
  enum class Mode { kCreate, kRead };
  Hdf5File(const std::filesystem::path& path, Mode mode, std::size_t user_block_bytes);
  [[noreturn]] void fail(std::string_view what) const;
  std::string path_;
  Mode mode_ = Mode::kRead;
  Hdf5Id id_;
};

// A float of 16 bits in files. HDF5 knows neither f16 nor bf16 by name, but can describe them (f16:
// 5 bits of exponent, 10 of mantissa; bf16: 8 and 7), and so readers see floats.
Hdf5Id half_type(int exponent_bits);

}  // namespace longhaul
