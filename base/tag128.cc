#include "base/tag128.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace longhaul {
namespace {

void check_gmac(bool ok) {
  if (!ok) throw Error(ErrorCode::kInternal, "OpenSSL cannot compute GMAC");
}

}  // namespace

// GMAC is AES-GCM of an empty text: all bytes are authenticated data.
Tag128 tag_of(std::span<const std::byte> bytes) {
  constexpr std::array<unsigned char, 16> kKey{};
  constexpr std::array<unsigned char, 12> kNonce{};
  const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> context(EVP_CIPHER_CTX_new(),
                                                                           EVP_CIPHER_CTX_free);
  check_gmac(context != nullptr && EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr,
                                                      kKey.data(), kNonce.data()) == 1);
  int n = 0;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), std::size_t{1} << 30));
    check_gmac(EVP_EncryptUpdate(context.get(), nullptr, &n,
                                 reinterpret_cast<const unsigned char*>(piece.data()),
                                 static_cast<int>(piece.size())) == 1);
    bytes = bytes.subspan(piece.size());
  }
  Tag128 tag{};
  check_gmac(EVP_EncryptFinal_ex(context.get(), nullptr, &n) == 1 &&
             EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()),
                                 tag.data()) == 1);
  return tag;
}

}  // namespace longhaul
