"""The checks that service_test.py runs inside its container, where this is the only service but inferd."""

import json
import os
import re
import signal
import stat
import time
import unittest

import guest
from guest import MEMBER, SOCKETS, STRANGER, RunningAnswer, answer, ctl, must, run, state, unit, wait_until

CONFIG = """[daemon]
access = "group"
[[model]]
path = "/var/lib/inferd/model.gguf"
"""
SHORT = ["--raw", "--max-tokens", "40", "--", "1, 2, 3, 4, 5,"]
# These two tokens would end the answer.
ENDLESS = ["--raw", "--logit-bias", "2=-inf", "--logit-bias", "0=-inf", "--", "1, 2, 3, 4, 5,"]
NO_DAEMON = 3  # exit code of inferctl
EXPOSURE_MAX = 6  # in tenths


def setUpModule():
    guest.install_as_the_manual_says()


class Service(unittest.TestCase):
    """Each check begins with the two sockets listening and the daemon not running."""

    def setUp(self):
        began = time.monotonic()
        self.addCleanup(lambda: print("%.1f s " % (time.monotonic() - began), end=""))
        guest.fresh_start(CONFIG)
        self.journal = guest.Journal()

    def kill(self, which):
        os.kill(guest.main_pid(), which)

    def restarts(self):
        return int(unit("NRestarts")["NRestarts"])

    # ---- start ----

    def test_the_first_client_starts_the_service_through_its_socket(self):
        self.assertEqual(state(), "inactive/dead")
        said = answer(*SHORT)
        self.assertEqual(said["text"][:6], " 6, 7,")
        self.assertEqual(state(), "active/running")

    def test_the_first_look_at_its_status_starts_it_too(self):
        done = ctl("status", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(state(), "active/running")

    def test_readiness_and_status_reach_the_manager(self):
        must("systemctl", "start", "inferd")  # returns when the daemon is ready
        self.assertEqual(state(), "active/running")
        status = unit("StatusText", "Type", "NotifyAccess")
        self.assertRegex(status["StatusText"], "^Serving ")
        self.assertEqual(ctl("list").returncode, 0)

    # ---- who may ----

    def test_the_sockets_are_for_the_group(self):
        import grp
        group = grp.getgrnam("inferd").gr_gid
        for name in ("inferd.sock", "control.sock"):
            status = os.stat("/run/inferd/" + name)
            self.assertEqual(stat.S_IMODE(status.st_mode), 0o660)
            self.assertEqual(status.st_gid, group)

    def test_a_user_outside_of_the_group_is_told_how_to_join(self):
        for command in (["run", "hello"], ["status"], ["chat"]):
            done = ctl(*command, user=STRANGER)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("/run/inferd/", done.stderr)
            self.assertIn("group", done.stderr)
            self.assertIn("usermod -aG inferd", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(state(), "inactive/dead")

    def test_a_member_sees_their_own_work_and_administers_nothing(self):
        with RunningAnswer(*ENDLESS, user="root"):
            self.assertEqual(json.loads(ctl("ps", "--json").stdout)["sequences"], [])
            self.assertEqual(len(json.loads(ctl("ps", "--json", user="root").stdout)["sequences"]), 1)
        for command in (["reload"], ["drain"], ["log-level", "debug"], ["verify"], ["metrics"]):
            done = ctl(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("root", done.stderr)

    # ---- the journal ----

    def test_messages_have_fields_and_no_prompts(self):
        must("systemctl", "start", "inferd")
        must("inferctl", "log-level", "debug")
        answer("--raw", "--max-tokens", "3", "--", "The walrus and the carpenter")
        uid = must("id", "-u", MEMBER).strip()
        entries = wait_until(lambda: self.journal.entries("INFERD_CLIENT_UID=" + uid), "a message about the client")
        for entry in entries:
            self.assertEqual(entry["SYSLOG_IDENTIFIER"], "inferd")
            self.assertEqual(entry["PRIORITY"], "7")
            self.assertRegex(entry["INFERD_SESSION"], "^[0-9]+$")
            self.assertRegex(entry["INFERD_CLIENT_PID"], "^[0-9]+$")
        pool = [e for e in self.journal.entries() if "INFERD_POOL_PAGES" in e]
        self.assertEqual([e["PRIORITY"] for e in pool], ["6"])
        self.assertNotIn("walrus", must("journalctl", "-o", "verbose", "-u", "inferd"))

    # ---- change ----

    def test_reload_applies_what_it_can_and_names_what_needs_a_restart(self):
        must("systemctl", "start", "inferd")
        pid = guest.main_pid()
        guest.configure(CONFIG + '[limits]\nconnections = 7\n[scheduler]\nqueue = 9\n')
        must("systemctl", "reload", "inferd")
        self.journal.wait_for("limits.connections changes from 1024 to 7")
        self.journal.wait_for("scheduler.queue stays 1024; 9 needs a restart")
        wait_until(guest.serving, "the daemon serves after the reload")
        self.assertEqual(guest.main_pid(), pid)
        self.assertEqual(len(answer(*SHORT)["ids"]), 40)

    def test_a_reload_with_a_mistake_changes_nothing(self):
        must("systemctl", "start", "inferd")
        pid = guest.main_pid()
        guest.configure(CONFIG + '[limits]\nconnections = "few"\n')
        must("systemctl", "reload", "inferd")
        self.journal.wait_for(guest.CONFIG + ":6:15: limits.connections: expected an integer")
        wait_until(guest.serving, "the daemon serves after the reload")
        self.assertEqual(guest.main_pid(), pid)
        self.assertEqual(len(answer(*SHORT)["ids"]), 40)

    def test_a_restart_finds_what_was_cached(self):
        guest.configure(CONFIG + '[memory]\ndisk = "100 MiB"\n')
        prompt = ["--raw", "--max-tokens", "5", "--", " ".join("%d," % i for i in range(40))]
        must("systemctl", "start", "inferd")
        first = answer(*prompt)
        self.assertEqual(first["usage"]["cached_tokens"], 0)
        must("systemctl", "restart", "inferd")
        again = answer(*prompt)
        self.assertEqual(again["ids"], first["ids"])
        self.assertGreaterEqual(again["usage"]["cached_tokens"], again["usage"]["prompt_tokens"] - 16)
        for path, mode in (("/var/cache/inferd", 0o700), ("/var/cache/inferd/pages", 0o600)):
            status = os.stat(path)
            self.assertEqual(stat.S_IMODE(status.st_mode), mode)
            self.assertEqual(str(status.st_uid), must("id", "-u", "inferd").strip())
        # Without the key nothing is left there.
        guest.configure(CONFIG)
        must("systemctl", "restart", "inferd")
        self.assertEqual(os.listdir("/var/cache/inferd"), [])

    # ---- faults ----

    def test_a_daemon_that_hangs_is_restarted_by_the_watchdog(self):
        guest.drop_in("WatchdogSec=2\n")
        must("systemctl", "start", "inferd")
        self.kill(signal.SIGSTOP)
        wait_until(lambda: self.restarts() == 1 and guest.serving(), "the watchdog has restarted the daemon")
        self.assertEqual(len(answer(*SHORT)["ids"]), 40)
        self.assertIn("watchdog", must("journalctl", "-u", "inferd", "--after-cursor", self.journal.cursor).lower())

    def test_an_idle_and_a_busy_daemon_feed_the_watchdog(self):
        guest.drop_in("WatchdogSec=4\n")
        must("systemctl", "start", "inferd")
        pid = guest.main_pid()
        with RunningAnswer(*ENDLESS):
            self.sees_the_watchdog_fed()
        self.sees_the_watchdog_fed()
        self.assertEqual((guest.main_pid(), self.restarts()), (pid, 0))

    def sees_the_watchdog_fed(self):
        def fed():
            return unit("WatchdogTimestampMonotonic")["WatchdogTimestampMonotonic"]

        for _ in range(2):
            before = fed()
            wait_until(lambda: fed() != before, "the watchdog is fed")

    def test_a_killed_daemon_is_a_sentence_to_its_client_and_the_next_one_serves(self):
        with RunningAnswer(*ENDLESS) as running:
            self.kill(signal.SIGKILL)
            code, _, complaint = running.end()
        self.assertEqual(code, NO_DAEMON, complaint)
        self.assertIn("inferctl: ", complaint)
        # The sockets stay open meanwhile: who asks now waits for the next daemon instead of failing.
        self.assertEqual(len(answer(*SHORT)["ids"]), 40)
        self.assertEqual(self.restarts(), 1)

    # ---- stop ----

    def test_stop_lets_a_running_answer_end(self):
        whole = ctl("run", *SHORT).stdout
        with RunningAnswer(*SHORT) as running:
            must("systemctl", "stop", "inferd")
            code, text, complaint = running.end()
        self.assertEqual(code, 0, complaint)
        self.assertEqual(text, whole)
        self.assertEqual(state(), "inactive/dead")
        self.assertEqual(unit("Result", "ExecMainStatus"), {"Result": "success", "ExecMainStatus": "0"})

    def test_what_outlasts_drain_timeout_is_ended_with_a_status(self):
        # The manager's own patience is shorter: the daemon asks it for more.
        guest.drop_in("TimeoutStopSec=1\n")
        guest.configure(CONFIG.replace("[daemon]\n", '[daemon]\ndrain_timeout = "3 s"\n'))
        with RunningAnswer(*ENDLESS) as running:
            must("systemctl", "stop", "inferd")
            code, _, complaint = running.end()
        self.assertEqual(code, NO_DAEMON, complaint)
        self.assertIn("shutting down", complaint)
        self.assertEqual(unit("Result")["Result"], "success")

    # ---- what does not get better by itself ----

    def fails_once(self, code, part):
        done = run("systemctl", "start", "inferd")
        self.assertNotEqual(done.returncode, 0)
        self.journal.wait_for(part)
        self.assertEqual(state(), "failed/failed")
        self.assertEqual(unit("ExecMainStatus", "NRestarts"), {"ExecMainStatus": str(code), "NRestarts": "0"})
        self.assertIn("3", {e["PRIORITY"] for e in self.journal.entries() if part in e["MESSAGE"]})

    def test_a_wrong_configuration_is_not_retried(self):
        guest.configure(CONFIG.replace('"group"', '"friends"'))
        self.fails_once(78, guest.CONFIG + ':2:10: daemon.access: expected one of "user", "group", "all"')

    def test_a_missing_model_is_not_retried(self):
        guest.configure(CONFIG.replace("model.gguf", "no.gguf"))
        self.fails_once(66, "/var/lib/inferd/no.gguf")

    def test_a_damaged_model_is_not_retried(self):
        with open("/var/lib/inferd/model.gguf", "rb") as whole, open("/var/lib/inferd/cut.gguf", "wb") as cut:
            cut.write(whole.read(1 << 20))
        os.chmod("/var/lib/inferd/cut.gguf", 0o644)
        guest.configure(CONFIG.replace("model.gguf", "cut.gguf"))
        self.fails_once(65, "/var/lib/inferd/cut.gguf")

    def test_a_model_that_the_service_may_not_read_is_not_retried(self):
        must("install", "-m", "0600", "/dev/null", "/var/lib/inferd/secret.gguf")
        guest.configure(CONFIG.replace("model.gguf", "secret.gguf"))
        self.fails_once(77, "/var/lib/inferd/secret.gguf")

    def test_a_client_of_a_service_that_cannot_start_does_not_hang(self):
        guest.configure("[daemon]\nno_such_key = 1\n")
        done = ctl("run", "hello")
        self.assertEqual(done.returncode, NO_DAEMON, done.stderr)
        self.assertIn("see its log", done.stderr.splitlines()[-1])
        # Once the mistake is corrected, what inferd(8) says brings everything back.
        guest.configure(CONFIG)
        must("systemctl", "reset-failed", "inferd")
        must("systemctl", "restart", "inferd")
        self.assertEqual(len(answer(*SHORT)["ids"]), 40)

    # ---- confinement ----

    def test_the_process_is_confined(self):
        answer(*SHORT)
        pid = guest.main_pid()
        with open("/proc/%d/status" % pid) as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        self.assertEqual(status["Uid"].split()[0], must("id", "-u", "inferd").strip())
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        limits = must("cat", "/proc/%d/limits" % pid)
        self.assertRegex(limits, r"Max core file size +1 +1 ")
        # Engine, control, and the workers; weights and pages in memfds.
        self.assertGreaterEqual(len(os.listdir("/proc/%d/task" % pid)), 2)
        files = [os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)]
        self.assertTrue([f for f in files if f.startswith("/memfd:")], files)
        self.mounts_are_read_only(pid)

    def mounts_are_read_only(self, pid):
        with open("/proc/%d/mountinfo" % pid) as file:
            mounts = {line.split()[4]: line.split()[5].split(",") for line in file}
        # Its own /tmp, and what the container's host puts into /run/host, are no part of the machine.
        apart = re.compile("/(dev|proc|tmp|var/tmp|run/host)(/|$)")
        writable = [name for name, options in mounts.items() if "rw" in options and not apart.match(name)]
        self.assertEqual(sorted(writable), ["/run/inferd", "/var/cache/inferd"])

    def test_systemd_finds_nothing_wrong_with_the_units(self):
        done = run("systemd-analyze", "--man=no", "verify", "inferd.service", *SOCKETS)
        self.assertEqual(done.stdout + done.stderr, "")
        self.assertEqual(done.returncode, 0)

    def test_the_exposure_is_as_low_as_promised(self):
        done = run("systemd-analyze", "--no-pager", "security", "--threshold=%d" % EXPOSURE_MAX, "inferd.service")
        print(done.stdout.strip().splitlines()[-1])
        self.assertEqual(done.returncode, 0, done.stdout)


unittest.main(verbosity=2)
