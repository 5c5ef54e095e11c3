// What the kernel says in files (/proc, /sys): they have no size and cannot be mapped. Local.
#pragma once
#include <filesystem>
#include <string>

namespace longhaul {

// All of such a file, or what of it could be read: nothing where there is none, or where the
// process that it tells of ends meanwhile. Never throws but std::bad_alloc.
std::string kernel_text(const std::filesystem::path& file);

}  // namespace longhaul
