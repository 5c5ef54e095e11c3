# The rules of the house as tests: layers and fences, file sizes, names of files in comments and documents, what writes to stderr, what is included for nothing, headers that compile alone, formatting.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME house.includes COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/check_includes.py)
add_test(NAME house.layers COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/check_layers.py)
add_test(NAME house.sizes COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/check_sizes.py)
add_test(NAME house.stderr COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/check_stderr.py)
add_test(NAME house.words COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/check_words.py)

# The flags of the sources: language, repository root, generated headers, and the optional packages' include folders.
set(header_flags -std=c++20 -I${PROJECT_SOURCE_DIR} -I${PROJECT_BINARY_DIR}/generated -DOMPI_SKIP_MPICXX)
foreach(folder ${MPI_CXX_INCLUDE_DIRS} ${HDF5_INCLUDE_DIRS})
  list(APPEND header_flags -isystem ${folder})
endforeach()
add_test(NAME house.headers
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/dev/check_headers.py ${CMAKE_CXX_COMPILER} ${header_flags})
add_test(NAME house.format COMMAND ${PROJECT_SOURCE_DIR}/tools/dev/format.sh --check)
set_tests_properties(house.format PROPERTIES LABELS house TIMEOUT 600 SKIP_RETURN_CODE 77)
set_tests_properties(house.includes house.layers house.sizes house.stderr house.words house.headers PROPERTIES LABELS house TIMEOUT 600)
