#include "worker/snapshot/hdf5_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/direct_file.h"
#include "base/error.h"
#include "worker/snapshot/place_driver.h"

namespace longhaul {
namespace {

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

// The innermost entry of HDF5's error stack: the others only say through which calls it came.
std::string reason_of_last_error() {
  std::string reason;
  const auto take = [](unsigned, const H5E_error2_t* entry, void* to) -> herr_t {
    auto& text = *static_cast<std::string*>(to);
    if (text.empty() && entry->desc != nullptr) text = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take, &reason);
  H5Eclear2(H5E_DEFAULT);
  return reason.empty() ? "HDF5 gives no reason" : reason;
}

// HDF5 reports failed system calls as text with "errno = N" inside.
std::string remedy_for(const std::string& reason) {
  const auto at = reason.find("errno = ");
  const int number = at == std::string::npos ? 0 : std::atoi(reason.c_str() + at + 8);
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; free some space, or save to another folder";
    case EAGAIN:
    case ENOLCK:
    case ENOSYS:
    case 524:  // ENOTSUPP, which reaches programs from some network file systems
      return "; if the file system has no locks, set HDF5_USE_FILE_LOCKING=FALSE";
    default:
      return "";
  }
}

hsize_t size_from(std::int64_t n) { return static_cast<hsize_t>(n); }

Hdf5Id text_type() {
  Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(hdf5_mutex()) {
  // Errors become exceptions; HDF5 must not print them too. The setting is one of each thread in
  // some builds.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5File::Hdf5File(const std::filesystem::path& path, Mode mode, std::size_t user_block_bytes)
    : path_(path.string()), mode_(mode) {
  const Hdf5Id access(check(H5Pcreate(H5P_FILE_ACCESS), "cannot set up"), H5Pclose);
  check(H5Pset_file_locking(access, /*use_file_locking=*/false, /*ignore_when_disabled=*/true),
        "cannot set up");
  check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "cannot set up");
  if (mode == Mode::kCreate) {
    const Hdf5Id create(check(H5Pcreate(H5P_FILE_CREATE), "cannot set up"), H5Pclose);
    check(H5Pset_userblock(create, user_block_bytes), "cannot set up");
    check(H5Pset_driver(access, check(place_driver(), "cannot set up"), nullptr), "cannot set up");
    // What is written apart from HDF5 begins as disks' sectors do; it is worth it where it is long.
    constexpr std::size_t kSector = DirectFile::kSectorBytes;
    if (user_block_bytes % kSector == 0)  // else HDF5 refuses it
      check(H5Pset_alignment(access, 4 * kSector, kSector), "cannot set up");
    id_ = {check(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, create, access), "cannot create"),
           H5Fclose};
  } else {
    id_ = {check(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access), "cannot open"), H5Fclose};
  }
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, std::size_t user_block_bytes) {
  return {path, Mode::kCreate, user_block_bytes};
}
Hdf5File Hdf5File::open(const std::filesystem::path& path) { return {path, Mode::kRead, 0}; }

// HDF5 cannot give a file up: closing it writes what is left, and if that fails (the disk is full)
// the library crashes when the program exits. So what is left goes to memory that is then dropped.
void Hdf5File::abandon() const {
  void* handle = nullptr;
  if (mode_ != Mode::kCreate || id_ < 0) return;
  if (H5Fget_vfd_handle(id_, H5P_DEFAULT, &handle) < 0 || handle == nullptr) return;
  const int sink = ::memfd_create("abandoned", MFD_CLOEXEC);
  if (sink < 0) return;
  ::dup3(sink, *static_cast<const int*>(handle), O_CLOEXEC);
  ::close(sink);
}

void Hdf5File::fail(std::string_view what) const {
  const std::string reason = reason_of_last_error();
  abandon();
  throw Error(mode_ == Mode::kCreate ? ErrorCode::kIo : ErrorCode::kCorruptData,
              fmt::format("{} {}: {}{}", what, path_, reason, remedy_for(reason)));
}

void Hdf5File::close() {
  check(H5Fflush(id_, H5F_SCOPE_LOCAL), "cannot write");
  const auto n = static_cast<std::uintmax_t>(n_bytes());
  check(H5Fclose(id_.release()), "cannot close");
  // Whoever writes apart from HDF5 may have taken space beforehand.
  std::error_code error;
  const std::uintmax_t n_now = std::filesystem::file_size(path_, error);
  if (!error && n_now > n) std::filesystem::resize_file(path_, n, error);
  if (error)
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path_, error.message()));
}

std::int64_t Hdf5File::n_bytes() const {
  hsize_t n = 0;
  check(H5Fget_filesize(id_, &n), "cannot write");
  return static_cast<std::int64_t>(n);
}

Hdf5Id Hdf5File::make_group(const std::string& name) const {
  const Hdf5Id links(check(H5Pcreate(H5P_LINK_CREATE), "cannot set up"), H5Pclose);
  check(H5Pset_create_intermediate_group(links, 1), "cannot set up");
  return {check(H5Gcreate2(id_, name.c_str(), links, H5P_DEFAULT, H5P_DEFAULT), "cannot write"),
          H5Gclose};
}

void Hdf5File::write_attribute(hid_t object, const std::string& name,
                               const std::string& text) const {
  const Hdf5Id type = text_type();
  const Hdf5Id space(check(H5Screate(H5S_SCALAR), "cannot set up"), H5Sclose);
  const Hdf5Id attribute(
      check(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
            "cannot write"),
      H5Aclose);
  const char* value = text.c_str();
  check(H5Awrite(attribute, type, &value), "cannot write");
}

void Hdf5File::write_attribute(hid_t object, const std::string& name,
                               const std::vector<std::string>& texts) const {
  const Hdf5Id type = text_type();
  const hsize_t n = texts.size();
  const Hdf5Id space(check(H5Screate_simple(1, &n, nullptr), "cannot set up"), H5Sclose);
  const Hdf5Id attribute(
      check(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
            "cannot write"),
      H5Aclose);
  std::vector<const char*> values;
  for (const std::string& text : texts) values.push_back(text.c_str());
  check(H5Awrite(attribute, type, values.data()), "cannot write");
}

void Hdf5File::write_attribute(hid_t object, const std::string& name, std::int64_t value) const {
  const Hdf5Id space(check(H5Screate(H5S_SCALAR), "cannot set up"), H5Sclose);
  const Hdf5Id attribute(
      check(H5Acreate2(object, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT),
            "cannot write"),
      H5Aclose);
  check(H5Awrite(attribute, H5T_NATIVE_INT64, &value), "cannot write");
}

void Hdf5File::write_attribute(hid_t object, const std::string& name, double value) const {
  const Hdf5Id space(check(H5Screate(H5S_SCALAR), "cannot set up"), H5Sclose);
  const Hdf5Id attribute(
      check(H5Acreate2(object, name.c_str(), H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT),
            "cannot write"),
      H5Aclose);
  check(H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value), "cannot write");
}

Hdf5Id Hdf5File::make_rows(const RowsSpec& spec) const {
  const int rank = spec.n_columns == 0 ? 1 : 2;
  const std::array<hsize_t, 2> shape = {size_from(spec.n_rows), size_from(spec.n_columns)};
  const std::array<hsize_t, 2> chunk = {size_from(std::min(spec.chunk_rows, spec.n_rows)),
                                        size_from(spec.n_columns)};
  const Hdf5Id space(check(H5Screate_simple(rank, shape.data(), nullptr), "cannot set up"),
                     H5Sclose);
  const Hdf5Id create(check(H5Pcreate(H5P_DATASET_CREATE), "cannot set up"), H5Pclose);
  check(H5Pset_chunk(create, rank, chunk.data()), "cannot set up");
  check(H5Pset_fletcher32(create), "cannot set up");
  check(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER), "cannot set up");
  check(H5Pset_obj_track_times(create, false), "cannot set up");  // equal content, equal bytes
  // Chunks are written whole: no cache between them and the file, so that a full disk is noticed
  // where it happens.
  const Hdf5Id access(check(H5Pcreate(H5P_DATASET_ACCESS), "cannot set up"), H5Pclose);
  check(H5Pset_chunk_cache(access, 1, 0, 1.0), "cannot set up");
  return {check(H5Dcreate2(id_, spec.name.c_str(), spec.type, space, H5P_DEFAULT, create, access),
                "cannot write"),
          H5Dclose};
}

void Hdf5File::write_rows(hid_t dataset, Extent rows, const void* data) const {
  const Hdf5Id space(check(H5Dget_space(dataset), "cannot write"), H5Sclose);
  const Hdf5Id type(check(H5Dget_type(dataset), "cannot write"), H5Tclose);
  std::array<hsize_t, 2> shape{};
  const int rank = check(H5Sget_simple_extent_dims(space, shape.data(), nullptr), "cannot write");
  const std::array<hsize_t, 2> start = {size_from(rows.begin), 0};
  const std::array<hsize_t, 2> count = {size_from(rows.size()), shape[1]};
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
        "cannot write");
  const Hdf5Id memory(check(H5Screate_simple(rank, count.data(), nullptr), "cannot set up"),
                      H5Sclose);
  check(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, data), "cannot write");
}

std::int64_t Hdf5File::reserve_chunk(hid_t dataset, std::int64_t first_row,
                                     std::int64_t n_bytes) const {
  const std::array<hsize_t, 2> first = {size_from(first_row), 0};
  const auto size = static_cast<std::size_t>(n_bytes);
  check(H5Dwrite_chunk(dataset, H5P_DEFAULT, /*filters=*/0, first.data(), size, not_here()),
        "cannot write");
  unsigned filters = 0;
  haddr_t place = HADDR_UNDEF;
  hsize_t n_reserved = 0;
  check(H5Dget_chunk_info_by_coord(dataset, first.data(), &filters, &place, &n_reserved),
        "cannot write");
  if (place == HADDR_UNDEF || n_reserved != size) {
    throw Error(ErrorCode::kInternal, fmt::format("{}: a chunk has no place", path_));
  }
  return static_cast<std::int64_t>(place);
}

Hdf5Id Hdf5File::open_object(const std::string& name) const {
  return {check(H5Oopen(id_, name.c_str(), H5P_DEFAULT), "cannot read"), H5Oclose};
}

Hdf5Id Hdf5File::open_dataset(const std::string& name) const {
  return {check(H5Dopen2(id_, name.c_str(), H5P_DEFAULT), "cannot read"), H5Dclose};
}

bool Hdf5File::has(const std::string& name) const {
  for (auto end = name.find('/', 1);; end = name.find('/', end + 1)) {
    const std::string above = name.substr(0, end);
    if (check(H5Lexists(id_, above.c_str(), H5P_DEFAULT), "cannot read") == 0) return false;
    if (end == std::string::npos) return true;
  }
}

bool Hdf5File::has_attribute(hid_t object, const std::string& attribute) const {
  return check(H5Aexists(object, attribute.c_str()), "cannot read") > 0;
}

std::string Hdf5File::read_text(hid_t object, const std::string& attribute) const {
  const Hdf5Id id(check(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), "cannot read"), H5Aclose);
  const Hdf5Id stored(check(H5Aget_type(id), "cannot read"), H5Tclose);
  if (check(H5Tis_variable_str(stored), "cannot read") == 0) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} is no text", path_, attribute));
  }
  const Hdf5Id type = text_type();
  char* value = nullptr;
  check(H5Aread(id, type, &value), "cannot read");
  std::string text = value == nullptr ? "" : value;
  H5free_memory(value);
  return text;
}

std::int64_t Hdf5File::read_number(hid_t object, const std::string& attribute) const {
  const Hdf5Id id(check(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), "cannot read"), H5Aclose);
  const Hdf5Id space(check(H5Aget_space(id), "cannot read"), H5Sclose);
  if (check(H5Sget_simple_extent_npoints(space), "cannot read") != 1) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} is no number", path_, attribute));
  }
  std::int64_t value = 0;
  check(H5Aread(id, H5T_NATIVE_INT64, &value), "cannot read");
  return value;
}

double Hdf5File::read_real(hid_t object, const std::string& attribute) const {
  const Hdf5Id id(check(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), "cannot read"), H5Aclose);
  const Hdf5Id space(check(H5Aget_space(id), "cannot read"), H5Sclose);
  if (check(H5Sget_simple_extent_npoints(space), "cannot read") != 1) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} is no number", path_, attribute));
  }
  double value = 0;
  check(H5Aread(id, H5T_NATIVE_DOUBLE, &value), "cannot read");
  return value;
}

std::int64_t Hdf5File::chunk_rows(hid_t dataset) const {
  const Hdf5Id create(check(H5Dget_create_plist(dataset), "cannot read"), H5Pclose);
  if (H5Pget_layout(create) != H5D_CHUNKED) return std::max<std::int64_t>(1, shape(dataset).at(0));
  std::array<hsize_t, 2> chunk{};
  check(H5Pget_chunk(create, 2, chunk.data()), "cannot read");
  return static_cast<std::int64_t>(chunk[0]);
}

void Hdf5File::read_rows(hid_t dataset, const std::string& name, hid_t type, Extent rows,
                         void* to) const {
  const std::string what = "cannot read " + name + " of";
  const Hdf5Id stored(check(H5Dget_type(dataset), what), H5Tclose);
  if (check(H5Tequal(stored, type), what) == 0) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} {}: its elements are of another type", what, path_));
  }
  const Hdf5Id space(check(H5Dget_space(dataset), what), H5Sclose);
  std::array<hsize_t, 2> shape{};
  const int rank = check(H5Sget_simple_extent_ndims(space), what);
  require(rank <= 2, "rows have at most two dimensions");
  check(H5Sget_simple_extent_dims(space, shape.data(), nullptr), what);
  const std::array<hsize_t, 2> start = {size_from(rows.begin), 0};
  const std::array<hsize_t, 2> count = {size_from(rows.size()), shape[1]};
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
        what);
  const Hdf5Id memory(check(H5Screate_simple(rank, count.data(), nullptr), "cannot set up"),
                      H5Sclose);
  check(H5Dread(dataset, type, memory, space, H5P_DEFAULT, to), what);
}

std::vector<std::int64_t> Hdf5File::shape(hid_t dataset) const {
  const Hdf5Id space(check(H5Dget_space(dataset), "cannot read"), H5Sclose);
  const int rank = check(H5Sget_simple_extent_ndims(space), "cannot read");
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  check(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), "cannot read");
  return {sizes.begin(), sizes.end()};
}

Hdf5Id half_type(int exponent_bits) {
  const auto exponent = static_cast<std::size_t>(exponent_bits);
  const std::size_t mantissa = 15 - exponent;
  Hdf5Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type, /*sign=*/15, mantissa, exponent, 0, mantissa);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, (std::size_t{1} << (exponent - 1)) - 1);
  return type;
}

}  // namespace longhaul
