#include "tests/support/paths.h"

#include <stdlib.h>

#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"

namespace longhaul::test {

std::filesystem::path source_path(std::string_view relative) {
  // Tests that are run where they were not built say where the sources are.
  const char* moved = std::getenv("LONGHAUL_TEST_SOURCE_DIR");
  return std::filesystem::path(moved != nullptr ? moved : LONGHAUL_SOURCE_DIR) / relative;
}

std::filesystem::path example_path(std::string_view relative) {
  return source_path("examples/needle") / relative;
}

std::filesystem::path shared_path(std::string_view relative) {
  return std::filesystem::path(LONGHAUL_SHARED_DIR) / relative;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "longhaul-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw_errno("cannot create folder", name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace longhaul::test
