#include "bench/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/trace_fields.h"

namespace inferd::bench {
namespace {

using scheduler::PriorityClass;
using testing::ElementsAre;
using testing::HasSubstr;

Result<Trace> read(const std::string& text, uint64_t requests_max = 1000) {
  std::istringstream stream(text);
  return read_trace(stream, requests_max);
}

std::string complaint(const std::string& text) {
  const Result<Trace> trace = read(text);
  EXPECT_FALSE(trace.ok()) << text;
  return trace.ok() ? "" : trace.error().message();
}

TEST(TraceReader, ReadsAzureDatesToTheNanosecond) {
  const Result<Trace> trace = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-12-31 23:59:59.9000000,374,44\r\n"
      "2024-01-01 00:00:00.1000005,396,109\r\n"
      "2024-01-01 00:00:01+00:00,2,93\r\n");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->format, "Azure LLM inference trace");
  ASSERT_EQ(trace->requests.size(), 3u);
  EXPECT_EQ(trace->requests[0].arrival_ns, 0);
  EXPECT_EQ(trace->requests[1].arrival_ns, 200'000'500);
  EXPECT_EQ(trace->requests[2].arrival_ns, 1'100'000'000);
  EXPECT_EQ(trace->requests[1].prompt_tokens, 396u);
  EXPECT_EQ(trace->requests[1].output_tokens, 109u);
  EXPECT_EQ(trace->users, 0u);
}

TEST(TraceReader, SkipsAndCountsTheFailuresOfBurstGpt) {
  const Result<Trace> trace = read(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45,GPT-4,1087,0,1087,API log\n"
      "118.5,ChatGPT,417,276,693,Conversation log");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->format, "BurstGPT");
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->skipped, 1u);
  EXPECT_EQ(trace->requests[1].arrival_ns, 113'500'000'000);
  EXPECT_EQ(trace->requests[1].output_tokens, 276u);
}

TEST(TraceReader, SharesTheBlocksOfMooncake) {
  const Result<Trace> trace = read(
      R"({"timestamp": 3000, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9, 10]})"
      "\n\n"
      R"({"timestamp": 1000, "input_length": 1024, "output_length": 6, "hash_ids": [7, 8]})"
      "\n"
      R"({"timestamp": 1000, "input_length": 9, "output_length": 7})");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->format, "Mooncake");
  ASSERT_EQ(trace->requests.size(), 3u);
  // Sorted by arrival, and among equal ones as they came.
  EXPECT_EQ(trace->requests[0].output_tokens, 6u);
  EXPECT_EQ(trace->requests[1].output_tokens, 7u);
  EXPECT_EQ(trace->requests[2].arrival_ns, 2'000'000'000);
  // The last block is cut to the prompt, and ids beyond its end stand for nothing.
  EXPECT_THAT(trace->requests[2].pieces,
              ElementsAre(PromptPiece{7, 512}, PromptPiece{8, 512}, PromptPiece{9, 76}));
  std::vector<TokenId> a, b;
  make_prompt(trace->requests[0], 0, a);
  make_prompt(trace->requests[2], 2, b);
  ASSERT_EQ(a.size(), 1024u);
  ASSERT_EQ(b.size(), 1100u);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
}

TEST(TraceReader, ReadsUsersClassesAndPrefixesOfItsOwnFormat) {
  const Result<Trace> trace = read(
      "user,arrival_s,prompt_tokens,output_tokens,class,prefix_id,prefix_tokens,note\n"
      "ann,0,40,1,interactive,tools,30,x\n"
      "\"bob\",0.25,50,2,batch,tools,30,\n"
      "ann,0.5,60,3,idle,,0,\n");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->format, "inferd CSV");
  EXPECT_EQ(trace->users, 2u);
  ASSERT_EQ(trace->requests.size(), 3u);
  EXPECT_EQ(trace->requests[0].user, trace->requests[2].user);
  EXPECT_NE(trace->requests[0].user, trace->requests[1].user);
  EXPECT_EQ(trace->requests[1].priority, PriorityClass::kBatch);
  EXPECT_EQ(trace->requests[2].priority, PriorityClass::kIdle);
  EXPECT_TRUE(trace->requests[2].pieces.empty());
  std::vector<TokenId> a, b;
  make_prompt(trace->requests[0], 0, a);
  make_prompt(trace->requests[1], 1, b);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 30, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 30, a.end(), b.begin() + 30));
}

TEST(TraceReader, ReadsNoMoreThanAskedFor) {
  const std::string text = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,1,1\n2,1,1\n";
  EXPECT_EQ(read(text, 2)->requests.size(), 2u);
  EXPECT_TRUE(read(text, 2)->cut);
  EXPECT_EQ(read(text, 3)->requests.size(), 3u);
  EXPECT_FALSE(read(text, 3)->cut);
}

TEST(TraceReader, SaysWhichLineIsWrongAndWhatIsExpected) {
  const std::string head = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n";
  EXPECT_THAT(complaint(""), HasSubstr("empty"));
  EXPECT_THAT(complaint("time,tokens\n"), HasSubstr("known are CSV files"));
  EXPECT_THAT(complaint("\x01\x02\xff"), HasSubstr("line 1: \"???\" begins no known trace"));
  EXPECT_THAT(complaint(head + "1,-4,1\n"), HasSubstr("line 3: prompt_tokens is \"-4\""));
  EXPECT_THAT(complaint(head + "1,4\n"), HasSubstr("line 3: has 2 columns"));
  EXPECT_THAT(complaint(head + "1,10000001,1\n"), HasSubstr("up to 10000000"));
  EXPECT_THAT(complaint(head + "nan,1,1\n"), HasSubstr("line 3: arrival_s is \"nan\""));
  EXPECT_THAT(complaint(head + std::string(kTraceLineBytesMax + 1, '1')),
              HasSubstr("line 3: longer than 1048576 bytes"));
  EXPECT_THAT(complaint("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-29 00:00:00,1,1\n"),
              HasSubstr("a date such as"));
  EXPECT_THAT(complaint("{\"timestamp\": 1"),
              HasSubstr("line 1: \"{\"timestamp\": 1\" is no JSON"));
  EXPECT_THAT(complaint(R"({"timestamp": 1, "input_length": 5})"),
              HasSubstr("output_length is missing"));
  EXPECT_THAT(complaint(R"({"timestamp": -1, "input_length": 5, "output_length": 5})"),
              HasSubstr("timestamp is out of range"));
  EXPECT_THAT(
      complaint(R"({"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": [-1]})"),
      HasSubstr("hash_ids"));
  EXPECT_THAT(complaint("arrival_s,prompt_tokens,output_tokens,prefix_id\n"),
              HasSubstr("belong together"));
  EXPECT_THAT(complaint("arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"
                        "0,5,1,a,6\n"),
              HasSubstr("prefix_tokens is 6, more than the 5"));
  EXPECT_THAT(complaint("arrival_s,prompt_tokens,output_tokens\n0,0,0\n"),
              HasSubstr("no request with tokens"));
  EXPECT_THAT(complaint("arrival_s,prompt_tokens,output_tokens,class\n0,1,1,urgent\n"),
              HasSubstr("interactive, batch or idle"));
}

TEST(TraceFields, DatesFollowTheCalendar) {
  const auto day_ns = int64_t{86'400} * 1'000'000'000;
  EXPECT_EQ(parse_date("1970-01-01 00:00:00"), 0);
  EXPECT_EQ(parse_date("2000-03-01 00:00:00").value() - parse_date("2000-02-28T00:00:00Z").value(),
            2 * day_ns);
  EXPECT_EQ(parse_date("2100-03-01 00:00:00").value() - parse_date("2100-02-28 00:00:00").value(),
            day_ns);
  EXPECT_EQ(parse_date("2023-11-16 18:17:03.000000001").value() % 1'000'000'000, 1);
  for (const char* wrong :
       {"", "2023", "2023-13-01 00:00:00", "2023-04-31 00:00:00", "2023-04-30 24:00:00",
        "2023-04-30 00:00:00.1234567891", "2023-04-30 00:00:00+02:00", "1969-12-31 23:59:59"}) {
    EXPECT_FALSE(parse_date(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace inferd::bench
