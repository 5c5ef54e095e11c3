# How tests are declared.
#   longhaul_add_test(NAME SOURCES a.cc ... LIBS longhaul::x ... LABELS unit ...)   one GoogleTest binary, one CTest entry
#     (FILTER says which of its tests run; LONG starts it before the others, so that none is left running alone at the end)
# Labels: unit property golden multirank mpi gpu fuzz fault house; tsan marks those that also run under the thread sanitizer (target
# tsan_tests builds them), not_sanitized those that take minutes under sanitizers and run the same code as smaller ones (target
# sanitized_tests builds the others of unit, property, golden and fuzz). TIMEOUT is in seconds (default 1200: it is there for hangs,
# and sanitizers on a busy machine are slow).
if(LONGHAUL_TESTS)
  find_package(GTest REQUIRED)
  add_custom_target(tsan_tests)
  add_custom_target(sanitized_tests)
endif()
set(LONGHAUL_SHARED_DIR "${PROJECT_SOURCE_DIR}/../shared" CACHE PATH
    "Folder of real models and published head patterns that some tests read; they skip where it is missing")
if(LONGHAUL_TESTS AND NOT EXISTS ${LONGHAUL_SHARED_DIR})
  message(STATUS "Tests that need real models skip: ${LONGHAUL_SHARED_DIR} is not there")
endif()

# These link tests three times as fast.
if(LONGHAUL_TESTS)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(fast_linker -fuse-ld=gold)
  else()
    set(fast_linker -fuse-ld=lld)
  endif()
  include(CheckLinkerFlag)
  check_linker_flag(CXX ${fast_linker} LONGHAUL_HAS_FAST_LINKER)
  if(NOT LONGHAUL_HAS_FAST_LINKER)
    set(fast_linker)
  endif()
endif()

# How test code is compiled and linked; the code under test has its own flags.
function(longhaul_set_up_test_code target)
  target_compile_options(${target} PRIVATE ${LONGHAUL_COLD_FLAGS})
  target_link_options(${target} PRIVATE ${fast_linker})
  longhaul_use_precompiled(${target} longhaul_test_headers ${ARGN})
  longhaul_compile_jointly(${target} 8)
endfunction()

# longhaul_add_test_objects(NAME SOURCES a.cc ... LIBS longhaul::x ...): files that several tests contain, compiled once; name it
# among their LIBS.
function(longhaul_add_test_objects name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} longhaul::test_support longhaul_flags GTest::gmock GTest::gtest
    PRIVATE longhaul_warnings)
  longhaul_set_up_test_code(${name} ${ARG_LIBS})
endfunction()

# longhaul_must_run_tests(TEST ...): CTest entries of GoogleTest programs fail where none of their tests was run, as with a filter that
# nothing matches any more. GoogleTest calls that a success.
function(longhaul_must_run_tests)
  set_property(TEST ${ARGN} APPEND PROPERTY FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()

function(longhaul_add_test name)
  cmake_parse_arguments(ARG "LONG" "TIMEOUT;FILTER" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  if(ARG_FILTER)
    set(filter --gtest_filter=${ARG_FILTER})
  else()
    set(filter)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} longhaul::test_support longhaul_flags longhaul_warnings
    GTest::gmock GTest::gtest GTest::gtest_main)
  longhaul_set_up_test_code(${name} ${ARG_LIBS})
  add_test(NAME ${name} COMMAND ${name} ${filter})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  longhaul_must_run_tests(${name})
  if(ARG_LONG)
    set_tests_properties(${name} PROPERTIES COST 1000)
  endif()
  if("tsan" IN_LIST ARG_LABELS)
    add_dependencies(tsan_tests ${name})
  endif()
  if("${ARG_LABELS}" MATCHES "unit|property|golden|fuzz" AND NOT "not_sanitized" IN_LIST ARG_LABELS)
    add_dependencies(sanitized_tests ${name})
  endif()
endfunction()

# longhaul_add_multirank_test(NAME SOURCES a.cc ... LIBS longhaul::x ... RANKS 1 2 3 4 [TIMEOUT s])
# Tests written with tests/multirank/support/ranks.h. Makes NAME_threads (ranks are threads, one CTest entry, label multirank)
# and, where MPI was found, NAME_mpi (one CTest entry NAME_mpi_npN for each rank count, labels multirank and mpi).
function(longhaul_add_multirank_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;RANKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(support ${PROJECT_SOURCE_DIR}/tests/multirank/support)
  longhaul_add_test(${name}_threads SOURCES ${ARG_SOURCES} ${support}/ranks_in_threads.cc
    LIBS ${ARG_LIBS} longhaul::comm LABELS multirank tsan TIMEOUT ${ARG_TIMEOUT})
  list(JOIN ARG_RANKS "," ranks)
  target_compile_definitions(${name}_threads PRIVATE LONGHAUL_TEST_RANKS=${ranks})
  longhaul_add_mpi_program(${name}_mpi SOURCES ${ARG_SOURCES} LIBS ${ARG_LIBS})
  if(TARGET ${name}_mpi)
    foreach(n ${ARG_RANKS})
      add_test(NAME ${name}_mpi_np${n} COMMAND ${LONGHAUL_MPIEXEC} ${n} $<TARGET_FILE:${name}_mpi>)
      set_tests_properties(${name}_mpi_np${n} PROPERTIES
        LABELS "multirank;mpi" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${n} ENVIRONMENT "${LONGHAUL_MPI_TEST_ENVIRONMENT}")
      longhaul_must_run_tests(${name}_mpi_np${n})
    endforeach()
  endif()
endfunction()

# An executable with the MPI test main, without CTest entries; nothing where MPI is missing. The thread sanitizer does not
# understand MPI libraries, so there is none in such builds either.
function(longhaul_add_mpi_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT LONGHAUL_HAS_MPI OR LONGHAUL_SANITIZE MATCHES "thread")
    return()
  endif()
  set(support ${PROJECT_SOURCE_DIR}/tests/multirank/support)
  add_executable(${name} ${ARG_SOURCES} ${support}/mpi_main.cc ${support}/ranks_under_mpi.cc ${support}/watchdog.cc)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} longhaul::comm longhaul::test_support longhaul_flags longhaul_warnings
    GTest::gmock GTest::gtest)
  longhaul_set_up_test_code(${name} ${ARG_LIBS})
endfunction()

# longhaul_find_python(OUT modules): an interpreter that has them, such as "h5py, numpy"; Debian's own has what its packages bring.
# Empty, and said, where none has.
function(longhaul_find_python out modules)
  set(${out} "" PARENT_SCOPE)
  foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import ${modules}" RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
      set(${out} ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(STATUS "Tests that need Python's ${modules} skip: no interpreter has them")
endfunction()

# LONGHAUL_MPIEXEC: the launcher up to the number of ranks. More ranks than cores must work, and idle ranks must give way.
# LONGHAUL_MPI_TEST_ENVIRONMENT: as root in containers too; MPI libraries leak a little by themselves.
if(LONGHAUL_TESTS AND LONGHAUL_HAS_MPI)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpiexec_version ERROR_QUIET)
  if(mpiexec_version MATCHES "Open MPI|OpenRTE")
    set(LONGHAUL_MPIEXEC ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n)
  else()
    set(LONGHAUL_MPIEXEC ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG})
  endif()
  set(LONGHAUL_MPI_TEST_ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    ASAN_OPTIONS=detect_leaks=0)
endif()
