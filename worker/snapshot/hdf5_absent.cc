// Compiled instead of the files that use HDF5 where it was not found.
#include "base/error.h"
#include "worker/snapshot/cache_files.h"
#include "worker/snapshot/merge_saved.h"
#include "worker/snapshot/restore_sequence.h"
#include "worker/snapshot/saved_header.h"
#include "worker/snapshot/saved_state.h"
#include "worker/snapshot/try_hdf5.h"

namespace longhaul {
namespace {

[[noreturn]] void hdf5_absent() {
  throw Error(ErrorCode::kUnsupported,
              "KV caches are saved as HDF5, and this build of Longhaul has no HDF5; install its "
              "development files (Debian: libhdf5-openmpi-dev) and build again");
}

}  // namespace

WrittenFile write_part_file(const SavedSequence& /*saved*/, std::int64_t /*part*/,
                            std::span<const HeadPiece> /*pieces*/, const PartRest& /*rest*/) {
  hdf5_absent();
}

void write_master_file(const SavedSequence& /*saved*/, std::span<const WrittenFile> /*parts*/) {
  hdf5_absent();
}

bool is_saved(const SavedSequence& /*saved*/) { hdf5_absent(); }

SavedHeader read_saved_header(const std::filesystem::path& /*master*/) { hdf5_absent(); }

std::vector<std::int32_t> read_saved_tokens(const SavedHeader& /*header*/) { hdf5_absent(); }

std::vector<SavedRole> read_saved_roles(const SavedHeader& /*header*/) { hdf5_absent(); }

std::optional<Recipe> read_saved_recipe(const SavedHeader& /*header*/, LayerId /*layer*/,
                                        KvHeadId /*kv_head*/) {
  hdf5_absent();
}

std::vector<std::int64_t> read_saved_positions(const SavedHeader& /*header*/, LayerId /*layer*/,
                                               KvHeadId /*kv_head*/) {
  hdf5_absent();
}

std::vector<SeenBy> read_saved_seen_by(const SavedHeader& /*header*/, LayerId /*layer*/,
                                       KvHeadId /*kv_head*/) {
  hdf5_absent();
}

bool keeps_beginnings(const SavedHeader& /*header*/) { hdf5_absent(); }

std::int64_t longest_beginning(const SavedHeader& /*header*/, std::int64_t /*n_tokens*/) {
  hdf5_absent();
}

std::int64_t SavedHeader::n_bytes() const { hdf5_absent(); }

std::string sha256_of_tokens(std::span<const std::int32_t> /*tokens*/) { hdf5_absent(); }

std::optional<std::filesystem::path> master_of_part(const std::filesystem::path& /*file*/) {
  hdf5_absent();
}

std::vector<std::filesystem::path> saved_masters(const std::filesystem::path& /*folder*/) {
  hdf5_absent();
}

void check_part_size(const SavedHeader& /*header*/, const WrittenFile& /*part*/) { hdf5_absent(); }

void check_part(const SavedHeader& /*header*/, const WrittenFile& /*part*/) { hdf5_absent(); }

SavedLayerState read_saved_state(const SavedHeader& /*header*/, LayerId /*layer*/) {
  hdf5_absent();
}

std::vector<float> read_saved_last_hidden(const SavedHeader& /*header*/) { hdf5_absent(); }

SavedRows read_saved_head(const SavedHeader& /*header*/, LayerId /*layer*/, KvHeadId /*kv_head*/) {
  hdf5_absent();
}

std::vector<float> merge_saved(const std::vector<SavedHeader>& /*sources*/,
                               SequenceCache& /*cache*/,
                               const std::function<void(const std::string&)>& /*on_note*/) {
  hdf5_absent();
}

std::vector<float> restore_sequence(const RestoreSequenceArgs& /*args*/) { hdf5_absent(); }

void try_hdf5(const std::filesystem::path& /*file*/) { hdf5_absent(); }

}  // namespace longhaul
