"""inferd as a service of the machine, under a real systemd.

Boots systemd in a container (systemd-nspawn) over an overlay of the running root, with this build
installed into it, and runs checks_in_container.py there. Nothing of it outlives the test: the overlay
lies in memory, in a mount namespace of its own. Exit code 77 says that no container can boot here.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("INFERD_BUILD_DIR", "")
SHARED = "/inferd-checks"  # a folder that the container and this script both see
SKIPPED = 77
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Ends a container that hangs; nothing is measured by it.
PATIENCE_S = 540

# The manager that boots ends as soon as the checks have, with their exit code.
CHECKS_UNIT = f"""[Unit]
Requires=basic.target dbus.socket
After=basic.target dbus.socket
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ExecStart=/usr/bin/python3 {SHARED}/checks_in_container.py
StandardOutput=file:{SHARED}/output
StandardError=inherit
"""


def skip(reason):
    print("SKIPPED: a systemd of its own cannot be booted here: " + reason)
    sys.exit(SKIPPED)


def own_mounts():
    """Runs this script again in a mount namespace of its own."""
    if os.geteuid() != 0:
        skip("only root may boot a container")
    if not shutil.which("systemd-nspawn"):
        skip("there is no systemd-nspawn (Debian package systemd-container)")
    command = ["unshare", "--mount", "--propagation", "private"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        skip("this process may not mount anything: " + tried.stderr.strip())
    os.environ["INFERD_OWN_MOUNTS"] = "1"
    os.execvp("unshare", [*command, sys.executable, os.path.abspath(__file__)])


def mount(*arguments):
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        skip("mount %s: %s" % (" ".join(arguments), done.stderr.strip()))


def mount_overlay(folder):
    """A writable copy of the running root, whose changes lie in memory."""
    mount("-t", "tmpfs", "-o", "mode=0755,size=1g", "inferd-checks", folder)
    for name in ("changes", "work", "root", "shared"):
        os.mkdir(os.path.join(folder, name))
    mount("-t", "overlay", "-o",
          "lowerdir=/,upperdir={0}/changes,workdir={0}/work".format(folder), "overlay", folder + "/root")
    return folder + "/root", folder + "/shared"


def without_this_machines_services(root):
    """Leaves the units that packages installed, but not what this machine enables and mounts."""
    for name in ("etc/systemd/system", "etc/systemd/network"):
        shutil.rmtree(os.path.join(root, name), ignore_errors=True)
        os.makedirs(os.path.join(root, name))
    for name in ("etc/fstab", "etc/crypttab"):
        open(os.path.join(root, name), "w").close()


def install(root, shared):
    done = subprocess.run(["cmake", "--install", BUILD], env=dict(os.environ, DESTDIR=root),
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("cmake --install failed:\n" + done.stdout + done.stderr)
    for name in ("checks_in_container.py", "guest.py"):
        shutil.copy(os.path.join(HERE, name), shared)
    shutil.copy(os.path.join(SOURCE, "docs/man/inferd.8"), shared)
    with open(os.path.join(root, "etc/systemd/system/inferd-checks.service"), "w") as file:
        file.write(CHECKS_UNIT)


def sample_model():
    path = os.environ.get("INFERD_TEST_MODEL")
    if not path:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        path = os.path.join(cache, "inferd/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.exists(path):
        sys.exit("There is no sample model at " + path + "; run tools/fetch_model.sh, or set INFERD_TEST_MODEL.")
    return path


class ControlGroups:
    """A control group of the container's own in each hierarchy that systemd uses, so that several
    containers (and this machine's own systemd) do not meet."""

    def __init__(self):
        name = "inferd-checks-%d" % os.getpid()
        tops = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        self.groups = [os.path.join(top, name) for top in tops if os.path.exists(top + "/cgroup.procs")]
        for group in self.groups:
            try:
                os.mkdir(group)
            except OSError as error:
                skip("no control group can be made: %s" % error)

    def enter(self):
        """Moves the calling process, which ends if its parent does, into them."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for group in self.groups:
            with open(group + "/cgroup.procs", "w") as file:
                file.write("0")

    def remove(self):
        for group in self.groups:
            for folder, _, _ in os.walk(group, topdown=False):
                self.remove_one(folder)

    def remove_one(self, folder):
        for _ in range(100):
            try:
                os.rmdir(folder)
                return
            except OSError:
                time.sleep(0.02)  # a process in it is still ending


def boot(root, shared):
    """Boots until the checks have ended. Returns the exit code and the console's text."""
    groups = ControlGroups()
    command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network",
               "--console=pipe", "--link-journal=no", "--directory=" + root,
               "--machine=inferd-checks-%d" % os.getpid(), "--bind=%s:%s" % (shared, SHARED),
               "--bind-ro=%s:%s/model.gguf" % (sample_model(), SHARED),
               "systemd.unit=inferd-checks.service", "systemd.show_status=no"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, preexec_fn=groups.enter)
    try:
        console, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, console.decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        console, _ = process.communicate()
        return None, console.decode(errors="replace")
    finally:
        groups.remove()


def main():
    if not os.path.exists(os.path.join(BUILD, "cmake_install.cmake")):
        sys.exit("There is no build in INFERD_BUILD_DIR='" + BUILD + "'; run the tests by ctest.")
    if "INFERD_OWN_MOUNTS" not in os.environ:
        own_mounts()
    folder = tempfile.mkdtemp(prefix="inferd-checks-")
    try:
        root, shared = mount_overlay(folder)
        without_this_machines_services(root)
        install(root, shared)
        code, console = boot(root, shared)
        output_path = os.path.join(shared, "output")
        if not os.path.exists(output_path):
            print(console)
            skip("the container ended before it could run anything; the lines above are its console's")
        with open(output_path, errors="replace") as file:
            sys.stdout.write(file.read())
        if code is None:
            print(console)
            print("The container still ran after %d s and was ended." % PATIENCE_S)
        sys.exit(1 if code is None else code)
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", folder], capture_output=True)
        os.rmdir(folder)


main()
