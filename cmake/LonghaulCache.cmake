# A compiler cache where one is installed: what was compiled once, in any checkout, is not compiled again. Nothing needs it, and a
# launcher that is set already stays.
option(LONGHAUL_CCACHE "Compile through ccache where it is installed" ON)
if(LONGHAUL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(LONGHAUL_CCACHE_PROGRAM ccache)
  mark_as_advanced(LONGHAUL_CCACHE_PROGRAM)
  if(LONGHAUL_CCACHE_PROGRAM)
    # Paths below a checkout count as relative ones, so that other checkouts find the same.
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LONGHAUL_CCACHE_PROGRAM})
    message(STATUS "Compiling through ${LONGHAUL_CCACHE_PROGRAM} (-DLONGHAUL_CCACHE=OFF compiles everything)")
  endif()
endif()
