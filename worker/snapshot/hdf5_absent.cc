// Compiled instead of the files that use HDF5 where it was not found.
#include "base/error.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul {
namespace {

[[noreturn]] void hdf5_absent() {
  throw Error(ErrorCode::kUnsupported,
              "KV caches are saved as HDF5, and this build of Longhaul has no HDF5; install its "
              "development files (Debian: libhdf5-openmpi-dev) and build again");
}

}  // namespace

WrittenFile write_part_file(const SavedSequence& /*saved*/, std::int64_t /*part*/,
                            std::span<const HeadPiece> /*pieces*/) {
  hdf5_absent();
}

void write_master_file(const SavedSequence& /*saved*/, std::span<const WrittenFile> /*parts*/) {
  hdf5_absent();
}

bool is_saved(const SavedSequence& /*saved*/) { hdf5_absent(); }

}  // namespace longhaul
