# Finds NCCL's header; defines NCCL_FOUND, NCCL_INCLUDE_DIR and NCCL_VERSION. Its library is not linked: programs open libnccl.so.2
# when they need it (cluster/comm/nccl_library.h), so that they also run where it is missing.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_numbers REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]+([0-9]+)" "\\1." NCCL_VERSION "${nccl_numbers}")
  string(REGEX REPLACE "\\.$" "" NCCL_VERSION "${NCCL_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
