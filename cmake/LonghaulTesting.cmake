# How tests are declared.
#   longhaul_add_test(NAME SOURCES a.cc ... LIBS longhaul::x ... LABELS unit ...)   one GoogleTest binary, one CTest entry
# Labels: unit property golden multirank mpi gpu fuzz fault. TIMEOUT is in seconds (default 120).
if(LONGHAUL_TESTS)
  find_package(GTest REQUIRED)
endif()
set(LONGHAUL_SHARED_DIR "${PROJECT_SOURCE_DIR}/../shared" CACHE PATH
    "Folder of real models and published head patterns that some tests read; they skip where it is missing")

function(longhaul_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} longhaul::test_support longhaul_flags longhaul_warnings
    GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
