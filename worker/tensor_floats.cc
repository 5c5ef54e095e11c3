#include "worker/tensor_floats.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace longhaul {

void to_floats(const TensorBytes& tensor, std::span<float> out) {
  const auto convert = [&](auto read) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = read(i);
  };
  const auto element = [&]<typename T>(std::type_identity<T>, std::size_t i) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  switch (tensor.dtype) {
    case DType::kF32:
      std::memcpy(out.data(), tensor.bytes.data(), out.size_bytes());
      return;
    case DType::kF64:
      return convert([&](std::size_t i) {
        return static_cast<float>(element(std::type_identity<double>{}, i));
      });
    case DType::kF16:
      return convert(
          [&](std::size_t i) { return to_float(element(std::type_identity<Float16>{}, i)); });
    case DType::kBf16:
      return convert(
          [&](std::size_t i) { return to_float(element(std::type_identity<BFloat16>{}, i)); });
    case DType::kI8:
    case DType::kI4:
    case DType::kF8E4m3:
      break;
  }
  throw Error(ErrorCode::kUnsupported,
              fmt::format("weights of type {} are not supported", name_of(tensor.dtype)));
}

}  // namespace longhaul
