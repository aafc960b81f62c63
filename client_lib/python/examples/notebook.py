# %% [markdown]
# A tour of inferd from Python. Each cell can be run for itself in an editor or a notebook, or all of it as a
# program. It needs a running daemon: `inferd --model FILE.gguf`, or that of the machine.

# %% Connect
import asyncio
import math

import inferd

connection = inferd.connect(client_name="notebook")
model = connection.model
print("%s: %d million parameters, %s, %d tokens of context" %
      (model.name, model.parameters // 10**6, model.quantization, model.context_tokens))

# %% Ask, and print the answer as it comes
answer = connection.run(messages="What is the capital of Italy? Answer with one word.", max_tokens=40)
for chunk in answer:
    print(chunk.text, end="", flush=True)
print("\n%d prompt tokens, %d generated, ended by: %s" %
      (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.finish_reason))

# %% Continue a text instead, and look at the odds of each token
story = connection.run("Once upon a time", max_tokens=6, logprobs=3)
for chunk in story:
    for token, logprob, others in zip(chunk.ids, chunk.logprobs or (), chunk.top or ()):
        print("%-10r %5.1f %%   of %s" % (connection.detokenize([token]), 100 * math.exp(logprob),
                                          ", ".join(repr(connection.detokenize([other.id])) for other in others)))

# %% Several samples of one prompt, which is computed once
samples = [connection.run("My favourite colour is", temperature=0.8, seed=7, max_tokens=8)]
samples += [samples[0].fork() for _ in range(2)]
for number, sample in enumerate(samples, 1):
    print("%d: %r" % (number, sample.text()))


# %% Several questions at once, in an event loop (in a notebook: `await ask_all()`)
async def ask_all() -> list[str]:
    questions = ["The largest ocean is", "1, 2, 3,", "The opposite of hot is"]
    waiting = [connection.run(question, max_tokens=6, priority="batch").text_async() for question in questions]
    return [question + text for question, text in zip(questions, await asyncio.gather(*waiting))]


for line in asyncio.run(ask_all()):
    print(repr(line))

# %% What cannot work says why
try:
    connection.run("too hot", temperature=1000)
except inferd.InvalidArgument as error:
    print("%s: %s" % (error.code.name, error))

# %% Done
connection.close()
