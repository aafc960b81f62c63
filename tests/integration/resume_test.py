"""Answers that a daemon's end interrupts go on in the next daemon, and come out as if nothing had happened."""

import signal
import tempfile
import unittest

import harness

inferd = harness.python_package()

QUESTION = "List the planets of the solar system, and say a word about each."
# So that scoring takes many of them.
SMALL_STEPS = ("--set", "scheduler.max_sequences=8")
STORY = "Once upon a time, in a village by the sea,"


def requests(connection):
    """Sequences of several kinds, each of which goes on for a while."""
    return [
        connection.run(messages=QUESTION, max_tokens=80),
        connection.run(STORY, temperature=0.9, seed=11, max_tokens=80, ignore_eos=True, logprobs=2),
        connection.run(STORY, temperature=0.8, seed=4, repetition_penalty=1.2, penalty_last_n=32, max_tokens=80,
                       ignore_eos=True, no_store=True),
        connection.run(STORY, max_tokens=80, ignore_eos=True, stop=["never to be found"], logit_bias={28: -2.0}),
        connection.score(STORY, " " + " ".join(["the waves came and went"] * 80)),
    ]


def told(sequence):
    return sequence.text_so_far, sequence.ids, sequence.finish_reason


class Resume(unittest.TestCase):
    def check(self, daemon, end, rounds):
        """Interrupts the answers `rounds` times by end(); what was told by all parts is the whole."""
        connection = inferd.connect(daemon.socket)
        whole = requests(connection)
        whole_logprobs = [[value for chunk in sequence for value in chunk.logprobs or ()] for sequence in whole]
        parts = [[sequence] for sequence in requests(connection)]
        logprobs = [[] for _ in whole]

        def read(index, chunk):
            logprobs[index].extend(chunk.logprobs or ())

        for round in range(rounds):
            for _ in range(3 + round):
                for index, part in enumerate(parts):
                    read(index, next(part[-1]))
            end()
            for index, sequence in enumerate(part[-1] for part in parts):
                with self.assertRaisesRegex(inferd.Unavailable, "shutting down|closed the connection"):
                    for chunk in sequence:
                        read(index, chunk)
            daemon.start()
            again = connection.reconnect()
            for part in parts:
                part.append(again.resume(part[-1]))
            connection.close()
            connection = again
        for index, part in enumerate(parts):
            for chunk in part[-1]:
                read(index, chunk)
            pieces = [told(sequence) for sequence in part]
            self.assertEqual("".join(piece[0] for piece in pieces), whole[index].text_so_far)
            self.assertEqual(sum((piece[1] for piece in pieces), ()), whole[index].ids)
            self.assertEqual(pieces[-1][2], whole[index].finish_reason)
        # To the last bit, as far as they were asked for.
        self.assertEqual(logprobs, whole_logprobs)
        self.assertEqual([len(values) > 0 for values in logprobs], [False, True, False, False, True])
        connection.close()

    def test_after_kill_9_again_and_again(self):
        with harness.Daemon(*SMALL_STEPS) as daemon:
            def kill():
                daemon.process.kill()
                daemon.process.wait()
            self.check(daemon, kill, 2)

    def test_after_an_orderly_restart_with_the_cache_on_disk(self):
        with tempfile.TemporaryDirectory() as disk, harness.Daemon(
                *SMALL_STEPS, "--set", "daemon.drain_timeout='0 s'", "--set", "memory.disk='64 MiB'", "--set",
                "memory.disk_path='%s'" % disk) as daemon:
            self.check(daemon, lambda: self.assertEqual(daemon.end(signal.SIGTERM), 0), 1)
            self.assertGreater(daemon.status()["tokens"]["cached"], 0)


if __name__ == "__main__":
    harness.main()
