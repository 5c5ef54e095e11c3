// What mpi_main.cc tells ranks_under_mpi.cc.
#pragma once

namespace longhaul::test {
void set_number_of_processes(int n);
}
