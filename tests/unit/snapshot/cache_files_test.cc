// Parts and master: what h5py finds in them, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/snapshot/dealt_caches.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::DealtCaches;
using test::message_of;
using testing::HasSubstr;

class CacheFiles : public testing::Test {
 protected:
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  test::Random random_{test::base_seed()};
  test::TemporaryFolder folder_;
  DealtCaches caches_{{}, random_};
  SavedSequence saved_ = caches_.saved_in(folder_.path());
};

TEST_F(CacheFiles, ThreeRanksPartsAreOneFileForH5py) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  caches_.save(saved_);
  EXPECT_THAT(files(), testing::ElementsAre("doc-0123.h5", "doc-0123.part-0000.h5",
                                            "doc-0123.part-0001.h5", "doc-0123.part-0002.h5"));
  EXPECT_TRUE(test::holds(saved_.master_path(), caches_));
}

TEST_F(CacheFiles, ThePictureOfKeptPositionsHasThemAll) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  caches_.save(saved_);
  EXPECT_EQ(test::run_check({"picture", saved_.master_path().string()}), "");
}

// The script damages the master in the end.
TEST_F(CacheFiles, ThePythonModuleReadsTheSameBitsOfEveryType) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  for (const KvType type : kAllKvTypes) {
    KvBlockShape shape{.block_size = 16, .head_dim = 8, .k_type = type, .v_type = type};
    if (shape.quantises_groups()) shape.block_size = shape.head_dim = 32;
    const DealtCaches caches({.shape = shape}, random_);
    const test::TemporaryFolder folder;
    const test::TemporaryFolder expected;
    const SavedSequence saved = caches.saved_in(folder.path());
    caches.save(saved);
    caches.write_expectation(expected.path());
    EXPECT_EQ(test::run_check({"module", saved.master_path().string(), expected.path().string()}),
              "")
        << name_of(type);
  }
}

TEST_F(CacheFiles, TheSameCachesGiveTheSamePart) {
  const WrittenFile first = write_part_file(saved_, 0, caches_.pieces(0));
  const std::string bytes = read_file(saved_.part_path(0), std::size_t{1} << 30);
  EXPECT_EQ(write_part_file(saved_, 0, caches_.pieces(0)), first);
  EXPECT_EQ(read_file(saved_.part_path(0), std::size_t{1} << 30), bytes);
}

// Space is taken before it is known how much HDF5 lays out.
TEST_F(CacheFiles, APartEndsWhereHdf5Says) {
  write_part_file(saved_, 0, caches_.pieces(0));
  const std::string bytes = read_file(saved_.part_path(0), std::size_t{1} << 30);
  constexpr std::size_t kEndInSuperblock = 40;
  std::uint64_t end = 0;
  std::memcpy(&end, bytes.data() + kEndInSuperblock, sizeof(end));
  EXPECT_EQ(bytes.size(), end);
}

TEST_F(CacheFiles, AreThereOnceTheMasterHasItsName) {
  std::vector<WrittenFile> parts;
  for (const int rank : {0, 1, 2})
    parts.push_back(write_part_file(saved_, rank, caches_.pieces(rank)));
  write_master_file(saved_, parts);
  EXPECT_FALSE(is_saved(saved_));
  drop_master_file(saved_, parts);
  EXPECT_TRUE(files().empty());
  EXPECT_THAT(message_of(ErrorCode::kIo, [&] { publish_master_file(saved_, parts); }),
              HasSubstr("cannot rename"));
}

TEST_F(CacheFiles, KnowWhenTheyAreThere) {
  EXPECT_FALSE(is_saved(saved_));
  caches_.save(saved_);
  EXPECT_TRUE(is_saved(saved_));
  std::vector<Named<std::string>> other = {{"content_id", "another"}};
  SavedSequence changed = saved_;
  changed.facts = other;
  EXPECT_THAT(message_of(ErrorCode::kFailedPrecondition, [&] { is_saved(changed); }),
              HasSubstr("holds other caches"));
  fs::resize_file(saved_.part_path(1), 100);
  EXPECT_FALSE(is_saved(saved_)) << "a part was cut short";
  std::ofstream(saved_.master_path()) << "not HDF5";
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { is_saved(saved_); }),
              HasSubstr("remove it"));
  remove_saved(saved_.folder, saved_.name);
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheFiles, AMasterIsNotMadeOfPartsThatLackTokens) {
  std::vector<WrittenFile> parts;
  for (const int rank : {0, 1})
    parts.push_back(write_part_file(saved_, rank, caches_.pieces(rank)));
  auto pieces = caches_.pieces(2);
  std::vector<KvBlockRef> blocks(pieces.front().blocks.begin(), pieces.front().blocks.end());
  blocks.pop_back();
  pieces.front().blocks = blocks;
  if (blocks.empty()) pieces.erase(pieces.begin());
  parts.push_back(write_part_file(saved_, 2, pieces));
  EXPECT_THAT(message_of(ErrorCode::kInternal, [&] { write_master_file(saved_, parts); }),
              HasSubstr("lack"));
  EXPECT_TRUE(files().empty()) << "nothing is left of what is no snapshot";
}

TEST_F(CacheFiles, AMasterIsNotMadeOfPartsThatHoldTokensTwice) {
  std::vector<WrittenFile> parts;
  for (const int rank : {0, 1, 2})
    parts.push_back(write_part_file(saved_, rank, caches_.pieces(rank)));
  parts.push_back(write_part_file(saved_, 3, caches_.pieces(0)));
  EXPECT_THAT(message_of(ErrorCode::kInternal, [&] { write_master_file(saved_, parts); }),
              HasSubstr("twice"));
}

TEST_F(CacheFiles, AMasterIsNotMadeWithoutTheNewestTokensThatLieOpen) {
  const DealtCaches caches(
      {.shape = {.block_size = 32, .head_dim = 32, .k_type = KvType::kKivi4}, .n_ranks = 1},
      random_);
  const SavedSequence saved = caches.saved_in(folder_.path());
  auto pieces = caches.pieces(0);
  pieces.front().open = {};
  std::vector<WrittenFile> parts = {write_part_file(saved, 0, pieces)};
  EXPECT_THAT(message_of(ErrorCode::kInternal, [&] { write_master_file(saved, parts); }),
              HasSubstr("lack some of the positions [0, 100)"));
  parts = {write_part_file(saved, 0, caches.pieces(0)), write_part_file(saved, 1, pieces)};
  pieces = caches.pieces(0);
  for (HeadPiece& piece : pieces) piece.blocks = {};
  parts[1] = write_part_file(saved, 1, pieces);
  EXPECT_THAT(message_of(ErrorCode::kInternal, [&] { write_master_file(saved, parts); }),
              HasSubstr("position 96 is there twice"));
}

TEST_F(CacheFiles, APartThatIsNotHereIsNamed) {
  const std::vector<WrittenFile> parts = {{"doc-0123.part-0007.h5", 1, ""}};
  EXPECT_THAT(message_of(ErrorCode::kIo, [&] { write_master_file(saved_, parts); }),
              HasSubstr("part-0007.h5 was written by another rank and is not here"));
}

TEST_F(CacheFiles, AFolderThatCannotBeWrittenIsNamed) {
  saved_.folder = folder_.path() / "missing";
  EXPECT_THAT(message_of(ErrorCode::kIo, [&] { write_part_file(saved_, 0, caches_.pieces(0)); }),
              HasSubstr("missing/doc-0123.part-0000.h5.partial"));
}

}  // namespace
}  // namespace longhaul
