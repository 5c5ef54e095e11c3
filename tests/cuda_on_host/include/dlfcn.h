// Shared libraries that kernels/ opens by name: the stand-ins of this folder. Shadows the system's
// header of this name.
#pragma once
#include_next <dlfcn.h>

namespace longhaul::cuda_on_host {

// Never null for cuBLASLt's name; null for every other.
void* open_library(const char* name);
void* find_symbol(void* library, const char* name);
const char* why_no_library();

}  // namespace longhaul::cuda_on_host

#define dlopen(name, mode) ::longhaul::cuda_on_host::open_library(name)
#define dlsym(library, name) ::longhaul::cuda_on_host::find_symbol(library, name)
#define dlerror() ::longhaul::cuda_on_host::why_no_library()
