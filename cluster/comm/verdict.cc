#include "cluster/comm/verdict.h"

#include <fmt/format.h>

#include <new>

namespace longhaul {

Verdict verdict_of(std::exception_ptr error, int rank) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return failed(rank, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return failed(rank, ErrorCode::kOutOfMemory, "out of memory");
  } catch (const std::exception& e) {
    return failed(rank, ErrorCode::kInternal, e.what());
  } catch (...) {
    return failed(rank, ErrorCode::kInternal, "an exception of unknown type");
  }
}

void throw_if_failed(const Verdict& verdict) {
  if (!verdict.ok) {
    throw Error(verdict.code, fmt::format("rank {}: {}", verdict.rank, verdict.message));
  }
}

ErrorCode error_code_from_wire(int number) {
  if (number < 0 || number > static_cast<int>(ErrorCode::kInternal)) return ErrorCode::kInternal;
  return static_cast<ErrorCode>(number);
}

bool FailureFlag::raise(const Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  if (raised_.load(std::memory_order_relaxed)) return false;
  verdict_ = verdict;
  raised_.store(true, std::memory_order_release);
  return true;
}

Verdict FailureFlag::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

}  // namespace longhaul
