// cuBLASLt. The library is opened when the first product is wanted: it takes hundreds of megabytes,
// and programs that use no GPU should neither need nor load it.
#pragma once
#include <cublasLt.h>
#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"

namespace longhaul::cuda {
namespace {

#define LONGHAUL_STRING(x) #x
#define LONGHAUL_LIBRARY_NAME(major) "libcublasLt.so." LONGHAUL_STRING(major)

// Its functions.
class Library {
 public:
  Library() : library_(open()) {
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  }

  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;

 private:
  // Never closed: CUDA's libraries do not unload cleanly.
  static void* open() {
    constexpr const char* kName = LONGHAUL_LIBRARY_NAME(CUBLAS_VER_MAJOR);
    void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      library = dlopen(LONGHAUL_CUDA_LIBRARY_DIR "/" LONGHAUL_LIBRARY_NAME(CUBLAS_VER_MAJOR),
                       RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
      const char* why = dlerror();
      throw Error(ErrorCode::kUnsupported,
                  std::string("linear: ") + kName + " cannot be loaded: " + (why ? why : "?"));
    }
    return library;
  }
  template <typename Function>
  void find(Function& function, const char* name) {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) {
      throw Error(ErrorCode::kUnsupported, std::string("linear: cuBLASLt has no ") + name);
    }
    function = reinterpret_cast<Function>(symbol);
  }
  void* library_;
};

inline void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kCuda,
              std::string(what) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
}

// What a product is of: out = a b, and where the matrices begin, as powers of two.
struct ProductForm {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a;
  cublasLtMatrixLayout_t b;
  cublasLtMatrixLayout_t out;
  std::uint32_t a_alignment;
  std::uint32_t b_alignment;
  std::uint32_t out_alignment;
};

// The algorithm that the library would take first; `state` says whether there is one.
inline cublasLtMatmulHeuristicResult_t first_choice(const Library& library, cublasLtHandle_t handle,
                                                    const ProductForm& form,
                                                    std::size_t workspace_bytes) {
  cublasLtMatmulPreference_t created = nullptr;
  check(library.preference_create(&created), "cublasLtMatmulPreferenceCreate");
  const auto destroy = [&library](cublasLtMatmulPreference_t old) {
    static_cast<void>(library.preference_destroy(old));
  };
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(destroy)> preference(created,
                                                                                        destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
    check(library.preference_set(created, which, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, form.a_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, form.b_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, form.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, form.out_alignment);
  cublasLtMatmulHeuristicResult_t result = {};
  int n_results = 0;
  const cublasStatus_t status = library.heuristic(handle, form.desc, form.a, form.b, form.out,
                                                  form.out, created, 1, &result, &n_results);
  if (status != CUBLAS_STATUS_SUCCESS || n_results == 0)
    result.state = status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status;
  return result;
}

// The largest power of two up to 256 that divides it: a distance, or an address.
inline std::uint32_t alignment_of_step(std::uint64_t bytes) {
  bytes |= 256U;
  return static_cast<std::uint32_t>(bytes & (~bytes + 1));
}
inline std::uint32_t alignment_of(const void* at) {
  return alignment_of_step(reinterpret_cast<std::uintptr_t>(at));
}

}  // namespace
}  // namespace longhaul::cuda
