// The steps by which a file that is written under another name becomes what it is to be and stays
// so after a crash, one by one; replace_file() (file.h) takes them all. Every failure throws kIo
// with the path and the system's reason. Local; they block.
#pragma once
#include <filesystem>

namespace longhaul {

void sync_file(const std::filesystem::path& path);  // what is in it
// The file at partial_path(path) becomes `path`, in the place of what was there.
void rename_partial(const std::filesystem::path& path);
void sync_folder_of(const std::filesystem::path& path);  // the names in it

}  // namespace longhaul
