"""Users share prefixes where the administrator opened a domain and they ask for it, and nowhere else."""

import json
import os
import unittest

import harness

ANN, BOB, CARL = 61001, 61002, 61003
DEVS = 61100
PROMPT = ",".join(str(3 + i * 13 % 300) for i in range(200))

CONFIG = """
[daemon]
access = "all"
[[cache_domain]]
name = "team"
users = [%d]
groups = [%d]
""" % (ANN, DEVS)


@unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
class CacheDomain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = cls.enterClassContext(harness.tiny_model())
        config = os.path.join(os.path.dirname(model), "inferd.toml")
        with open(config, "w") as file:
            file.write(CONFIG)
        cls.daemon = cls.enterClassContext(harness.Daemon("--config", config, model=model))

    def ask(self, uid, *options, prompt=PROMPT, groups=()):
        return self.daemon.ctl_as(uid, "run", "--json", "--ids", prompt, "--max-tokens", "4", *options, groups=groups)

    def answer(self, uid, *options, **more):
        done = self.ask(uid, *options, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        return answer["ids"], answer["usage"]["cached_tokens"]

    def test_two_users_share_only_in_a_domain_that_both_ask_for(self):
        ids, cached = self.answer(ANN)
        self.assertEqual(cached, 0)
        self.assertEqual(self.answer(ANN), (ids, 192), "one's own are found")
        self.assertEqual(self.answer(BOB), (ids, 0), "another user's are not")
        team = ("--cache-domain", "team")
        self.assertEqual(self.answer(ANN, *team), (ids, 0), "one's own are not in the common domain")
        self.assertEqual(self.answer(BOB, *team, groups=[DEVS]), (ids, 192))
        self.assertEqual(self.answer(CARL, groups=[DEVS]), (ids, 0), "who may ask and does not has no part in it")

    def test_what_is_asked_not_to_be_stored_is_not(self):
        prompt = PROMPT.replace("3,", "4,", 1)
        ids, cached = self.answer(ANN, "--no-store", prompt=prompt)
        self.assertEqual((ids, cached), self.answer(ANN, "--no-store", prompt=prompt))
        self.assertEqual((ids, 0), self.answer(ANN, prompt=prompt))
        self.assertEqual((ids, 0), self.answer(ANN, "--no-store", prompt=prompt))
        self.assertEqual((ids, 192), self.answer(ANN, prompt=prompt))

    def test_who_may_not_use_a_domain_hears_so(self):
        for uid, domain, part in ((CARL, "team", "may not use the cache domain 'team'"), (ANN, "tema", "no cache domain 'tema'")):
            refused = self.ask(uid, "--cache-domain", domain)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(part, refused.stderr.decode())


class Configuration(unittest.TestCase):
    def test_a_domain_of_unknown_users_is_no_domain(self):
        with harness.tiny_model() as model:
            config = os.path.join(os.path.dirname(model), "inferd.toml")
            with open(config, "w") as file:
                file.write('[[cache_domain]]\nname = "team"\nusers = ["no-such-user-here"]\n')
            with self.assertRaisesRegex(AssertionError, "names the user 'no-such-user-here'"):
                harness.Daemon("--config", config, model=model)


if __name__ == "__main__":
    harness.main()
