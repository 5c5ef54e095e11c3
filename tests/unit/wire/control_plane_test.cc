#include "cluster/wire/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <thread>

#include "base/error.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

ControlServer::Config server_config(std::int64_t n_workers) {
  ControlServer::Config config;
  config.secret = random_secret();
  config.n_workers = n_workers;
  config.times = {.heartbeat_period = 20ms, .dead_after = 60s, .handshake_limit = 10s};
  return config;
}

ControlClientConfig client_config(const ControlServer& server, const ControlServer::Config& config,
                                  std::int64_t rank) {
  ControlClientConfig client;
  client.address = "127.0.0.1";
  client.port = server.port();
  client.secret = config.secret;
  client.rank = {rank};
  client.host = "node" + std::to_string(rank);
  client.times = config.times;
  return client;
}

// Whether it comes true: at once, or on a busy machine in time.
bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

std::string error_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

// A server and its only worker, which has come. Notes whom each side misses.
struct OneWorker {
  explicit OneWorker(std::chrono::milliseconds dead_after = 60s,
                     std::chrono::milliseconds period_of_worker = 20ms) {
    ControlServer::Config config = server_config(1);
    config.times.dead_after = dead_after;
    config.on_failure = [this](const std::string&) { is_missed = true; };
    server = std::make_unique<ControlServer>(config);
    ControlClientConfig client = client_config(*server, config, 0);
    client.times = {.heartbeat_period = period_of_worker, .dead_after = 60s};
    client.on_lost = [this](LostCoordinator how, const std::string&) {
      lost_how = how;
      misses_server = true;
    };
    worker = connect_to_coordinator(client, deadline_in(60s));
  }
  // One that sends no heartbeats, as if it were stopped.
  static OneWorker silent(std::chrono::milliseconds dead_after) {
    return OneWorker(dead_after, 1h);
  }

  // A piece of work that ends as it should: told to shut down, the worker answers.
  void end_work() {
    const auto link = server->link(Rank{0});
    link->send(Shutdown{});
    EXPECT_TRUE(worker->next().has_value());
    worker->answer(StepDone{});
    EXPECT_NO_THROW(link->receive(deadline_in(60s)));
  }
  bool is_connected() const { return server->statuses().front().connected; }

  std::atomic<bool> is_missed = false;
  std::atomic<bool> misses_server = false;
  std::atomic<LostCoordinator> lost_how = LostCoordinator::kGone;
  std::unique_ptr<ControlServer> server;
  std::unique_ptr<WorkerLink> worker;
};

TEST(ControlPlane, CarriesCommandsAndResultsOfEveryWorker) {
  const auto config = server_config(3);
  ControlServer server(config);
  std::vector<std::thread> workers;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    workers.emplace_back([&, rank] {
      const auto link =
          connect_to_coordinator(client_config(server, config, rank), deadline_in(60s));
      while (const auto command = link->next()) {
        if (std::holds_alternative<Shutdown>(*command)) {
          link->answer(StepDone{});
          break;
        }
        StepDone done;
        done.kv_bytes_in_use =
            static_cast<std::size_t>(rank) + std::get<PrefillChunk>(*command).tokens.size();
        link->answer(done);
      }
    });
  }
  server.wait_for_workers(deadline_in(60s));
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const auto link = server.link(Rank{rank});
    for (std::size_t n : {1U, 1000U, 1000000U}) {
      link->send(PrefillChunk{{1}, std::vector<std::int32_t>(n), AfterPrefill::kNothing, -1});
      const auto result = link->receive(deadline_in(60s));
      EXPECT_EQ(std::get<StepDone>(result).kv_bytes_in_use, n + static_cast<std::size_t>(rank));
    }
    link->send(Shutdown{});
    EXPECT_NO_THROW(link->receive(deadline_in(60s)));
  }
  for (auto& worker : workers) worker.join();
}

TEST(ControlPlane, NamesTheRanksThatDidNotCome) {
  const auto config = server_config(3);
  ControlServer server(config);
  const auto only = connect_to_coordinator(client_config(server, config, 1), deadline_in(60s));
  EXPECT_THAT(error_of([&] { server.wait_for_workers(deadline_in(100ms)); }, ErrorCode::kTimeout),
              HasSubstr("ranks 0, 2"));
}

TEST(ControlPlane, NamesAWorkerThatIsGoneToWhoeverWaitsForAnother) {
  const auto config = server_config(2);
  ControlServer server(config);
  PhaseBoard board;
  board.set_step(812);
  board.set_layer({12});
  board.enter(Activity::kComputing);
  ReportBoard reports;
  reports.put({.rank = {1}, .phase_seconds = {}, .ring_wait_seconds = 2.5, .sent_bytes = {}});
  EXPECT_FALSE(reports.is_wanted());
  auto client = client_config(server, config, 1);
  client.board = &board;
  client.reports = &reports;
  const auto stays = connect_to_coordinator(client_config(server, config, 0), deadline_in(60s));
  auto leaves = connect_to_coordinator(client, deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
  ASSERT_TRUE(eventually([&] { return server.statuses().at(1).phase.step == 812; }));
  ASSERT_TRUE(server.statuses().at(1).report);
  EXPECT_EQ(server.statuses().at(1).report->ring_wait_seconds, 2.5);
  EXPECT_TRUE(reports.is_wanted());  // the heartbeat has asked for the next
  leaves.reset();
  const auto link = server.link(Rank{0});
  const std::string text =
      error_of([&] { link->receive(deadline_in(60s)); }, ErrorCode::kPeerFailed);
  EXPECT_THAT(text, HasSubstr("rank 1 is gone"));
  EXPECT_THAT(text, HasSubstr("rank 1 on node1: step 812, layer 12: computing"));
}

// Ranks without heartbeats, one alone or threads: who first looks after an hour saw the first step.
TEST(ReportBoard, WantsAnotherReportWhenTheLastIsOldThoughNobodyHasAsked) {
  ReportBoard board(0s);
  EXPECT_TRUE(board.is_wanted());
  board.put({});
  EXPECT_TRUE(board.is_wanted());
  ReportBoard patient(1h);
  EXPECT_TRUE(patient.is_wanted()) << "nothing was put yet";
  patient.put({});
  EXPECT_FALSE(patient.is_wanted());
  EXPECT_TRUE(patient.newest());
  EXPECT_TRUE(patient.is_wanted());
}

TEST(ControlPlane, TakesASilentWorkerForDead) {
  OneWorker one = OneWorker::silent(300ms);
  const auto link = one.server->link(Rank{0});
  EXPECT_THAT(error_of([&] { link->receive(deadline_in(60s)); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0 has not been heard of"));
}

TEST(ControlPlane, NamesAWorkerThatFallsSilentBeforeItAnswersShutdown) {
  OneWorker one = OneWorker::silent(300ms);
  const auto link = one.server->link(Rank{0});
  EXPECT_THAT(error_of(
                  [&] {
                    link->send(Shutdown{});
                    link->receive(deadline_in(60s));
                  },
                  ErrorCode::kPeerFailed),
              HasSubstr("rank 0 has not been heard of"));
}

TEST(ControlPlane, NamesAWorkerThatGoesBeforeItAnswersShutdown) {
  OneWorker one;
  const auto link = one.server->link(Rank{0});
  link->send(Shutdown{});
  ASSERT_TRUE(one.worker->next().has_value());
  one.worker.reset();
  EXPECT_THAT(error_of([&] { link->receive(deadline_in(60s)); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0 is gone"));
}

TEST(ControlPlane, AWorkerThatHasAnsweredShutdownMayGo) {
  OneWorker one;
  one.end_work();
  one.worker.reset();
  EXPECT_TRUE(eventually([&] { return !one.is_connected(); }));
  EXPECT_FALSE(one.is_missed);
}

TEST(ControlPlane, AWorkerThatHasAnsweredShutdownMayGetNewWork) {
  OneWorker one;
  for (int i = 0; i < 2; ++i) one.end_work();
  const auto link = one.server->link(Rank{0});
  link->send(ReportRank{});
  one.worker.reset();  // now it is a loss again
  EXPECT_THAT(error_of([&] { link->receive(deadline_in(60s)); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0"));
}

// Work that does not come over links: a stopped rank was not missed in it.
TEST(ControlPlane, AWorkerThatIsExpectedIsMissed) {
  OneWorker one;
  one.end_work();
  one.server->expect_workers();
  one.worker.reset();
  EXPECT_TRUE(eventually([&] { return one.is_missed.load(); }));
  EXPECT_THAT(error_of([&] { one.server->expect_workers(); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0 has shut down"));
}

TEST(ControlPlane, ThereIsNoNewWorkForAWorkerThatWent) {
  OneWorker one;
  one.end_work();
  one.worker.reset();
  EXPECT_TRUE(eventually([&] { return !one.is_connected(); }));
  EXPECT_THAT(error_of([&] { one.server->link(Rank{0}); }, ErrorCode::kPeerFailed),
              HasSubstr("rank 0 has shut down"));
}

TEST(ControlPlane, NamesWhoHoldsAStepUp) {
  const auto config = server_config(2);
  ControlServer server(config);
  PhaseBoard waits;
  waits.set_step(5);
  waits.enter(Activity::kWaiting, {1});
  PhaseBoard computes;
  computes.set_step(5);
  computes.set_layer({3});
  computes.enter(Activity::kComputing);
  auto first = client_config(server, config, 0);
  first.board = &waits;
  auto second = client_config(server, config, 1);
  second.board = &computes;
  const auto a = connect_to_coordinator(first, deadline_in(60s));
  const auto b = connect_to_coordinator(second, deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
  ASSERT_TRUE(eventually([&] {
    const auto statuses = server.statuses();
    return statuses.at(0).phase.step == 5 && statuses.at(1).phase.step == 5;
  }));
  const auto link = server.link(Rank{0});
  const std::string text =
      error_of([&] { link->receive(deadline_in(200ms)); }, ErrorCode::kTimeout);
  EXPECT_THAT(text, HasSubstr("rank 1 on node1: step 5, layer 3: computing"));
  EXPECT_THAT(text, testing::Not(HasSubstr("rank 0")));
}

TEST(ControlPlane, RefusesWhoDoesNotKnowTheSecret) {
  const auto config = server_config(1);
  ControlServer server(config);
  auto client = client_config(server, config, 0);
  client.secret = random_secret();
  EXPECT_THAT(
      error_of([&] { connect_to_coordinator(client, deadline_in(60s)); }, ErrorCode::kPeerFailed),
      HasSubstr("does not know this job's secret"));
  // The right worker still gets in.
  const auto worker = connect_to_coordinator(client_config(server, config, 0), deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
}

TEST(ControlPlane, DropsStrangersAndTheSilentWithoutHarm) {
  auto config = server_config(1);
  config.times.handshake_limit = 2s;  // also what the right worker has, on a busy machine
  ControlServer server(config);
  boost::asio::io_context context;
  boost::asio::ip::tcp::socket stranger(context);
  boost::asio::ip::tcp::socket silent(context);
  const boost::asio::ip::tcp::endpoint endpoint(boost::asio::ip::make_address("127.0.0.1"),
                                                server.port());
  stranger.connect(endpoint);
  silent.connect(endpoint);
  boost::asio::write(stranger, boost::asio::buffer(std::string(100, 'x')));
  for (auto* socket : {&stranger, &silent}) {
    char byte = 0;
    boost::system::error_code error;
    boost::asio::read(*socket, boost::asio::buffer(&byte, 1),
                      error);  // ends when the server hangs up
    EXPECT_TRUE(error);
  }
  const auto worker = connect_to_coordinator(client_config(server, config, 0), deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
}

// They once used up the process' open files.
TEST(ControlPlane, StrangersCannotKeepWorkersOut) {
  auto config = server_config(1);
  config.times.handshake_limit = 1h;
  ControlServer server(config);
  boost::asio::io_context context;
  const boost::asio::ip::tcp::endpoint endpoint(boost::asio::ip::make_address("127.0.0.1"),
                                                server.port());
  std::vector<boost::asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.emplace_back(context).connect(endpoint);
  char byte = 0;
  boost::system::error_code error;
  boost::asio::read(strangers.front(), boost::asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error);  // the oldest gave way
  const auto worker = connect_to_coordinator(client_config(server, config, 0), deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
  // All are there: the others are gone, and nobody listens any more.
  boost::asio::read(strangers.back(), boost::asio::buffer(&byte, 1), error);
  EXPECT_TRUE(error);
  boost::asio::ip::tcp::socket late(context);
  late.connect(endpoint, error);
  EXPECT_TRUE(error);
}

// Signals to ranks other than 0 were once swallowed.
TEST(ControlPlane, AnyWorkerMayAskForAStop) {
  auto config = server_config(2);
  std::atomic<int> n_asked = 0;
  config.on_stop = [&] { ++n_asked; };
  ControlServer server(config);
  std::atomic<bool> is_asked = false;
  auto client = client_config(server, config, 1);
  client.stop_requested = [&] { return is_asked.load(); };
  const auto other = connect_to_coordinator(client_config(server, config, 0), deadline_in(60s));
  const auto asks = connect_to_coordinator(client, deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
  EXPECT_EQ(n_asked, 0);
  is_asked = true;
  EXPECT_TRUE(eventually([&] { return n_asked > 0; }));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(n_asked, 1);
}

TEST(ControlPlane, TellsWhatALostCoordinatorWasDoing) {
  auto config = server_config(1);
  PhaseBoard board;
  board.set_step(812);
  board.enter(Activity::kComputing);
  config.board = &board;
  auto server = std::make_unique<ControlServer>(config);
  std::atomic<bool> told = false;
  auto client = client_config(*server, config, 0);
  client.on_lost = [&](LostCoordinator, const std::string& reason) {
    EXPECT_THAT(reason, HasSubstr("last heard of it: step 812: computing"));
    told = true;
  };
  const auto worker = connect_to_coordinator(client, deadline_in(60s));
  server->wait_for_workers(deadline_in(60s));
  std::this_thread::sleep_for(200ms);  // ten heartbeats
  server.reset();
  EXPECT_TRUE(eventually([&] { return told.load(); }));
}

TEST(ControlPlane, TellsTheWorkerThatTheCoordinatorIsGone) {
  OneWorker one;
  one.server.reset();
  EXPECT_FALSE(one.worker->next().has_value());
  EXPECT_TRUE(eventually([&] { return one.misses_server.load(); }));
}

TEST(ControlPlane, TellsThePeopleOfTheFirstLossOnce) {
  auto config = server_config(2);
  std::atomic<int> n_told = 0;
  config.on_failure = [&](const std::string& reason) {
    EXPECT_THAT(reason, HasSubstr("rank 1 is gone"));
    ++n_told;
  };
  ControlServer server(config);
  auto stays = connect_to_coordinator(client_config(server, config, 0), deadline_in(60s));
  auto leaves = connect_to_coordinator(client_config(server, config, 1), deadline_in(60s));
  server.wait_for_workers(deadline_in(60s));
  leaves.reset();
  EXPECT_TRUE(eventually([&] { return n_told > 0; }));
  stays.reset();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(n_told, 1);
}

TEST(ControlPlane, WorkersThatWereLetGoAreNoFailure) {
  OneWorker one;
  one.server->let_workers_go();
  one.worker.reset();
  EXPECT_TRUE(eventually([&] { return !one.is_connected(); }));
  EXPECT_FALSE(one.is_missed);
}

// A worker that is stopped at the end may find the coordinator gone when it wakes up.
TEST(ControlPlane, ThatTheCoordinatorGoesIsNoLossForWorkersThatWereLetGo) {
  OneWorker one;
  one.server->let_workers_go();
  one.server.reset();
  EXPECT_FALSE(one.worker->next().has_value());
  one.worker.reset();  // its thread has ended then
  EXPECT_FALSE(one.misses_server);
}

TEST(ControlPlane, TakesASilentCoordinatorForDead) {
  auto config = server_config(1);
  config.times.heartbeat_period = 1h;  // as if it were stopped
  ControlServer server(config);
  std::atomic<bool> told = false;
  auto client = client_config(server, config, 0);
  client.times.heartbeat_period = 20ms;
  client.times.dead_after = 300ms;
  client.on_lost = [&](LostCoordinator how, const std::string& reason) {
    EXPECT_EQ(how, LostCoordinator::kGone);
    EXPECT_THAT(reason, HasSubstr("not been heard of"));
    told = true;
  };
  const auto worker = connect_to_coordinator(client, deadline_in(60s));
  EXPECT_FALSE(worker->next().has_value());
  EXPECT_TRUE(eventually([&] { return told.load(); }));
}

TEST(ControlPlane, ItsOwnStandstillIsNobodysSilence) {
  using std::chrono::seconds;
  const ControlTimes times{.heartbeat_period = seconds(1), .dead_after = seconds(5)};
  EXPECT_EQ(time_held_up(times, seconds(1)), seconds(0));
  EXPECT_EQ(time_held_up(times, seconds(2)), seconds(0)) << "a busy machine";
  EXPECT_EQ(time_held_up(times, seconds(60)), seconds(59)) << "a machine that slept";
}

TEST(ControlPlane, AWorkerThatWasLetGoIsNotCutOffForItsSilence) {
  OneWorker one = OneWorker::silent(300ms);
  one.server->let_workers_go();
  std::this_thread::sleep_for(1s);
  EXPECT_TRUE(one.is_connected());
  EXPECT_FALSE(one.misses_server);
}

TEST(ControlPlane, AWorkerKnowsAnAbortFromALoss) {
  OneWorker one;
  one.server->abort_workers();
  EXPECT_FALSE(one.worker->next().has_value());
  EXPECT_TRUE(eventually([&] { return one.misses_server.load(); }));
  EXPECT_EQ(one.lost_how, LostCoordinator::kAborted);
}

// They ended the process without a word, or only themselves, and nobody heard it.
TEST(ControlPlane, FailuresOfAControlThreadAreTold) {
  std::atomic<int> n_broken = 0;
  const auto expect_no_memory = [&](std::exception_ptr why) {
    EXPECT_THROW(std::rethrow_exception(why), std::bad_alloc);
    ++n_broken;
  };
  auto config = server_config(1);
  config.on_stop = [] { throw std::bad_alloc(); };
  config.on_broken = expect_no_memory;
  ControlServer server(config);
  auto client = client_config(server, config, 0);
  client.stop_requested = [] { return true; };
  const auto worker = connect_to_coordinator(client, deadline_in(60s));
  EXPECT_TRUE(eventually([&] { return n_broken == 1; }));
  const auto link = server.link(Rank{0});
  EXPECT_THAT(error_of([&] { link->receive(deadline_in(60s)); }, ErrorCode::kPeerFailed),
              HasSubstr("control thread has failed"));

  const auto healthy_config = server_config(1);
  ControlServer healthy(healthy_config);
  auto broken = client_config(healthy, healthy_config, 0);
  broken.stop_requested = []() -> bool { throw std::bad_alloc(); };
  broken.on_broken = expect_no_memory;
  const auto broken_worker = connect_to_coordinator(broken, deadline_in(60s));
  EXPECT_FALSE(broken_worker->next().has_value());
  EXPECT_EQ(n_broken, 2);
}

}  // namespace
}  // namespace longhaul
