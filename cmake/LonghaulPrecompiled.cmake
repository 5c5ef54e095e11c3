# Headers that are read once for many files: most of the compiler's time for a test goes into GoogleTest and the standard library.
# Tests and the definitions of flags use them in every build that has tests, the other code under test in sanitizer builds only.
#   LONGHAUL_PRECOMPILE   ON unless a compiler launcher is set: a cache does without, and some cannot store such files
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile OFF)
else()
  set(precompile ON)
endif()
option(LONGHAUL_PRECOMPILE "Read the headers of tests, flags and sanitized code once (CMake's precompiled headers)" ${precompile})

# longhaul_precompile(NAME FLAGS -O1 ... LIBS x::y ... HEADERS <a> ...): an object library whose headers others may use that are
# compiled with the same flags.
function(longhaul_precompile name)
  cmake_parse_arguments(ARG "" "" "FLAGS;LIBS;HEADERS" ${ARGN})
  set(source ${PROJECT_BINARY_DIR}/generated/${name}.cc)
  file(GENERATE OUTPUT ${source} CONTENT "// Holds precompiled headers.\n")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE longhaul_flags longhaul_warnings fmt::fmt ${ARG_LIBS})
  target_compile_options(${name} PRIVATE ${ARG_FLAGS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

set(longhaul_std_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring> <exception> <filesystem> <functional>
  <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <utility>
  <variant> <vector> <fmt/format.h>)
if(LONGHAUL_PRECOMPILE AND LONGHAUL_SANITIZE)
  longhaul_precompile(longhaul_code_headers HEADERS ${longhaul_std_headers})
endif()
if(LONGHAUL_PRECOMPILE AND LONGHAUL_TESTS)
  find_package(CLI11)
  if(CLI11_FOUND)
    longhaul_precompile(longhaul_flag_headers FLAGS ${LONGHAUL_COLD_FLAGS} LIBS CLI11::CLI11 HEADERS <CLI/CLI.hpp>)
  endif()
  find_package(GTest REQUIRED)
  longhaul_precompile(longhaul_test_headers FLAGS ${LONGHAUL_COLD_FLAGS} LIBS GTest::gtest GTest::gmock
    HEADERS ${longhaul_std_headers} <gmock/gmock.h> <gtest/gtest.h>)
endif()

# longhaul_use_precompiled(TARGET HEADERS LIBS...): no more than a hint; does nothing where there are none. OpenMP changes the
# language, so its users read headers themselves. From precompiled headers GCC 12 also tells its false alarms about moves of strings
# (its bugs 105329 and 105651), which it keeps to itself otherwise: they stay warnings.
function(longhaul_use_precompiled target headers)
  if(TARGET ${headers} AND NOT "OpenMP::OpenMP_CXX" IN_LIST ARGN)
    target_precompile_headers(${target} REUSE_FROM ${headers})
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds;-Wno-error=restrict;-Wno-error=stringop-overflow;-Wno-error=stringop-overread>)
  endif()
endfunction()
