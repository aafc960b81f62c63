"""What the checks in the container use: the service manager, its journal, and the users of the machine."""

import json
import os
import pwd
import re
import select
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = "/etc/inferd/inferd.toml"
DROP_INS = "/run/systemd/system/inferd.service.d"
SOCKETS = ["inferd.socket", "inferd-control.socket"]
MEMBER = "inferd-member"  # in the group that may use the models
STRANGER = "inferd-stranger"
PATIENCE_S = 60  # ends a wait that would hang; nothing is measured by it


def run(*command, **options):
    """Runs a command to its end; its output is text."""
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": PATIENCE_S, **options}
    return subprocess.run(command, **options)


def must(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        raise AssertionError("%s: exit code %d\n%s%s" % (command, done.returncode, done.stdout, done.stderr))
    return done.stdout


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("still not true after %d s: %s\n%s" % (PATIENCE_S, what, must("journalctl", "-n40")))
        time.sleep(0.02)


def install_as_the_manual_says():
    """Runs the commands that inferd(8) gives for after `cmake --install`, as root."""
    with open(os.path.join(HERE, "inferd.8")) as file:
        manual = file.read()
    block = manual.split(".SH AS A SYSTEM SERVICE")[1].split(".nf\n")[1].split(".fi\n")[0]
    commands = [line.replace("\\-", "-") for line in block.splitlines() if line.startswith("sudo ")]
    assert len(commands) >= 6, commands
    for user in (MEMBER, STRANGER):
        must("useradd", "--create-home", "--shell", "/bin/bash", user)
    for command in commands:
        if "cmake --install" in command:
            continue  # service_test.py did that
        must("sh", "-c", command[len("sudo "):].replace("USER", MEMBER), cwd=HERE)


# ---- users ----


def as_user(user):
    """Options of subprocess with which a command runs as that user, with all their groups."""
    entry = pwd.getpwnam(user)
    environment = {"PATH": os.environ["PATH"], "HOME": entry.pw_dir, "USER": user, "LANG": "C.UTF-8"}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "cwd": entry.pw_dir, "env": environment,
            "extra_groups": os.getgrouplist(user, entry.pw_gid)}


def ctl(*arguments, user=MEMBER):
    return run("inferctl", *arguments, **as_user(user))


def answer(*arguments, user=MEMBER):
    return json.loads(must("inferctl", "run", "--json", *arguments, **as_user(user)))


class RunningAnswer:
    """An answer that has begun to stream. Use as a context manager: it ends when the block does."""

    def __init__(self, *arguments, user=MEMBER):
        self.process = subprocess.Popen(["inferctl", "run", *arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **as_user(user))
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        self.first = os.read(self.process.stdout.fileno(), 1) if ready else b""
        if not self.first:
            self.process.kill()
            raise AssertionError("no answer: " + self.process.communicate()[1].decode())

    def end(self):
        """Waits for its end. Returns exit code, text and complaint."""
        rest, complaint = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, (self.first + rest).decode(), complaint.decode()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.communicate(timeout=PATIENCE_S)


# ---- the service ----


def unit(*properties, name="inferd.service"):
    """Properties of a unit as a dictionary of texts."""
    text = must("systemctl", "show", name, "--property=" + ",".join(properties))
    return dict(line.split("=", 1) for line in text.splitlines())


def main_pid():
    return int(unit("MainPID")["MainPID"])


def state():
    properties = unit("ActiveState", "SubState")
    return properties["ActiveState"] + "/" + properties["SubState"]


def serving():
    return state() == "active/running"


def configure(text):
    with open(CONFIG, "w") as file:
        file.write(text)


def drop_in(text):
    """Changes the unit until the next fresh_start()."""
    os.makedirs(DROP_INS, exist_ok=True)
    with open(DROP_INS + "/check.conf", "w") as file:
        file.write("[Service]\n" + text)
    must("systemctl", "daemon-reload")


def fresh_start(config):
    """Stops the service and leaves only its sockets, as after a boot."""
    must("systemctl", "stop", "inferd.service", *SOCKETS)
    if os.path.exists(DROP_INS):
        must("rm", "-r", DROP_INS)
        must("systemctl", "daemon-reload")
    run("systemctl", "reset-failed", "inferd.service", *SOCKETS)
    configure(config)
    must("systemctl", "start", *SOCKETS)


# ---- the journal ----


class Journal:
    """Messages of inferd.service since this object was made."""

    def __init__(self):
        must("journalctl", "--sync")
        shown = must("journalctl", "-n", "0", "--show-cursor")
        self.cursor = re.search(r"-- cursor: (.*)", shown).group(1)

    def entries(self, *matches):
        must("journalctl", "--sync")
        text = must("journalctl", "-o", "json", "--after-cursor", self.cursor, "-u", "inferd.service", *matches)
        return [json.loads(line) for line in text.splitlines()]

    def messages(self):
        return [entry["MESSAGE"] for entry in self.entries()]

    def wait_for(self, part):
        """The first message that contains `part`."""
        return wait_until(lambda: next((m for m in self.messages() if part in m), None), "the journal has: " + part)
