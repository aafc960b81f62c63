import inferd

connection = inferd.connect()
answer = connection.run(messages="Tell me about the moon.", max_tokens=60)
while answer is not None:
    try:
        for chunk in answer:
            print(chunk.text, end="", flush=True)
        answer = None
    except inferd.Unavailable:  # the daemon was stopped, restarted or killed
        again = connection.reconnect(timeout=60)
        answer = again.resume(answer)
        connection.close()
        connection = again
print()
connection.close()
