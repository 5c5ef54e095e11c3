#include "worker/snapshot/try_hdf5.h"

#include <fmt/format.h>

#include <numeric>

#include "base/error.h"
#include "worker/snapshot/hdf5_file.h"

namespace longhaul {
namespace {

constexpr std::int64_t kTrialRows = 1000;
constexpr std::int64_t kTrialColumns = 64;
constexpr std::int64_t kTrialChunkRows = 256;  // so that the last chunk is not full

struct RemoveAtEnd {
  const std::filesystem::path& file;
  ~RemoveAtEnd() {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
};

}  // namespace

void try_hdf5(const std::filesystem::path& file) {
  const Hdf5Lock lock;
  const RemoveAtEnd remove{file};
  std::vector<std::int32_t> written(kTrialRows * kTrialColumns);
  std::iota(written.begin(), written.end(), 1);
  {
    Hdf5File out = Hdf5File::create(file);
    out.write_rows(out.make_rows({.name = "rows",
                                  .type = H5T_STD_I32LE,
                                  .n_rows = kTrialRows,
                                  .n_columns = kTrialColumns,
                                  .chunk_rows = kTrialChunkRows}),
                   {0, kTrialRows}, written.data());
    out.close();
  }
  const Hdf5File in = Hdf5File::open(file);
  const Hdf5Id rows = in.open_dataset("rows");
  std::vector<std::int32_t> read(written.size());
  if (in.shape(rows) == std::vector{kTrialRows, kTrialColumns})
    in.read_rows(rows, "rows", H5T_STD_I32LE, {0, kTrialRows}, read.data());
  if (read != written) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: reads back other rows than were written", file.string()));
  }
}

}  // namespace longhaul
