# What every target is compiled with, as interface targets; nothing is set globally.
#   longhaul_flags     C++20, the repository root as include path, hardening, sanitizers
#   longhaul_warnings  the warnings that the code is kept free of
add_library(longhaul_flags INTERFACE)
target_compile_features(longhaul_flags INTERFACE cxx_std_20)
target_include_directories(longhaul_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(longhaul_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong -fPIE -fno-math-errno>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -D_GLIBCXX_ASSERTIONS>)
target_link_options(longhaul_flags INTERFACE -pie -Wl,-z,relro,-z,now)

if(LONGHAUL_SANITIZE)
  target_compile_options(longhaul_flags INTERFACE
    -fsanitize=${LONGHAUL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(longhaul_flags INTERFACE -fsanitize=${LONGHAUL_SANITIZE})
  if(LONGHAUL_SANITIZE MATCHES "address")
    target_compile_definitions(longhaul_flags INTERFACE LONGHAUL_SANITIZES_ADDRESS)
  elseif(LONGHAUL_SANITIZE MATCHES "thread")
    target_compile_definitions(longhaul_flags INTERFACE LONGHAUL_SANITIZES_THREADS)
  endif()
  if(LONGHAUL_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio contains a fence that this sanitizer cannot follow; it is not on a path that we use.
    target_compile_options(longhaul_flags INTERFACE -Wno-tsan)
  endif()
endif()

add_library(longhaul_warnings INTERFACE)
target_compile_options(longhaul_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion>
  # What GCC means by those flags.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-sign-conversion -Wno-missing-braces -Wno-unknown-warning-option>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LONGHAUL_WERROR}>>:-Werror>)

# longhaul_add_library(NAME SOURCES a.cc ... [APART c.cc ...] [FLAG_SOURCES b.cc ...] [PUBLIC libs] [PRIVATE libs]) makes target
# longhaul_NAME with the alias longhaul::NAME. APART are sources that tests replace by stand-ins: each must be an object of its own.
# FLAG_SOURCES define flags: most of their compiling goes into CLI11, whose speed does not matter.
function(longhaul_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;FLAG_SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(longhaul_${name} STATIC ${ARG_SOURCES} ${ARG_APART})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_library(longhaul::${name} ALIAS longhaul_${name})
  target_link_libraries(longhaul_${name} PUBLIC longhaul_flags ${ARG_PUBLIC} PRIVATE longhaul_warnings ${ARG_PRIVATE})
  longhaul_use_precompiled(longhaul_${name} longhaul_code_headers ${ARG_PRIVATE})
  longhaul_compile_jointly(longhaul_${name} ${LONGHAUL_JOINT_FILES})
  if(ARG_FLAG_SOURCES)
    set(flags longhaul_${name}_flag_sources)
    add_library(${flags} OBJECT ${ARG_FLAG_SOURCES})
    target_link_libraries(${flags} PRIVATE longhaul_flags ${ARG_PUBLIC} longhaul_warnings)
    target_compile_options(${flags} PRIVATE ${LONGHAUL_COLD_FLAGS})
    longhaul_use_precompiled(${flags} longhaul_flag_headers)
    longhaul_compile_jointly(${flags} ${LONGHAUL_JOINT_FILES})
    target_sources(longhaul_${name} PRIVATE $<TARGET_OBJECTS:${flags}>)
  endif()
endfunction()

# Compiles many files of a target as one (CMake's unity builds), in half of the time (CONTRIBUTING.md has figures). Two files of a
# library then cannot use one name for two things, and the compiler says so. The kernels of an instruction set stay apart: they have few
# headers and long functions.
#   LONGHAUL_JOINT_FILES   how many of a library, and at most eight of a test. With fewer, less is compiled again after a change; 0
#                          compiles file by file, which shows that each includes what it needs
set(LONGHAUL_JOINT_FILES 32 CACHE STRING "How many files of a library are compiled as one; 0: each by itself")
function(longhaul_compile_jointly target at_most)
  if(LONGHAUL_JOINT_FILES)
    if(LONGHAUL_JOINT_FILES LESS at_most)
      set(at_most ${LONGHAUL_JOINT_FILES})
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${at_most})
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
  endif()
endfunction()

# For files whose speed does not matter, tests above all: they compile a third faster, with sanitizers in half of the time.
if(LONGHAUL_SANITIZE)
  set(LONGHAUL_COLD_FLAGS -O0)
else()
  set(LONGHAUL_COLD_FLAGS -O1)
endif()

# The address sanitizer's preset does not optimise: that would be more than half of its compiling. What computes for long in tests is
# optimised there too.
function(longhaul_optimise target)
  if(LONGHAUL_SANITIZE MATCHES "address")
    target_compile_options(${target} PRIVATE -O2)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
