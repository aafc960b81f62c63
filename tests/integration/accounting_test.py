"""Accounts: what users and clients were given adds up, with what clients were told, and with the daemon's totals."""

import json
import os
import signal
import unittest

import harness

ANN, BOB = 61001, 61002


def ids(count, first):
    return ",".join(str(3 + (first + i) % 300) for i in range(count))


def summed(dictionaries):
    """Adds up numbers of equal keys, dictionaries in dictionaries too."""
    total = {}
    for one in dictionaries:
        for key, value in one.items():
            if isinstance(value, dict):
                total[key] = summed([total.get(key, {}), value])
            else:
                total[key] = total.get(key, 0) + value
    return total


class TooLittleMemory(harness.DaemonTest):
    """Answers that do not fit beside each other: some are preempted, and compute again what they lost."""

    CLIENTS, PROMPT, MOST = 6, 900, 900

    @classmethod
    def setUpClass(cls):
        # So slow that all clients have started long before the first answer ends.
        model = cls.enterClassContext(harness.tiny_model(**{"feed-forward": 16384}))
        cls.daemon = harness.Daemon("--set", 'memory.pool="1MiB"', model=model)

    def test_preemptions_are_told_to_their_clients_and_in_the_accounts(self):
        pages = self.daemon.status()["pages"]["total"]
        each = (self.PROMPT + self.MOST) // 16
        self.assertLess(each, pages)
        self.assertGreater(self.CLIENTS * each, 2 * pages, "the pool holds them all")
        running = [self.daemon.start_ctl("run", "--json", "--no-store", "--ids", ids(self.PROMPT, 31 * i),
                                         "--max-tokens", str(self.MOST), *harness.ENDLESS)
                   for i in range(self.CLIENTS)]
        answers = [json.loads(client.communicate(timeout=harness.PATIENCE_S)[0]) for client in running]
        self.assertEqual({answer["finish_reason"] for answer in answers}, {"length"})
        usages = [answer["usage"] for answer in answers]
        top = self.daemon.call("Top")["parameters"]
        tokens = top["total"]["tokens"]
        self.assertEqual(top["total"]["preemptions"], sum(usage["preemptions"] for usage in usages))
        self.assertEqual(tokens["computed"], sum(usage["computed_tokens"] for usage in usages))
        # Each position once, but for the last token of each; and what was lost.
        once = self.CLIENTS * (self.PROMPT + self.MOST - 1)
        self.assertEqual(tokens["computed"], once + tokens["recomputed"])
        self.assertGreater(top["total"]["preemptions"], 0)
        self.assertGreater(tokens["recomputed"], 0)
        self.assertGreater(top["total"]["wait_s"], 0)
        self.assertLessEqual(top["users"][0]["figures"]["pages_max"], pages)
        stalled = {(line["resource"], line["kind"]): line["total_us"] for line in top["pressure"]}
        self.assertGreater(stalled["pages", "some"], 0)
        self.assertGreaterEqual(stalled["pages", "some"], stalled["pages", "full"])


@unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
class Accounting(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        # A step takes some milliseconds, so that an answer of 4,000 tokens is under way for as long as it must be.
        cls.model = cls.enterClassContext(harness.tiny_model(
            layers=8, embedding=256, heads=8, **{"feed-forward": 4096}))
        cls.daemon = harness.Daemon("--set", 'daemon.access="all"', "--set", "scheduler.max_sequences=1",
                                    model=cls.model)

    def top(self, uid=0):
        done = self.daemon.ctl_as(uid, "top", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def figures(self, uid):
        return next(user["figures"] for user in self.top()["users"] if user["uid"] == uid)

    def ask(self, uid, *arguments):
        done = self.daemon.ctl_as(uid, "run", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def metrics(self):
        lines = self.daemon.ctl("metrics").stdout.decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def pressure(self, resource, kind):
        return next(line for line in self.daemon.call("Vmstat")["parameters"]["pressure"]
                    if (line["resource"], line["kind"]) == (resource, kind))

    def check_sums_over_users(self, top):
        """Users and forgotten ones come to everything. Returns that."""
        names = ("requests", "tokens", "hits", "preemptions")
        over_users = summed({name: figures[name] for name in names}
                            for figures in [user["figures"] for user in top["users"]] + [top["others"]])
        self.assertEqual(over_users, {name: top["total"][name] for name in names})
        return over_users

    def check_sums(self):
        """The same, to what `inferctl status` tells, and to the metrics; while nothing runs."""
        over_users = self.check_sums_over_users(self.top())
        status = json.loads(self.daemon.ctl("status", "--json").stdout)["tokens"]
        self.assertEqual({name: over_users["tokens"][name] for name in status}, status)
        for kind, value in over_users["tokens"].items():
            series = [int(number) for name, number in self.metrics().items()
                      if name.startswith("inferd_user_tokens_total{") and 'kind="%s"' % kind in name]
            self.assertEqual(sum(series), value, kind)

    def test_users_are_told_what_their_answers_came_to(self):
        ann = [self.ask(ANN, "--ids", ids(64, 0), "--max-tokens", str(4 + i)) for i in range(3)]
        bob = [self.ask(BOB, "--no-store", "--ids", ids(50, 0), "--max-tokens", "6") for _ in range(2)]
        refused = self.daemon.ctl_as(BOB, "run", "--nice=-1", "--ids", ids(5, 0))
        self.assertEqual(refused.returncode, 1)
        for uid, answers in ((ANN, ann), (BOB, bob)):
            own = self.top(uid)
            self.assertEqual([user["uid"] for user in own["users"]], [uid], "nobody sees another's")
            self.assertNotIn("total", own)
            figures = own["users"][0]["figures"]
            usage = summed(answer["usage"] for answer in answers)
            stops = sum(answer["finish_reason"] == "stop" for answer in answers)
            self.assertEqual(figures["tokens"]["prompt"], usage["prompt_tokens"])
            self.assertEqual(figures["tokens"]["cached"], usage["cached_tokens"])
            self.assertEqual(figures["tokens"]["computed"], usage["computed_tokens"])
            self.assertEqual(figures["tokens"]["generated"], usage["completion_tokens"] + stops)
            self.assertEqual(figures["requests"]["finished"], len(answers))
            self.assertEqual(figures["ttft"]["count"], len(answers))
            self.assertEqual(figures["itl"]["count"], usage["completion_tokens"] - len(answers))
            self.assertEqual(figures["hits"], sum(answer["usage"]["cached_tokens"] > 0 for answer in answers))
        self.assertEqual(self.figures(ANN)["hits"], 2)
        self.assertEqual(self.figures(BOB)["hits"], 0)
        self.assertEqual(self.figures(BOB)["requests"]["refused"], 1)
        self.check_sums()

    def test_who_waits_is_told_so_by_all_who_tell(self):
        before = self.pressure("compute", "some")["total_us"]
        # Two of one user, of which one runs at a time.
        first = self.daemon.start_ctl("run", "--json", "--ids", ids(40, 7), "--max-tokens", "4000", *harness.ENDLESS)
        harness.wait_until(lambda: self.daemon.call("Vmstat")["parameters"]["running"] == 1, "the first runs")
        second = self.daemon.start_ctl("run", "--json", "--ids", ids(30, 9), "--max-tokens", "5")
        harness.wait_until(lambda: self.daemon.call("Vmstat")["parameters"]["waiting"] == 1, "the second waits")
        harness.wait_until(lambda: self.pressure("compute", "some")["total_us"] > before, "time passes")
        top = self.top()
        sessions = [session for session in top["sessions"] if session["figures"]["sequences"] > 0]
        self.assertEqual({session["pid"] for session in sessions}, {first.pid, second.pid})
        runs = next(session for session in sessions if session["pid"] == first.pid)["figures"]
        self.assertGreater(runs["pages"], 0)
        self.assertGreaterEqual(runs["pages_max"], runs["pages"])
        self.check_sums_over_users(top)
        shown = self.daemon.ctl("top", "--once").stdout.decode()
        self.assertRegex(shown, r"(?m)^compute some avg10=[\d.]+ avg60=[\d.]+ avg300=[\d.]+ total=\d+$")
        self.assertIn(" %d " % first.pid, shown)
        lines = self.daemon.ctl("vmstat", "--count", "1", "--interval", "0.1").stdout.decode().splitlines()
        self.assertEqual(lines[0].split()[:2], ["run", "wait"])
        self.assertEqual(lines[1].split()[:2], ["1", "1"])
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=harness.PATIENCE_S)
        answer, _ = second.communicate(timeout=harness.PATIENCE_S)
        usage = json.loads(answer)["usage"]
        self.assertGreater(usage["queue_ms"], 0)
        self.assertEqual(usage["preemptions"], 0)
        self.assertEqual(usage["computed_tokens"], 30 + 5 - 1)
        self.daemon.wait_idle()
        figures = self.figures(os.geteuid())
        self.assertEqual(figures["requests"]["cancelled"], 1)
        self.assertGreaterEqual(figures["wait"]["max_ms"], usage["queue_ms"])
        self.check_sums()


if __name__ == "__main__":
    harness.main()
