"""The client library as it is installed: found by CMake and by pkg-config, from C and C++, and run."""

import os
import re
import subprocess

import examples_test
import harness

NAMES = ("example-one-shot", "example-many", "example-chat", "example-samples", "example-side-by-side")
EXAMPLES = os.path.join(harness.SOURCE, "client_lib/examples")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=harness.PATIENCE_S, **options)
    if done.returncode != 0:
        raise AssertionError("%s: %s%s" % (" ".join(command), done.stdout, done.stderr))
    return done.stdout


class InstalledPackage(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        build = os.path.dirname(harness.BIN.rstrip("/"))
        cls.folder = os.path.join(cls.daemon.folder, "installed")
        first = os.path.join(cls.daemon.folder, "first")
        run("cmake", "--install", build, "--prefix", first, "--component", "client")
        # Moved: nothing in the package may depend on where it was put at first.
        os.rename(first, cls.folder)
        found = [root for root, _, names in os.walk(cls.folder) if "libinferd.so" in names]
        assert len(found) == 1, found
        cls.library_dir = found[0]
        cls.environment = dict(cls.daemon.environment(), LD_LIBRARY_PATH=cls.library_dir,
                               PKG_CONFIG_PATH=os.path.join(cls.library_dir, "pkgconfig"))

    def check(self, binary):
        """The examples as `binary` finds them work, with the library of the package."""
        for name in NAMES:
            self.assertIn("libinferd.so.0", self.needed(binary(name)))
            loaded = run("ldd", binary(name), env=self.environment)
            self.assertIn("libinferd.so.0 => " + self.library_dir, loaded)
        examples_test.run_examples(self, Environment(self.daemon, self.environment), binary)

    def needed(self, path):
        return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", path))

    def test_what_is_installed(self):
        names = sorted(os.path.relpath(os.path.join(root, name), self.folder)
                       for root, _, files in os.walk(self.folder) for name in files)
        library = os.path.relpath(self.library_dir, self.folder)
        with open(os.path.join(harness.SOURCE, "CMakeLists.txt")) as file:
            version = re.search(r"project\(inferd VERSION ([0-9.]+)", file.read())[1]
        config = [name for name in names if name.startswith(library + "/cmake/inferd/inferd-targets-")]
        self.assertEqual(len(config), 1)
        self.assertEqual(names, sorted(config + [
            "include/inferd/asio.hpp", "include/inferd/coroutine.hpp", "include/inferd/inferd.h",
            "include/inferd/inferd.hpp", "include/inferd/request.hpp", "include/inferd/result.hpp",
            "include/inferd/sequence.hpp",
            library + "/cmake/inferd/inferd-config.cmake", library + "/cmake/inferd/inferd-config-version.cmake",
            library + "/cmake/inferd/inferd-targets.cmake", library + "/pkgconfig/inferd.pc",
            library + "/libinferd.so", library + "/libinferd.so.0", library + "/libinferd.so." + version]))
        dynamic = run("readelf", "--dynamic", os.path.join(self.library_dir, "libinferd.so"))
        self.assertIn("Library soname: [libinferd.so.0]", dynamic)
        self.assertEqual(os.readlink(os.path.join(self.library_dir, "libinferd.so.0")), "libinferd.so." + version)
        self.assertEqual(run("pkg-config", "--modversion", "inferd", env=self.environment).strip(), version)
        # It needs nothing that a program would not have or Debian not bring.
        self.assertFalse([name for name in self.needed(os.path.join(self.library_dir, "libinferd.so"))
                          if name.startswith("libinferd")])

    def test_found_by_cmake(self):
        build = os.path.join(self.daemon.folder, "cmake-consumer")
        run("cmake", "-S", EXAMPLES, "-B", build, "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + self.folder,
            "-DCMAKE_C_FLAGS=-Werror", "-DCMAKE_CXX_FLAGS=-Werror")
        run("cmake", "--build", build, "--target", *NAMES, "guide-first-answer")
        self.check(lambda name: os.path.join(build, name))

    def test_found_by_pkg_config(self):
        build = os.path.join(self.daemon.folder, "pkg-config-consumer")
        os.mkdir(build)
        flags = run("pkg-config", "--cflags", "--libs", "inferd", env=self.environment).split()
        # The header is plain C11 and C++20, without a warning.
        warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        for source in ("one_shot.c", "many.c", "chat.cpp", "samples.cpp", "side_by_side.cpp"):
            compiler = ["c++", "-std=c++20"] if source.endswith(".cpp") else ["cc", "-std=c11"]
            name = "example-" + source.split(".")[0].replace("_", "-")
            run(*compiler, *warnings, os.path.join(EXAMPLES, source), "-o", os.path.join(build, name), *flags)
        self.check(lambda name: os.path.join(build, name))

    def test_a_program_of_another_interface_version_is_told_by_cmake(self):
        source = os.path.join(self.daemon.folder, "newer")
        os.mkdir(source)
        with open(os.path.join(source, "CMakeLists.txt"), "w") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(newer C)\nfind_package(inferd 99.0 REQUIRED)\n")
        done = subprocess.run(["cmake", "-S", source, "-B", os.path.join(source, "build"),
                               "-DCMAKE_PREFIX_PATH=" + self.folder], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("99.0", done.stderr)


class Environment:
    """The shared daemon, with an environment in which programs find the installed library."""

    def __init__(self, daemon, environment):
        self.daemon = daemon
        self.of_programs = environment

    def environment(self):
        return dict(self.of_programs)

    def answer(self, *arguments):
        return self.daemon.answer(*arguments)

    def ctl(self, *arguments, **options):
        return self.daemon.ctl(*arguments, **options)


harness.main()
