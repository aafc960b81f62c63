// What top and vmstat make of the daemon's replies.
#include "tools/inferctl/figures_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

ordered_json figures(int computed) {
  const ordered_json times = {{"count", 4}, {"p50_ms", 1.51}, {"p99_ms", 340.2}};
  return {{"requests", {{"accepted", 9}, {"refused", 2}}},
          {"tokens",
           {{"prompt", 100},
            {"cached", 30},
            {"computed", computed},
            {"recomputed", 5},
            {"generated", 7}}},
          {"hits", 3},
          {"preemptions", 1},
          {"sequences", 2},
          {"pages", 8},
          {"pages_max", 11},
          {"wait", times},
          {"ttft", times},
          {"itl", {{"count", 0}}}};
}

ordered_json top_of(int ann, int bob) {
  return {{"users",
           {{{"uid", 1001}, {"sessions", 1}, {"figures", figures(ann)}},
            {{"uid", 1002}, {"sessions", 1}, {"figures", figures(bob)}}}},
          {"sessions",
           {{{"id", 5},
             {"pid", 77},
             {"uid", 1001},
             {"client", "a\x1b[2J"},
             {"figures", figures(ann)}}}},
          {"pressure",
           {{{"resource", "pages"},
             {"kind", "some"},
             {"avg10", 12.345},
             {"avg60", 1.0},
             {"avg300", 0.0},
             {"total_us", 987}}}}};
}

TEST(FiguresView, TopPutsWhoWasServedMostInFront) {
  const std::string text = top_text(top_of(50, 80), nullptr, 0);
  EXPECT_LT(text.find("1002"), text.find("1001")) << text;
  EXPECT_THAT(text, HasSubstr("pages   some avg10=12.35 avg60=1.00 avg300=0.00 total=987\n"));
  EXPECT_THAT(text, HasSubstr("1.5/340"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "a client's name is no command to the terminal";
  EXPECT_THAT(text, Not(HasSubstr("others")));
}

TEST(FiguresView, TopSortsByWhatWasServedSinceTheLastLook) {
  const std::string text = top_text(top_of(150, 180), top_of(50, 179), 2);
  EXPECT_LT(text.find("1001"), text.find("1002")) << text;
  EXPECT_THAT(text, ContainsRegex("1001 +1 +50 "));
  EXPECT_THAT(text, ContainsRegex("1002 +1 +0\\.50 "));
}

TEST(FiguresView, TopHasALineForForgottenUsers) {
  ordered_json reply = top_of(1, 2);
  reply["others"] = figures(3000);
  EXPECT_THAT(top_text(reply, nullptr, 0), ContainsRegex("\n *others .* 3000 "));
}

TEST(FiguresView, VmstatHasRatesUnderTheirHeads) {
  const auto reply = [](double scale) -> ordered_json {
    return {{"running", 3},
            {"waiting", 1},
            {"paused", 0},
            {"pages", {{"free", 10}, {"live", 20}, {"cached", 30}}},
            {"steps", 10 * scale},
            {"preemptions", 2 * scale},
            {"tokens",
             {{"prompt", 100 * scale},
              {"cached", 40 * scale},
              {"computed", 80 * scale},
              {"recomputed", 20 * scale},
              {"generated", 60 * scale}}},
            {"pressure",
             {{{"resource", "pages"}, {"kind", "some"}, {"avg10", 12.34}},
              {{"resource", "compute"}, {"kind", "some"}, {"avg10", 56.78}}}}};
  };
  const std::string head = vmstat_head();
  const std::string line = vmstat_line(reply(3), reply(1), 2);
  EXPECT_EQ(line.size(), head.size());
  EXPECT_THAT(line,
              ContainsRegex("^ +3 +1 +0 +10 +20 +30 +10 +100 +40 +80 +20 +60 +2 +12.3 +56.8\n$"));
  EXPECT_EQ(line.find("80"), head.find("comp") + 2) << head << line;
}

TEST(FiguresView, WhatAReplyLacksShowsAsNothing) {
  EXPECT_NO_THROW(top_text(ordered_json::object(), nullptr, 0));
  EXPECT_NO_THROW(vmstat_line(ordered_json::object(), ordered_json::object(), 0));
}

}  // namespace
}  // namespace inferd::inferctl
