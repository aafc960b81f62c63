import inferd

messages = []
with inferd.connect() as connection:
    for question in ("Name a river in Europe. Answer with one word.", "Which sea does it flow into?"):
        messages.append({"role": "user", "content": question})
        answer = connection.run(messages=messages, max_tokens=40)
        for chunk in answer:
            print(chunk.text, end="", flush=True)
        print()
        messages.append({"role": "assistant", "content": answer.text_so_far})
        print("cached: %d of %d prompt tokens" % (answer.usage.cached_tokens, answer.usage.prompt_tokens))
