// Words to stand before the program, and variables for it, so that it runs as several ranks.
#pragma once
#include <string>
#include <vector>

namespace longhaul::test {

std::vector<std::string> mpirun(int n_ranks);
// Root is not refused, for containers.
std::vector<std::string> mpirun_variables();

}  // namespace longhaul::test

#ifdef LONGHAUL_TEST_MPIEXEC
#define LONGHAUL_SKIP_WITHOUT_MPIRUN() static_cast<void>(0)
#else
#define LONGHAUL_SKIP_WITHOUT_MPIRUN() GTEST_SKIP() << "skipped: this build has no MPI"
#endif
