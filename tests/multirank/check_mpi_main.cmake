# Proves that the MPI test main sees what happens on rank 1. Run with -DLAUNCH="mpirun;...;-n" -DPROGRAM=... -DCASE=... and
# -DSTATUS=<exit status that every rank must have, or nothing> -DTEXT=<regular expression that the output must match>.
# mpirun ends the other rank as soon as one has failed, so each says how it ended and then waits a second.
execute_process(
  COMMAND ${LAUNCH} 2 sh -c "\"$0\" \"$@\"; status=$?; echo \"rank exits $status\"; sleep 1; exit $status"
    ${PROGRAM} --gtest_filter=*.${CASE}/*
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
set(all "${output}${errors}")
message("${all}")
if(CASE STREQUAL "Passes")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "a passing test ended with ${result}")
  endif()
elseif(result EQUAL 0 AND NOT CASE MATCHES "^Survives")  # Open MPI 4 reports 0 when survivors were let live
  message(FATAL_ERROR "mpirun ended with 0 although ${CASE}")
endif()
if(NOT all MATCHES "${TEXT}")
  message(FATAL_ERROR "the output does not match '${TEXT}'")
endif()
if(NOT STATUS STREQUAL "")
  string(REGEX MATCHALL "rank exits ${STATUS}" exits "${all}")
  list(LENGTH exits n_exits)
  if(NOT n_exits EQUAL 2)
    message(FATAL_ERROR "${n_exits} of 2 ranks ended with ${STATUS}")
  endif()
endif()
