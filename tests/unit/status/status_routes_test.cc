// Who is answered by the status server, and with what.
#include "tools/status/status_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

HttpRequest request(const std::string& target, const std::string& host = "localhost:9000",
                    const std::string& authorization = "") {
  HttpRequest made = request_of(target);
  made.host = host;
  made.authorization = authorization;
  return made;
}

StatusRoutes routes(const std::string& token) {
  return StatusRoutes([] { return JobStatus{.model = "m", .state = "running"}; }, token);
}

TEST(StatusRoutes, WithoutATokenAnswerThisHostAlone) {
  StatusRoutes open = routes("");
  for (const char* host : {"localhost:9000", "127.0.0.1:9000", "[::1]:9000", "localhost"})
    EXPECT_EQ(open.answer(request("/metrics", host)).status, 200) << host;
  for (const char* host : {"evil.example:9000", "localhost.evil.example", "", "[", "1.127.0.0:80"})
    EXPECT_EQ(open.answer(request("/metrics", host)).status, 403) << host;
}

TEST(StatusRoutes, WithATokenAnswerWhoHasIt) {
  StatusRoutes closed = routes("the-secret-of-this-job");
  const auto status = [&](const std::string& target, const std::string& authorization) {
    return closed.answer(request(target, "anything", authorization)).status;
  };
  EXPECT_EQ(status("/", ""), 401);
  EXPECT_EQ(status("/", "Bearer the-secret-of-this-jo"), 401);
  EXPECT_EQ(status("/", "Basic the-secret-of-this-job"), 401);
  EXPECT_EQ(status("/", "Bearer the-secret-of-this-job"), 200);
  EXPECT_EQ(status("/?token=the-secret%2dof-this-job", ""), 200);
  EXPECT_EQ(status("/?token=wrong", ""), 401);
  EXPECT_EQ(status("/nothing", "Bearer the-secret-of-this-job"), 404);
}

TEST(StatusRoutes, LookAtTheJobNowAndThenHoweverManyAsk) {
  int n_looks = 0;
  StatusRoutes open(
      [&] {
        ++n_looks;
        return JobStatus{};
      },
      "");
  for (int i = 0; i < 1000; ++i) static_cast<void>(open.answer(request("/status.json")));
  EXPECT_LT(n_looks, 100);
}

TEST(StatusRoutes, PagesMayLoadNothingFromElsewhere) {
  StatusRoutes open = routes("");
  const HttpResponse page = open.answer(request("/"));
  EXPECT_THAT(page.headers.at("Content-Security-Policy"),
              testing::StartsWith("default-src 'none'"));
  EXPECT_NE(page.body, open.answer(request("/")).body);  // another nonce
  EXPECT_EQ(open.answer(request("/?part=view")).body.find("<script"), std::string::npos);
}

TEST(HttpAddress, IsAPortOrAnAddressAndAPort) {
  EXPECT_EQ(http_address("9000").host, "127.0.0.1");
  EXPECT_EQ(http_address("[::1]:80").host, "::1");
  EXPECT_EQ(http_address("node7:0").host, "node7");
  for (const char* bad : {"", "x", ":9000", "::1:9000", "65536", "host:", "80x", "-1"})
    EXPECT_THROW(static_cast<void>(http_address(bad)), Error) << bad;
}

TEST(HttpRequest, DecodesItsQuery) {
  const HttpRequest made = request_of("/a?x=1%202+3&y&z=%zz%4");
  EXPECT_EQ(made.path, "/a");
  EXPECT_EQ(made.query.at("x"), "1 2 3");
  EXPECT_EQ(made.query.at("y"), "");
  EXPECT_EQ(made.query.at("z"), "%zz%4");
}

TEST(Tokens, AreComparedWhole) {
  EXPECT_TRUE(equal_tokens("abc", "abc"));
  EXPECT_FALSE(equal_tokens("abc", "abd"));
  EXPECT_FALSE(equal_tokens("", "a"));
  EXPECT_EQ(random_token().size(), 64);
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace longhaul
