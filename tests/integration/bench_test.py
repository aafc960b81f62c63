"""inferd-bench serve, isolation, stopped, engine, perplexity, ipc and sim on a tiny model: their figures and the names they have."""

import array
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import harness

PERCENTILES = ["p50", "p90", "p99", "max"]


def bench(*arguments, code=0, **options):
    done = subprocess.run([harness.binary("inferd-bench"), *arguments], capture_output=True,
                          timeout=harness.PATIENCE_S, **options)
    if done.returncode != code:
        raise AssertionError("inferd-bench %s ended with %d: %s" % (arguments, done.returncode, done.stderr.decode()))
    return done


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = cls.enterClassContext(harness.tiny_model())

    def check_percentiles(self, values):
        self.assertEqual(list(values), PERCENTILES)
        ordered = [values[name] for name in PERCENTILES]
        self.assertEqual(ordered, sorted(ordered))
        self.assertGreaterEqual(ordered[0], 0)  # tokens that came together have no time between them

    def test_serve(self):
        with harness.Daemon(model=self.model) as daemon:
            shape = ["--clients", "3", "--requests", "13", "--prompt-tokens", "20", "--shared-prefix", "30",
                     "--gen-tokens", "6", "--json"]
            for more in ([], ["--rate", "200"]):
                before = daemon.status()["tokens"]
                result = json.loads(bench("serve", "--socket", daemon.socket, *shape, *more).stdout)
                self.assertEqual(list(result), ["ttft_ms", "itl_ms", "tokens_per_s", "requests", "errors",
                                                "computed_tokens", "cached_tokens"])
                self.check_percentiles(result["ttft_ms"])
                self.check_percentiles(result["itl_ms"])
                self.assertGreater(result["ttft_ms"]["p50"], 0)
                self.assertGreater(result["tokens_per_s"], 0)
                self.assertEqual((result["requests"], result["errors"]), (13, 0))
                self.assertEqual(result["computed_tokens"] + result["cached_tokens"], 13 * 50)
                after = daemon.status()["tokens"]
                self.assertEqual(after["generated"] - before["generated"], 13 * 6)
                self.assertEqual(after["cached"] - before["cached"], result["cached_tokens"])
            daemon.wait_idle()
            # As every client does, it finds the daemon by the environment; and it prints a table.
            done = bench("serve", "--requests", "2", "--clients", "2", "--gen-tokens", "2", "--prompt-tokens", "3",
                         env=daemon.environment())
            for word in (b"TTFT", b"ITL", b"2 requests, 0 errors"):
                self.assertIn(word, done.stdout)

    def test_serve_counts_what_fails_and_says_why(self):
        with harness.Daemon(model=self.model) as daemon:
            request = ["serve", "--socket", daemon.socket, "--clients", "2", "--requests", "4", "--gen-tokens", "2",
                       "--json"]
            done = bench(*request, "--prompt-tokens", "100000", code=1)
            result = json.loads(done.stdout)
            self.assertEqual((result["requests"], result["errors"]), (4, 4))
            self.assertIn(b"4 of 4 requests failed", done.stderr)
            self.assertIn(b"100000", done.stderr)  # the figure that cannot fit
        done = bench(*request, "--prompt-tokens", "1", code=1)
        self.assertEqual(json.loads(done.stdout)["errors"], 4)
        self.assertIn(daemon.socket.encode(), done.stderr)

    def start_endless(self, daemon):
        """Three clients that would be at work for hours; returns once they are at work."""
        request = ["--clients", "3", "--requests", "3000", "--prompt-tokens", "9", "--gen-tokens", "3000", "--json"]
        process = subprocess.Popen([harness.binary("inferd-bench"), "serve", "--socket", daemon.socket, *request],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        harness.wait_until(lambda: daemon.status()["sequences"] == 3, "its clients are at work")
        return process

    def test_the_clients_of_serve_end_with_it(self):
        with harness.Daemon(model=self.model) as daemon:
            process = self.start_endless(daemon)
            process.kill()
            process.communicate()
            daemon.wait_idle()

    def test_serve_ends_with_its_daemon(self):
        daemon = harness.Daemon(model=self.model)
        self.addCleanup(shutil.rmtree, daemon.folder)
        process = self.start_endless(daemon)
        daemon.end(signal.SIGKILL)
        out, complaint = process.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(process.returncode, 1)
        # All but the few that were answered before.
        self.assertGreater(json.loads(out)["errors"], 2000)
        self.assertIn(b"the daemon closed the connection", complaint)

    def test_engine(self):
        shape = ["--model", self.model, "--prompt", "24", "--gen", "5", "--depth", "0,40", "--batch", "1,3",
                 "--threads", "1,2", "--rounds", "2"]
        rows = json.loads(bench("engine", *shape, "--json").stdout)
        for row in rows:
            self.assertEqual(list(row), ["test", "threads", "batch", "depth", "tokens", "tokens_per_s", "floor_share"])
            self.assertEqual(row["tokens"], (24 if row["test"] == "prefill" else 5) * row["batch"])
            self.assertGreater(row["tokens_per_s"], 0)
            self.assertGreater(row["floor_share"], 0)
        combinations = {(row["test"], row["threads"], row["batch"], row["depth"]) for row in rows}
        self.assertEqual(combinations, {(test, threads, batch, depth) for test in ("prefill", "decode")
                                        for threads in (1, 2) for batch in (1, 3) for depth in (0, 40)})
        self.assertEqual(len(rows), len(combinations))
        table = bench("engine", *shape, "--no-floor").stdout.decode().splitlines()
        self.assertEqual(len(table), 2 + len(rows))

    def test_perplexity_is_that_of_its_own_logits(self):
        ctx = 32
        folder = os.path.dirname(self.model)
        text, npy = os.path.join(folder, "text"), os.path.join(folder, "logits.npy")
        with open(text, "w") as file:
            file.write("The quick brown fox jumps over the lazy dog, and is not sorry. " * 6)
        windowed = ["perplexity", "--model", self.model, "--ctx", str(ctx), "--json"]
        done = bench(*windowed, "--text", text, "--logits", npy)
        result = json.loads(done.stdout)
        self.assertEqual(list(result), ["perplexity", "positions"])
        with open(text, "rb") as file:
            tokenized = subprocess.run([harness.binary("inferctl"), "tokenize", "--model", self.model, "--json"],
                                       stdin=file, capture_output=True, check=True)
        ids = json.loads(tokenized.stdout)["ids"]
        windows, scored = len(ids) // ctx, ctx - 1 - ctx // 2
        self.assertGreater(windows, 2)
        self.assertEqual(result["positions"], windows * scored)
        total = 0
        with open(npy, "rb") as file:
            self.assertEqual(file.read(8), b"\x93NUMPY\x01\x00")
            header = file.read(struct.unpack("<H", file.read(2))[0]).decode()
            self.assertIn("(%d, 384)" % result["positions"], header)
            for window in range(windows):
                for position in range(ctx // 2, ctx - 1):
                    row = array.array("f", file.read(4 * 384))
                    best = max(row)
                    log_sum = best + math.log(math.fsum(math.exp(value - best) for value in row))
                    total += log_sum - row[ids[window * ctx + position + 1]]
            self.assertEqual(file.read(), b"")
        self.assertAlmostEqual(math.log(result["perplexity"]), total / result["positions"], delta=1e-5)
        # The same ids give the same figure, and fewer windows give fewer positions.
        with open(text, "w") as file:
            file.write(" ".join(map(str, ids)))
        again = json.loads(bench(*windowed, "--ids", text).stdout)
        self.assertEqual(again, result)
        first = bench(*windowed, "--ids", text, "--limit-windows", "1")
        self.assertEqual(json.loads(first.stdout)["positions"], scored)
        self.assertIn(b"less than one window", bench("perplexity", "--model", self.model, "--ids", text, code=2).stderr)

    def test_ipc(self):
        short = ["ipc", "--rounds", "1", "--trips", "20", "--records", "200", "--steps", "2"]
        tests = ["round_trip_spinning", "round_trip_asleep", "stream_spinning", "stream_asleep", "step_16_asleep",
                 "step_16_awake"]
        with harness.Daemon(model=self.model) as daemon:
            result = json.loads(bench(*short, "--hogs", "0,1", "--socket", daemon.socket, "--idle-clients", "20",
                                      "--seconds", "1", "--tokens", "30", "--json").stdout)
            self.assertEqual([(row["test"], row["hogs"]) for row in result["rows"]],
                             [(test, hogs) for hogs in (0, 1) for test in tests])
            for row in result["rows"]:
                self.assertEqual(list(row), ["test", "hogs", "unit", "ring", "unix", "sse", "of_unix", "of_unix_interval",
                                             "of_sse", "of_sse_interval"])
                for other in ("unix", "sse"):
                    self.assertGreater(row[other], 0)
                    # Of one round the ratio of the medians is the median of the ratios.
                    self.assertAlmostEqual(row["of_" + other], row["ring"] / row[other], places=9)
                    self.assertEqual(row["of_" + other + "_interval"], [row["of_" + other]] * 2)
            figures = result["daemon"]
            self.assertEqual(list(figures), ["connect_ms", "idle_clients", "idle_cpu_share", "step_alone_ms",
                                             "step_with_idle_ms"])
            self.assertEqual(figures["idle_clients"], 20)
            self.assertGreaterEqual(figures["idle_cpu_share"], 0)
            for name in ("connect_ms", "step_alone_ms", "step_with_idle_ms"):
                self.assertGreater(figures[name], 0)
            daemon.wait_idle()
            too_many = bench(*short, "--hogs", "0", "--socket", daemon.socket, "--idle-clients", "400", "--tokens", "3",
                             code=1)
            self.assertIn(b"[limits] connections_per_user", too_many.stderr)
        self.assertIn(b"--rounds must be", bench("ipc", "--rounds", "0", code=2).stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_isolation(self):
        folder = os.path.dirname(self.model)
        config, plot = os.path.join(folder, "isolation.toml"), os.path.join(folder, "isolation.svg")
        with open(config, "w") as file:
            file.write('[daemon]\naccess = "all"\n[[cache_domain]]\nname = "team"\nusers = [65534, 1001]\n')
        with harness.Daemon("--config", config, model=self.model) as daemon:
            os.chmod(daemon.folder, 0o755)
            small = ["isolation", "--socket", daemon.socket, "--rounds", "4", "--prompt-tokens", "100"]
            # Pages of a prompt that were found: all but the part-filled one, or none. (The vocabulary is so small
            # that two prompts may begin with the same tokens by chance.)
            for domain, other in (([], [0, 0]), (["--cache-domain", "team"], [6, 6])):
                result = json.loads(bench(*small, *domain, "--plot", plot, "--json").stdout)
                self.assertEqual(list(result), ["prompt_tokens", "rounds", "users", "situations", "ks"])
                self.assertEqual([row["before"] for row in result["situations"]], ["other", "nobody", "self"])
                pages = [[row["cached_tokens"][end] // 16 for end in ("min", "max")] for row in result["situations"]]
                self.assertEqual(pages, [other, [0, 0], [6, 6]])
                for row in result["situations"]:
                    self.assertEqual(list(row["ttft_ms"]), ["p5", "p25", "p50", "p75", "p95"])
                    self.assertEqual(list(row["ttft_ms"].values()), sorted(row["ttft_ms"].values()))
                    self.assertGreater(row["ttft_ms"]["p5"], 0)
                for distance in ("other_nobody", "self_nobody"):
                    self.assertIn(result["ks"][distance], (0, 0.25, 0.5, 0.75, 1))  # of four and four values
                self.assertAlmostEqual(result["ks"]["critical_5_percent"], 1.3581 * math.sqrt(2 / 4), places=4)
                text = "".join(xml.etree.ElementTree.parse(plot).getroot().itertext())
                for words in ("other", "nobody", "self", "TTFT (ms)"):
                    self.assertIn(words, text)
            table = bench(*small).stdout.decode()
            for words in ("nobody", "cached tokens", "self_nobody"):
                self.assertIn(words, table)
            refused = bench(*small, "--cache-domain", "teem", code=1)
            self.assertIn(b"no cache domain 'teem'", refused.stderr)
        unprivileged = subprocess.run([harness.binary("inferd-bench"), *small], capture_output=True, user=65534)
        self.assertEqual(unprivileged.returncode, 1)
        self.assertIn(b"cannot become user 65534 (only root can)", unprivileged.stderr)

    def test_stopped(self):
        with harness.Daemon(model=self.model) as daemon:
            small = ["stopped", "--socket", daemon.socket, "--clients", "2", "--rounds", "3", "--gen-tokens", "50"]
            result = json.loads(bench(*small, "--json").stdout)
            self.assertEqual(list(result), ["clients", "rounds", "neighbour_tokens", "itl_ms", "mean_ratio",
                                            "p99_ratio"])
            # It was stopped with a full ring: 1,024 slots, four a token.
            self.assertGreater(result["neighbour_tokens"], 200)
            self.assertEqual(list(result["itl_ms"]), ["idle", "stopped"])
            for values in result["itl_ms"].values():
                self.check_percentiles(values)
            for name in ("mean_ratio", "p99_ratio"):
                self.assertEqual(list(result[name]), ["median", "low", "high", "confidence"])
                self.assertLessEqual(result[name]["low"], result[name]["median"])
                self.assertLessEqual(result[name]["median"], result[name]["high"])
                # Of three rounds, or of fewer: where all tokens came at once there is no ratio.
                self.assertIn(round(result[name]["confidence"], 9), (0, 0.5, 0.75))
            daemon.wait_idle()
            self.assertIn(b"p99_ratio, stopped to idle", bench(*small).stdout)
            daemon.wait_idle()
        with harness.tiny_model(context=200) as short, harness.Daemon(model=short) as daemon:
            done = bench("stopped", "--socket", daemon.socket, "--clients", "1", "--rounds", "1", code=1)
            self.assertIn(b"context is too short", done.stderr)

    def test_sim(self):
        shape = ["sim", "--generate", "mixed", "--requests", "250", "--rate", "0.5", "--pages", "2000", "--json"]
        done = bench(*shape)
        report = json.loads(done.stdout)
        self.assertEqual(report["requests"], {"finished": 250, "refused": 0, "unfinished": 0, "first_refusal": ""})
        tokens = report["tokens"]
        self.assertEqual(tokens["prompt"], report["trace"]["prompt_tokens"])
        self.assertEqual(tokens["generated"], report["trace"]["output_tokens"])
        self.assertEqual(tokens["prompt"] + tokens["generated"] - 250,
                         tokens["found"] + tokens["computed"] - tokens["recomputed"])
        self.assertEqual(sum(user["requests"] for user in report["users"]), 250)
        self.assertEqual(sum(user["generated_tokens"] for user in report["users"]), tokens["generated"])
        self.assertEqual(sum(of["requests"] for of in report["classes"].values()), 250)
        self.assertAlmostEqual(report["hit_rate"], tokens["cached"] / tokens["prompt"])
        for what in ("ttft_ms", "itl_ms"):
            self.check_percentiles(report[what])
        self.assertLessEqual(report["fairness"]["apart_max"], report["fairness"]["bound"])
        # vLLM claims under 4 %.
        self.assertTrue(0 < report["waste"]["share"] < 0.04)
        self.assertTrue(0 < report["waste"]["share_time_mean"] < 0.04)
        self.assertLess(report["waste"]["sequence_tokens_max"], 16)
        self.assertEqual(bench(*shape).stdout, done.stdout)
        self.assertNotEqual(bench(*shape, "--seed", "2").stdout, done.stdout)

    def test_sim_reads_a_trace_and_draws_it(self):
        folder = tempfile.mkdtemp(prefix="inferd-sim-")
        self.addCleanup(shutil.rmtree, folder)
        trace, page = os.path.join(folder, "trace.csv"), os.path.join(folder, "page")
        with open(trace, "w") as file:
            file.write("arrival_s,prompt_tokens,output_tokens,user,prefix_id,prefix_tokens\n")
            for i in range(20):
                file.write("%d,%d,%d,%s,tools,160\n" % (i, 200 + i, 5 + i, "ab"[i % 2]))
        report = json.loads(bench("sim", "--trace", trace, "--report", page, "--json").stdout)
        self.assertEqual(report["tokens"]["prompt"], sum(200 + i for i in range(20)))
        self.assertEqual(report["tokens"]["cached"], 18 * 160)  # all but the first of each user
        with open(os.path.join(page, "report.json")) as file:
            self.assertEqual(json.load(file), report)
        plots = [name for name in os.listdir(page) if name.endswith(".svg")]
        self.assertEqual(len(plots), 7)
        for name in plots:
            root = xml.etree.ElementTree.parse(os.path.join(page, name)).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        with open(trace, "a") as file:
            file.write("x,1,1,a,tools,0\n")
        self.assertIn(b"line 22: arrival_s is \"x\"", bench("sim", "--trace", trace, code=1).stderr)

    def test_sim_fits_its_costs(self):
        folder = tempfile.mkdtemp(prefix="inferd-sim-")
        self.addCleanup(shutil.rmtree, folder)
        rows, cost = os.path.join(folder, "rows.json"), os.path.join(folder, "cost.json")
        with open(rows, "wb") as file:
            file.write(bench("engine", "--model", self.model, "--prompt", "64", "--gen", "4", "--depth", "0,64", "--batch",
                             "1,4", "--threads", "1", "--rounds", "1", "--no-floor", "--json").stdout)
        for source in (["--rows", rows], ["--model", self.model, "--threads", "2", "--step-tokens", "128"]):
            done = bench("sim", "--fit", *source)
            fit = json.loads(done.stdout)
            self.assertGreater(fit["step_ns"] + fit["token_ns"], 0)
            self.assertGreaterEqual(fit["error_max"], fit["error_rms"])
            self.assertIn(b"the fit is off by", done.stderr)
            with open(cost, "wb") as file:
                file.write(done.stdout)
            report = json.loads(bench("sim", "--generate", "chat", "--requests", "5", "--cost", cost, "--json").stdout)
            self.assertEqual(report["options"]["cost"]["token_ns"], fit["token_ns"])
            self.assertEqual(report["requests"]["finished"], 5)

    def test_planning_draws_its_growth(self):
        folder = tempfile.mkdtemp(prefix="inferd-planning-")
        self.addCleanup(shutil.rmtree, folder)
        plot = os.path.join(folder, "growth.svg")
        rows = json.loads(bench("planning", "--pages", "20000", "--prefixes", "10,100", "--queued", "0,10", "--running",
                                "1,10", "--steps", "5", "--plot", plot, "--json").stdout)
        self.assertEqual(len(rows), 8)
        text = "".join(xml.etree.ElementTree.parse(plot).getroot().itertext())
        for words in ("running sequences", "cached prefixes", "waiting requests", "100 prefixes, 10 queued"):
            self.assertIn(words, text)

    def test_mistakes_are_told(self):
        for arguments, sentence in ((["engine"], b"--model FILE.gguf"),
                                    (["engine", "--model", self.model, "--batch", "0"], b"--batch must be"),
                                    (["perplexity", "--model", self.model], b"--text"),
                                    (["serve", "--clients", "0"], b"--clients must be from 1"),
                                    (["serve", "--clients"], b"--clients"),
                                    (["isolation", "--users", "1,1"], b"two different users"),
                                    (["isolation", "--rounds", "0"], b"--rounds must be"),
                                    (["stopped"], b"--socket must be"),
                                    (["stopped", "--socket", "x", "--gen-tokens", "1"], b"--gen-tokens must be from 2"),
                                    (["sim"], b"either --trace FILE, or --generate"),
                                    (["sim", "--generate", "x"], b"expected chat, agents, batch or mixed"),
                                    (["sim", "--fit"], b"--fit needs one of"),
                                    (["sim", "--trace", "/nonexistent"], b"cannot open the trace"),
                                    (["sim", "--generate", "chat", "--pages", "0"], b"--pages must be")):
            with self.subTest(arguments):
                done = subprocess.run([harness.binary("inferd-bench"), *arguments], capture_output=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(sentence, done.stderr)


harness.main()
