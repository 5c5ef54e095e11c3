#include "worker/snapshot/files_table.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace longhaul {
namespace {

struct FileRow {
  std::array<char, 128> name;
  std::int64_t n_bytes;
  std::array<char, 64> sha256_between;
};
struct OldRow {  // of version 2
  FileRow row;
  std::array<char, 64> sha256;
};

Hdf5Id text_of(std::size_t n_bytes) {
  Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, n_bytes);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  return type;
}

Hdf5Id row_type(std::size_t n_bytes) {
  Hdf5Id type(H5Tcreate(H5T_COMPOUND, n_bytes), H5Tclose);
  H5Tinsert(type, "name", offsetof(FileRow, name), text_of(sizeof(FileRow::name)));
  H5Tinsert(type, "bytes", offsetof(FileRow, n_bytes), H5T_STD_I64LE);
  H5Tinsert(type, "sha256_between", offsetof(FileRow, sha256_between),
            text_of(sizeof(FileRow::sha256_between)));
  return type;
}

// What files of either version have is read: members that a file lacks stay empty.
Hdf5Id any_row_type() {
  Hdf5Id type = row_type(sizeof(OldRow));
  H5Tinsert(type, "sha256", offsetof(OldRow, sha256), text_of(sizeof(OldRow::sha256)));
  return type;
}

template <std::size_t n>
void put(const std::string& text, std::array<char, n>& to) {
  require(text.size() <= n, "a text is too long for the table of files");
  to.fill('\0');
  std::memcpy(to.data(), text.data(), text.size());
}

template <std::size_t n>
std::string get(const std::array<char, n>& from) {
  return {from.data(), ::strnlen(from.data(), n)};
}

}  // namespace

void write_files_table(const Hdf5File& file, std::span<const WrittenFile> parts) {
  std::vector<FileRow> rows(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    put(parts[i].name, rows[i].name);
    rows[i].n_bytes = parts[i].n_bytes;
    put(parts[i].sha256_between, rows[i].sha256_between);
  }
  const auto n = static_cast<std::int64_t>(rows.size());
  const Hdf5Id type = row_type(sizeof(FileRow));
  const Hdf5Id table = file.make_rows(
      {.name = "/files", .type = type, .n_rows = n, .n_columns = 0, .chunk_rows = n});
  file.write_attribute(table, "long_name",
                       std::string("the files beside this one that hold the rows"));
  file.write_rows(table, {0, n}, rows.data());
}

std::vector<WrittenFile> read_files_table(const Hdf5File& file) {
  const Hdf5Id table = file.open_dataset("/files");
  std::vector<OldRow> rows(static_cast<std::size_t>(file.shape(table).at(0)));
  const Hdf5Id type = any_row_type();
  file.check(H5Dread(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()), "cannot read");
  std::vector<WrittenFile> parts;
  for (const auto& [row, sha256] : rows) {
    parts.push_back({.name = get(row.name),
                     .n_bytes = row.n_bytes,
                     .sha256_between = get(row.sha256_between),
                     .sha256 = get(sha256)});
  }
  return parts;
}

}  // namespace longhaul
