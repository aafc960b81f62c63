// ControlService: what each method answers, and to whom.
#include "daemon/control_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <string>

#include "daemon/control_interface.h"
#include "tests/unit/daemon/control_fixture.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

class ControlServiceTest : public testing::Test {
 protected:
  // The reply's parameters, or the whole reply if it is an error.
  Json call(const std::string& method, const Json& parameters = Json::object(),
            uint32_t caller = kAdmin) {
    const Json message = {{"method", method}, {"parameters", parameters}};
    const std::string reply = raw(message.dump(), caller);
    EXPECT_TRUE(reply.ends_with('\0'));
    const Json parsed = Json::parse(reply.substr(0, reply.size() - 1));
    return parsed.contains("error") ? parsed : parsed.at("parameters");
  }
  Json control(const std::string& method, const Json& parameters = Json::object(),
               uint32_t caller = kAdmin) {
    return call("org.inferd.Control." + method, parameters, caller);
  }
  std::string raw(const std::string& message, uint32_t caller = kAdmin) {
    int replies = 0;
    std::string reply;
    fixture_.service.handle(message, UserId(caller), [&](std::string text) {
      ++replies;
      reply = std::move(text);
    });
    fixture_.pump();
    EXPECT_EQ(replies, 1);
    return reply;
  }
  void expect_error(const Json& reply, const std::string& name, const std::string& part = "") {
    ASSERT_TRUE(reply.contains("error")) << reply;
    EXPECT_EQ(reply.at("error"), name);
    EXPECT_THAT(reply.at("parameters").dump(), HasSubstr(part));
  }

  ControlFixture fixture_;
};

TEST_F(ControlServiceTest, StatusCountsWhatTheCallerMaySee) {
  FakeClient ann = fixture_.engine.connect(1001);
  FakeClient bob = fixture_.engine.connect(1002);
  ann.submit(prompt_of(40), ipc::kUnlimitedTokens);
  ann.submit(prompt_of(20), ipc::kUnlimitedTokens);
  bob.submit(prompt_of(10), ipc::kUnlimitedTokens);
  fixture_.pump();
  const auto counts = [&](uint32_t caller) {
    const Json status = control("Status", {}, caller);
    return std::pair(status.at("sessions").get<int>(), status.at("sequences").get<int>());
  };
  EXPECT_EQ(counts(kAdmin), std::pair(2, 3));
  EXPECT_EQ(counts(0), std::pair(2, 3));
  EXPECT_EQ(counts(1001), std::pair(1, 2));
  EXPECT_EQ(counts(1002), std::pair(1, 1));
  EXPECT_EQ(counts(1003), std::pair(0, 0));

  const Json status = control("Status");
  EXPECT_EQ(status.at("pid"), ::getpid());
  EXPECT_EQ(status.at("models"), Json({"fake"}));
  const Json& pages = status.at("pages");
  EXPECT_EQ(pages.at("total"), 256);
  EXPECT_EQ(pages.at("free").get<int>() + pages.at("live").get<int>(), 256);
  EXPECT_GT(pages.at("live"), 0);
  EXPECT_EQ(status.at("tokens").at("prompt"), 70);
}

TEST_F(ControlServiceTest, PsListsTheCallersOwnAndCancelEndsThem) {
  FakeClient ann = fixture_.engine.connect(1001);
  FakeClient bob = fixture_.engine.connect(1002);
  const uint64_t cookie = ann.submit(prompt_of(40), ipc::kUnlimitedTokens);
  bob.submit(prompt_of(10), ipc::kUnlimitedTokens);
  fixture_.pump();
  EXPECT_EQ(control("Ps").at("sequences").size(), 2u);
  const Json own = control("Ps", {}, 1001);
  ASSERT_EQ(own.at("sequences").size(), 1u);
  ASSERT_EQ(own.at("sessions").size(), 1u);
  const Json& row = own.at("sequences")[0];
  EXPECT_EQ(row.at("uid"), 1001);
  EXPECT_EQ(row.at("pid"), 77);
  EXPECT_EQ(row.at("client"), "test");
  EXPECT_EQ(row.at("prompt_tokens"), 40);
  EXPECT_EQ(row.at("state"), "decoding");
  EXPECT_EQ(row.at("session"), own.at("sessions")[0].at("id"));

  const Json sequence = {{"sequence", row.at("id")}};
  expect_error(control("Cancel", sequence, 1002), "org.inferd.Control.NotFound", "inferctl ps");
  EXPECT_EQ(control("Cancel", sequence, 1001), Json::object());
  expect_error(control("Cancel", sequence, 1001), "org.inferd.Control.NotFound");
  ann.read();
  EXPECT_EQ(ann[cookie].reason, ipc::FinishReason::kCancelled);
  const Json others = control("Ps").at("sequences");
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(control("Cancel", {{"sequence", others[0].at("id")}}, 0), Json::object());
}

TEST_F(ControlServiceTest, TopTellsEachUserTheirOwnAndAnAdministratorAll) {
  FakeClient ann = fixture_.engine.connect(1001);
  FakeClient bob = fixture_.engine.connect(1002);
  ann.submit(prompt_of(40), 3, ipc::kSubmitIgnoreEos);
  bob.submit(prompt_of(20), ipc::kUnlimitedTokens, ipc::kSubmitIgnoreEos);
  fixture_.pump();
  fixture_.pump();
  const Json own = control("Top", {}, 1001);
  ASSERT_EQ(own.at("users").size(), 1u);
  ASSERT_EQ(own.at("sessions").size(), 1u);
  EXPECT_FALSE(own.contains("total")) << "what the others do is not theirs to know";
  EXPECT_FALSE(own.contains("others"));
  EXPECT_EQ(own.at("users")[0].at("uid"), 1001);
  EXPECT_EQ(own.at("sessions")[0].at("client"), "test");
  const Json& figures = own.at("users")[0].at("figures");
  EXPECT_EQ(figures.at("requests").at("finished"), 1);
  EXPECT_EQ(figures.at("tokens").at("prompt"), 40);
  EXPECT_EQ(figures.at("tokens").at("generated"), 3);
  EXPECT_EQ(figures.at("ttft").at("count"), 1);
  EXPECT_EQ(figures.at("itl").at("count"), 2);
  EXPECT_NEAR(figures.at("itl").at("p50_ms").get<double>(), 1.0, 1.0 / 32);
  const Json& of_session = own.at("sessions")[0].at("figures");
  EXPECT_EQ(figures.at("tokens"), of_session.at("tokens"));
  EXPECT_EQ(figures.at("wait"), of_session.at("wait"));
  const Json all = control("Top");
  ASSERT_EQ(all.at("users").size(), 2u);
  EXPECT_EQ(all.at("total").at("tokens").at("prompt"), 60);
  EXPECT_EQ(all.at("others").at("requests").at("accepted"), 0);
  ASSERT_EQ(all.at("pressure").size(), 4u);
  EXPECT_EQ(all.at("pressure")[0].at("resource"), "pages");
  EXPECT_EQ(all.at("pressure")[0].at("avg10"), 0.0);
}

TEST_F(ControlServiceTest, VmstatIsOfTheWholeDaemon) {
  FakeClient ann = fixture_.engine.connect(1001);
  ann.submit(prompt_of(40), 3, ipc::kSubmitIgnoreEos);
  fixture_.pump();
  const Json reply = control("Vmstat", {}, 1002);
  EXPECT_EQ(reply.at("tokens").at("prompt"), 40);
  EXPECT_EQ(reply.at("pages").at("total"), 256);
  EXPECT_EQ(reply.at("preemptions"), 0);
  EXPECT_EQ(reply.at("pressure").size(), 4u);
}

TEST_F(ControlServiceTest, MetricsHaveASeriesForEachUserAndBucketsThatAddUp) {
  FakeClient ann = fixture_.engine.connect(1001);
  ann.submit(prompt_of(40), 3, ipc::kSubmitIgnoreEos);
  fixture_.pump();
  fixture_.pump();
  const std::string text = control("Metrics").at("text");
  EXPECT_THAT(text, HasSubstr("inferd_user_tokens_total{user=\"1001\",kind=\"generated\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("inferd_user_tokens_total{user=\"others\",kind=\"generated\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("inferd_requests_total{outcome=\"finished\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("inferd_user_itl_seconds_bucket{user=\"1001\",le=\"0.000512\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("inferd_user_itl_seconds_bucket{user=\"1001\",le=\"0.001024\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("inferd_user_itl_seconds_bucket{user=\"1001\",le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("inferd_user_itl_seconds_sum{user=\"1001\"} 0.002\n"));
  EXPECT_THAT(text, HasSubstr("inferd_itl_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("inferd_pressure_ratio{resource=\"pages\",kind=\"some\",window=\"10\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("inferd_pressure_stalled_seconds_total{resource=\"compute\",kind=\"full\"} 0\n"));
}

TEST_F(ControlServiceTest, ReniceMakesOnesOwnLessUrgentAndAnybodysMoreWithPrivilege) {
  FakeClient ann = fixture_.engine.connect(1001);
  ann.submit(prompt_of(40), ipc::kUnlimitedTokens);
  fixture_.pump();
  const Json id = control("Ps").at("sequences")[0].at("id");
  const auto renice = [&](Json parameters, uint32_t caller) {
    parameters["sequence"] = id;
    return control("Renice", parameters, caller);
  };
  const auto now = [&] {
    const Json row = control("Ps").at("sequences")[0];
    return std::pair(row.at("priority").get<std::string>(), row.at("nice").get<int>());
  };
  EXPECT_EQ(now(), std::pair(std::string("interactive"), 0));
  EXPECT_EQ(renice({{"nice", 5}}, 1001), Json({{"priority", "interactive"}, {"nice", 5}}));
  EXPECT_EQ(renice({{"priority", "batch"}, {"nice", nullptr}}, 1001),
            Json({{"priority", "batch"}, {"nice", 5}}));
  const std::string denied = "org.inferd.Control.PermissionDenied";
  expect_error(renice({{"nice", 4}}, 1001), denied, "batch with nice 5");
  expect_error(renice({{"priority", "interactive"}}, 1001), denied, "try sudo");
  expect_error(renice({{"nice", 19}}, 1002), "org.inferd.Control.NotFound");
  EXPECT_EQ(now(), std::pair(std::string("batch"), 5));
  EXPECT_EQ(renice({{"priority", "interactive"}, {"nice", -20}}, 0),
            Json({{"priority", "interactive"}, {"nice", -20}}));
  EXPECT_EQ(renice(Json::object(), 1001), Json({{"priority", "interactive"}, {"nice", -20}}));
  const std::string wrong = "org.varlink.service.InvalidParameter";
  expect_error(renice({{"nice", 20}}, 0), wrong, "nice");
  expect_error(renice({{"nice", 1e30}}, 0), wrong, "nice");
  expect_error(renice({{"nice", "5"}}, 0), wrong, "nice");
  expect_error(renice({{"priority", "urgent"}}, 0), wrong, "priority");
  expect_error(renice({{"priority", 1}}, 0), wrong, "priority");
  expect_error(control("Renice", {{"nice", 1}}), wrong, "sequence");
  expect_error(renice({{"class", "batch"}}, 0), wrong, "class");
}

TEST_F(ControlServiceTest, AdministrationIsForRootAndTheDaemonsUser) {
  for (const char* method : {"Verify", "Drain", "Reload", "LogLevel", "Metrics"}) {
    expect_error(control(method, {}, 1001), "org.inferd.Control.PermissionDenied", "try sudo");
  }
  EXPECT_EQ(fixture_.host.drains, 0);
  EXPECT_EQ(control("Verify", {}, 0), Json({{"ok", true}, {"violations", Json::array()}}));
  EXPECT_EQ(control("Verify").at("ok"), true);
  EXPECT_EQ(control("Drain"), Json::object());
  EXPECT_EQ(fixture_.host.drains, 1);
  EXPECT_THAT(control("Metrics").at("text").get<std::string>(),
              HasSubstr("inferd_pages{use=\"free\"} 256"));
}

TEST_F(ControlServiceTest, ReloadTellsWhatChangedAndWhatIsWrong) {
  const Json report = control("Reload");
  EXPECT_EQ(report.at("applied"),
            Json::parse(R"([{"key":"limits.connections","from":"1","to":"2"}])"));
  EXPECT_EQ(report.at("needs_restart"),
            Json::parse(R"([{"key":"scheduler.queue","from":"3","to":"4"}])"));
  fixture_.host.mistake = "line 3 is wrong";
  expect_error(control("Reload"), "org.inferd.Control.InvalidArgument", "line 3 is wrong");
}

TEST_F(ControlServiceTest, LogLevelTakesTheLevelsThatThereAre) {
  for (const char* level : {"trace", "debug", "info", "warn", "error", "off"}) {
    EXPECT_EQ(control("LogLevel", {{"level", level}}), Json::object());
  }
  EXPECT_EQ(fixture_.host.levels.size(), 6u);
  for (const Json& wrong : {Json{{"level", "loud"}}, Json{{"level", 3}}, Json::object()}) {
    expect_error(control("LogLevel", wrong), "org.varlink.service.InvalidParameter", "level");
  }
  EXPECT_EQ(fixture_.host.levels.size(), 6u);
}

TEST_F(ControlServiceTest, ListHasTheModels) {
  const Json models = control("List", {}, 1001).at("models");
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].at("name"), "fake");
  EXPECT_EQ(models[0].at("file_bytes"), 1000);
}

TEST_F(ControlServiceTest, WhatItCannotDoIsAnsweredAsVarlinkSays) {
  expect_error(call("org.other.Thing"), "org.varlink.service.InterfaceNotFound", "org.other");
  expect_error(control("Explode"), "org.varlink.service.MethodNotFound", "Explode");
  expect_error(call("org.varlink.service.Explode"), "org.varlink.service.MethodNotFound");
  expect_error(control("Status", {{"verbose", true}}), "org.varlink.service.InvalidParameter",
               "verbose");
  for (const Json& wrong : {Json::object(), Json{{"sequence", "5"}}, Json{{"sequence", -5}}}) {
    expect_error(control("Cancel", wrong), "org.varlink.service.InvalidParameter", "sequence");
  }
  expect_error(call("org.varlink.service.GetInterfaceDescription"),
               "org.varlink.service.InvalidParameter", "interface");
  expect_error(call("org.varlink.service.GetInterfaceDescription", {{"interface", "org.other"}}),
               "org.varlink.service.InterfaceNotFound");
  const std::string no_json = raw("{");
  EXPECT_THAT(no_json, HasSubstr("org.inferd.Control.InvalidArgument"));
}

TEST_F(ControlServiceTest, AOnewayCallIsDoneAndNotAnswered) {
  EXPECT_EQ(raw(R"({"method":"org.inferd.Control.Drain","oneway":true})"), "");
  EXPECT_EQ(fixture_.host.drains, 1);
  EXPECT_EQ(raw(R"({"method":"org.inferd.Control.Status","oneway":true})"), "");
}

TEST_F(ControlServiceTest, CachedPrefixesAreShownToAndFlushedByTheirOwner) {
  FakeClient ann = fixture_.engine.connect(1001);
  FakeClient bob = fixture_.engine.connect(1002);
  ann.submit(prompt_of(64), 2);
  bob.submit(prompt_of(32), 2);
  for (int i = 0; i < 5; ++i) fixture_.pump();
  const auto pages = [&](uint32_t caller) {
    std::map<std::string, int> found;
    const Json reply = control("CacheStat", {}, caller);
    for (const Json& one : reply.at("domains")) {
      found[one.at("domain")] = one.at("pages");
      EXPECT_EQ(one.at("stored"), 0);
    }
    return found;
  };
  using Pages = std::map<std::string, int>;
  EXPECT_EQ(pages(kAdmin), (Pages{{"user:1001", 4}, {"user:1002", 2}}));
  EXPECT_EQ(pages(1001), (Pages{{"user:1001", 4}}));
  EXPECT_EQ(pages(1003), Pages{});

  EXPECT_EQ(call("org.inferd.Control.CacheFlush", {{"domain", "user:1002"}}, 1001).at("error"),
            "org.inferd.Control.PermissionDenied");
  EXPECT_EQ(call("org.inferd.Control.CacheFlush", {{"domain", "nobody"}}, 1001).at("error"),
            "org.inferd.Control.NotFound");
  EXPECT_EQ(call("org.inferd.Control.CacheFlush", {{"domain", 7}}, 1001).at("error"),
            "org.varlink.service.InvalidParameter");
  Json tokens = prompt_of(64);
  EXPECT_EQ(control("CachePin", {{"tokens", tokens}}, 1001).at("pages"), 4);
  EXPECT_EQ(call("org.inferd.Control.CachePin", {{"tokens", tokens}}, 1003).at("error"),
            "org.inferd.Control.NotFound");
  EXPECT_EQ(call("org.inferd.Control.CachePin", {{"tokens", {1, "two"}}}, 1001).at("error"),
            "org.varlink.service.InvalidParameter");
  EXPECT_EQ(control("CacheUnpin", {}, 1002).at("pages"), 0);
  EXPECT_EQ(control("CacheUnpin", {}, 1001).at("pages"), 4);
  EXPECT_EQ(control("CacheFlush", {}, 1001).at("pages"), 4);
  EXPECT_EQ(pages(kAdmin), (Pages{{"user:1002", 2}}));
  EXPECT_EQ(control("CacheFlush", {{"domain", "user:1001"}}, kAdmin).at("pages"), 0);
  EXPECT_EQ(control("CacheFlush", {}, kAdmin).at("pages"), 2);
  EXPECT_EQ(pages(kAdmin), Pages{});
}

TEST_F(ControlServiceTest, EveryMethodOfItsDescriptionIsThere) {
  const Json info = call("org.varlink.service.GetInfo", {}, 1001);
  EXPECT_EQ(info.at("product"), "inferd");
  size_t methods = 0;
  for (const Json& interface : info.at("interfaces")) {
    const std::string text =
        call("org.varlink.service.GetInterfaceDescription", {{"interface", interface}}, 1001)
            .at("description");
    const std::regex method(R"(method (\w+)\()");
    for (std::sregex_iterator it(text.begin(), text.end(), method), end; it != end; ++it) {
      const Json reply = call(interface.get<std::string>() + "." + (*it)[1].str());
      EXPECT_NE(reply.value("error", ""), "org.varlink.service.MethodNotFound") << (*it)[1];
      ++methods;
    }
  }
  EXPECT_EQ(methods, 18u);
}

}  // namespace
}  // namespace inferd::daemon
