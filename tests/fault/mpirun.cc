#include "tests/fault/mpirun.h"

#include <sstream>

namespace longhaul::test {

std::vector<std::string> mpirun(int n_ranks) {
#ifdef LONGHAUL_TEST_MPIEXEC
  std::istringstream in(LONGHAUL_TEST_MPIEXEC);
#else
  std::istringstream in("mpirun -n");
#endif
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  words.push_back(std::to_string(n_ranks));
  return words;
}

std::vector<std::string> mpirun_variables() {
  return {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
}

}  // namespace longhaul::test
