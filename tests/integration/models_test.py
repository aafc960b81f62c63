"""Programs find out which models there are, and are told when they ask for another one."""

import re
import unittest

import harness
import versions_test

inferd = harness.python_package()

MODELS = 1 << 9


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = cls.enterClassContext(harness.tiny_model())
        cls.daemon = cls.enterClassContext(harness.Daemon(model=model))

    def test_the_list_has_the_models_with_their_properties(self):
        name, = self.daemon.status()["models"]
        with inferd.connect(self.daemon.socket) as connection:
            self.assertEqual(connection.models, (connection.model,))
            model, = connection.models
            self.assertEqual((model.name, model.architecture, model.in_use), (name, "llama", True))
            self.assertEqual((model.vocabulary, model.context_tokens), (384, 4096))
            self.assertGreater(model.parameters, 10000)
        # What is listed can be asked for.
        with inferd.connect(self.daemon.socket, model=model.name) as connection:
            self.assertEqual(connection.model, model)

    def test_who_asks_for_another_is_told_which_there_are(self):
        name = self.daemon.status()["models"][0]
        with self.assertRaisesRegex(inferd.NotFound, "no model .none-such.; it serves .%s." % re.escape(name)):
            inferd.connect(self.daemon.socket, model="none-such")

    def test_of_an_older_daemon_it_has_the_connections_model(self):
        def older(hello):
            hello.put("Q", 16, hello.field("Q", 16) & ~MODELS)
        with inferd.connect(self.daemon.socket) as connection:
            listed = connection.models
        with versions_test.GoBetween(self.daemon, hello=older) as between:
            with inferd.connect(between.path) as connection:
                self.assertEqual(connection.models, listed)
            welcome = versions_test.Message(between.heard["welcome"])
            self.assertEqual(welcome.field("I", 90), 0)


if __name__ == "__main__":
    harness.main()
