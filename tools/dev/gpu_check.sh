#!/usr/bin/env bash
# Checks and measures the GPU code on a machine that has a GPU, nvcc, CMake and a C++20 compiler, and perhaps nothing else: no network, no
# MPI, HDF5, Boost, fmt or GoogleTest. Parts of less than ten minutes each, in any order; what they find lies in RESULTS:
#   tools/dev/gpu_check.sh pack      on a machine with the project's dependencies: puts the sources of GoogleTest and the headers of fmt,
#                                    nlohmann::json, toml++ and cuBLASLt into .gpu_deps/ (ignored by git), to be carried along with the tree
#   tools/dev/gpu_check.sh pack-programs   also puts there the programs of BUILD and the libraries that they need, and nothing is built on the
#                                    other machine, which then needs neither nvcc nor CMake
#   tools/dev/gpu_check.sh tests     builds; operators, worker, rings, communicators, NCCL with one rank, bits of repeated calls, needles in 64K
#   tools/dev/gpu_check.sh bench     speed of operators and of a model, of torch's beside them where there is torch, and clocks meanwhile
#   tools/dev/gpu_check.sh program   longhaul itself, which needs pack-programs: documents read by CPU, GPU and ranks that share it, longhaul bench
#   tools/dev/gpu_check.sh profile   Nsight Compute on the attention kernels and products; compute-sanitizer
#   tools/dev/gpu_check.sh compile   needs no GPU: the kernels for compute capability 10.0 and 12.0, and with CUDA 12.0, where such an nvcc is
#   tools/dev/gpu_check.sh table     needs no GPU: the table again from what the parts left
# RESULTS/table.md has checks, figures and clocks, to be committed as it is; RESULTS/*.log what each check printed; figures.jsonl and
# peers.jsonl the figures, clocks.csv the clocks.
# Environment: RESULTS (gpu_results), BUILD (build-gpu), JOBS (all cores), ARCHITECTURES (of the first GPU), BUDGET (570 seconds for a part: what
# does not fit is cut short or left out, and the table says so), ONLY (a regular expression: of the checks after the build, those whose
# names match), REPETITIONS (200), NEEDLE_TOKENS (65536), NVCC_12_0 (an nvcc of CUDA 12.0).
# Exit status: 0 all passed, 1 something failed, 2 the command or the machine is not as it must be, 3 something was not run.
# shellcheck disable=SC2317 # functions are called by names that are put together
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
export PATH=$PATH:/usr/local/cuda/bin
toolkit_of_nvcc() { nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p'; }
# The machine has its own NVIDIA libraries, C library and C++ library; these are not carried.
pack_programs() {
  set -e
  local build=${BUILD:-build-gpu} programs=.gpu_deps/programs name path library
  if [[ ! -x $build/${program_paths[0]} ]]; then
    echo "gpu_check: $build has no ${program_paths[0]}: BUILD names a build with CUDA" >&2
    exit 2
  fi
  pack
  mkdir -p "$programs/lib"
  for name in "${program_paths[@]}"; do
    path=$build/$name
    if [[ ! -f $path ]]; then continue; fi
    mkdir -p "$programs/$(dirname "$name")"
    strip -o "$programs/$name" "$path"
    ldd "$path" | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | while read -r library; do
      case ${library##*/} in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libstdc++.so.* | libgcc_s.so.*) ;;
        libcublas* | libcuda* | libOpenCL*) ;;
        *) cp -nL "$library" "$programs/lib/" ;;
      esac
    done
  done
  toolkit_of_nvcc > "$programs/toolkit"
  # Each has the same kernels in it, which a large dictionary packs once.
  tar -C .gpu_deps -cf - programs | xz --lzma2=preset=3,dict=128MiB > "$programs.tar.xz"
  rm -r "$programs"
  echo "packed $(du -sh "$programs.tar.xz" | cut -f1) into $programs.tar.xz"
}
program_paths=(tests/unit/kernels/kernels_test tests/gpu/worker_gpu_test tests/gpu/ring_gpu_test tests/gpu/identify_gpu_test
  tests/gpu/nccl_one_rank_test tests/multirank/gpu_conformance tests/bench/gpu/gpu_bench tools/longhaul)
part=${1:-}
case $part in
  pack) pack; exit ;;
  pack-programs) pack_programs; exit ;;
  tests | bench | program | profile | compile | table) ;;
  *) echo "usage: tools/dev/gpu_check.sh pack|pack-programs|tests|bench|program|profile|compile|table (the file's first lines say what each does)" >&2; exit 2 ;;
esac
if [[ $# -gt 1 ]]; then echo "gpu_check: one part at a time; '$2' is too much" >&2; exit 2; fi

results=${RESULTS:-gpu_results}
build=${BUILD:-build-gpu}
# Programs that were carried along take the place of a build, unless BUILD is given.
carried=.gpu_deps/programs
if [[ -f $carried.tar.xz && -z "${BUILD:-}" ]]; then build=$carried; else carried=; fi
jobs=${JOBS:-$(nproc)}
budget=${BUDGET:-570}
only=
failed=0
not_run=0
started=$SECONDS
refuse() {
  printf 'gpu_check: %s\n' "$@" >&2
  exit 2
}
note() { printf '%s\t%s\t%s\t%s\n' "$part" "$1" "$2" "$3" >> "$results/checks-$part.tsv"; }
# check NAME LIMIT_S COMMAND...: runs it with its output in a file of RESULTS, shows the end of that, and notes how it ended.
check() {
  local name=$1 limit=$2 begin=$SECONDS how log
  shift 2
  if [[ -n "$only" && ! "$name" =~ $only ]]; then return 0; fi
  local left=$((budget - (SECONDS - started)))
  if ((left < limit)); then limit=$left; fi
  if ((limit < 5)); then
    note "$name" "not run: no time left" 0
    printf '%-46s not run: no time left\n' "$name"
    not_run=1
    return 1
  fi
  log=$results/$part-${name//[^A-Za-z0-9]/_}.log
  timeout -k 5 "$limit" "$@" > "$log" 2>&1
  local status=$?
  case $status in
    0) how=passed ;;
    124 | 137) how="TIMED OUT after $limit s"; failed=1 ;;
    *) how="FAILED ($status)"; failed=1 ;;
  esac
  # A suite whose tests were all skipped has shown nothing.
  if [[ $how == passed ]] && grep -q 'SKIPPED' "$log" && ! grep -q '  PASSED  \] [1-9]' "$log"; then how="not run: skipped"; not_run=1; fi
  note "$name" "$how" $((SECONDS - begin))
  printf '%-46s %-22s %4d s\n' "$name" "$how" $((SECONDS - begin))
  if [[ $how != passed ]]; then tail -n 15 "$log" | cut -c 1-200; fi
  return $status
}
skip() {
  note "$1" "not run: $2" 0
  printf '%-46s not run: %s\n' "$1" "$2"
  not_run=1
}
table() {
  if command -v python3 > /dev/null; then
    python3 tools/dev/gpu_table.py "$results" > "$results/table.md" && echo "table: $results/table.md"
  else
    echo "no table: python3 is not there; tools/dev/gpu_check.sh table makes it from $results elsewhere"
  fi
}
finish() {
  if ((failed)); then note all FAILED $((SECONDS - started)); else note all "done" $((SECONDS - started)); fi
  table
  if ((failed)); then exit 1; fi
  if ((not_run)); then exit 3; fi
  exit 0
}

if [[ $part == table ]]; then
  [[ -d $results ]] || refuse "$results is not there: nothing was measured yet"
  table
  exit
fi
# Makes room for this part's results, in the place of those that it left before.
begin_results() {
  mkdir -p "$results" || refuse "$results cannot be made"
  rm -f "$results/checks-$part.tsv" "$results/$part"-*.log
}

# Compiles every kernel with this nvcc for these compute capabilities, as CMake would; writes nothing that stays.
compile_with() {
  local compiler=$1 architectures=$2 source
  for source in kernels/cuda/*.cu; do
    # shellcheck disable=SC2086 # several flags
    "$compiler" -std=c++20 -O3 --expt-relaxed-constexpr -diag-suppress 20012 $architectures -I . -I "$build/generated" \
      -Xcompiler -fPIC -c "$source" -o "$compiled/$(basename "$source").o" || return 1
    echo "compiled: $source"
  done
}
if [[ $part == compile ]]; then
  command -v nvcc > /dev/null || refuse "no nvcc in PATH or /usr/local/cuda/bin"
  begin_results
  nvcc --version | tail -2 | tee "$results/compile-nvcc.txt"
  budget=${BUDGET:-7200}
  compiled=$(mktemp -d)
  trap 'rm -rf "$compiled"' EXIT
  export -f compile_with
  export compiled build
  for capability in 100a 120; do
    name="compile for sm_$capability"
    if nvcc --list-gpu-code | grep -qx "sm_$capability"; then
      check "$name" 3600 bash -c "compile_with nvcc '-gencode arch=compute_$capability,code=sm_$capability'"
    else
      skip "$name" "this nvcc does not know it"
    fi
  done
  nvcc_12_0=${NVCC_12_0:-/usr/local/cuda-12.0/bin/nvcc}
  if [[ -x $nvcc_12_0 ]]; then
    check "compile with CUDA 12.0" 3600 bash -c \
      "compile_with '$nvcc_12_0' '-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a'"
  else
    skip "compile with CUDA 12.0" "$nvcc_12_0 is not there; NVCC_12_0 says where one is"
  fi
  finish
fi

# The machine: said before anything is built.
command -v nvidia-smi > /dev/null || refuse "no nvidia-smi: no NVIDIA driver here. '$part' needs a GPU; 'compile' and 'table' do not"
machine=$(nvidia-smi 2>&1) || refuse "nvidia-smi failed: ${machine##*$'\n'}"
if [[ -n "$carried" ]]; then
  tar -C .gpu_deps -xJf "$carried.tar.xz" || python3 -m tarfile -e "$carried.tar.xz" .gpu_deps || refuse "$carried.tar.xz cannot be unpacked"
  toolkit=$(cat "$carried/toolkit")
else
  command -v nvcc > /dev/null || refuse "no nvcc in PATH or /usr/local/cuda/bin: CUDA 12.0 or later is needed"
  command -v cmake > /dev/null || refuse "no cmake in PATH"
  toolkit=$(toolkit_of_nvcc)
fi
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
# NVIDIA's table of minor version compatibility.
case $toolkit in
  12) least=525 ;;
  13) least=580 ;;
  *) least=0 ;;
esac
if ((toolkit < 12)); then refuse "CUDA $toolkit: 12.0 or later is needed"; fi
if ((${driver%%.*} < least)); then refuse "driver $driver: programs made with CUDA $toolkit need $least or later"; fi
begin_results
echo "$machine" > "$results/nvidia-smi.txt"
{
  nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm --format=csv,noheader | head -1
  if [[ -n "$carried" ]]; then echo "programs made elsewhere with CUDA $toolkit"; else nvcc --version | tail -2 | head -1; fi
  grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'
  git describe --always --dirty 2> /dev/null || echo "commit not known"
} > "$results/environment.txt"
cat "$results/environment.txt"
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
    "-DTOMLPLUSPLUS_INCLUDE_DIR=$root/.gpu_deps/include"
    "-DCMAKE_CXX_FLAGS=-isystem $root/.gpu_deps/include")
fi
# A machine that is made for Python may have cuBLAS and NCCL among its packages, on another mount, cuBLAS without its headers.
python_library() { # PACKAGE FILE: the first such file of that package
  command -v python3 > /dev/null || return 0
  python3 - "$1" "$2" << 'PYTHON'
import glob, importlib.util, os, sys
try:
    found = importlib.util.find_spec(sys.argv[1])
except ImportError:
    found = None
for folder in (found.submodule_search_locations or []) if found else []:
    for path in sorted(glob.glob(os.path.join(folder, sys.argv[2]))):
        print(path)
        raise SystemExit
PYTHON
}
add_library() {
  if [[ -z "$1" ]]; then return 0; fi
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$1")
  export LD_LIBRARY_PATH
}
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
if ! compgen -G "$cuda/lib64/libcublasLt.so.*" > /dev/null; then
  cublas=$(python_library nvidia.cublas 'lib/libcublasLt.so.*')
  if [[ -z "$cublas" ]]; then cublas=$(python_library nvidia 'cu*/lib/libcublasLt.so.*'); fi
  if [[ -z "$cublas" ]]; then cublas=$(find / -xdev -name 'libcublasLt.so.[0-9]*' -print -quit 2> /dev/null); fi
  [[ -n "$cublas" ]] || refuse "libcublasLt.so is nowhere: products of floats and bf16 need it"
  echo "cuBLASLt: $cublas"
  add_library "$cublas"
fi
if [[ ! -f $cuda/include/cublasLt.h && -d .gpu_deps/cublas ]]; then prefix+=("-DCMAKE_CUDA_FLAGS=-isystem $root/.gpu_deps/cublas"); fi
nccl=$(python_library nvidia.nccl 'lib/libnccl.so.2')
add_library "$nccl"
if [[ -n "$nccl" && -f $(dirname "$nccl")/../include/nccl.h ]]; then
  NCCL_HOME=$(cd "$(dirname "$nccl")/.." && pwd)
  export NCCL_HOME
fi
build_programs() {
  check "configure" 120 cmake -S . -B "$build" "${generator[@]}" "${prefix[@]}" -DCMAKE_BUILD_TYPE=Release -DLONGHAUL_PROGRAM=OFF \
    -DLONGHAUL_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$ARCHITECTURES-real" -DLONGHAUL_MPI=OFF -DLONGHAUL_NCCL=AUTO -DLONGHAUL_HDF5=OFF \
    -DLONGHAUL_ONEDNN=OFF || finish
  # Where one program does not compile the others are run.
  case $part in
    tests) targets=(kernels_test worker_gpu_test ring_gpu_test gpu_conformance) ;;
    bench) targets=(gpu_bench) ;;
    profile) targets=(gpu_bench kernels_test) ;;
  esac
  check "build" 420 cmake --build "$build" -j "$jobs" --target "${targets[@]}" -- "${keep_going[@]}"
}
own_libraries=${LD_LIBRARY_PATH:-}
if [[ -n "$carried" ]]; then
  export LONGHAUL_TEST_SOURCE_DIR=$root
  add_library "$root/$carried/lib/any"
elif [[ $part != program ]]; then # which a build here does not make
  build_programs
fi
only=${ONLY:-}
kernels=$build/tests/unit/kernels/kernels_test
bench=$build/tests/bench/gpu/gpu_bench

run_tests() {
  local conformance=$build/tests/multirank/gpu_conformance
  local each=tools/dev/each_test.sh
  check "operators" 200 "$each" "$kernels" '*/cuda:Gpu.*:-*RepeatedBits*'
  check "the same bits, ${REPETITIONS:-200} times" 100 \
    env "LONGHAUL_TEST_REPETITIONS=${REPETITIONS:-200}" "$each" "$kernels" '*RepeatedBits*/cuda'
  check "worker" 200 "$each" "$build/tests/gpu/worker_gpu_test" '-*NeedleTokens*:*NotFit*'
  check "worker without memory" 60 "$each" "$build/tests/gpu/worker_gpu_test" '*NotFit*' 60 1 # take all that the GPU has
  check "needles in ${NEEDLE_TOKENS:-65536} tokens" 100 \
    env "LONGHAUL_TEST_NEEDLE_TOKENS=${NEEDLE_TOKENS:-65536}" "$build/tests/gpu/worker_gpu_test" '--gtest_filter=*NeedleTokens*' \
    --gtest_brief=1
  check "rings of ranks that share the GPU" 200 "$each" "$build/tests/gpu/ring_gpu_test" '*'
  if [[ -x $build/tests/gpu/identify_gpu_test ]]; then
    check "training of gates" 100 "$each" "$build/tests/gpu/identify_gpu_test" '*'
  fi
  check "communicators" 100 "$conformance" --gtest_brief=1
  # Without the tests that give GPU memory themselves.
  check "communicators, all spans in its memory" 100 \
    env LONGHAUL_TEST_SPANS=device "$conformance" '--gtest_filter=-*GpuMemory*' --gtest_brief=1
  if [[ -n "$nccl" ]] || ldconfig -p 2> /dev/null | grep -q 'libnccl\.so\.2'; then
    if [[ -x $build/tests/gpu/nccl_one_rank_test ]] ||
      cmake --build "$build" -j "$jobs" --target nccl_one_rank_test > "$results/tests-build_nccl.log" 2>&1; then
      check "NCCL with one rank" 60 "$build/tests/gpu/nccl_one_rank_test" --gtest_brief=1
    else
      skip "NCCL with one rank" "nccl.h is not there, or the test does not compile (tests-build_nccl.log)"
    fi
  else
    skip "NCCL with one rank" "no libnccl.so.2"
  fi
}

run_bench() {
  rm -f "$results/figures.jsonl" "$results/peers.jsonl"
  # Clocks, power and why the GPU slows down, twice a second, beside the figures.
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active \
    --format=csv,nounits -lms 500 > "$results/clocks.csv" 2> /dev/null &
  local clocks=$!
  check "speed of operators" 200 "$bench" operators --json "$results/figures.jsonl"
  check "speed of a model" 180 "$bench" model
  if command -v python3 > /dev/null && LD_LIBRARY_PATH=$own_libraries python3 -c 'import torch' 2> /dev/null; then
    check "torch's operators" 120 env "LD_LIBRARY_PATH=$own_libraries" python3 tools/dev/gpu_peers.py "$results/peers.jsonl"
  else
    skip "torch's operators" "no torch"
  fi
  kill "$clocks" 2> /dev/null
  wait "$clocks" 2> /dev/null
}

run_program() {
  local longhaul=$build/tools/longhaul shape
  if [[ ! -x $longhaul ]]; then
    skip "the program" "no $longhaul: pack-programs carries it"
    return
  fi
  answer_and_compare() { # FILE REQUESTS FLAGS...
    "$longhaul" run -m examples/needle/model --head-profile examples/needle/profile -i "examples/needle/$2.jsonl" -o "$1" --overwrite \
      "${@:3}" && examples/needle/check_answers.py "$1" "examples/needle/$2.answers.json"
  }
  export -f answer_and_compare
  export longhaul
  answers() { # NAME REQUESTS FLAGS...: answers them and compares with what the documents say
    check "$1" 120 bash -c "answer_and_compare '$results/program-${1//[^A-Za-z0-9]/_}.jsonl' ${*:2}"
  }
  answers "five questions, CPU" requests --device cpu
  answers "five questions, GPU" requests --device cuda
  answers "133 thousand tokens, CPU" archive_128k --device cpu
  answers "133 thousand tokens, GPU" archive_128k --device cuda
  answers "the same, int4 caches" archive_128k --device cuda --ctk int4 --ctv int4
  answers "the same, two ranks on the GPU" archive_128k --device cuda --ranks 2
  answers "the same, four ranks in two stages" archive_128k --device cuda --ranks 4 --stages 2
  # What a prompt and an answer take, beside what the GPU attains.
  for shape in "int8 int8" "bf16 bf16"; do
    check "bench of an 8B model, ${shape% *} weights" 120 "$longhaul" bench --device cuda --shape llama-3.1-8b --weights "${shape% *}" \
      --ctk "${shape#* }" --ctv "${shape#* }" -p 512,8K -n 128 -d 0,8K -r 2
  done
  check "bench of long prompts" 240 "$longhaul" bench --device cuda --shape llama-3.1-8b --weights int8 --ctk int8 --ctv int8 -p 128K -n 0 \
    -r 1 --no-warmup
}

run_profile() {
  local kernel
  if command -v ncu > /dev/null; then
    # What bounds each, of a launch that is not the first.
    for kernel in hopper_kernel decode_kernel tiles_kernel few_rows_kernel mma_kernel; do
      check "Nsight Compute: $kernel" 60 ncu --clock-control none --set full -k "regex:$kernel" -s 4 -c 1 --kill yes "$bench" operators
    done
    if [[ -x $build/tools/longhaul ]]; then
      for kernel in "bf16 bf16" "int8 int8" "int8 int4"; do
        check "kernels of tokens, ${kernel% *} weights, ${kernel#* } caches" 90 ncu --clock-control none --metrics gpu__time_duration.sum \
          --csv --page raw -s 1500 -c 1500 --kill yes "$build/tools/longhaul" bench --device cuda --shape llama-3.1-8b \
          --weights "${kernel% *}" --ctk "${kernel#* }" --ctv "${kernel#* }" -p 0 -n 16 -d 0 -r 1 --no-warmup
      done
    fi
  else
    skip "Nsight Compute" "no ncu"
  fi
  if ! command -v compute-sanitizer > /dev/null; then
    skip "compute-sanitizer" "not there"
    return
  fi
  # Each kernel, not each case: the checker makes them many times slower. Races in copies that the GPU makes by itself it does not see,
  # so that is not asked of Hopper's kernel; RepeatedBits is.
  local subset='*KvAppend.*/cuda:*KvCopy.*/cuda:*SoftmaxStates.*/cuda:*RowOperators.Rope*/cuda:*RowOperators.RmsNorm*/cuda'
  subset+=':*TopK.Infinities*/cuda:*Attention.PrefillOf*/cuda:*Attention.DecodeOver*/cuda:*Attention.Counts*/cuda'
  subset+=':*Int8Linear.Slices*/cuda:*Int8Linear.LargeTiles*/cuda:*Attention.ForksMatch*/cuda'
  check "compute-sanitizer racecheck" 120 compute-sanitizer --tool racecheck --error-exitcode 9 "$kernels" "--gtest_filter=$subset" \
    --gtest_brief=1
  for tool in memcheck synccheck; do
    check "compute-sanitizer $tool" 120 compute-sanitizer --tool "$tool" --error-exitcode 9 "$kernels" \
      "--gtest_filter=$subset:*AttentionOnHopper.EveryBlock*/cuda" --gtest_brief=1
  done
}
"run_$part"
finish
