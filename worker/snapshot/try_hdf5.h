// Whether HDF5 works on a disk, tried before a job needs it (tools/doctor/).
#pragma once
#include <filesystem>

namespace longhaul {

// Writes rows in checksummed chunks, as saved caches have them, to a new file, closes it, opens it
// again, reads the rows back and removes the file. Throws kIo or kCorruptData with the file's path
// and HDF5's reason, kUnsupported in a build without HDF5.
void try_hdf5(const std::filesystem::path& file);

}  // namespace longhaul
