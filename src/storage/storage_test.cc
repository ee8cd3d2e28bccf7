// Locations, what a journal's pieces are called, settings of AWS's files. The stores themselves are held to
// one suite by tests/storage/test_conformance.py, which has a bucket.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"
#include "base/testing.h"
#include "format/run_files.h"
#include "format/segment.h"
#include "storage/directory_store.h"
#include "storage/folder.h"
#include "storage/location.h"
#include "storage/mirror.h"
#include "storage/s3/credentials.h"
#include "storage/upload_state.h"
#include "storage/uploader.h"

namespace tdbg::storage {
namespace {

TEST(LocationTest, WhatIsAPlaceAndWhatIsNot) {
  const auto place = ParseLocation("s3://my-bucket/a/b c@1/");
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->bucket, "my-bucket");
  EXPECT_EQ(place->path, "a/b c@1");
  EXPECT_EQ(ParseLocation("file:///data/x/")->KeyPrefix(), "data/x");
  for (const char* const bad : {"", "s3://", "s3:///x", "s3://ab/x", "s3://bucket/../x", "s3://bucket/a//b",
                                "gs://bucket/x", "file://x", "s3://buck et/x", "/data"}) {
    EXPECT_EQ(ParseLocation(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(LocationTest, AKeyOfABucketLeadsNowhereElse) {
  EXPECT_TRUE(IsSafeName("0/worker_0/segments/1.safetensors"));
  for (const char* const bad : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "."})
    EXPECT_FALSE(IsSafeName(bad)) << bad;
  EXPECT_FALSE(IsSafeName(std::string_view("a\0b", 3)));
}

TEST(JournalPartTest, ItsNameSaysWhatItIs) {
  const JournalPart part{3, 12, 640, 1280};
  EXPECT_EQ(JournalPart::Parse(part.Name()), part);
  for (const char* const bad :
       {"", "3-12-640-1280", "00000003-00000012-00000000000000001280-00000000000000000640",
        "00000003-00000012-99999999999999999999-99999999999999999999"})
    EXPECT_FALSE(JournalPart::Parse(bad)) << bad;
}

TEST(JournalPartTest, TheNewestHeaderAndWhatReachesBackToWhatIsSealed) {
  using Parts = std::vector<JournalPart>;
  EXPECT_EQ(CoverOf({}, 0), Parts());
  EXPECT_EQ(CoverOf({{1, 1, 0, 64}, {1, 2, 64, 128}, {1, 3, 128, 128}}, 0),
            (Parts{{1, 3, 128, 128}, {1, 2, 64, 128}, {1, 1, 0, 64}}));
  EXPECT_EQ(CoverOf({{1, 2, 64, 128}, {1, 3, 128, 128}}, 128), (Parts{{1, 3, 128, 128}}));
  EXPECT_EQ(CoverOf({{1, 3, 128, 192}, {1, 2, 64, 128}}, 0), Parts()) << "a piece is missing";
  EXPECT_EQ(CoverOf({{1, 9, 0, 640}, {2, 1, 64, 128}}, 64), (Parts{{2, 1, 64, 128}}))
      << "a journal made anew";
  EXPECT_EQ(CoverOf({{1, 1, 0, 64}, {1, 2, 64, 128}, {1, 3, 0, 128}, {1, 4, 128, 192}}, 0),
            (Parts{{1, 4, 128, 192}, {1, 3, 0, 128}}))
      << "pieces put together";
}

TEST(ThinnedSegmentTest, TheStoreKeepsTheOneThatHasAllRows) {
  const base::ScratchDirectory scratch;
  DirectoryStore store(scratch / "store");
  const std::string run = scratch / "run", name = "0/worker_0/segments/" + format::SegmentFileName(1, 9);
  std::filesystem::create_directories(run + "/0/worker_0/segments");
  format::RunInfo info;
  info.id = "a-run";
  base::Spill(run + "/run.json", info.ToJson());
  const auto upload = [&] {
    UploadOptions options;
    options.run_directory = run;
    options.to.path = "/bucket/run";
    options.say = [](const std::string&) {};
    Uploader uploader(&store, options);
    TDBG_ASSERT_OK(uploader.Claim());
    TDBG_ASSERT_OK(uploader.SendAll());
  };
  base::Spill(run + "/" + name, "all of its rows");
  upload();
  base::Spill(run + "/" + name, "some");
  upload();
  EXPECT_EQ(store.Get("bucket/run/" + name, {})->bytes, "all of its rows");
}

TEST(ThinnedSegmentTest, AMirrorTakesNothingOfTheObjectThatWasThereBefore) {
  const base::ScratchDirectory scratch;
  DirectoryStore store(scratch / "store");
  const std::string name = "0/worker_0/segments/" + format::SegmentFileName(1, 9);
  const auto put = [&](const std::string& key, const std::string& bytes) {
    TDBG_ASSERT_OK(store.Put("bucket/run/" + key, std::as_bytes(std::span(bytes)), {}));
  };
  const auto mirrored = [&] {
    Location from;
    from.path = "/bucket/run";
    const auto mirror = Mirror::Open(&store, {.from = from, .cache_root = scratch / "cache"});
    EXPECT_TRUE(mirror.ok()) << mirror.status().ToString();
    return mirror.ok() ? base::Slurp((*mirror)->directory() + "/" + name) : std::string();
  };
  format::RunInfo info;
  info.id = "a-run";
  put("run.json", info.ToJson());
  put(name, std::string(9'000, 'a'));
  EXPECT_EQ(mirrored(), std::string(9'000, 'a'));
  put(name, std::string(5'000, 'b'));
  EXPECT_EQ(mirrored(), std::string(5'000, 'b'));
}

TEST(UploadStateTest, ComesBackAsItWas) {
  UploadState state{"run", "me", "host", false, true, 5000, 7, {"launcher.lock", "0/worker_0/lock"}};
  const auto again = UploadState::FromJson(state.ToJson());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->ToJson(), state.ToJson());
  for (const char* const bad : {"", "{}", "[]", "{\"run\": 3}"})
    EXPECT_FALSE(UploadState::FromJson(bad).ok());
}

TEST(UploadStateTest, WhateverABeatIsTheSilenceHasBounds) {
  UploadState state;
  state.beat_millis = 5'000;
  EXPECT_EQ(state.SilenceNanos(kReplacedNanos), 30'000'000'000);
  EXPECT_EQ(state.SilenceNanos(kGoneNanos), 600'000'000'000);
  state.beat_millis = 600'000;
  EXPECT_EQ(state.SilenceNanos(kGoneNanos), 3'600'000'000'000);
  for (const int64_t odd : {INT64_MIN, INT64_MAX}) {
    state.beat_millis = odd;
    EXPECT_GE(state.SilenceNanos(kReplacedNanos), kReplacedNanos);
    EXPECT_LE(state.SilenceNanos(kReplacedNanos), int64_t{6} * 86'400 * 1'000'000'000);
  }
}

TEST(UploadStateTest, AStoreThatDoesNotSayItsTimeHasOurs) {
  Object object;
  object.info.modified_wall_nanos = 5'000'000'000;
  object.store_wall_nanos = 7'000'000'000;
  EXPECT_EQ(AgeNanos(object), 2'000'000'000);
  object.store_wall_nanos = 0;
  EXPECT_GT(AgeNanos(object), int64_t{86'400} * 365 * 1'000'000'000) << "and is not for ever young";
}

TEST(FolderTest, WhatIsDeletedHereIsDeletedThereAndAFolderThatCannotBeListedDeletesNothing) {
  base::ScratchDirectory scratch;
  const std::string here = scratch / "checkpoints";
  std::filesystem::create_directories(here + "/1");
  base::Spill(here + "/1/a", "a");
  base::Spill(here + "/1/b", "b");
  DirectoryStore store(scratch / "store");
  FolderOptions options;
  options.directory = here;
  options.to.path = "/bucket/c";
  options.deletes = true;
  options.say = [](const std::string&) {};
  FolderSender sender(&store, options);
  TDBG_ASSERT_OK(sender.SendDue());
  std::filesystem::remove(here + "/1/a");
  TDBG_ASSERT_OK(sender.SendDue());
  EXPECT_FALSE(std::filesystem::exists(scratch / "store/bucket/c/1/a"));
  std::filesystem::rename(here, here + "-away");  // its disk is gone
  (void)sender.SendDue();
  EXPECT_TRUE(std::filesystem::exists(scratch / "store/bucket/c/1/b"));
}

// Its first file does not arrive.
class FailingStore : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  Result<ObjectInfo> PutFile(const std::string& key, const std::string& path, uint64_t bytes) override {
    if (tries++ == 0) return Unavailable("try again");
    return DirectoryStore::PutFile(key, path, bytes);
  }
  int tries = 0;
};

TEST(FolderTest, AStoreThatFailsAtTheEndGetsTheRestAllTheSame) {
  base::ScratchDirectory scratch;
  std::filesystem::create_directories(scratch / "output");
  base::Spill(scratch / "output/training_job_end.ts", "");
  FailingStore store(scratch / "store");
  FolderOptions options;
  options.directory = scratch / "output";
  options.to.path = "/bucket/c";
  options.say = [](const std::string&) {};
  FolderSender sender(&store, options);
  sender.Stop();
  TDBG_ASSERT_OK(sender.Follow());
  EXPECT_EQ(store.tries, 2);
  EXPECT_TRUE(std::filesystem::exists(scratch / "store/bucket/c/training_job_end.ts"));
}

class SettingsTest : public testing::Test {
 protected:
  Result<Settings> Read() {
    variables_["HOME"] = directory_.path();
    return ReadSettings([this](const std::string& name) { return variables_[name]; });
  }
  void Write(const std::string& name, const std::string& text) {
    (void)base::LocalFileSystem().CreateDirectories(directory_.path() + "/.aws");
    ASSERT_TRUE(base::LocalFileSystem().WriteFileAtomic(directory_.path() + "/.aws/" + name, text).ok());
  }
  base::ScratchDirectory directory_;
  std::map<std::string, std::string> variables_;
};

TEST_F(SettingsTest, NothingIsTheRegionThatAllToolsTake) {
  const auto settings = Read();
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->region, "us-east-1");
  EXPECT_EQ(settings->endpoint, "");
  EXPECT_FALSE(settings->path_style);
}

TEST_F(SettingsTest, BothFilesMakeAProfileAndVariablesWin) {
  Write("config",
        "[default]\nregion = eu-west-1\n[profile lab]\nregion=eu-central-1\nendpoint_url = http://h:1/\n"
        "s3 =\n  addressing_style = virtual\n# comment\nnonsense\n");
  Write("credentials", "[lab]\naws_access_key_id = AK\naws_secret_access_key = a=b\n");
  EXPECT_EQ(Read()->region, "eu-west-1");
  variables_["AWS_PROFILE"] = "lab";
  auto settings = Read();
  EXPECT_EQ(settings->region, "eu-central-1");
  EXPECT_EQ(settings->endpoint, "http://h:1");
  EXPECT_FALSE(settings->path_style);
  EXPECT_EQ(settings->profile["aws_secret_access_key"], "a=b");
  variables_["AWS_REGION"] = "x-1";
  variables_["AWS_ENDPOINT_URL_S3"] = "https://s3.example";
  settings = Read();
  EXPECT_EQ(settings->region, "x-1");
  EXPECT_EQ(settings->endpoint, "https://s3.example");
}

TEST_F(SettingsTest, WhatCannotBeIsSaid) {
  variables_["AWS_PROFILE"] = "nobody";
  EXPECT_EQ(Read().status().code(), Code::kInvalidArgument);
  variables_.erase("AWS_PROFILE");
  variables_["AWS_ENDPOINT_URL"] = "localhost:9000";
  EXPECT_NE(Read().status().message().find("http://HOST:PORT"), std::string::npos);
}

}  // namespace
}  // namespace tdbg::storage
