#!/usr/bin/env bash
# Checks the GPU code on a machine that has a GPU, nvcc, CMake and a C++20 compiler, and perhaps nothing else: no network, no MPI,
# HDF5, Boost, fmt or GoogleTest. Takes less than ten minutes there and prints a table of results last.
#   tools/dev/gpu_check.sh pack   on a machine with the project's dependencies: puts the sources of GoogleTest and the headers of fmt,
#                                 nlohmann::json, toml++ and cuBLASLt into .gpu_deps/ (ignored by git), to be carried along with the tree
#   tools/dev/gpu_check.sh        on the machine with the GPU
# Environment: BUILD (build-gpu), JOBS (all cores), ARCHITECTURES (of the first GPU), BUDGET (570 seconds in all: what does not
# fit is cut short or left out, and the table says so), ONLY (a regular expression: of the checks after the build, those whose names
# match), SANITIZE=0 leaves out compute-sanitizer.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

pack() {
  set -e
  rm -rf .gpu_deps
  mkdir -p .gpu_deps/include .gpu_deps/cmake
  cp -r "${GOOGLETEST:-/usr/src/googletest}" .gpu_deps/googletest
  rm -rf .gpu_deps/googletest/*/test .gpu_deps/googletest/*/samples .gpu_deps/googletest/*/docs
  for name in fmt nlohmann toml++; do cp -r "/usr/include/$name" .gpu_deps/include/; done
  mkdir .gpu_deps/cublas
  cp /usr/local/cuda/include/{cublasLt,cublas_api}.h .gpu_deps/cublas/ || rmdir .gpu_deps/cublas
  cat > .gpu_deps/cmake/fmt-config.cmake <<'CMAKE'
add_library(fmt::fmt INTERFACE IMPORTED)
set_target_properties(fmt::fmt PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../include
  INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
CMAKE
  cat > .gpu_deps/cmake/nlohmann_json-config.cmake <<'CMAKE'
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
set_target_properties(nlohmann_json::nlohmann_json PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../include)
CMAKE
  cat > .gpu_deps/cmake/GTestConfig.cmake <<'CMAKE'
set(source ${CMAKE_CURRENT_LIST_DIR}/../googletest)
add_library(carried_gtest STATIC ${source}/googletest/src/gtest-all.cc)
add_library(GTest::gtest ALIAS carried_gtest)
add_library(carried_gmock STATIC ${source}/googlemock/src/gmock-all.cc)
add_library(GTest::gmock ALIAS carried_gmock)
add_library(carried_gtest_main STATIC ${source}/googletest/src/gtest_main.cc)
add_library(GTest::gtest_main ALIAS carried_gtest_main)
foreach(name gtest gmock gtest_main)
  target_include_directories(carried_${name} SYSTEM PUBLIC ${source}/googletest/include ${source}/googlemock/include
    PRIVATE ${source}/googletest ${source}/googlemock)
  target_compile_features(carried_${name} PUBLIC cxx_std_17)
endforeach()
CMAKE
  printf '*\n' > .gpu_deps/.gitignore
  echo "packed $(du -sh .gpu_deps | cut -f1) into .gpu_deps"
}
if [[ "${1:-}" == pack ]]; then pack; exit; fi
if [[ $# -gt 0 ]]; then echo "usage: tools/dev/gpu_check.sh [pack]" >&2; exit 2; fi

build=${BUILD:-build-gpu}
jobs=${JOBS:-$(nproc)}
budget=${BUDGET:-570}
only=
results=()
failed=0
started=$SECONDS
# check NAME LIMIT_S COMMAND...: runs it, shows its output and notes how it ended.
check() {
  local name=$1 limit=$2 begin=$SECONDS how
  shift 2
  if [[ -n "$only" && ! "$name" =~ $only ]]; then return 0; fi
  local left=$((budget - (SECONDS - started)))
  if ((left < limit)); then limit=$left; fi
  if ((limit < 5)); then
    results+=("$(printf '%-46s %s' "$name" "NOT RUN: no time left")")
    failed=1
    return 1
  fi
  printf '\n== %s (%s)\n' "$name" "$(date +%T)"
  timeout -k 5 "$limit" "$@"
  local status=$?
  case $status in
    0) how=passed ;;
    124 | 137) how="TIMED OUT after $limit s"; failed=1 ;;
    *) how="FAILED ($status)"; failed=1 ;;
  esac
  results+=("$(printf '%-46s %-22s %4d s' "$name" "$how" $((SECONDS - begin)))")
  return $status
}
table() {
  printf '\n== results\n'
  printf '%s\n' "${results[@]}"
  printf '%-46s %-22s %4d s\n' "all" "$( ((failed)) && echo FAILED || echo passed)" $((SECONDS - started))
  exit $failed
}

export PATH=$PATH:/usr/local/cuda/bin
check "a GPU" 60 nvidia-smi || table
nvcc --version | tail -2
if [[ -z "${ARCHITECTURES:-}" ]]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
  ARCHITECTURES=${capability:-80}
  if [[ $ARCHITECTURES == 90 ]]; then ARCHITECTURES=90a; fi
fi
generator=()
keep_going=(-k)
if command -v ninja > /dev/null; then generator=(-G Ninja) keep_going=(-k 0); fi
prefix=()
if [[ -d .gpu_deps ]]; then
  prefix=("-Dfmt_DIR=$root/.gpu_deps/cmake" "-Dnlohmann_json_DIR=$root/.gpu_deps/cmake" "-DGTest_DIR=$root/.gpu_deps/cmake"
    "-DCMAKE_CXX_FLAGS=-isystem $root/.gpu_deps/include")
fi
# A machine that is made for Python may have cuBLAS among its packages, without its headers.
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
if ! compgen -G "$cuda/lib64/libcublasLt.so.*" > /dev/null; then
  cublas=$(find / -xdev -name 'libcublasLt.so.[0-9]*' -print -quit 2> /dev/null)
  echo "cuBLASLt: ${cublas:-not found}"
  if [[ -n "$cublas" ]]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$cublas"); fi
fi
if [[ ! -f $cuda/include/cublasLt.h && -d .gpu_deps/cublas ]]; then prefix+=("-DCMAKE_CUDA_FLAGS=-isystem $root/.gpu_deps/cublas"); fi
check "configure" 120 cmake -S . -B "$build" "${generator[@]}" "${prefix[@]}" -DCMAKE_BUILD_TYPE=Release -DLONGHAUL_PROGRAM=OFF \
  -DLONGHAUL_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$ARCHITECTURES-real" -DLONGHAUL_MPI=OFF -DLONGHAUL_NCCL=OFF -DLONGHAUL_HDF5=OFF \
  -DLONGHAUL_ONEDNN=OFF || table
# Where one program does not compile the others are run.
check "build" 400 cmake --build "$build" -j "$jobs" --target kernels_test worker_gpu_test ring_gpu_test gpu_conformance gpu_bench \
  kernels_cuda_on_host_test unit_worker_test comm_test -- "${keep_going[@]}"
only=${ONLY:-}

kernels=$build/tests/unit/kernels/kernels_test
conformance=$build/tests/multirank/gpu_conformance
on_gpu='*/cuda:Gpu.*'
check "operators on the GPU" 200 "$kernels" "--gtest_filter=$on_gpu" --gtest_brief=1
check "worker on the GPU" 200 "$build/tests/gpu/worker_gpu_test" --gtest_brief=1
check "rings of ranks that share the GPU" 200 "$build/tests/gpu/ring_gpu_test" --gtest_brief=1
check "communicators of ranks on the GPU" 100 "$conformance" --gtest_brief=1
# Without the tests that give GPU memory themselves.
check "the same with all spans in its memory" 100 \
  env LONGHAUL_TEST_SPANS=device "$conformance" '--gtest_filter=-*GpuMemory*' --gtest_brief=1
check "speed of operators" 120 "$build/tests/bench/gpu/gpu_bench" operators
check "speed of a model" 180 "$build/tests/bench/gpu/gpu_bench" model
if [[ "${SANITIZE:-1}" != 0 ]] && command -v compute-sanitizer > /dev/null; then
  # Each kernel, not each case: the checker makes them many times slower.
  subset='*KvAppend.*/cuda:*KvCopy.*/cuda:*SoftmaxStates.*/cuda:*RowOperators.Rope*/cuda:*RowOperators.RmsNorm*/cuda'
  subset+=':*TopK.Infinities*/cuda:*Attention.PrefillOf*/cuda:*Attention.DecodeOver*/cuda:*Attention.Counts*/cuda'
  subset+=':*Int8Linear.Slices*/cuda:*Int8Linear.LargeTiles*/cuda:*Attention.ForksMatch*/cuda:*AttentionOnHopper.EveryBlock*/cuda'
  for tool in memcheck racecheck synccheck; do
    check "compute-sanitizer $tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 "$kernels" "--gtest_filter=$subset" \
      --gtest_brief=1
  done
else
  echo "compute-sanitizer: not run"
fi
check "the same kernels on the CPU" 200 "$build/tests/unit/kernels/kernels_cuda_on_host_test" "--gtest_filter=$on_gpu" --gtest_brief=1
check "worker and communicator on the CPU" 100 \
  bash -c "'$build/tests/unit/worker/unit_worker_test' --gtest_brief=1 && '$build/tests/unit/comm/comm_test' --gtest_brief=1"
table
