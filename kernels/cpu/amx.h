// Whether this process may use AMX: its registers are so large that Linux hands them out on request
// only.
#pragma once

namespace longhaul {

// The processor has tiles, products of bf16 and of int8, and the kernel has allowed this process to
// use them: asks for it once.
bool may_use_amx();

}  // namespace longhaul
