// Calls of the made-up NCCL that NCCL does not have (tests/fake_nccl/fake_nccl.h).
#pragma once
#include <dlfcn.h>

#include "tests/fake_nccl/fake_nccl.h"

namespace longhaul::test {

// Of the library that is open already.
template <typename Function>
Function* fake(const char* name) {
  static void* handle = ::dlopen(LONGHAUL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(handle, name));
}

}  // namespace longhaul::test
